"""What every contract test gets: a migrated database of each engine and a clock that both engines obey.

`database` runs the test on SQLite and PostgreSQL; `clock` is the time of its transactions; `open_session()` opens the
same database once more, with a writer, a pool and a file lock of its own, for races between separate sessions.
"""

from __future__ import annotations

import dataclasses
import itertools
import secrets
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from frontdesk.app.migrating import head_revision, upgrade
from frontdesk.kernel.clock import ManualClock
from frontdesk.storage.database import Database, Wake
from frontdesk.storage.opening import open_database
from frontdesk.storage.postgres import postgres_engine
from frontdesk.storage.sqlite import sqlite_engine
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import DeskWorld, Seat, open_desk
from tests.contract.world import World, first_world
from tests.support.engines import Engine, database_name
from tests.support.postgres import SharedPostgres
from tests.support.summary import record_engine

T = TypeVar("T")


class OrderedEntropy:
    """Random bytes, but the eight of an id count upwards, so that rows of one instant sort as they were made.

    `clock` stands: with random ids such rows would come in any order, which no moving clock lets happen.
    """

    _count = itertools.count()

    def token_bytes(self, count: int) -> bytes:
        return next(self._count).to_bytes(8, "big") if count == 8 else secrets.token_bytes(count)


@dataclasses.dataclass(frozen=True, slots=True)
class TimedDatabase:
    """A real database whose transactions read `clock` instead of the server's time, on both engines alike."""

    inner: Database
    clock: ManualClock

    @property
    def engine_name(self) -> str:
        return self.inner.engine_name

    def _timed(self, fn: Callable[[Tx], T]) -> Callable[[Tx], T]:
        def run(tx: Tx) -> T:
            tx.now = self.clock.now_us()
            return fn(tx)

        return run

    async def read(self, fn: Callable[[Tx], T]) -> T:
        return await self.inner.read(self._timed(fn))

    async def write(self, fn: Callable[[Tx], T], *, wait_s: float | None = None) -> T:
        return await self.inner.write(self._timed(fn), wait_s=wait_s)

    def engine(self) -> Any:
        return self.inner.engine()

    async def close(self) -> None:
        await self.inner.close()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy, made once per worker."""
    path = tmp_path_factory.mktemp("template") / "frontdesk.db"
    migrated = sqlite_engine(path)
    upgrade(migrated)
    migrated.dispose()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


def _migrate_postgres(url: str) -> None:
    migrated = postgres_engine(url)
    upgrade(migrated)
    migrated.dispose()


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A migrated database on each engine in turn (elsewhere `engine` is an empty one)."""
    if request.param == "sqlite":
        path = tmp_path / "frontdesk.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        record_engine(request.node, "SQLite", sqlite3.sqlite_version)
        yield Engine(kind="sqlite", url=f"sqlite:///{path}", version=sqlite3.sqlite_version)
        return
    postgres: SharedPostgres = request.getfixturevalue("postgres")
    record_engine(request.node, "PostgreSQL", postgres.version)
    template = postgres.ensure_template(f"frontdesk_{head_revision()}", _migrate_postgres)
    name = database_name(request.node.name)
    yield Engine(kind="postgresql", url=postgres.create_database(name, template=template), version=postgres.version)
    postgres.drop_database(name)


@pytest.fixture
def clock() -> ManualClock:
    """The time of `database`; it stands until the test moves it."""
    return ManualClock()


@pytest.fixture
async def open_session(engine: Engine, clock: ManualClock) -> AsyncIterator[Callable[..., TimedDatabase]]:
    """Open the test's database once more: a separate session, closed after the test."""
    opened: list[TimedDatabase] = []

    def open_one(*, wake: Wake | None = None) -> TimedDatabase:
        opened.append(TimedDatabase(open_database(engine.url, clock, OrderedEntropy(), wake=wake), clock))
        return opened[-1]

    yield open_one
    for database in opened:
        await database.close()


@pytest.fixture
def database(open_session: Callable[..., TimedDatabase]) -> TimedDatabase:
    """The migrated database of this test; its transactions happen at `clock`."""
    return open_session()


@pytest.fixture
async def world(database: TimedDatabase) -> World:
    """`database` after a first start: `owner`, workspace `home`, project `first`."""
    return await first_world(database)


@pytest.fixture
async def desk(database: Database, clock: ManualClock) -> DeskWorld:
    """The whole desk on each engine."""
    return await open_desk(database, clock)


@pytest.fixture
async def seat(desk: DeskWorld) -> Seat:
    """The owner's at their chat: bound, with a conversation, an active grant and a sent activation."""
    return await desk.seat()
