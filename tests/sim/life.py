"""One life of one simulated process: from its start to its crash or its orderly end."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
from collections.abc import Coroutine
from typing import Any, Final

from frontdesk.kernel.clock import ManualClock
from tests.sim.loop import OWNER
from tests.sim.plan import Doom


class Killed(BaseException):
    """The process is dead. Nothing of the product catches it."""


class Violation(AssertionError):
    """Something happened that must never happen."""


class LocalClock:
    """The clock of one process: true time and an offset that steps."""

    def __init__(self, true: ManualClock, offset_us: int) -> None:
        self.true = true
        self.offset_us = offset_us

    def now_us(self) -> int:
        """See `Clock.now_us`."""
        return self.true.now_us() + self.offset_us

    def monotonic_us(self) -> int:
        """See `Clock.monotonic_us`."""
        return self.true.monotonic_us()


@dataclasses.dataclass(eq=False)
class Life:
    """`owner` is the lease owner of its worker, `gone` ends when it does. `where` is its process's place (0..2)."""

    where: int
    number: int
    clock: LocalClock
    doom: Doom
    gone: asyncio.Future[None]
    dead: bool = False
    ready: bool = False
    stopping: bool = False
    commits: int = 0
    passed: dict[str, int] = dataclasses.field(default_factory=dict)
    tasks: list[asyncio.Task[Any]] = dataclasses.field(default_factory=list)
    asked: set[asyncio.Task[Any]] = dataclasses.field(default_factory=set)
    owner: str = ""
    process: Any = None
    database: Any = None

    @property
    def name(self) -> str:
        """For the trace."""
        return f"p{self.where}.{self.number}"

    def check(self) -> None:
        """Raise `Killed` where this life has ended."""
        if self.dead:
            raise Killed

    def end(self) -> None:
        """No code of this life runs any more."""
        if not self.dead:
            self.dead = True
            self.gone.set_result(None)

    def begin(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run `work` as code of this life."""
        context = contextvars.copy_context()
        context.run(OWNER.set, self)
        task = asyncio.get_running_loop().create_task(work, name=f"asked {name}", context=context)
        self.asked.add(task)
        task.add_done_callback(self.asked.discard)
        return task


class Lost:
    """What became of something asked of a process that died over it: nobody knows."""


LOST: Final = Lost()


async def through(life: Life, work: Coroutine[Any, Any, Any], name: str) -> Any:
    """The outcome of `work` in that life, what it raised as a value, or `LOST` where the process died first."""
    task = life.begin(work, name)
    await asyncio.wait({task, life.gone}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        return LOST
    if task.cancelled():
        return asyncio.CancelledError()
    error = task.exception()
    if isinstance(error, Killed):
        return LOST
    return task.result() if error is None else error
