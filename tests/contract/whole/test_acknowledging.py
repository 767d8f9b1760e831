"""When a push is answered 200: not before its commit, on no thread that a slow one holds, and alone where it fails."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import BuiltinMethodType
from typing import Any

import pytest
import sqlalchemy as sa

from frontdesk.app import reception
from frontdesk.channels.feishu import sdk
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND, ManualClock
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.storage.sqlite import SqliteDatabase
from frontdesk.storage.tx import Tx
from tests.contract.conftest import TimedDatabase
from tests.contract.whole.house import BreakableDatabase, House, open_house

DEADLINE_S = 60.0
OpenSession = Callable[..., TimedDatabase]


class Held:
    """A transaction that keeps every receipt from being committed until it is let go."""

    def __init__(self) -> None:
        self.inside, self.go = threading.Event(), threading.Event()
        self.work: Callable[[Tx], None] = lambda _tx: None

    def __call__(self, tx: Tx) -> None:
        if tx.conn.dialect.name == "postgresql":
            tx.execute(sa.text("LOCK TABLE receipts IN EXCLUSIVE MODE"))
        self.work(tx)
        self.inside.set()
        assert self.go.wait(DEADLINE_S)


@contextlib.asynccontextmanager
async def held_up(database: Any, work: Callable[[Tx], None] | None = None) -> AsyncIterator[Held]:
    """Nothing is committed inside the block, or until `go` is set."""
    held = Held()
    if work is not None:
        held.work = work
    task = asyncio.ensure_future(database.write(held))
    inside = asyncio.ensure_future(asyncio.to_thread(held.inside.wait, DEADLINE_S))
    await asyncio.wait({task, inside}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        held.inside.set()
        await task
    await inside
    try:
        yield held
    finally:
        held.go.set()
        await task


class Passing:
    """Counts pushes that reached t0; `reached(n)` waits for the n-th."""

    def __init__(self) -> None:
        self.count = 0
        self._more = asyncio.Event()
        self.failpoints = Failpoints(observer=self._seen)

    def _seen(self, point: str) -> None:
        if point == "t0.before":
            self.count += 1
            self._more.set()

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while self.count < count:
                self._more.clear()
                await self._more.wait()


@pytest.mark.spec("DESK-41")
async def test_a_slow_commit_holds_neither_the_verifying_thread_nor_the_loop(
    database: BreakableDatabase, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's dispatcher runs on a thread of its own, captures and ends; the commit is waited for without any thread.

    The handler of the SDK that acknowledges first is never asked.
    """
    passing = Passing()
    made: list[tuple[str, Any]] = []
    capturing = sdk.capturing_dispatcher

    def watched() -> Any:
        build = capturing()

        def construct(*arguments: Any) -> Any:
            made.append((threading.current_thread().name, arguments[-1]))
            return build(*arguments)

        return construct

    monkeypatch.setattr(sdk, "capturing_dispatcher", watched)
    sdk.load()
    from lark_channel.channel.channel import FeishuChannel as Acknowledging

    def asked(*_: Any, **__: Any) -> None:
        raise AssertionError("the handler that acknowledges before anything is kept was asked")

    monkeypatch.setattr(Acknowledging, "handle_webhook_request", asked)
    monkeypatch.setattr(Acknowledging, "__init__", asked)
    async with open_house(database, clock, tmp_path, threads=None, failpoints=passing.failpoints) as house:
        assert (await house.push(house.message("warm", "om_warm"))).status_code == 200
        async with held_up(database):
            under_way = [asyncio.ensure_future(house.push(house.message("m", f"om_{n}"))) for n in range(5)]
            await passing.reached(6)
            # Every push was verified, none is committed, and the one verifying thread takes the next one.
            forged = await house.push(house.message("forged", "om_forged"), key="another-key")
            assert forged.status_code == 500
            async with await house.client() as anybody:
                assert (await anybody.get("/healthz")).status_code == 200
            assert not any(push.done() for push in under_way)
        assert [(await push).status_code for push in under_way] == [200] * 5
        assert {name for name, _ in made} == {"frontdesk-verify"}
        for _, capture in made:
            assert isinstance(capture, BuiltinMethodType)
            assert (capture.__name__, type(capture.__self__)) == ("append", list)
        assert threading.current_thread().name != "frontdesk-verify"
        assert await house.desk.count("receipts") == 6


@pytest.mark.spec("DESK-42")
async def test_a_push_is_acknowledged_after_its_commit_and_not_without_it(
    house: House, database: BreakableDatabase, open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 200 another session finds the row; a failed commit and one past two seconds are 500, and the late one goes on.

    The push that follows the late commit is 200, and there is one receipt.
    """
    other = open_session()
    seen: list[tuple[int, int]] = []
    api = house.process.api

    async def watching(scope: Any, receive: Any, send: Any) -> None:
        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start" and scope["path"].endswith("/events"):
                seen.append((message["status"], await other.read(count_receipts)))
            await send(message)

        await api(scope, receive, sending)

    monkeypatch.setattr(house.process, "api", watching)
    assert (await house.push(house.message("one", "om_1"))).status_code == 200
    assert seen == [(200, 1)]

    database.broken.append("the commit")
    pushed = house.message("two", "om_2")
    assert (await house.push(pushed)).status_code == 500
    database.broken.clear()
    assert seen[1:] == [(500, 1)]
    assert (await house.push(pushed)).status_code == 200
    assert seen[2:] == [(200, 2)]

    assert limits.CALLBACK_COMMIT_WAIT_US == 2 * SECOND
    late = house.message("late", "om_3")
    async with held_up(database):
        monkeypatch.setattr(reception, "COMMIT_WAIT_S", 0.01)
        assert (await house.push(late)).status_code == 500
        assert seen[3:] == [(500, 2)]
        monkeypatch.setattr(reception, "COMMIT_WAIT_S", 60.0)
    async with asyncio.timeout(DEADLINE_S):
        while await other.read(count_receipts) < 3:
            pass
    assert (await house.push(late)).status_code == 200
    assert seen[4:] == [(200, 3)]
    (row,) = await house.desk.rows("receipts", provider_message_id="om_3")
    assert row["attempt_count"] == 0


def test_the_callback_waits_two_seconds() -> None:
    """The bound that the test above shortens is the one that stands in the limits."""
    import importlib

    fresh = importlib.util.find_spec("frontdesk.app.reception")
    assert fresh is not None
    assert fresh.origin is not None
    assert "COMMIT_WAIT_S: Final = limits.CALLBACK_COMMIT_WAIT_US / SECOND" in Path(fresh.origin).read_text()


def count_receipts(tx: Tx) -> int:
    return tx.count(sa.text("SELECT count(*) FROM receipts"))


@pytest.mark.spec("DESK-284")
@pytest.mark.engine("sqlite")
async def test_pushes_that_share_a_commit_stand_and_fall_as_they_should(
    database: BreakableDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """Queued pushes are one commit, each behind a savepoint: one that fails is 500 alone, and none is told before it.

    Where the engine itself ends the shared transaction, for want of disk, every one of them is 500 and none is kept.
    """
    passing = Passing()
    inner = database.inner
    assert isinstance(inner, SqliteDatabase)
    async with open_house(database, clock, tmp_path, failpoints=passing.failpoints) as house:
        first = house.message("first", "om_0")
        assert (await house.push(first)).status_code == 200
        pushes: list[asyncio.Future[Any]] = []
        told: list[int] = []
        inner._on_commit = lambda: told.append(sum(push.done() for push in pushes))

        async def together(payloads: list[Any], work: Callable[[Tx], None] | None = None) -> list[int]:
            start = passing.count
            async with held_up(database, work):
                pushes[:] = [asyncio.ensure_future(house.push(each)) for each in payloads]
                await passing.reached(start + len(payloads))
                await asyncio.sleep(0)
            return [(await push).status_code for push in pushes]

        commits = inner.commits
        conflicting = house.message("another text under a known id", "om_0")
        payloads = [house.message("m", f"om_{n}") for n in range(1, 4)]
        assert await together([*payloads[:2], conflicting, payloads[2]]) == [200, 200, 500, 200]
        assert inner.commits - commits == 2, "the held one, then all four pushes"
        assert told == [0, 0], "somebody was told before the shared commit"
        kept = [row["provider_message_id"] for row in await house.desk.rows("receipts")]
        assert sorted(kept) == ["om_0", "om_1", "om_2", "om_3"]

        long = house.message("x" * 15_000, "om_long")
        full = [house.message("m", "om_5"), *(dict(long, event=moved(long, n)) for n in range(12))]
        assert set(await together(full, no_page_left)) == {500}
        assert await house.desk.count("receipts") == 4
        inner._drop_writer()
        assert (await house.push(full[0])).status_code == 200


def moved(payload: dict[str, Any], number: int) -> dict[str, Any]:
    """The event under another message id."""
    event = dict(payload["event"])
    event["message"] = {**event["message"], "message_id": f"om_long{number}"}
    return event


def no_page_left(tx: Tx) -> None:
    """The database may grow no more: the connection that writes all of this finds its disk full."""
    pages = tx.driver.execute("PRAGMA page_count").fetchone()[0]
    tx.driver.execute(f"PRAGMA max_page_count = {pages}")


@pytest.mark.spec("DESK-284")
async def test_of_concurrent_pushes_the_failing_one_alone_is_refused(
    database: BreakableDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """Whether or not the engine lets them share a commit: one that must not be acknowledged takes no other along."""
    passing = Passing()
    async with open_house(database, clock, tmp_path, failpoints=passing.failpoints) as house:
        assert (await house.push(house.message("first", "om_0"))).status_code == 200
        payloads = [house.message("m", f"om_{n}") for n in range(1, 5)]
        payloads.insert(2, house.message("another text under a known id", "om_0"))
        async with held_up(database):
            pushes = [asyncio.ensure_future(house.push(each)) for each in payloads]
            await passing.reached(1 + len(payloads))
            assert not any(push.done() for push in pushes)
        assert [(await push).status_code for push in pushes] == [200, 200, 500, 200, 200]
        assert await house.desk.count("receipts") == 5
