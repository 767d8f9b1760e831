"""A deterministic asyncio loop on virtual time: no selector, no threads, no real wait; time jumps to the next timer.

Every callback belongs to somebody: to the world (no owner) or to one life of a simulated process, told by a context
variable that tasks and timers inherit. What belongs to a dead life is never run again: after a crash not one line of
the dead process is executed, neither `finally` nor `except`, exactly as after SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import math
import random
from collections.abc import Coroutine
from typing import Any, Protocol

from frontdesk.kernel.clock import ManualClock


class Owner(Protocol):
    """Who a callback belongs to."""

    dead: bool
    tasks: list[asyncio.Task[Any]]


OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("sim_owner", default=None)

_serials = itertools.count(1)


class Stuck(RuntimeError):
    """Nothing is ready and no timer is set: the world waits for what can't happen."""


class Runaway(RuntimeError):
    """More steps than a run may take: somebody spins."""


class SimTask(asyncio.Task):  # type: ignore[type-arg]
    """A task with a hash that is the same in every run, so that sets of tasks are walked in one order."""

    def __init__(self, coro: Coroutine[Any, Any, Any], **named: Any) -> None:
        self.serial = next(_serials)
        super().__init__(coro, **named)
        context = named.get("context")
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is not None:
            owner.tasks.append(self)

    def __hash__(self) -> int:
        return self.serial

    def __eq__(self, other: object) -> bool:
        return self is other


def _make_task(loop: asyncio.AbstractEventLoop, coro: Any, **named: Any) -> SimTask:
    return SimTask(coro, loop=loop, **named)


class SimLoop(asyncio.BaseEventLoop):
    """See the module. `clock` is moved by this loop alone; timers due at one instant run in an order of the seed."""

    def __init__(self, clock: ManualClock, dice: random.Random, steps_max: int = 400_000) -> None:
        super().__init__()
        self._sim_clock = clock
        self._dice = dice
        self._steps_left = steps_max
        self.dropped = 0
        self.failure: BaseException | None = None
        self.set_task_factory(_make_task)
        self.set_exception_handler(self._note)

    def time(self) -> float:
        """Seconds of the virtual monotonic clock."""
        return self._sim_clock.monotonic_us() / 1_000_000

    def fail(self, failure: BaseException) -> None:
        """End the run with `failure`; the first one counts."""
        if self.failure is None:
            self.failure = failure
        self.stop()

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is None:
            error = RuntimeError(str(context.get("message")))
        if isinstance(error, Exception | asyncio.CancelledError):
            self.fail(error)

    def _run_once(self) -> None:
        scheduled, ready = self._scheduled, self._ready  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not scheduled:
                raise Stuck("nothing is ready and no timer is set")
            ahead_us = math.ceil(scheduled[0]._when * 1_000_000) - self._sim_clock.monotonic_us()
            if ahead_us > 0:
                self._sim_clock.advance(ahead_us)
        self._sim_clock.advance(1)  # running code takes time too: nothing can spin at one instant
        ready.extend(self._due(scheduled))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            owner = handle._context.get(OWNER)
            if owner is not None and owner.dead:
                self.dropped += 1
                continue
            handle._run()
        self._steps_left -= 1
        if self._steps_left < 0:
            raise Runaway("too many steps")

    def _due(self, scheduled: list[Any]) -> list[Any]:
        due = []
        now = self.time() + 1e-9
        while scheduled and scheduled[0]._when <= now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            due.append(handle)
        if len(due) > 1:
            self._dice.shuffle(due)
        return due

    def _write_to_self(self) -> None:
        """There is no selector to wake: whoever calls is on this thread."""

    def _process_events(self, event_list: Any) -> None:
        """There are no events of sockets."""


def bury(tasks: list[asyncio.Task[Any]]) -> None:
    """Take the remains of tasks that will never run again, without a word: their coroutines are closed, not awaited."""
    for task in tasks:
        if task.done():
            if not task.cancelled():
                task.exception()
            continue
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        for _ in range(20):  # a `finally` that awaits swallows the first close, and so on
            try:
                task.get_coro().close()  # type: ignore[union-attr]
            except BaseException:  # noqa: BLE001 - whatever the remains do, they do it to nobody
                continue
            break
