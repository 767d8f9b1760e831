"""Canonical JSON (RFC 8785) and the digests built on it and on NUL-joined keys."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import rfc8785

_SAFE: Final = 2**53 - 1


class NotCanonical(ValueError):
    """The value has no canonical form: NaN, infinity, an integer beyond ±(2^53-1), a lone surrogate, a foreign type."""


def canonical_bytes(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value: sorted keys, no blanks, UTF-8 unescaped. Raises `NotCanonical`."""
    try:
        if _is_flat(value):
            # The same bytes from the C encoder: for texts and safe integers under ASCII keys the two rules coincide.
            return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8")
        encoded: bytes = rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError, RecursionError) as error:
        raise NotCanonical(type(error).__name__) from None
    return encoded


def _is_flat(value: Any) -> bool:
    if type(value) is not dict:
        return False
    for name, item in value.items():
        if type(name) is not str or not name.isascii():
            return False
        if item is None or type(item) is str or type(item) is bool:
            continue
        if type(item) is not int or not -_SAFE <= item <= _SAFE:
            return False
    return True


def canonical_digest(value: Any) -> str:
    """Lower-case hex SHA-256 of `canonical_bytes(value)`."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def bytes_digest(data: bytes) -> str:
    """Lower-case hex SHA-256 of raw bytes."""
    return hashlib.sha256(data).hexdigest()


def joined_digest(*parts: str) -> str:
    """Lower-case hex SHA-256 of UTF-8 parts separated by one NUL byte. A part that holds NUL is a ValueError."""
    if any("\x00" in part for part in parts):
        raise ValueError("a joined key part may not hold NUL")
    return hashlib.sha256("\x00".join(parts).encode("utf-8")).hexdigest()
