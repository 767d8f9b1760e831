"""SQLite: one writer thread with BEGIN IMMEDIATE and group commit, a small pool of readers, WAL, synchronous=FULL.

Between processes a `flock` on `<db>.lock` stands around BEGIN…COMMIT: SQLite's own busy handler is not fair, and eight
processes starve without it. Concurrent writes may share one commit, each behind its own savepoint; each still waits
for it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool, QueuePool

from frontdesk.kernel.clock import Clock
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.kernel.ids import Entropy
from frontdesk.storage.database import Deadlines, Gathered, Gathering, Job, Wake, deliver, run_together
from frontdesk.storage.tx import Tx

T = TypeVar("T")

BUSY_AFTER_S = 10.0
BUSY_TIMEOUT_MS = 5_000
GROUP_MAX = 64
# Fewer, larger checkpoints: each one writes and syncs the database file inside somebody's commit. 16 MiB of log.
CHECKPOINT_PAGES = 4_000
CACHE_KIB = 16_384
READERS = 4

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL)
_NO_ROOM = (sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)


def _configure(connection: Any, _record: Any) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    cursor.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    cursor.execute(f"PRAGMA cache_size={-CACHE_KIB}")
    cursor.close()


def sqlite_engine(path: Path, *, pooled: bool = False) -> Engine:
    """An engine whose transactions are begun by us, not by the driver; parameters never appear in errors or echo."""
    engine = create_engine(
        f"sqlite:///{path}",
        hide_parameters=True,
        connect_args={"check_same_thread": False, "cached_statements": 256},
        **({"poolclass": QueuePool, "pool_size": READERS} if pooled else {"poolclass": NullPool}),
    )
    event.listen(engine, "connect", _configure)
    return engine


class FileLock:
    """An advisory lock between processes; released by the kernel when its holder dies."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the descriptor back, once: by the second time the number may be another file's."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class SqliteDatabase:
    """See `storage.database.Database`. With `inline` everything runs on the caller's thread (for simulations)."""

    engine_name = "sqlite"

    def __init__(
        self,
        path: Path,
        clock: Clock,
        entropy: Entropy,
        *,
        wake: Wake | None = None,
        inline: bool = False,
        on_commit: Callable[[], None] | None = None,
        on_group: Callable[[int], None] | None = None,
    ) -> None:
        self._clock = clock
        self._entropy = entropy
        self._wake = wake
        self._deadlines = Deadlines()
        self._inline = inline
        self._on_commit = on_commit
        self._on_group = on_group
        self._engine = sqlite_engine(path, pooled=True)
        self._lock = FileLock(path.with_name(path.name + ".lock"))
        self._connection: Connection | None = None
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._readers = None if inline else ThreadPoolExecutor(READERS, thread_name_prefix="db-read")
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._closed = False
        self.commits = 0
        self.grouped = 0
        if path.exists():
            path.chmod(0o600)

    def engine(self) -> Engine:
        """See `Database.engine`."""
        return self._engine

    # ------------------------------------------------------------------------------------------ reading

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.read`."""
        if self._readers is None:
            return self._read(fn)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, fn)

    def _read(self, fn: Callable[[Tx], T]) -> T:
        try:
            with self._engine.connect() as connection:
                connection.exec_driver_sql("BEGIN")
                try:
                    return fn(Tx(connection, self._clock.now_us(), self._entropy))
                finally:
                    connection.exec_driver_sql("ROLLBACK")
        except (OperationalError, sqlite3.OperationalError) as error:  # the second where a connection is opened
            raise _translated(error) from None

    # ------------------------------------------------------------------------------------------ writing

    async def write(self, fn: Callable[[Tx], T], *, wait_s: float | None = None) -> T:
        """See `Database.write`."""
        job = Job(fn)
        if self._inline:
            self._run([job])
            if job.failed:
                raise job.value
            result: T = job.value
            return result
        self._ensure_thread()
        self._queue.put(job)
        answer: T = await job.outcome(self._deadlines, BUSY_AFTER_S, wait_s)
        return answer

    def _ensure_thread(self) -> None:
        if self._closed:
            raise DatabaseBusy
        if self._thread is not None:
            return
        with self._starting:
            if self._closed:
                raise DatabaseBusy
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_loop, name="db-write", daemon=True)
                self._thread.start()

    def _write_loop(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                return
            group = [job]
            ends = False
            while len(group) < GROUP_MAX:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    ends = True
                    break
                group.append(more)
            self._run(group)
            if ends:
                return

    def _run(self, group: list[Job]) -> None:
        with self._lock:
            started = [job for job in group if job.start()]
            if not started:
                return
            self._transact(started)
        if not self._inline:
            deliver(started)
        wakes = dict.fromkeys(topic for job in started if not job.failed for topic in job.wakes)
        if wakes and self._wake is not None:
            self._wake(list(wakes))

    def _transact(self, jobs: list[Job]) -> None:
        """Run the jobs in one transaction, a savepoint each, and keep what became of each."""
        try:
            connection = self._writer()
            driver = _driver(connection)
            driver.execute("BEGIN IMMEDIATE")
            try:
                for job in self._together(connection, driver, jobs):
                    self._savepoint(connection, driver, job)
                    if not driver.in_transaction:
                        raise _TransactionEnded(job.value)  # noqa: TRY301 - ends the whole group
                if self._on_commit is not None:
                    self._on_commit()
                driver.execute("COMMIT")
            except BaseException:
                if driver.in_transaction:
                    driver.execute("ROLLBACK")
                raise
        except BaseException as error:  # noqa: BLE001 - handed to every caller of the group
            self._drop_writer()
            cause = error.cause if isinstance(error, _TransactionEnded) else error
            for job in jobs:
                job.end(True, _translated(cause))
            return
        self.commits += 1
        self.grouped += len(jobs)
        if self._on_group is not None:
            self._on_group(len(jobs))

    def _together(self, connection: Connection, driver: sqlite3.Connection, jobs: list[Job]) -> list[Job]:
        """Run what can run together, behind one savepoint for each gathering; the jobs that have to run alone."""
        gatherings: dict[Gathering[Any, Any], list[Job]] = {}
        for job in jobs:
            if isinstance(job.fn, Gathered):
                gatherings.setdefault(job.fn.gathering, []).append(job)
        done: set[Job] = set()
        for some in gatherings.values():
            if len(some) > 1:
                done.update(self._gathered(connection, driver, some))
        return [job for job in jobs if job not in done] if done else jobs

    def _gathered(self, connection: Connection, driver: sqlite3.Connection, jobs: list[Job]) -> set[Job]:
        tx = Tx(connection, self._clock.now_us(), self._entropy)
        driver.execute("SAVEPOINT job")
        try:
            alone = run_together(tx, jobs)
        except BaseException as error:  # noqa: BLE001 - each runs alone, and what is wrong with one meets it there
            if not driver.in_transaction:
                raise _TransactionEnded(error) from None
            driver.execute("ROLLBACK TO job")
            driver.execute("RELEASE job")
            return set()
        driver.execute("RELEASE job")
        done = set(jobs).difference(alone)
        for job in done:
            job.wakes = tx.wakes
        return done

    def _savepoint(self, connection: Connection, driver: sqlite3.Connection, job: Job) -> None:
        tx = Tx(connection, self._clock.now_us(), self._entropy)
        driver.execute("SAVEPOINT job")
        try:
            value = job.fn(tx)
        except BaseException as error:  # noqa: BLE001 - handed to its caller
            if driver.in_transaction:
                driver.execute("ROLLBACK TO job")
                driver.execute("RELEASE job")
            job.end(True, _translated(error))
            return
        driver.execute("RELEASE job")
        job.wakes = tx.wakes
        job.end(False, value)

    def _writer(self) -> Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _drop_writer(self) -> None:
        # After a failed commit the connection's state is not worth trusting; the next write opens a fresh one.
        if self._connection is not None:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None

    async def close(self) -> None:
        """See `Database.close`."""
        with self._starting:
            self._closed = True
            thread = self._thread
        if thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(thread.join)
        if self._readers is not None:
            await asyncio.to_thread(self._readers.shutdown)
        if self._connection is not None:
            self._connection.close()
        self._engine.dispose()
        self._lock.close()


class _TransactionEnded(Exception):
    """The engine itself ended the shared transaction (disk full, I/O error): every job of the group fails."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(type(cause).__name__)
        self.cause = cause


def _driver(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


def _translated(error: BaseException) -> BaseException:
    """A busy or full database is `DatabaseBusy`; the rest stays what it is. Decided by SQLite's code, not by text.

    A refused write (quota, file size) is a full disk too: the log's last frame, which commits, was not written.
    """
    original = error if isinstance(error, sqlite3.Error) else getattr(error, "orig", None)
    code = getattr(original, "sqlite_errorcode", None)
    if code is not None and (code & 0xFF in _BUSY or code in _NO_ROOM):
        return DatabaseBusy()
    return error
