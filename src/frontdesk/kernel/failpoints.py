"""Named failpoints: no-ops unless armed, used to prove what a crash at each step leaves behind.

Points are the steps of the message's way (`t0`, `t1`, `t1b`, `t2`…`t9`, `tF`) with `before` or `after`. They are
armed by `FRONTDESK_FAILPOINTS=t7.after=kill` and only where the process was started with `--allow-failpoints`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

STEPS: Final = ("t0", "t1", "t1b", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "tF")
POINTS: Final = tuple(f"{step}.{side}" for step in STEPS for side in ("before", "after"))
ACTIONS: Final = ("kill", "raise")


class FailpointHit(RuntimeError):
    """Raised by a failpoint armed with `raise`."""


class Failpoints:
    """The failpoints of one process. `hit` is called by the code; a test arms or replaces the effect."""

    def __init__(
        self,
        armed: Mapping[str, str] = MappingProxyType({}),
        *,
        kill: Callable[[], None] | None = None,
        observer: Callable[[str], None] | None = None,
    ) -> None:
        for point, action in armed.items():
            if point not in POINTS or action not in ACTIONS:
                raise ValueError(f"unknown failpoint {point}={action}")
        self._armed = dict(armed)
        self._kill = kill or _kill_this_process
        self._observer = observer

    def hit(self, point: str) -> None:
        """Pass `point`; kill the process or raise `FailpointHit` where it is armed."""
        if self._observer is not None:
            self._observer(point)
        action = self._armed.get(point)
        if action is None:
            return
        if action == "kill":
            self._kill()
        raise FailpointHit(point)


def parse_failpoints(text: str) -> dict[str, str]:
    """`t7.after=kill,t1.before=raise` as a mapping. Raises ValueError naming the part that is wrong."""
    armed: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        point, _, action = part.partition("=")
        if point not in POINTS or action not in ACTIONS:
            raise ValueError(f"unknown failpoint {part!r}")
        armed[point] = action
    return armed


def _kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
