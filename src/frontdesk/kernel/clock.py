"""Time as a parameter: integer microseconds UTC, and the one seam every wait stands behind.

Waits are asyncio waits (`asyncio.sleep`, `asyncio.timeout`), which follow the running loop's own clock; the simulation
harness runs the server on a loop whose clock it moves by hand, so nothing else may sleep or read the time of day.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Source of time for one process."""

    def now_us(self) -> int:
        """Microseconds since 1970-01-01T00:00:00Z; may step in either direction."""
        ...

    def monotonic_us(self) -> int:
        """Microseconds of a clock that never steps back; comparable only inside one process."""
        ...


class SystemClock:
    """The machine's own clock; the only place of the product that reads it."""

    def now_us(self) -> int:
        """See `Clock.now_us`."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """See `Clock.monotonic_us`."""
        return time.monotonic_ns() // 1000


class ManualClock:
    """A clock that moves only when told; for tests and the simulation harness."""

    def __init__(self, now_us: int = 1_767_225_600 * SECOND) -> None:
        self._now_us = now_us
        self._monotonic_us = 0

    def now_us(self) -> int:
        """See `Clock.now_us`."""
        return self._now_us

    def monotonic_us(self) -> int:
        """See `Clock.monotonic_us`."""
        return self._monotonic_us

    def advance(self, duration_us: int) -> None:
        """Move both clocks forward by `duration_us` (>= 0)."""
        if duration_us < 0:
            raise ValueError("a manual clock only advances; use step() for a wall-clock step")
        self._now_us += duration_us
        self._monotonic_us += duration_us

    def step(self, offset_us: int) -> None:
        """Step the wall clock alone, in either direction, as an operator or NTP would."""
        self._now_us += offset_us


def to_rfc3339(instant_us: int) -> str:
    """RFC 3339 text with `Z` and microseconds; the inverse of `from_rfc3339`."""
    return (_EPOCH + timedelta(microseconds=instant_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_rfc3339(text: str) -> int:
    """Microseconds of an RFC 3339 instant. A text without an offset is a ValueError: a naive time has no instant."""
    parsed = datetime.fromisoformat(text)
    if parsed.tzinfo is None:
        raise ValueError("a timestamp needs an offset")
    return (parsed - _EPOCH) // timedelta(microseconds=1)
