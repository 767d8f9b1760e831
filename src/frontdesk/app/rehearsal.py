"""Test hooks of a real process: a folder that steers its runner, clock and bounds. Needs `--allow-failpoints`.

`FRONTDESK_TEST_STAGE=DIR` (reserved, desk.md 8.3). In the folder, each read anew:

- `runner`: `hold` (a turn waits until this changes), `fail <code>` (it fails with that runner code), `answer` (it is
  answered with the text of the file `answer`), else it runs.
- `clock`: microseconds added to the machine's time of day; the monotonic clock stays as it is.
- `pulse`: microseconds added to the machine's monotonic clock; it must only grow.
- `asked`: written here, one JSON line for each call of the runner: the turn, its question and the history it was given.

Read once, when the process starts:

- `limits`: a JSON object of names of `kernel/limits.py` and other whole numbers for them.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

from frontdesk.desk.conversations.runner import (
    CANCELLED,
    Answer,
    Cancel,
    Failed,
    Progress,
    Replaceability,
    Result,
    Runner,
    RunnerReport,
    Toolbox,
    TurnRequest,
)
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SystemClock

VARIABLE: Final = "FRONTDESK_TEST_STAGE"
LOOK_S: Final = 0.02


def change_limits(folder: Path) -> None:
    """Put the folder's numbers in the place of this process's bounds. Raises ValueError, nothing changed, for others.

    Does not reach what was computed from a bound while its module was loaded.
    """
    try:
        wanted = json.loads(_read(folder / "limits") or "{}")
    except ValueError:
        wanted = None
    if not isinstance(wanted, dict):
        raise ValueError("limits is not a JSON object")  # noqa: TRY004 - a bad file, not a bad argument
    for name, value in wanted.items():
        if type(getattr(limits, name, None)) is not int or type(value) is not int:
            raise ValueError(f"limits: {name} is no bound that is a whole number")
    for name, value in wanted.items():
        setattr(limits, name, value)


class StagedClock(SystemClock):
    """The machine's clock, stepped by what the folder says."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "clock"
        self._pulse = folder / "pulse"

    def now_us(self) -> int:
        """See `Clock.now_us`."""
        return super().now_us() + int(_read(self._path) or 0)

    def monotonic_us(self) -> int:
        """See `Clock.monotonic_us`."""
        return super().monotonic_us() + int(_read(self._pulse) or 0)


class StagedRunner:
    """Another runner behind a gate. One call of it is one call of the other, or none."""

    def __init__(self, inner: Runner, folder: Path) -> None:
        self._inner = inner
        self._folder = folder
        self.name = inner.name
        self.capabilities = inner.capabilities

    async def run(self, request: TurnRequest, toolbox: Toolbox, progress: Progress, cancel: Cancel) -> Result:
        """See `Runner.run`."""
        self._note(request)
        while (order := _read(self._folder / "runner")) == "hold":
            if cancel.is_set():
                return Failed(CANCELLED)
            await asyncio.sleep(LOOK_S)
        if order.startswith("fail "):
            return Failed(order.removeprefix("fail "))
        if order == "answer":
            return Answer((self._folder / "answer").read_text(encoding="utf-8"))
        return await self._inner.run(request, toolbox, progress, cancel)

    def _note(self, request: TurnRequest) -> None:
        line: dict[str, Any] = {
            "turn_id": request.turn_id,
            "question": request.text,
            "history": [[pair.question, pair.answer] for pair in request.history],
        }
        with (self._folder / "asked").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    async def replaceable(self, conversation_id: str, within_ms: int = 5_000) -> Replaceability:
        """See `Runner.replaceable`."""
        return await self._inner.replaceable(conversation_id, within_ms)

    async def check(self) -> RunnerReport:
        """See `Runner.check`."""
        return await self._inner.check()

    async def close(self, within_ms: int) -> None:
        """See `Runner.close`."""
        await self._inner.close(within_ms)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
