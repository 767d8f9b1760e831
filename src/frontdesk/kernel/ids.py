"""Identifiers: three letters, `_`, 32 hex digits of a UUIDv7 (RFC 9562) whose time is the transaction's."""

from __future__ import annotations

import random
import re
import secrets
import uuid
from typing import Final, Protocol

PREFIXES: Final = frozenset(
    "usr wsp mbr ses tok prj wfl run evt ins bch bnd rcp cnv trn prp grt agr dlv art stl".split()
)
ID_PATTERN: Final = re.compile(r"^[a-z]{3}_[0-9a-f]{32}$")


class Entropy(Protocol):
    """Source of random bytes; the system's in production, seeded in the simulation."""

    def token_bytes(self, count: int) -> bytes:
        """`count` unpredictable bytes."""
        ...


class SystemEntropy:
    """The operating system's cryptographic source."""

    def token_bytes(self, count: int) -> bytes:
        """See `Entropy.token_bytes`."""
        return secrets.token_bytes(count)


class SeededEntropy:
    """Reproducible bytes for simulations and tests. Never for anything a stranger must not guess."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - reproducibility is the purpose

    def token_bytes(self, count: int) -> bytes:
        """See `Entropy.token_bytes`."""
        return self._random.randbytes(count)


def uuid7(now_us: int, entropy: Entropy) -> uuid.UUID:
    """A UUIDv7 of `now_us`: 48 bits of milliseconds, 12 bits of the microsecond fraction (RFC 9562 6.2, method 3)."""
    milliseconds, rest_us = divmod(now_us, 1000)
    fraction = (rest_us * 4096) // 1000
    value = (milliseconds & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76
    value |= fraction << 64
    value |= 0b10 << 62
    value |= int.from_bytes(entropy.token_bytes(8), "big") & ((1 << 62) - 1)
    return uuid.UUID(int=value)


def new_id(prefix: str, now_us: int, entropy: Entropy) -> str:
    """A typed id such as `rcp_0190…` (36 characters). Raises KeyError for a prefix that is not registered."""
    if prefix not in PREFIXES:
        raise KeyError(prefix)
    return f"{prefix}_{uuid7(now_us, entropy).hex}"


def is_id(prefix: str, text: str) -> bool:
    """True where `text` has the shape of an id of that kind; says nothing about its existence."""
    return text.startswith(f"{prefix}_") and ID_PATTERN.match(text) is not None
