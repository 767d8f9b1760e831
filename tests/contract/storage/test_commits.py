"""Writes: shared commits, failures alone and together, busy databases, callers that go away, no values told."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from frontdesk.app import migrating
from frontdesk.app.schema import METADATA
from frontdesk.kernel.clock import SystemClock
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.storage import database as job_module
from frontdesk.storage import postgres as postgres_module
from frontdesk.storage import sqlite as sqlite_module
from frontdesk.storage.database import Database
from frontdesk.storage.postgres import CommitUnknown, PostgresDatabase, postgres_engine
from frontdesk.storage.sqlite import SqliteDatabase, sqlite_engine
from frontdesk.storage.tx import Tx
from tests.migration.rows import row
from tests.support.postgres import PostgresServer

WORKSPACES = METADATA.tables["workspaces"]
MARKER = "marker-4711-must-not-show"


def add(tx: Tx, slug: str, row_id: str = "*") -> str:
    """One row."""
    tx.execute(sa.insert(WORKSPACES).values(row(WORKSPACES, {}, slug=slug, id=row_id)))
    return slug


def slugs(tx: Tx) -> list[str]:
    return [each["slug"] for each in tx.rows(sa.select(WORKSPACES.c.slug).order_by(WORKSPACES.c.slug))]


def copied(template: Path, folder: Path) -> Path:
    """A migrated file of the test's own."""
    return Path(shutil.copyfile(template, folder / "one.db"))


@pytest.fixture
async def sqlite_db(tmp_path: Path, sqlite_template: Path) -> AsyncIterator[SqliteDatabase]:
    """A migrated SQLite database with its own writer."""
    path = copied(sqlite_template, tmp_path)
    made = SqliteDatabase(path, SystemClock(), SystemEntropy())
    yield made
    await made.close()


class Held:
    """A first write that waits inside its transaction, so that what is queued meanwhile ends up in one group."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.go = threading.Event()

    def __call__(self, tx: Tx) -> None:
        add(tx, "first")
        self.inside.set()
        assert self.go.wait(10)


async def inside(held: Held) -> None:
    assert await asyncio.to_thread(held.inside.wait, 10)


def committed(path: Path) -> list[str]:
    """What another connection sees."""
    with sqlite3.connect(path) as connection:
        found = [each[0] for each in connection.execute("SELECT slug FROM workspaces ORDER BY slug")]
    connection.close()
    return found


# ---------------------------------------------------------------------------------------------- group commit


async def test_waiting_writes_share_one_commit_and_a_failing_one_fails_alone(
    sqlite_db: SqliteDatabase, tmp_path: Path
) -> None:
    """What queued up is one transaction with a savepoint each; who raised gets its own error, the others their rows."""
    held = Held()
    first = asyncio.ensure_future(sqlite_db.write(held))
    await inside(held)

    def fails(tx: Tx) -> None:
        add(tx, "undone")
        raise LookupError("mine")

    rest = [asyncio.ensure_future(sqlite_db.write(lambda tx, n=n: add(tx, f"s{n}"))) for n in range(10)]  # type: ignore[misc]
    rest.insert(5, asyncio.ensure_future(sqlite_db.write(fails)))
    await asyncio.sleep(0)
    before = sqlite_db.commits
    held.go.set()
    outcomes = await asyncio.gather(first, *rest, return_exceptions=True)
    assert [type(each) for each in outcomes if isinstance(each, Exception)] == [LookupError]
    assert committed(tmp_path / "one.db") == ["first", *(f"s{n}" for n in range(10))]
    assert sqlite_db.commits - before == 2, "the one that was held, then the group"
    assert sqlite_db.grouped >= 11


async def test_no_caller_is_told_before_the_commit_that_holds_its_write(tmp_path: Path, sqlite_template: Path) -> None:
    """At COMMIT no future of the group is done; when one is, every row of the group is durable."""
    path = copied(sqlite_template, tmp_path)
    done: list[bool] = []
    writes: list[asyncio.Future[Any]] = []
    made = SqliteDatabase(
        path, SystemClock(), SystemEntropy(), on_commit=lambda: done.append(any(each.done() for each in writes))
    )
    held = Held()
    first = asyncio.ensure_future(made.write(held))
    await inside(held)
    writes += [asyncio.ensure_future(made.write(lambda tx, n=n: add(tx, f"s{n}"))) for n in range(5)]  # type: ignore[misc]
    await asyncio.sleep(0)
    held.go.set()
    await first
    await asyncio.wait(writes, return_when=asyncio.FIRST_COMPLETED)
    assert committed(path) == ["first", *(f"s{n}" for n in range(5))]
    await asyncio.gather(*writes)
    assert done == [False, False]
    await made.close()


def fill_up(tx: Tx) -> None:
    """Leave the database no page to grow into, and write until it needs one."""
    driver = tx.driver
    pages = driver.execute("PRAGMA page_count").fetchone()[0]
    driver.execute(f"PRAGMA max_page_count = {pages + 1}")
    tx.execute(sa.insert(WORKSPACES).values(row(WORKSPACES, {}, slug="big", name="x" * 200_000)))


async def test_a_full_disk_fails_every_write_of_the_group_and_none_is_half_done(
    sqlite_db: SqliteDatabase, tmp_path: Path
) -> None:
    """SQLITE_FULL: all who share the transaction are told `DatabaseBusy`; the next write has a fresh connection."""
    held = Held()
    first = asyncio.ensure_future(sqlite_db.write(held))
    await inside(held)
    rest = [asyncio.ensure_future(sqlite_db.write(lambda tx, n=n: add(tx, f"s{n}"))) for n in range(3)]  # type: ignore[misc]
    rest.append(asyncio.ensure_future(sqlite_db.write(fill_up)))
    rest += [asyncio.ensure_future(sqlite_db.write(lambda tx, n=n: add(tx, f"t{n}"))) for n in range(3)]  # type: ignore[misc]
    await asyncio.sleep(0)
    held.go.set()
    await first
    outcomes = await asyncio.gather(*rest, return_exceptions=True)
    seen = committed(tmp_path / "one.db")
    for each, slug in zip(outcomes, ["s0", "s1", "s2", "big", "t0", "t1", "t2"], strict=True):
        assert (slug in seen) is not isinstance(each, BaseException), f"{slug}: told one thing, kept another"
    assert isinstance(outcomes[3], DatabaseBusy)
    assert await sqlite_db.write(lambda tx: add(tx, "after")) == "after"


async def test_a_transaction_that_the_engine_ended_fails_all_who_shared_it(
    sqlite_db: SqliteDatabase, tmp_path: Path
) -> None:
    """What SQLite itself rolls back (here: ROLLBACK inside) is acknowledged to nobody."""
    held = Held()
    first = asyncio.ensure_future(sqlite_db.write(held))
    await inside(held)

    def ended(tx: Tx) -> None:
        tx.driver.execute("ROLLBACK")
        raise sqlite3.OperationalError("disk I/O error")

    rest = [asyncio.ensure_future(sqlite_db.write(lambda tx, n=n: add(tx, f"s{n}"))) for n in range(2)]  # type: ignore[misc]
    rest.append(asyncio.ensure_future(sqlite_db.write(ended)))
    rest.append(asyncio.ensure_future(sqlite_db.write(lambda tx: add(tx, "last"))))
    await asyncio.sleep(0)
    held.go.set()
    await first
    outcomes = await asyncio.gather(*rest, return_exceptions=True)
    assert all(isinstance(each, BaseException) for each in outcomes)
    assert committed(tmp_path / "one.db") == ["first"]
    assert await sqlite_db.write(slugs) == ["first"]


async def test_a_commit_that_fails_fails_all_who_shared_it(tmp_path: Path, sqlite_template: Path) -> None:
    path = copied(sqlite_template, tmp_path)
    failing = [True]

    def at_commit() -> None:
        if failing.pop() if failing else False:
            raise sqlite3.OperationalError("disk I/O error")

    made = SqliteDatabase(path, SystemClock(), SystemEntropy(), on_commit=at_commit)
    with pytest.raises(sqlite3.OperationalError):
        await made.write(lambda tx: add(tx, "lost"))
    assert committed(path) == []
    assert await made.write(lambda tx: add(tx, "kept")) == "kept"
    assert committed(path) == ["kept"]
    await made.close()


# ---------------------------------------------------------------------------------------------- busy and gone


async def test_a_write_that_could_not_begin_in_time_is_given_up_with_nothing_done(
    sqlite_db: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`DatabaseBusy` within the bound, and the write never happens afterwards either."""
    monkeypatch.setattr(sqlite_module, "BUSY_AFTER_S", 0.05)
    held = Held()
    first = asyncio.ensure_future(sqlite_db.write(held))
    await inside(held)
    ran: list[int] = []
    with pytest.raises(DatabaseBusy):
        async with asyncio.timeout(5):
            await sqlite_db.write(lambda tx: ran.append(1))
    held.go.set()
    await first
    assert await sqlite_db.write(slugs) == ["first"]
    assert not ran
    assert committed(tmp_path / "one.db") == ["first"]


async def test_a_lock_of_another_program_is_busy_and_nothing_is_done(
    tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's open write transaction without our file lock: busy after SQLite's own wait."""
    monkeypatch.setattr(sqlite_module, "BUSY_TIMEOUT_MS", 50)
    path = copied(sqlite_template, tmp_path)
    made = SqliteDatabase(path, SystemClock(), SystemEntropy())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseBusy):
        await made.write(lambda tx: add(tx, "lost"))
    assert await made.read(slugs) == [], "readers go on"
    other.execute("ROLLBACK")
    other.close()
    assert await made.write(lambda tx: add(tx, "kept")) == "kept"
    await made.close()


async def test_the_file_lock_of_another_process_keeps_a_write_from_beginning(
    sqlite_db: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds `<db>.lock` is alone: a write waits for it, is busy past its bound, and goes on once it is free."""
    monkeypatch.setattr(sqlite_module, "BUSY_AFTER_S", 0.05)
    other = sqlite_module.FileLock(tmp_path / "one.db.lock")
    with other:
        with pytest.raises(DatabaseBusy):
            await sqlite_db.write(lambda tx: add(tx, "early"))
        assert await sqlite_db.read(slugs) == []
    other.close()
    other.close()
    monkeypatch.setattr(sqlite_module, "BUSY_AFTER_S", 10.0)
    assert await sqlite_db.write(lambda tx: add(tx, "late")) == "late"
    assert await sqlite_db.read(slugs) == ["late"]


async def test_a_row_that_is_locked_too_long_is_busy(
    open_session: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL's lock_timeout is `DatabaseBusy`, and nothing of the transaction stays."""
    database = open_session()
    if database.engine_name != "postgresql":
        return
    await database.write(lambda tx: add(tx, "row"))
    blocker = postgres_engine(str(database.engine().url.render_as_string(hide_password=False)))
    with blocker.connect() as connection, connection.begin():
        connection.execute(sa.select(WORKSPACES).with_for_update())

        def wait(tx: Tx) -> None:
            add(tx, "lost")
            tx.conn.exec_driver_sql("SET LOCAL lock_timeout = 30")
            tx.execute(sa.update(WORKSPACES).where(WORKSPACES.c.slug == "row").values(name="x"))

        with pytest.raises(DatabaseBusy):
            await database.write(wait)
    blocker.dispose()
    assert await database.read(slugs) == ["row"]


async def test_a_caller_that_goes_away_lets_its_transaction_finish(database: Database) -> None:
    """Cancelling the wait cancels no transaction that began: it commits, and the database stays usable."""
    began, go = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        add(tx, "finished")
        began.set()
        assert go.wait(10)

    caller = asyncio.ensure_future(database.write(slow))
    assert await asyncio.to_thread(began.wait, 10)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go.set()
    for _ in range(500):
        if await database.read(slugs) == ["finished"]:
            break
        await asyncio.sleep(0.01)
    assert await database.write(slugs) == ["finished"]


async def test_closing_finishes_what_is_queued(tmp_path: Path, sqlite_template: Path) -> None:
    path = copied(sqlite_template, tmp_path)
    made = SqliteDatabase(path, SystemClock(), SystemEntropy())
    held = Held()
    first = asyncio.ensure_future(made.write(held))
    await inside(held)
    second = asyncio.ensure_future(made.write(lambda tx: add(tx, "second")))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(made.close())
    await asyncio.sleep(0)
    held.go.set()
    await asyncio.gather(first, second, closing)
    assert committed(path) == ["first", "second"]


async def test_hints_are_given_after_the_commit_and_for_committed_writes_alone(
    open_session: Callable[..., Any],
) -> None:
    seen: list[list[str]] = []
    woken = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wake(topics: list[str]) -> None:
        seen.append(topics)
        loop.call_soon_threadsafe(woken.set)

    database = open_session(wake=wake)

    def good(tx: Tx) -> None:
        tx.wake("receipts")
        tx.wake("receipts")
        tx.wake("deliveries")

    def bad(tx: Tx) -> None:
        tx.wake("never")
        raise LookupError

    with pytest.raises(LookupError):
        await database.write(bad)
    await database.write(good)
    async with asyncio.timeout(5):
        await woken.wait()
    assert seen == [["receipts", "deliveries"]]


def test_a_job_is_started_or_abandoned_and_never_both() -> None:
    async def race() -> None:
        job = job_module.Job(lambda tx: None)
        assert job.start()
        job.abandon()
        assert not job.future.done(), "it runs: it will finish"
        other = job_module.Job(lambda tx: None)
        other.abandon()
        assert not other.start()
        with pytest.raises(DatabaseBusy):
            await other.future

    asyncio.run(race())


# ---------------------------------------------------------------------------------------------- PostgreSQL alone


@pytest.mark.engine("postgresql")
async def test_deadlocks_and_serialization_failures_are_run_again(open_session: Callable[[], Any]) -> None:
    """Two transactions that lock two rows the other way round both succeed in the end."""
    one, two = open_session(), open_session()
    for slug in ("a", "b"):
        await one.write(lambda tx, slug=slug: add(tx, slug))  # type: ignore[misc]
    barrier = threading.Barrier(2)
    runs = {"ab": 0, "ba": 0}

    def crossing(order: str) -> Callable[[Tx], None]:
        def run(tx: Tx) -> None:
            runs[order] += 1
            for place, slug in enumerate(order):
                tx.execute(sa.update(WORKSPACES).where(WORKSPACES.c.slug == slug).values(name=order))
                if place == 0 and runs[order] == 1:
                    barrier.wait(10)

        return run

    await asyncio.gather(one.write(crossing("ab")), two.write(crossing("ba")))
    assert 3 <= sum(runs.values()) <= 2 * postgres_module.TRIES_MAX


@pytest.mark.engine("postgresql")
async def test_what_never_succeeds_is_busy_after_a_bounded_number_of_tries(database: Database) -> None:
    tries = 0

    def always(tx: Tx) -> None:
        nonlocal tries
        tries += 1
        add(tx, "lost")
        tx.conn.exec_driver_sql("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40001'; END $$")

    with pytest.raises(DatabaseBusy):
        await database.write(always)
    assert tries == postgres_module.TRIES_MAX
    assert await database.read(slugs) == []


async def test_a_restarted_server_is_found_again_and_an_unknown_commit_is_never_repeated() -> None:
    """Connections of before the restart are replaced; one that breaks in COMMIT is told as unknown, not run again."""
    with PostgresServer() as server:
        assert server.address is not None
        url = server.address.url("postgres")
        migrated = postgres_engine(url)
        migrating.upgrade(migrated)
        migrated.dispose()
        database = PostgresDatabase(url, SystemClock(), SystemEntropy())
        await database.write(lambda tx: add(tx, "before"))
        server.restart()
        assert await database.write(lambda tx: add(tx, "after")) == "after"
        assert await database.read(slugs) == ["after", "before"]

        runs: list[int] = []

        def broken(tx: Tx) -> None:
            runs.append(1)
            add(tx, "unknown")
            pid = tx.count(sa.text("SELECT pg_backend_pid()"))
            with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as killer:
                killer.execute("SELECT pg_terminate_backend(%s)", (pid,))
                while killer.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone():
                    pass

        with pytest.raises((CommitUnknown, DatabaseBusy)) as caught:
            await database.write(broken)
        assert caught.type is CommitUnknown
        assert len(runs) == 1
        assert await database.read(slugs) == ["after", "before"]

        server.stop()
        with pytest.raises(DatabaseBusy):
            await database.read(slugs)
        with pytest.raises(DatabaseBusy):
            await database.write(lambda tx: add(tx, "down"))
        server.start()
        assert await database.read(slugs) == ["after", "before"]
        await database.close()


# ---------------------------------------------------------------------------------------------- several processes

CLAIMS = 20


def claim_in_a_process(path: str, name: str, results: Any) -> None:
    """Write many small transactions against others doing the same."""

    async def work() -> tuple[int, int]:
        database = SqliteDatabase(Path(path), SystemClock(), SystemEntropy())
        busy = 0
        for number in range(CLAIMS):
            try:
                await database.write(lambda tx, number=number: add(tx, f"{name}-{number}", tx.new_id("wsp")))  # type: ignore[misc]
            except DatabaseBusy:
                busy += 1
        await database.close()
        return database.commits, busy

    results.put((name, *asyncio.run(work())))


def test_processes_on_one_file_take_turns_without_a_busy_error(tmp_path: Path, sqlite_template: Path) -> None:
    """The short form of eight processes on one file: nobody sees busy, nobody starves, every write is there."""
    path = copied(sqlite_template, tmp_path)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    names = ["p1", "p2", "p3"]
    processes = [context.Process(target=claim_in_a_process, args=(str(path), name, results)) for name in names]
    for process in processes:
        process.start()
    ended = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(30)
    assert sorted(ended) == [(name, CLAIMS, 0) for name in names]
    assert len(committed(path)) == CLAIMS * len(names)


# ---------------------------------------------------------------------------------------------- nothing of values


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """Everything SQLAlchemy logs at its most talkative."""
    kept: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record)

    loggers = [logging.getLogger(name) for name in ("sqlalchemy", "sqlalchemy.engine", "sqlalchemy.pool")]
    before = [(each, each.level) for each in loggers]
    handler = Keep()
    for each in loggers:
        each.setLevel(logging.DEBUG)
    loggers[0].addHandler(handler)
    yield kept
    loggers[0].removeHandler(handler)
    for each, level in before:
        each.setLevel(level)


@pytest.mark.spec("DESK-220")
async def test_errors_and_echo_never_show_a_parameter(engine: Any, records: list[logging.LogRecord]) -> None:
    """With echo and debug on, a statement is logged and raised without the values it was given."""
    made = (
        postgres_engine(engine.url)
        if engine.kind == "postgresql"
        else sqlite_engine(Path(engine.url.removeprefix("sqlite:///")))
    )
    made.echo = "debug"
    values = row(WORKSPACES, {}, slug=MARKER)
    with made.connect() as connection:
        if engine.kind == "sqlite":
            connection.exec_driver_sql("BEGIN")
        connection.execute(sa.insert(WORKSPACES).values(values))
        with pytest.raises(sa.exc.IntegrityError) as caught:
            connection.execute(sa.insert(WORKSPACES).values({**values, "id": "x", "name": None}))
        assert MARKER not in str(caught.value).replace(str(caught.value.orig), "")
        assert "hidden" in str(caught.value)
        connection.rollback() if engine.kind == "postgresql" else connection.exec_driver_sql("ROLLBACK")
    made.dispose()
    assert len(records) > 3
    said = "\n".join(record.getMessage() for record in records if record.name == "sqlalchemy.engine.Engine")
    assert "INSERT INTO workspaces" in said
    assert MARKER not in said
