"""What a simulator is started with, checked before anything binds."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

TOKEN_CHARS_MIN = 16
MANUAL_START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z: fixed, so that manual-clock runs repeat exactly


class SimulatorError(Exception):
    """The simulator cannot start or a control request asked for something impossible; the text is for people."""


def is_loopback_host(host: str) -> bool:
    """Whether ``host`` is a loopback address or ``localhost``. Names are never resolved."""
    bare = host.strip("[]").lower()
    if bare == "localhost":
        return True
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class SimulatorConfig:
    """Start values.

    ``port`` 0 takes a free one; ``state`` names an SQLite file that outlives a kill, else all is in memory. With
    ``manual_clock`` time stands at ``start_ms`` until ``POST /_sim/clock`` moves it. ``answer_timeout_ms`` is how
    long a push waits for its 200 (always real time, also on the manual clock).
    """

    token: str
    host: str = "127.0.0.1"
    port: int = 8790
    state: Path | None = None
    manual_clock: bool = False
    start_ms: int = MANUAL_START_MS
    exit_with_stdin: bool = False
    redeliver: bool = True
    answer_timeout_ms: int = 3_000

    def __post_init__(self) -> None:
        if len(self.token) < TOKEN_CHARS_MIN:
            raise SimulatorError(f"the simulator token must have at least {TOKEN_CHARS_MIN} characters")
        if not is_loopback_host(self.host):
            raise SimulatorError(f"the simulator binds loopback addresses only, not {self.host!r}; use 127.0.0.1")
        if not 0 <= self.port <= 65_535:
            raise SimulatorError(f"port {self.port} is not between 0 and 65535")
