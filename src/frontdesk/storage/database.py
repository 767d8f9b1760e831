"""The interface of every surface and loop: `read(fn)` and `write(fn)`, where `fn(tx)` is a plain synchronous function.

`fn` may be run again after a serialization failure or a lost connection, so it has no effect outside `tx`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from sqlalchemy import Engine

from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.storage.tx import Tx

T = TypeVar("T")
Wake = Callable[[list[str]], None]


class Database(Protocol):
    """One database, whichever engine."""

    engine_name: str

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` on a snapshot. Raises `DatabaseBusy` where the database cannot answer."""
        ...

    async def write(self, fn: Callable[[Tx], T], *, wait_s: float | None = None) -> T:
        """Run `fn` and commit. A cancelled caller lets the transaction finish. Raises `DatabaseBusy` (nothing done).

        With `wait_s` the caller waits no longer than that: `CommitPending`, and the transaction goes on without them.
        """
        ...

    def engine(self) -> Engine:
        """For migrations and checks alone; never for a verb."""
        ...

    async def close(self) -> None:
        """Finish what is queued, then release threads and connections."""
        ...


class CommitPending(Exception):
    """The caller's time is up; the transaction was not cancelled and may still commit."""


class Job:
    """One queued transaction of one caller. The thread that runs it and the caller that gives up race; one wins."""

    __slots__ = ("_free", "_loop", "failed", "fn", "future", "value", "wakes")

    def __init__(self, fn: Callable[[Tx], Any]) -> None:
        self.fn = fn
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()
        self.wakes: list[str] = []
        self.failed = False
        self.value: Any = None
        self._free = [True]  # list.pop is atomic: whoever takes the one element owns the job

    def start(self) -> bool:
        """Claim the job for running, on any thread; False where its caller gave up before anything was done."""
        try:
            return self._free.pop()
        except IndexError:
            return False

    def end(self, failed: bool, value: Any) -> None:
        """Keep what became of it; `deliver` tells the caller."""
        self.failed, self.value = failed, value

    def abandon(self) -> None:
        """Give the job up with `DatabaseBusy`; does nothing where it is running already and will finish."""
        if self.start() and not self.future.done():
            self.future.set_exception(DatabaseBusy())

    def leave(self) -> None:
        """Stop waiting with `CommitPending`; the job goes on."""
        if not self.future.done():
            self.future.set_exception(CommitPending())

    async def outcome(self, deadlines: Deadlines, busy_after_s: float, wait_s: float | None = None) -> Any:
        """Wait for it. Cancelling the caller does not cancel the job; past the bound an unstarted job is dropped.

        With `wait_s` the caller leaves earlier, and not even an unstarted job is dropped.
        """
        if wait_s is None:
            deadlines.watch(self._loop, busy_after_s, self, self.abandon)
        else:
            deadlines.watch(self._loop, wait_s, self, self.leave)
        return await self.future


class Deadlines:
    """The waiting times of one database's callers: a timer for each loop and length, however many wait."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, float], _Line] = {}

    def watch(self, loop: asyncio.AbstractEventLoop, seconds: float, job: Job, give_up: Callable[[], None]) -> None:
        """Call `give_up` after `seconds`, unless the job's caller was answered before."""
        line = self._lines.get((id(loop), seconds))
        if line is None or line.loop is not loop:
            line = self._lines[id(loop), seconds] = _Line(loop, seconds)
        line.watch(job, give_up)


class _Line:
    """Jobs of one loop that share a waiting time, in the order of their deadlines, behind a single timer.

    A timer for each job would cost more than the job's own bookkeeping; ends are seen up to a quarter of a second late.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.loop = loop
        self._seconds = seconds
        self._jobs: deque[tuple[float, Job, Callable[[], None]]] = deque()
        self._armed = False

    def watch(self, job: Job, give_up: Callable[[], None]) -> None:
        """Call `give_up` once the time is over, unless the job's caller was answered before."""
        self._jobs.append((self.loop.time() + self._seconds, job, give_up))
        if not self._armed:
            self._armed = True
            self.loop.call_later(min(self._seconds, 0.25), self._look)

    def _look(self) -> None:
        now = self.loop.time()
        while self._jobs and (self._jobs[0][1].future.done() or self._jobs[0][0] <= now):
            _, job, give_up = self._jobs.popleft()
            if not job.future.done():
                give_up()
        self._armed = bool(self._jobs)
        if self._armed:
            self.loop.call_later(min(self._seconds, 0.25), self._look)


def deliver(jobs: Sequence[Job]) -> None:
    """Tell the callers of jobs that ended together, in one step on their loop. Callers that went away are skipped."""
    loop = jobs[0]._loop  # noqa: SLF001 - one module, two halves of one thing
    try:
        loop.call_soon_threadsafe(_settle, jobs)
    except RuntimeError:
        return  # the loop is closed: nobody waits any more


def _settle(jobs: Sequence[Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.failed:
            job.future.set_exception(job.value)
            job.future.exception()  # looked at: a caller that went away must not make the loop report it
        else:
            job.future.set_result(job.value)
