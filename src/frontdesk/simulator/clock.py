"""The simulator's one clock: wall time with an optional offset, or a manual clock that only control requests move."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import formatdate


class SimClock:
    """Milliseconds since 1970 UTC. ``manual`` stands still until :meth:`set`; else machine time plus an offset."""

    def __init__(self, *, manual: bool, start_ms: int) -> None:
        self.manual = manual
        self._manual_ms = start_ms
        self.offset_ms = 0

    def now_ms(self) -> int:
        """The provider's time now."""
        if self.manual:
            return self._manual_ms
        return time.time_ns() // 1_000_000 + self.offset_ms

    def set(self, now_ms: int) -> None:
        """Moves the clock to ``now_ms``; on wall time by changing the offset. It may go backwards."""
        if self.manual:
            self._manual_ms = now_ms
        else:
            self.offset_ms += now_ms - self.now_ms()


def rfc3339(at_ms: int) -> str:
    """``at_ms`` as RFC 3339 in UTC with milliseconds and ``Z``."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def http_date(at_ms: int) -> str:
    """``at_ms`` as the value of an HTTP ``Date`` header (whole seconds)."""
    return formatdate(at_ms / 1_000, usegmt=True)
