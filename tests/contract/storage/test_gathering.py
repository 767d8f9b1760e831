"""Gathered writes: what waits together shares statements and a commit; what is wrong with one stays with that one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from frontdesk.app.schema import METADATA
from frontdesk.kernel.clock import SystemClock
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.storage import postgres as postgres_module
from frontdesk.storage.database import Database, Gathering
from frontdesk.storage.opening import open_database
from frontdesk.storage.postgres import CommitUnknown
from frontdesk.storage.tx import Tx
from tests.migration.rows import row
from tests.support.engines import Engine

WORKSPACES = METADATA.tables["workspaces"]


class Book:
    """A gathering that notes slugs, and how it was asked to."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.alone_for: list[str] = []
        self.gathering = Gathering(self.alone, self.together)

    def alone(self, tx: Tx, slug: str) -> str:
        self.alone_for.append(slug)
        if "bad" in slug:
            raise LookupError(slug)
        _add(tx, slug)
        return f"alone:{slug}"

    def together(self, tx: Tx, slugs: Sequence[str]) -> list[str | Exception | None]:
        self.sizes.append(len(slugs))
        if any(slug.startswith("spoil") for slug in slugs):
            _add(tx, "half-done")
            raise ValueError("spoilt")
        tx.wake("noted")
        return [self._one(tx, slug) for slug in slugs]

    def _one(self, tx: Tx, slug: str) -> str | Exception | None:
        if slug.startswith("later"):
            return None
        if slug.startswith("bad"):
            return LookupError(slug)
        _add(tx, slug)
        return f"together:{slug}"


def _add(tx: Tx, slug: str) -> None:
    tx.execute(sa.insert(WORKSPACES).values(row(WORKSPACES, {}, slug=slug, id="*")))


async def noted(database: Database) -> set[str]:
    found = await database.read(lambda tx: tx.rows(sa.select(WORKSPACES.c.slug)))
    return {each["slug"] for each in found}


class Gate:
    """Writes of another gathering's kind that hold every place where gathered writes are taken up."""

    def __init__(self, book: Book, database: Database) -> None:
        self._book, self._database = book, database
        self._go = threading.Event()
        self.places = 1 if database.engine_name == "sqlite" else postgres_module.GATHERERS
        self._inside = threading.Barrier(self.places + 1)

    def _hold(self, _tx: Tx, _slug: str) -> str:
        self._inside.wait(30)
        assert self._go.wait(30)
        return "held"

    async def fill(self, slugs: Sequence[str]) -> list[Any]:
        """Hand the slugs in while the places are held, let go, and return what became of each."""
        usual = self._book.alone
        # The same gathering, so that on PostgreSQL its gatherers are the ones that wait.
        holding = Gathering(
            lambda tx, slug: self._hold(tx, slug) if slug == "hold" else usual(tx, slug), self._book.together
        )
        held = []
        for _ in range(self.places):
            held.append(asyncio.ensure_future(self._database.write(holding.of("hold"))))
            await asyncio.sleep(0)
            if len(held) < self.places:
                waiting = len(held)
                await asyncio.to_thread(_until, lambda: self._inside.n_waiting >= waiting)  # noqa: B023 - awaited here
        await asyncio.to_thread(self._inside.wait, 30)
        writes = [asyncio.ensure_future(self._database.write(holding.of(slug))) for slug in slugs]
        await asyncio.sleep(0)
        self._go.set()
        await asyncio.gather(*held)
        return await asyncio.gather(*writes, return_exceptions=True)


def _until(true: Callable[[], bool]) -> None:
    turn = threading.Event()
    for _ in range(3_000):
        if true():
            return
        turn.wait(0.01)
    raise AssertionError("it never came to be")


@pytest.fixture
async def plain(engine: Engine) -> Any:
    """The real database, unwrapped: a wrapped function is no gathered write."""
    wakes: list[str] = []
    made = open_database(engine.url, SystemClock(), SystemEntropy(), wake=wakes.extend)
    yield made, wakes
    await made.close()


async def test_what_waits_together_is_written_together(plain: tuple[Database, list[str]]) -> None:
    """Ten writes that wait become one call and one commit; a lone one runs alone; every caller gets its own result."""
    database, wakes = plain
    book = Book()
    assert await database.write(book.gathering.of("first")) == "alone:first"
    before = database.commits  # type: ignore[attr-defined]
    gate = Gate(book, database)
    outcomes = await gate.fill([f"s{n}" for n in range(10)])
    assert outcomes == [f"together:s{n}" for n in range(10)]
    assert book.sizes == [10]
    assert database.commits - before == gate.places + 1  # type: ignore[attr-defined]
    assert await noted(database) >= {"first", *(f"s{n}" for n in range(10))}
    await asyncio.to_thread(_until, lambda: "noted" in wakes)


async def test_a_bad_item_fails_alone_and_a_left_one_runs_alone(plain: tuple[Database, list[str]]) -> None:
    """An exception is its own caller's, None means `alone` follows, and the others keep their rows."""
    database, _ = plain
    book = Book()
    outcomes = await Gate(book, database).fill(["a", "bad", "later", "b", "later-bad"])
    assert [str(each) if isinstance(each, Exception) else each for each in outcomes] == [
        "together:a", "bad", "alone:later", "together:b", "later-bad",
    ]  # fmt: skip
    assert {"a", "b", "later"} <= await noted(database)
    assert book.alone_for == ["later", "later-bad"]


async def test_what_fails_together_is_undone_and_runs_alone(plain: tuple[Database, list[str]]) -> None:
    """Nothing of the shared attempt stays, and only what is wrong with one meets that one."""
    database, _ = plain
    book = Book()
    outcomes = await Gate(book, database).fill(["a", "spoil", "bad", "b"])
    assert book.sizes == [4]
    assert book.alone_for == ["a", "spoil", "bad", "b"]
    assert isinstance(outcomes[2], LookupError)
    assert {"a", "spoil", "b"} <= await noted(database)
    assert "half-done" not in await noted(database)


@pytest.mark.engine("postgresql")
@pytest.mark.parametrize("error", [CommitUnknown(), DatabaseBusy()])
async def test_an_unknown_commit_and_a_busy_database_are_told_to_each_and_not_run_again(
    plain: tuple[Database, list[str]], error: Exception
) -> None:
    """Whether the shared commit took effect nobody knows: no caller is told success, and nothing is written twice."""
    database, _ = plain
    book = Book()

    def unsure(_tx: Tx, _slugs: Sequence[str]) -> list[str | Exception | None]:
        raise error

    book.together = unsure  # type: ignore[method-assign]
    outcomes = await Gate(book, database).fill(["a", "b", "c", "d"])
    assert all(each is error for each in outcomes)
    assert book.alone_for == []
