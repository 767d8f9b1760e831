"""The interface every surface and loop uses: `read(fn)` and `write(fn)`, where `fn(tx)` is a plain synchronous function.

`fn` may be run again after a serialization failure or a lost connection, so it has no effect outside `tx`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
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

    async def write(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` and commit. A cancelled caller lets the transaction finish. Raises `DatabaseBusy` (nothing done)."""
        ...

    def engine(self) -> Engine:
        """For migrations and checks alone; never for a verb."""
        ...

    async def close(self) -> None:
        """Finish what is queued, then release threads and connections."""
        ...


class Job:
    """One queued transaction. `start` and `abandon` race for it; exactly one wins."""

    def __init__(self, fn: Callable[[Tx], Any]) -> None:
        self.fn = fn
        self.future: Future[Any] = Future()
        self.wakes: list[str] = []

    def start(self) -> bool:
        """Claim the job for running; False where its caller gave up before anything was done."""
        return self.future.set_running_or_notify_cancel()

    def abandon(self) -> bool:
        """Give the job up; False where it is running already and will finish."""
        return self.future.cancel()


async def await_job(job: Job, busy_after_s: float) -> Any:
    """Wait for a job. Cancelling the caller does not cancel the job; past the bound an unstarted job is dropped."""
    wrapped = asyncio.wrap_future(job.future)
    wrapped.add_done_callback(_consume)
    try:
        async with asyncio.timeout(busy_after_s):
            return await asyncio.shield(wrapped)
    except TimeoutError:
        if job.future.done():
            return job.future.result()
        if job.abandon():
            raise DatabaseBusy from None
        return await asyncio.shield(wrapped)


def _consume(future: asyncio.Future[Any]) -> None:
    # A caller that went away never looks at the outcome; asking here keeps the loop from reporting it as unobserved.
    if not future.cancelled():
        future.exception()
