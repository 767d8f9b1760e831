"""One-time secrets: random, shown once, kept as a digest, compared in constant time."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

from frontdesk.kernel.canonical import joined_digest
from frontdesk.kernel.ids import Entropy

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_token(prefix: str, entropy: Entropy) -> str:
    """`prefix` + 43 base64url characters (256 random bits)."""
    return prefix + base64.urlsafe_b64encode(entropy.token_bytes(32)).decode("ascii").rstrip("=")


def token_digest(token: str) -> str:
    """What a database keeps of a token: hex SHA-256. The token is random, so no salt or stretching is needed."""
    return hashlib.sha256(token.encode("utf-8")).hexdigest()


def derived_token(secret: str, purpose: str) -> str:
    """A second secret that whoever holds the first can make again, and that does not give the first away."""
    mac = hmac.new(secret.encode("utf-8"), purpose.encode("utf-8"), hashlib.sha256)
    return base64.urlsafe_b64encode(mac.digest()).decode("ascii").rstrip("=")


def new_claim(entropy: Entropy) -> str:
    """An artifact claim, `fdc_` + 32 base64url characters (192 random bits)."""
    return "fdc_" + base64.urlsafe_b64encode(entropy.token_bytes(24)).decode("ascii")


def claim_digest(claim: str) -> str:
    """Digest under which an artifact grant keeps its claim (check value V10)."""
    return joined_digest("artifact-claim-v1", claim)


def new_binding_code(entropy: Entropy) -> str:
    """A binding code, `fdb_` + 20 Crockford base-32 characters (100 random bits)."""
    value = int.from_bytes(entropy.token_bytes(13), "big")
    return "fdb_" + "".join(_CROCKFORD[(value >> (5 * place)) & 31] for place in range(20))


def binding_code_digest(code: str) -> str:
    """Digest of a binding code in any letter case: that of `fdb_` + upper case (check value V11)."""
    return joined_digest("binding-code-v1", "fdb_" + code[4:].upper())


def same_secret(given: str, expected: str) -> bool:
    """Constant-time comparison of two texts; an empty expectation never matches."""
    if not expected:
        return False
    return hmac.compare_digest(given.encode("utf-8"), expected.encode("utf-8"))
