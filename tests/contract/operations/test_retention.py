"""Retention: what goes, what stays, what is never touched, and passes that were cut off."""

from __future__ import annotations

from typing import Any

import pytest

from frontdesk.desk import inbox, outbox, sending
from frontdesk.desk.connections.channel import Unknown
from frontdesk.desk.operations import Purged, Retention
from frontdesk.kernel import limits
from frontdesk.kernel.clock import DAY, HOUR
from frontdesk.storage.database import Database
from tests.contract.desk_world import DeskWorld, Seat

KEPT = 30 * DAY
MARK = "planted-4711-text"
PURGED_RECEIPT = {"content_text", "request_hash", "purged_at", "updated_at"}
PURGED_DELIVERY = {"text", "payload_bytes", "purged_at", "updated_at"}
OPEN = {"received", "processing", "retryable_failed", "pending", "connecting", "sending"}


def retention(desk: DeskWorld, database: Database | None = None, **named: Any) -> Retention:
    return Retention(database or desk.database, KEPT, **named)


async def everything(desk: DeskWorld) -> dict[str, dict[str, Any]]:
    tables = ("receipts", "deliveries", "turns", "conversations", "settlements")
    return {row["id"]: row for table in tables for row in await desk.rows(table)}


async def used_desk(desk: DeskWorld, seat: Seat) -> None:
    """Answered, refused, unknown and settled work, a file, and some of each state that is still open."""
    desk.channel.outcomes.append(Unknown())
    for number in range(4):
        await desk.ask(f"{MARK} {number}", seat)
    await desk.work()
    await desk.send()
    await desk.push(desk.message(MARK, sender="ou_8", chat="oc_8"))
    (first, *_) = await desk.rows("deliveries", status="sent", purpose="agent_reply")
    await desk.force("deliveries", first["id"], payload_kind="file", payload_bytes=MARK.encode())
    await stuck(desk, seat)


async def stuck(desk: DeskWorld, seat: Seat) -> None:
    """Rows in each state that is still open, by force: the product would have ended them long ago."""
    for status in ("pending", "retryable_failed", "connecting", "sending"):
        await desk.ask(f"{MARK} {status}", seat)
        await desk.work()
        (row,) = [each for each in await desk.rows("deliveries", status="pending") if each["attempt_count"] == 0]
        await desk.force("deliveries", row["id"], status=status, attempt_count=1)
    for status in ("received", "retryable_failed", "processing"):
        receipt = await desk.ask(f"{MARK} {status}", seat)
        await desk.force("receipts", receipt["id"], status=status)


@pytest.mark.spec("DESK-369")
async def test_content_of_what_ended_goes_and_everything_else_stays(desk: DeskWorld, seat: Seat) -> None:
    """After `retention_days`, and not before, texts, payload bytes and inbound hashes of ended receipts and deliveries
    are cleared; rows, codes, ids, payload hashes and turns stay, and a message keeps its one receipt: a late push of it
    is acknowledged and changes nothing.
    """
    await used_desk(desk, seat)
    message = desk.message(f"{MARK} late", seat)
    await desk.push(message)
    (answered, *_) = [
        row for row in await desk.rows("receipts") if row["status"] == "completed" and row["content_text"]
    ]
    before = await everything(desk)
    desk.clock.advance(KEPT - DAY)
    assert await retention(desk).run() == Purged(0, 0)
    assert await everything(desk) == before
    young = await desk.ask("young", seat)
    desk.clock.advance(DAY + HOUR)
    purged = await retention(desk).run()
    after = await everything(desk)
    assert set(after) == set(before) | {young["id"]}
    changed = {row_id for row_id, row in before.items() if after[row_id] != row}
    expected = {
        row["id"]
        for table in ("receipts", "deliveries")
        for row in before.values()
        if row["id"].startswith({"receipts": "rcp_", "deliveries": "dlv_"}[table]) and row["status"] not in OPEN
    }
    assert changed == expected
    assert purged == Purged(
        receipts=len([each for each in expected if each.startswith("rcp_")]),
        deliveries=len([each for each in expected if each.startswith("dlv_")]),
    )
    for row_id in expected:
        columns = {name for name, value in before[row_id].items() if after[row_id][name] != value}
        assert columns <= (PURGED_RECEIPT if row_id.startswith("rcp_") else PURGED_DELIVERY), row_id
        assert after[row_id]["purged_at"] == desk.clock.now_us()
        cleared = ("content_text", "request_hash") if row_id.startswith("rcp_") else ("text", "payload_bytes")
        assert all(after[row_id][name] is None for name in cleared)
    assert {row["status"] for row in after.values() if row["id"].startswith("dlv_") and row["purged_at"]} >= {
        "sent", "indeterminate",
    }  # fmt: skip
    assert all(MARK in row["user_content"] for row in await desk.rows("turns"))

    late = desk.message("other words", seat, message_id=answered["provider_message_id"], signed_at_ms=1)
    count = await desk.count("receipts")
    known = await desk.push(late)
    assert (known.outcome, known.receipt_id, await desk.count("receipts")) == ("known", answered["id"], count)


class Crash(Exception):
    """The process died here."""


@pytest.mark.spec("DESK-370")
async def test_a_pass_that_is_cut_off_anywhere_is_begun_anew(
    desk: DeskWorld, seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purging goes page by page in transactions of their own; a process that dies before or after any of them leaves
    whole pages, and the next pass does exactly the rest; a further one changes nothing; no open row is ever touched,
    and what was changed is told.
    """
    monkeypatch.setattr(limits, "RETENTION_PAGE", 3)
    await used_desk(desk, seat)
    desk.clock.advance(KEPT + HOUR)
    before = await everything(desk)
    due = {
        row_id for row_id, row in before.items() if row_id.startswith(("rcp_", "dlv_")) and row["status"] not in OPEN
    }
    assert await retention(desk, trial=True).run() == told(due)
    assert await everything(desk) == before, "a trial changes nothing"

    total = 0
    for after_commit in (False, True, False, True):
        dying = Dying(desk.database, after_commit)
        with pytest.raises(Crash):
            await retention(desk, dying).run()  # type: ignore[arg-type]
        done = [row_id for row_id, row in (await everything(desk)).items() if row.get("purged_at") is not None]
        assert len(done) - total == (dying.wrote if after_commit else 0)
        assert len(done) - total <= 3
        total = len(done)
    assert 0 < total < len(due)
    rest = await retention(desk).run()
    assert rest.rows == len(due) - total
    after = await everything(desk)
    assert {row_id for row_id, row in after.items() if row.get("purged_at") is not None} == due
    assert {row_id for row_id in before if before[row_id] != after[row_id]} == due
    assert await retention(desk).run() == Purged(0, 0)
    assert await everything(desk) == after


def told(ids: set[str]) -> Purged:
    return Purged(len([each for each in ids if each.startswith("rcp_")]), len([each for each in ids if each[0] == "d"]))


class Dying:
    """A database whose process dies at its first write, before or after the commit."""

    def __init__(self, inner: Database, after_commit: bool) -> None:
        self._inner = inner
        self._after_commit = after_commit
        self.wrote = 0

    async def read(self, fn: Any) -> Any:
        return await self._inner.read(fn)

    async def write(self, fn: Any) -> Any:
        if self._after_commit:
            self.wrote = await self._inner.write(fn)
        raise Crash


async def test_a_row_that_opens_between_the_look_and_the_purge_is_left(desk: DeskWorld, seat: Seat) -> None:
    """The statement that purges judges state and age's mark again, whatever was read before."""
    await desk.ask(MARK, seat)
    (receipt,) = await desk.rows("receipts", status="received")
    (delivery,) = await desk.rows("deliveries", purpose="activation")
    await desk.work()
    (answer,) = await desk.rows("deliveries", status="pending")
    await desk.force("receipts", receipt["id"], status="received")
    assert await desk.write(inbox.purge, [receipt["id"]]) == 0
    assert await desk.write(outbox.purge, [answer["id"]]) == 0
    assert (await desk.row("deliveries", answer["id"]))["text"] == answer["text"] != ""
    assert await desk.write(outbox.purge, [delivery["id"]]) == 1
    assert await desk.write(outbox.purge, [delivery["id"]]) == 0
    assert (await desk.row("receipts", receipt["id"]))["content_text"] == MARK


async def test_a_look_at_a_purged_delivery_knows_nothing(desk: DeskWorld, seat: Seat) -> None:
    """Without its text a delivery cannot be compared: `unknown`, never `absent`, and the provider is not asked."""
    desk.channel.outcomes.append(Unknown())
    await desk.ask("hello", seat)
    await desk.work()
    await desk.send()
    (row,) = await desk.rows("deliveries", status="indeterminate")
    desk.clock.advance(KEPT + HOUR)
    await retention(desk).run()
    asked = len(desk.channel.connected)
    order = await desk.read(sending.begin_look, desk.owner, desk.home, row["id"], **desk.keys)
    seen = await sending.look(order)
    assert (seen.result, len(desk.channel.connected)) == ("unknown", asked)
