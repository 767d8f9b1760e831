"""PostgreSQL: psycopg 3 sync connections on a thread pool, READ COMMITTED, every guard in the WHERE clause.

Lock order in every transaction: receipt, reply grant, conversation, turn, delivery, artifact grant. Serialization
failures, deadlocks and connections lost before COMMIT are retried a bounded number of times; a connection lost during
COMMIT is not, since nobody knows whether it took effect.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from frontdesk.kernel.clock import Clock
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.kernel.ids import Entropy
from frontdesk.storage.database import (
    CommitUnknown,
    Deadlines,
    Gathered,
    Gathering,
    Job,
    Wake,
    deliver,
    run_together,
)
from frontdesk.storage.tx import Tx

T = TypeVar("T")

BUSY_AFTER_S = 10.0
WORKERS = 8
TRIES_MAX = 5
# Of one gathering: how many writes share a transaction, and how many such transactions run at once. Two, so that one
# gathers while the other waits for its commit; more of them would only make each smaller.
GATHER_MAX = 64
GATHERERS = 2
RETRYABLE_STATES = frozenset({"40001", "40P01"})
BUSY_STATES = frozenset({"55P03", "57014", "53300", "57P01", "57P02", "57P03"})

_NOW = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")


def postgres_engine(url: str) -> Engine:
    """An engine with our own bounds; parameters never appear in errors or echo."""
    return create_engine(
        url,
        hide_parameters=True,
        pool_size=WORKERS,
        max_overflow=2,
        pool_timeout=5,
        connect_args={"options": "-c lock_timeout=8000 -c timezone=UTC", "connect_timeout": 5},
    )


class PostgresDatabase:
    """See `storage.database.Database`."""

    engine_name = "postgresql"

    def __init__(self, url: str, clock: Clock, entropy: Entropy, *, wake: Wake | None = None) -> None:
        self._clock = clock  # only for the pause between tries; transactions use the database's clock
        self._entropy = entropy
        self._wake = wake
        self._deadlines = Deadlines()
        self._engine = postgres_engine(url)
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="db")
        self._gathered: dict[Gathering[Any, Any], _Waiting] = {}
        self._gathering = threading.Lock()
        self.commits = 0
        self.grouped = 0

    def engine(self) -> Engine:
        """See `Database.engine`."""
        return self._engine

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.read`."""
        result: T = await self._submit(fn, commit=False)
        return result

    async def write(self, fn: Callable[[Tx], T], *, wait_s: float | None = None) -> T:
        """See `Database.write`."""
        result: T = await self._submit(fn, commit=True, wait_s=wait_s)
        return result

    async def _submit(self, fn: Callable[[Tx], Any], *, commit: bool, wait_s: float | None = None) -> Any:
        job = Job(fn)
        if commit and isinstance(fn, Gathered):
            self._gather(fn.gathering, job)
        else:
            self._pool.submit(self._run, job, commit)
        return await job.outcome(self._deadlines, BUSY_AFTER_S, wait_s)

    # ------------------------------------------------------------------------------------------ gathered writes

    def _gather(self, gathering: Gathering[Any, Any], job: Job) -> None:
        """Let the job wait for a gatherer, and start one where fewer than `GATHERERS` are at work."""
        with self._gathering:
            waiting = self._gathered.setdefault(gathering, _Waiting())
            waiting.jobs.append(job)
            if waiting.gatherers == GATHERERS:
                return
            waiting.gatherers += 1
        self._pool.submit(self._serve_gathered, waiting)

    def _serve_gathered(self, waiting: _Waiting) -> None:
        """Run what waits, as much of it together as may be, until nothing does."""
        try:
            while some := self._next(waiting):
                started = [job for job in some if job.start()]
                for job in self._run_together(started) if len(started) > 1 else started:
                    self._run_started(job, commit=True)
        except BaseException:  # not known to happen; the place must not stay taken by a thread that is gone
            with self._gathering:
                waiting.gatherers -= 1
            raise

    def _next(self, waiting: _Waiting) -> list[Job]:
        """What waits; with nothing to take the gatherer's place is given up under the same lock."""
        with self._gathering:
            some = [waiting.jobs.popleft() for _ in range(min(GATHER_MAX, len(waiting.jobs)))]
            if not some:
                waiting.gatherers -= 1
            return some

    def _run_together(self, jobs: list[Job]) -> list[Job]:
        """Run jobs in one transaction; those that have to run alone, which is all of them where it failed."""
        try:
            alone, wakes = self._tries(lambda tx: run_together(tx, jobs), commit=True)
        except (CommitUnknown, DatabaseBusy) as error:  # for each of them as for one
            for job in jobs:
                job.end(True, error)
            deliver(jobs)
            return []
        except BaseException:  # noqa: BLE001 - nothing was committed; what is wrong with one of them meets it alone
            return jobs
        done = [job for job in jobs if job not in alone]
        self.grouped += len(done) - 1
        if done:
            deliver(done)
        if wakes and self._wake is not None:
            self._wake(wakes)
        return list(alone)

    # ------------------------------------------------------------------------------------------ one write

    def _run(self, job: Job, commit: bool) -> None:
        if job.start():
            self._run_started(job, commit)

    def _run_started(self, job: Job, commit: bool) -> None:
        try:
            value, wakes = self._tries(job.fn, commit=commit)
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            job.end(True, error)
            deliver([job])
            return
        job.end(False, value)
        deliver([job])
        if wakes and self._wake is not None:
            self._wake(wakes)

    def _tries(self, fn: Callable[[Tx], Any], *, commit: bool) -> tuple[Any, list[str]]:
        """What `fn` returned, and its wake hints."""
        for attempt in range(1, TRIES_MAX + 1):
            try:
                with self._engine.connect() as connection:
                    return self._once(connection, fn, commit)
            except DBAPIError as error:
                if not _again(error):
                    raise _translated(error) from None
                if attempt == TRIES_MAX:
                    raise DatabaseBusy from None
            except PoolTimeout:
                raise DatabaseBusy from None
        raise DatabaseBusy

    def _once(self, connection: Connection, fn: Callable[[Tx], Any], commit: bool) -> tuple[Any, list[str]]:
        with connection.begin() as transaction:
            tx = Tx(connection, int(connection.execute(_NOW).scalar_one()), self._entropy)
            value = fn(tx)
            if not commit:
                transaction.rollback()
                return value, []
            try:
                transaction.commit()
            except DBAPIError as error:
                if error.connection_invalidated or _state(error) is None:
                    raise CommitUnknown from None
                raise
        self.commits += 1
        self.grouped += 1
        return value, tx.wakes

    async def close(self) -> None:
        """See `Database.close`."""
        await asyncio.to_thread(self._pool.shutdown)
        self._engine.dispose()


class _Waiting:
    """Writes of one gathering that wait, and how many threads take from them."""

    __slots__ = ("gatherers", "jobs")

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.gatherers = 0


def _state(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def _again(error: DBAPIError) -> bool:
    return _state(error) in RETRYABLE_STATES or error.connection_invalidated


def _translated(error: DBAPIError) -> BaseException:
    if _state(error) in BUSY_STATES or (isinstance(error, OperationalError) and _state(error) is None):
        return DatabaseBusy()
    return error
