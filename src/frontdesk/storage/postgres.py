"""PostgreSQL: psycopg 3 sync connections on a thread pool, READ COMMITTED, every guard in the WHERE clause.

Lock order in every transaction: receipt, reply grant, conversation, turn, delivery, artifact grant. Serialization
failures, deadlocks and connections lost before COMMIT are retried a bounded number of times; a connection lost during
COMMIT is not, since nobody knows whether it took effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from frontdesk.kernel.clock import Clock
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.kernel.ids import Entropy
from frontdesk.storage.database import Deadlines, Job, Wake, deliver
from frontdesk.storage.tx import Tx

T = TypeVar("T")

BUSY_AFTER_S = 10.0
WORKERS = 8
TRIES_MAX = 5
RETRYABLE_STATES = frozenset({"40001", "40P01"})
BUSY_STATES = frozenset({"55P03", "57014", "53300", "57P01", "57P02", "57P03"})

_NOW = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")


class CommitUnknown(Exception):
    """The connection broke during COMMIT: the transaction may or may not have taken effect. Never retried blindly."""


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
        self._pool.submit(self._run, job, commit)
        return await job.outcome(self._deadlines, BUSY_AFTER_S, wait_s)

    def _run(self, job: Job, commit: bool) -> None:
        if not job.start():
            return
        try:
            value = self._tries(job, commit)
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            job.end(True, error)
            deliver([job])
            return
        job.end(False, value)
        deliver([job])
        if job.wakes and self._wake is not None:
            self._wake(job.wakes)

    def _tries(self, job: Job, commit: bool) -> Any:
        for attempt in range(1, TRIES_MAX + 1):
            try:
                with self._engine.connect() as connection:
                    return self._once(connection, job, commit)
            except DBAPIError as error:
                if not _again(error):
                    raise _translated(error) from None
                if attempt == TRIES_MAX:
                    raise DatabaseBusy from None
            except PoolTimeout:
                raise DatabaseBusy from None
        raise DatabaseBusy

    def _once(self, connection: Connection, job: Job, commit: bool) -> Any:
        with connection.begin() as transaction:
            tx = Tx(connection, int(connection.execute(_NOW).scalar_one()), self._entropy)
            value = job.fn(tx)
            if not commit:
                transaction.rollback()
                return value
            try:
                transaction.commit()
            except DBAPIError as error:
                if error.connection_invalidated or _state(error) is None:
                    raise CommitUnknown from None
                raise
        self.commits += 1
        self.grouped += 1
        job.wakes = tx.wakes
        return value

    async def close(self) -> None:
        """See `Database.close`."""
        await asyncio.to_thread(self._pool.shutdown)
        self._engine.dispose()


def _state(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def _again(error: DBAPIError) -> bool:
    return _state(error) in RETRYABLE_STATES or error.connection_invalidated


def _translated(error: DBAPIError) -> BaseException:
    if _state(error) in BUSY_STATES or (isinstance(error, OperationalError) and _state(error) is None):
        return DatabaseBusy()
    return error
