"""Web hook signatures (check value V14): HMAC-SHA256 over `id.timestamp.body`, compared in constant time. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from frontdesk.desk.connections.channel import Credentials

PREFIX: Final = "whsec_"
VERSION: Final = "v1"
KEY_BYTES_MIN: Final = 24
KEY_BYTES_MAX: Final = 64


def key_of(secret: str | None) -> bytes | None:
    """The key in `whsec_` + base64 of 24..64 bytes, or None for anything else."""
    if secret is None or not secret.startswith(PREFIX):
        return None
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    return key if KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX else None


def keys_of(credentials: Credentials) -> tuple[bytes, ...]:
    """The live keys, the newer first: that of the app secret, and during a rotation that of the encrypt key."""
    found = (key_of(credentials.app_secret), key_of(credentials.encrypt_key))
    return tuple(dict.fromkeys(key for key in found if key is not None))


def signature(key: bytes, event_id: str, timestamp: str, body: bytes) -> str:
    """One entry of `webhook-signature`. `event_id` is as it stands in its header: each character one byte."""
    signed = b".".join((event_id.encode("latin-1"), timestamp.encode("ascii"), body))
    return f"{VERSION},{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode('ascii')}"


def matches(keys: Iterable[bytes], event_id: str, timestamp: str, body: bytes, given: str) -> bool:
    """Whether one of the space-separated signatures is right under one of the keys.

    Each is compared with each, in constant time, whatever was found before; another version's entries match nothing.
    """
    entries = [entry.encode("latin-1") for entry in given.split(" ")]
    right = False
    for key in keys:
        expected = signature(key, event_id, timestamp, body).encode("ascii")
        for entry in entries:
            right |= hmac.compare_digest(expected, entry)
    return right
