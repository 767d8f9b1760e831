"""Passwords as scrypt texts that carry their own parameters. Pure and slow: surfaces call these on a worker thread.

Parameters: N=2^15, r=8, p=1 (32 MiB for each call), bounded by `maxmem`. Passwords are NFKC-normalised first
(NIST SP 800-63B 3.1.1.2), so that one typed on another keyboard or system compares equal.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import unicodedata
from typing import Final

from frontdesk.kernel.ids import Entropy
from frontdesk.kernel.limits import PASSWORD_CHARS_MAX

SCRYPT_N: Final = 1 << 15
SCRYPT_R: Final = 8
SCRYPT_P: Final = 1
MAXMEM_BYTES: Final = 64 * 1024 * 1024
SALT_BYTES: Final = 16
KEY_BYTES: Final = 32

_HEAD: Final = f"scrypt$n={SCRYPT_N},r={SCRYPT_R},p={SCRYPT_P}"

# What an unknown user's password is compared with, so that the answer takes as long. No password is known to match it.
DUMMY_HASH: Final = "scrypt$n=32768,r=8,p=1$mhrI9fYCTUZ0Ou3ICkXA1Q==$2oR8sHcmY3lOQ0eWq3k0b6l0c1B9Zp1m8u2n4v6x8zA="


def hash_password(password: str, entropy: Entropy) -> str:
    """The text to store: `scrypt$n=…,r=…,p=…$salt$key`. Takes about 0.1 s of one processor."""
    salt = entropy.token_bytes(SALT_BYTES)
    key = _derive(password, salt)
    return f"{_HEAD}${_text(salt)}${_text(key)}"


def verify_password(password: str, encoded: str | None) -> bool:
    """True where the password matches; always computes once, against a dummy where there is nothing to match.

    The compare is constant-time. A stored text that cannot be read matches nothing.
    """
    known = encoded is not None
    try:
        salt, key = _parse(encoded if encoded is not None else DUMMY_HASH)
    except (ValueError, binascii.Error):
        known = False
        salt, key = _parse(DUMMY_HASH)
    if len(password) > PASSWORD_CHARS_MAX:
        known, password = False, ""
    return hmac.compare_digest(_derive(password, salt), key) and known


def _derive(password: str, salt: bytes) -> bytes:
    text = unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P, maxmem=MAXMEM_BYTES, dklen=KEY_BYTES)


def _parse(encoded: str) -> tuple[bytes, bytes]:
    """Salt and key of a text with today's parameters, the only ones there are yet. Raises ValueError for another."""
    scheme, parameters, salt, key = encoded.split("$")
    decoded = base64.b64decode(salt, validate=True), base64.b64decode(key, validate=True)
    if f"{scheme}${parameters}" != _HEAD or len(decoded[1]) != KEY_BYTES:
        raise ValueError("not a password text of ours")
    return decoded


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
