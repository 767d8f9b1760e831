"""Tokens and keys, pure: which published keys may verify, what a token's header asks for, and whom the token names.

A token is a stranger's text until `read_person` returns. Nothing here asks anybody: keys, issuer, audience and time
are parameters.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from joserfc.jws import JWSRegistry

from frontdesk.identity.model import normal_email
from frontdesk.identity.oidc.model import OidcPerson, SigningKey, subject_of
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.limits import (
    EMAIL_CHARS_MAX,
    NAME_CHARS_MAX,
    OIDC_KEYS_MAX,
    OIDC_LEEWAY_SECONDS,
    OIDC_RSA_BITS_MAX,
    OIDC_RSA_BITS_MIN,
    OIDC_SUBJECT_CHARS_MAX,
)

# Everything else is refused by name: `none`, HMAC (whose key would be the issuer's public one), other curves.
ALGORITHMS: Final = ("RS256", "ES256")
_KEY_ID_CHARS_MAX: Final = 255
_HEADER_BYTES_MAX: Final = 4_096
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")


class _Registry(JWSRegistry):
    """As the library's, with room for the certificate thumbprints that issuers put into headers."""

    max_header_length = _HEADER_BYTES_MAX


# Unknown header names are other people's business; an unknown name in `crit` is still refused.
_REGISTRY: Final = _Registry(algorithms=ALGORITHMS, strict_check_header=False)


@dataclass(frozen=True, slots=True)
class Header:
    """What a token says of its own signature. Nobody has vouched for it yet."""

    algorithm: str
    kid: str | None


def read_keys(document: Mapping[str, Any]) -> tuple[SigningKey, ...]:
    """The keys of a JWKS that may verify tokens; others, malformed and weak ones are passed over. 100 are read."""
    listed = document.get("keys")
    if not isinstance(listed, list):
        return ()
    found = (_key(each) for each in listed[:OIDC_KEYS_MAX] if isinstance(each, dict))
    return tuple(key for key in found if key is not None)


def _key(given: dict[str, Any]) -> SigningKey | None:
    kid, operations = given.get("kid"), given.get("key_ops", ["verify"])
    algorithm = {"RSA": "RS256", "EC": "ES256"}.get(str(given.get("kty")))
    if algorithm is None or given.get("alg", algorithm) != algorithm or given.get("use", "sig") != "sig":
        return None
    if not isinstance(kid, str | None) or not isinstance(operations, list) or "verify" not in operations:
        return None
    try:
        return SigningKey(kid, algorithm, _imported(given))
    except Exception:  # noqa: BLE001 - whatever a library makes of an odd key: it verifies nothing
        return None


def _imported(given: dict[str, Any]) -> RSAKey | ECKey:
    """The public part alone. Raises for what is no key of use, the kind of exception depending on what is wrong."""
    if given["kty"] == "EC":
        if given["crv"] != "P-256":
            raise ValueError("ES256 is on P-256")
        return ECKey.import_key({"kty": "EC", "crv": "P-256", "x": given["x"], "y": given["y"]})
    bits = int.from_bytes(_decoded(given["n"]), "big").bit_length()
    if not OIDC_RSA_BITS_MIN <= bits <= OIDC_RSA_BITS_MAX:
        raise ValueError("an RSA key of another size")
    return RSAKey.import_key({"kty": "RSA", "n": given["n"], "e": given["e"]})


def read_header(text: str) -> Header:
    """The header of a compact token. Raises `unauthenticated` for another algorithm, or what is no token at all."""
    parts = text.split(".")
    try:
        header = json.loads(_decoded(parts[0])) if len(parts) == 3 and len(parts[0]) <= _HEADER_BYTES_MAX else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise Problem("unauthenticated")
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS or (
        kid is not None and not (isinstance(kid, str) and len(kid) <= _KEY_ID_CHARS_MAX)
    ):
        raise Problem("unauthenticated")
    return Header(str(algorithm), kid)


def matching(keys: Iterable[SigningKey], header: Header) -> tuple[SigningKey, ...]:
    """The keys that may verify a token with this header. Without a key id, the only key of its algorithm or none."""
    found = tuple(key for key in keys if key.algorithm == header.algorithm and header.kid in (None, key.kid))
    return found if header.kid is not None or len(found) == 1 else ()


def read_person(text: str, keys: Iterable[SigningKey], *, issuer: str, audience: str, now_s: int) -> OidcPerson:
    """Whom a token names, once signature, issuer, audience and times hold; `exp` and `nbf` with 60 s of leeway.

    Raises `unauthenticated` for everything else, without saying what was wrong. Does not prevent a replay within the
    token's life: a bearer token is whoever holds it.
    """
    claims = _claims(text, keys)
    expected = jwt.JWTClaimsRegistry(
        now=now_s,
        leeway=OIDC_LEEWAY_SECONDS,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": audience},
        exp={"essential": True},
        sub={"essential": True},
    )
    try:
        expected.validate(claims)
    except Exception:  # noqa: BLE001 - a claim of an odd type is a refused one
        raise Problem("unauthenticated") from None
    sub = claims["sub"]
    if not sub.isprintable() or len(sub) > OIDC_SUBJECT_CHARS_MAX:
        raise Problem("unauthenticated")
    email = _email(claims)
    nonce = claims.get("nonce")
    return OidcPerson(
        subject=subject_of(issuer, sub),
        display_name=_name(claims, email) or sub,
        email=email,
        nonce=nonce if isinstance(nonce, str) else None,
    )


def _claims(text: str, keys: Iterable[SigningKey]) -> dict[str, Any]:
    for key in keys:
        try:
            return jwt.decode(text, key.key, registry=_REGISTRY).claims
        except Exception:  # noqa: BLE001, S112 - whatever a stranger's bytes do to a parser, they prove nothing
            continue
    raise Problem("unauthenticated")


def _email(claims: Mapping[str, Any]) -> str:
    email = claims.get("email")
    if claims.get("email_verified") is not True or not isinstance(email, str) or not email.isprintable():
        return ""
    kept = normal_email(email)  # which can be longer: `İ` is two characters in lower case
    return kept if len(kept) <= EMAIL_CHARS_MAX and _EMAIL.fullmatch(kept) else ""


def _name(claims: Mapping[str, Any], email: str) -> str:
    for text in (claims.get("name"), claims.get("preferred_username"), email):
        if isinstance(text, str):
            shown = "".join(each for each in text if each.isprintable()).strip()[:NAME_CHARS_MAX]
            if shown:
                return shown
    return ""


def _decoded(text: str) -> bytes:
    """base64url without padding. Raises ValueError."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, TypeError) as error:
        raise ValueError("not base64url") from error
