"""Leases: who may work on what, for how long, and how work comes back when nobody does any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from frontdesk.desk import conversations, outbox
from frontdesk.desk.connections.channel import ConnectFailed
from frontdesk.desk.conversations.runner import Answer
from frontdesk.desk.conversations.sender import Message
from frontdesk.desk.inbox import Receipt, claiming, store, working
from frontdesk.desk.inbox.claiming import Claim
from frontdesk.desk.sending import steps as sending
from frontdesk.desk.sending.steps import Order
from frontdesk.identity.model import Actor
from frontdesk.kernel import limits
from frontdesk.kernel.clock import HOUR, MINUTE, SECOND, ManualClock
from frontdesk.kernel.errors import StaleFence
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.storage.database import Database
from frontdesk.storage.guarded import Take
from frontdesk.storage.opening import open_database
from frontdesk.storage.tx import Tx
from tests.contract.answering.steps import claimed, look, race_after_reading, recover
from tests.contract.desk_world import LEASE_US, TABLES, DeskWorld, Gate, Seat
from tests.support.engines import Engine

T = TypeVar("T")
ORDER = Order("sender", LEASE_US, 4 * HOUR, 8)


class Watched:
    """A database that tells after each of its writes; `hold` keeps the next ones back."""

    def __init__(self, inner: Database) -> None:
        self.inner = inner
        self.engine_name = inner.engine_name
        self.writes = 0
        self.wrote = asyncio.Condition()

    async def read(self, fn: Callable[[Tx], T]) -> T:
        return await self.inner.read(fn)

    async def write(self, fn: Callable[[Tx], T]) -> T:
        result = await self.inner.write(fn)
        async with self.wrote:
            self.writes += 1
            self.wrote.notify_all()
        return result

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Look again after each write until it holds."""
        async with asyncio.timeout(10):
            while not await holds():
                async with self.wrote:
                    await self.wrote.wait()

    def engine(self) -> Any:
        return self.inner.engine()

    async def close(self) -> None:
        """The inner database is the fixture's to close."""


async def several(desk: DeskWorld, count: int) -> list[Seat]:
    """People with a grant each."""
    seats = []
    for number in range(count):
        person: Actor = await desk.people.person(f"person-{number}", "operator")
        seats.append(await desk.seat(person, sender=f"ou_p{number}", chat=f"oc_p{number}"))
    return seats


async def pending(desk: DeskWorld, seat: Seat) -> str:
    """A pending reply; returns the delivery's id."""
    receipt = await desk.ask("hello", seat)
    await desk.work()
    delivery = await desk.delivery_of(receipt["id"])
    assert delivery is not None
    return delivery.id


# ---------------------------------------------------------------------------------------------- generations, claims


@pytest.mark.spec("DESK-129")
async def test_a_generation_counts_claims_and_is_never_negative(desk: DeskWorld, seat: Seat) -> None:
    """Rows begin at generation 0, each claim adds one, and the database takes no negative one."""
    receipt = await desk.ask("hello", seat)
    assert receipt["lease_generation"] == 0
    for generation in (1, 2, 3):
        (taken,) = await claimed(desk, owner=f"w-{generation}")
        assert taken.lease.generation == generation
        desk.clock.advance(LEASE_US)
    await desk.work()
    (delivery,) = await desk.rows("deliveries", receipt=receipt["id"])
    (turn,) = await desk.rows("turns")
    assert (delivery["lease_generation"], turn["lease_generation"]) == (0, 0)
    for generation in (1, 3):  # settling the first lapse raises it as well
        (attempt,) = await desk.write(sending.claim_due, ORDER, desk.parts)
        assert attempt.delivery.lease.generation == generation
        desk.clock.advance(LEASE_US)
        await desk.write(outbox.settle_lapsed, 10)
    for table, row in (("receipts", receipt), ("deliveries", delivery), ("turns", turn)):
        with pytest.raises(IntegrityError):
            await desk.force(table, row["id"], lease_generation=-1)


@pytest.mark.spec("DESK-130")
async def test_of_two_sessions_that_saw_it_free_one_claims(
    desk: DeskWorld, seat: Seat, open_session: Callable[[], Database]
) -> None:
    """Receipt and delivery have one winner; two receipts of a grant too, even without the claim's own look."""
    sessions = [open_session(), open_session()]
    first = await desk.ask("one", seat)

    def claim_head(tx: Tx, index: int, heads: Any) -> Receipt | None:
        order = Claim(f"w-{index}", LEASE_US, 8)
        return claiming._claim_head(tx, first["id"], 0, order) if heads else None

    won = await race_after_reading(sessions, lambda tx, _: list(store.heads(tx, 10)), claim_head)
    assert [receipt.id for receipt in won if receipt is not None] == [first["id"]]
    assert (await desk.row("receipts", first["id"]))["lease_generation"] == 1
    desk.clock.advance(LEASE_US)
    await desk.work()

    (delivery,) = await desk.rows("deliveries", receipt=first["id"])

    def claim_delivery(tx: Tx, index: int, found: Any) -> Any:
        return outbox.claim(tx, found, f"s-{index}", LEASE_US) if found.status == "pending" else None

    sent = await race_after_reading(sessions, lambda tx, _: outbox.find_delivery(tx, delivery["id"]), claim_delivery)
    assert len([each for each in sent if each is not None]) == 1
    assert (await desk.row("deliveries", delivery["id"]))["lease_generation"] == 1

    pair = [await desk.ask("two", seat), await desk.ask("three", seat)]

    def claim_any(tx: Tx, index: int, _: Any) -> tuple[Any, bool]:
        values = {"attempt_count": 1, "processing_started_at": tx.now}
        row, busy = store.try_claim(tx, pair[index]["id"], Take(f"w-{index}", tx.now + LEASE_US), values)
        return (row is not None), busy

    outcomes = await race_after_reading(sessions, lambda tx, index: store.find(tx, pair[index]["id"]), claim_any)
    assert sorted(outcomes) == [(False, True), (True, False)]
    assert await desk.count("receipts", status="processing") == 1


def unlocked(statement: Any) -> Any:
    return statement


class NoLock:
    """Stands in for the lock between processes."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def __enter__(self) -> None:
        """Holds nothing."""

    def __exit__(self, *_: object) -> None:
        """Releases nothing."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.spec("DESK-132")
async def test_claims_and_fences_need_no_lock_of_their_own(
    desk: DeskWorld, open_session: Callable[[], Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With row locks and the lock between processes taken away, each message is still run once and sent once."""
    seats = await several(desk, 4)
    asked = [await desk.ask(f"question {number}", seats[number % 4]) for number in range(12)]
    for room in ("inbox", "outbox", "grants", "conversations", "connections"):
        module = __import__(f"frontdesk.desk.{room}.store", fromlist=["store"])
        for name in ("for_update", "for_share"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, unlocked)
    for name in ("for_update", "for_share"):
        identity = __import__("frontdesk.identity.store", fromlist=["store"])
        if hasattr(identity, name):
            monkeypatch.setattr(identity, name, unlocked)
    monkeypatch.setattr("frontdesk.storage.sqlite.FileLock", NoLock)
    sessions = [open_session() for _ in range(3)]
    workers = [desk.receipt_worker(database=session) for session in sessions]
    senders = [desk.delivery_worker(database=session) for session in sessions]
    while await desk.count("receipts", status="completed", intent="reply") < len(asked):
        await asyncio.gather(*(worker.step() for worker in workers))
        assert await desk.count("receipts", status="processing") <= 4
        await asyncio.gather(*(sender.step() for sender in senders))
        while any(worker.busy for worker in workers):
            await asyncio.wait({task for worker in workers for task in worker._tasks})
    for sender in senders:
        await sender.stop(60)
    await desk.send()
    assert len(desk.runner.requests) == len(asked)
    assert sorted(message.text or "" for message in desk.channel.sent) == sorted(
        f"answer to question {number}" for number in range(12)
    )
    assert {seat["cursor"] for seat in await desk.rows("reply_grants")} == {3}
    assert {row["attempt_count"] for row in await desk.rows("receipts", status="completed", intent="reply")} == {1}


@pytest.mark.spec("DESK-136")
async def test_a_live_lease_is_never_taken_and_a_lapsed_one_once(
    desk: DeskWorld, seat: Seat, open_session: Callable[[], Database]
) -> None:
    """Up to its last microsecond a lease holds; at its expiry a sweep and a claim together make one winner."""
    receipt = await desk.ask("hello", seat)
    (holder,) = await claimed(desk)
    desk.clock.advance(LEASE_US - 1)
    assert await claimed(desk, owner="early") == []
    assert await recover(desk) == 0
    assert (await desk.row("receipts", receipt["id"]))["lease_owner"] == "dead"
    desk.clock.advance(1)
    assert holder.lease.expires_at == desk.clock.now_us()
    sessions = [open_session() for _ in range(3)]

    def take(tx: Tx, index: int, _: Any) -> Any:
        row = store.move(tx, "take_over", receipt["id"], take=Take(f"w-{index}", tx.now + LEASE_US))
        return None if row is None else row["lease_generation"]

    won = await race_after_reading(sessions, lambda tx, _: store.lapsed(tx, 10), take)
    assert sorted(won, key=str) == [2, None, None]

    delivery_id = ""
    desk.clock.advance(LEASE_US)
    await desk.work()
    (delivery,) = await desk.rows("deliveries", receipt=receipt["id"])
    delivery_id = delivery["id"]
    (attempt,) = await desk.write(sending.claim_due, ORDER, desk.parts)
    desk.clock.advance(LEASE_US - 1)
    assert await desk.write(outbox.settle_lapsed, 10) == 0
    assert await desk.write(sending.claim_due, ORDER, desk.parts) == []
    desk.clock.advance(1)
    # The holder's last moment is over too: what it still wants to begin and a sweep exclude each other.
    swept, begun = await asyncio.gather(
        sessions[0].write(lambda tx: outbox.settle_lapsed(tx, 10)),
        sessions[1].write(lambda tx: outbox.begin(tx, attempt.delivery, LEASE_US)),
    )
    assert (swept, begun) == (1, None)
    assert (await desk.row("deliveries", delivery_id))["lease_generation"] == 2


@pytest.mark.spec("DESK-147")
async def test_a_lapsed_lease_is_neither_renewed_nor_sent_under(desk: DeskWorld, seat: Seat) -> None:
    """Nobody took it over, and still the holder may not extend it, begin a turn or begin to send."""
    await desk.ask("hello", seat)
    (receipt,) = await claimed(desk)
    desk.clock.advance(LEASE_US - 1)
    assert await desk.write(working.renew, receipt, LEASE_US) == (True, False)
    desk.clock.advance(LEASE_US)
    assert await desk.write(working.renew, receipt, LEASE_US) == (False, False)
    with pytest.raises(StaleFence):
        await desk.write(working.begin, receipt, desk.parts)
    await desk.work()
    (attempt,) = await desk.write(sending.claim_due, ORDER, desk.parts)
    desk.clock.advance(LEASE_US)
    before = await desk.everything()
    with pytest.raises(StaleFence):
        await desk.write(sending.begin_sending, attempt, LEASE_US)
    assert await desk.everything() == before


@pytest.mark.engine("postgresql")
@pytest.mark.spec("DESK-146")
async def test_workers_whose_clocks_disagree_take_no_live_lease(desk: DeskWorld, seat: Seat, engine: Engine) -> None:
    """Ten minutes ahead or behind, a process compares leases by the database's clock alone.

    FC-23.
    """
    await desk.ask("hello", seat)
    real = ManualClock(0)
    sessions = [open_database(engine.url, ManualClock(real.now_us() + skew), SystemEntropy()) for skew in skews()]
    try:
        order = Claim("holder", 10 * MINUTE // 2, 8)
        (receipt,) = await sessions[0].write(lambda tx: claiming.claim(tx, order, desk.parts))
        for session in sessions:
            other = Claim("other", LEASE_US, 8)
            assert await session.write(lambda tx, other=other: claiming.claim(tx, other, desk.parts)) == []
            assert await recover(desk, database=session) == 0
            assert await session.write(lambda tx: working.renew(tx, receipt, LEASE_US)) == (True, False)
        times = [await session.read(lambda tx: tx.now) for session in sessions]
        assert max(times) - min(times) < MINUTE
    finally:
        for session in sessions:
            await session.close()


def skews() -> tuple[int, int, int]:
    return (0, 10 * MINUTE, -10 * MINUTE)


@pytest.mark.spec("DESK-148")
async def test_attempts_count_claims_and_the_end_has_its_time(desk: DeskWorld, seat: Seat) -> None:
    """Nothing was tried at first; each claim counts one; `processed_at` is set when processing ends, not before."""
    receipt = await desk.ask("hello", seat)
    assert (receipt["attempt_count"], receipt["processed_at"]) == (0, None)
    for attempt in (1, 2):
        (taken,) = await claimed(desk)
        row = await desk.row("receipts", receipt["id"])
        assert (taken.attempt_count, row["attempt_count"], row["processed_at"]) == (attempt, attempt, None)
        desk.clock.advance(LEASE_US)
    await desk.work()
    row = await desk.row("receipts", receipt["id"])
    assert (row["status"], row["attempt_count"], row["processed_at"]) == ("completed", 3, desk.clock.now_us())
    (delivery,) = await desk.rows("deliveries", receipt=receipt["id"])
    assert delivery["attempt_count"] == 0
    await desk.send()
    assert (await desk.row("deliveries", delivery["id"]))["attempt_count"] == 1


# ---------------------------------------------------------------------------------------------- heartbeats


@pytest.mark.spec("DESK-133")
async def test_a_heartbeat_keeps_a_lease_alive_and_its_end_lets_it_lapse(desk: DeskWorld, seat: Seat) -> None:
    """While a runner works the lease follows the clock, for a receipt and a console turn; afterwards it does not."""
    gate = Gate()
    desk.runner.behaviour = gate
    watched = Watched(desk.database)
    receipt = await desk.ask("hello", seat)
    lease_us = SECOND // 10
    worker = desk.receipt_worker(database=watched, lease_us=lease_us)
    await worker.step()
    await gate.reached.wait()
    for _ in range(3):
        desk.clock.advance(lease_us - 1)
        wanted = desk.clock.now_us() + lease_us

        async def renewed(wanted: int = wanted) -> bool:
            return bool((await desk.row("receipts", receipt["id"]))["lease_expires_at"] == wanted)

        await watched.until(renewed)
    assert await claimed(desk, owner="other") == []
    for task in list(worker._tasks):
        task.cancel()  # the process stops short: no heartbeat, no end
    await asyncio.wait(worker._tasks or {asyncio.create_task(asyncio.Event().wait())}, timeout=5)
    desk.clock.advance(lease_us)
    assert await recover(desk) == 1

    conversation = await desk.converse(title="Another")
    gate = Gate()
    desk.runner.behaviour = gate
    sender = conversations.ConversationSender(
        watched,
        {"fake": desk.runner},
        conversations.fixed_briefing(()),
        owner="web",
        lease_us=lease_us,
        default_runner="fake",
    )
    message = Message("r-1", "hi", "console")
    sent = asyncio.create_task(sender.send(desk.owner, desk.home, conversation, message))
    await gate.reached.wait()
    (turn,) = await desk.rows("turns", conversation=conversation)
    for _ in range(3):
        desk.clock.advance(lease_us - 1)
        wanted = desk.clock.now_us() + lease_us

        async def turn_renewed(wanted: int = wanted) -> bool:
            return bool((await desk.row("turns", turn["id"]))["lease_expires_at"] == wanted)

        await watched.until(turn_renewed)
    assert await desk.write(conversations.interrupt_abandoned, 10) == 0
    for task in list(sender._tasks):
        task.cancel()
    await asyncio.gather(sent, return_exceptions=True)
    desk.clock.advance(lease_us)
    assert await desk.write(conversations.interrupt_abandoned, 10) == 1


@pytest.mark.spec("DESK-379")
async def test_no_renewal_follows_the_release(desk: DeskWorld, seat: Seat) -> None:
    """The heartbeat has ended when the turn's last writes begin, and a renewal still under way touches nothing."""
    order: list[str] = []

    class Recording(Watched):
        async def write(self, fn: Callable[[Tx], T]) -> T:
            def noted(tx: Tx) -> T:
                result = fn(tx)
                order.append("renewal" if isinstance(result, tuple) else "other")
                return result

            return await super().write(noted)

    watched = Recording(desk.database)
    gate = Gate()
    desk.runner.behaviour = gate
    receipt = await desk.ask("hello", seat)
    worker = desk.receipt_worker(database=watched, lease_us=SECOND // 20)
    await worker.step()
    await gate.reached.wait()
    (held,) = await desk.rows("receipts", status="processing")

    async def two_renewals() -> bool:
        return order.count("renewal") >= 2

    await watched.until(two_renewals)
    gate.opened.set()
    await worker.stop(60)
    assert order[-2:] == ["other", "other"]  # t3 and t4
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "heartbeat"]
    late = claiming.receipt_of(held)
    before = await desk.everything()
    assert await desk.write(working.renew, late, LEASE_US) == (False, False)
    assert await desk.everything() == before
    assert (await desk.row("receipts", receipt["id"]))["lease_expires_at"] is None


# ---------------------------------------------------------------------------------------------- waiting and order


@pytest.mark.spec("DESK-144")
async def test_who_was_busy_is_due_when_the_one_in_work_ends(
    desk: DeskWorld, seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused receipt waits until a moment that the end of the other brings forward; retries back off."""
    await desk.ask("one", seat)
    await desk.ask("two", seat)
    (first,) = await claimed(desk)
    (second,) = await desk.rows("receipts", status="received")
    # What a session does that looked before the first was claimed.
    await desk.database.write(lambda tx: claiming._claim_head(tx, second["id"], 0, Claim("w", LEASE_US, 8)))
    row = await desk.row("receipts", second["id"])
    assert (row["status"], row["error_code"], row["attempt_count"]) == ("retryable_failed", "reply_grant_busy", 0)
    assert row["not_before"] == desk.clock.now_us() + limits.BUSY_RETRY_US
    begun = await desk.write(working.begin, first, desk.parts)
    assert begun is not None
    turn = await desk.write(working.commit_answer, begun, Answer("yes"))
    assert turn is not None
    await desk.write(working.deliver, begun, turn, desk.parts)
    assert (await desk.row("receipts", second["id"]))["not_before"] == desk.clock.now_us()
    waits = []
    for _ in range(limits.RECEIPT_ATTEMPTS_MAX - 1):
        (taken,) = await claimed(desk)
        await desk.write(working.retry, taken, "credential_unavailable")
        row = await desk.row("receipts", second["id"])
        waits.append(row["not_before"] - desk.clock.now_us())
        desk.clock.advance(waits[-1])
    for number, wait in enumerate(waits):
        plain = min(limits.RETRY_BASE_US * 2**number, limits.RETRY_CAP_US)
        assert plain * 4 // 5 <= wait <= plain * 6 // 5
    (taken,) = await claimed(desk)
    await desk.write(working.retry, taken, "credential_unavailable")
    row = await desk.row("receipts", second["id"])
    assert (row["status"], row["error_code"]) == ("permanent_failed", "attempts_exhausted")
    assert row["attempt_count"] == limits.RECEIPT_ATTEMPTS_MAX


@pytest.mark.spec("DESK-145")
async def test_whoever_wants_the_grant_settles_its_expired_holder(desk: DeskWorld, seat: Seat) -> None:
    """One claim's transaction ends what a dead worker left running and takes the next receipt of the same grant."""
    first = await desk.ask("one", seat)
    second = await desk.ask("two", seat)
    (dead,) = await claimed(desk)
    assert await desk.write(working.begin, dead, desk.parts) is not None
    desk.clock.advance(LEASE_US)
    transactions = 0

    def claim(tx: Tx) -> list[Receipt]:
        nonlocal transactions
        transactions += 1
        return claiming.claim(tx, Claim("the next", LEASE_US, 8), desk.parts)

    taken = await desk.database.write(claim)
    assert ([receipt.id for receipt in taken], transactions) == ([second["id"]], 1)
    assert (await look(desk, seat, first["id"])).receipt == ("permanent_failed", "agent_execution_indeterminate")


@pytest.mark.spec("DESK-140")
async def test_rows_that_stay_retryable_do_not_hide_the_ones_behind(
    desk: DeskWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is bounded; what was looked at and must wait makes room for the rows behind it, in each scan."""
    monkeypatch.setattr(limits, "SCAN_PAGE", 3)
    seats = await several(desk, 5)
    asked = [await desk.ask(f"question {number}", seat) for number, seat in enumerate(seats)]
    broken = {row["id"] for row in asked[:4]}

    def fail_the_first(tx: Tx) -> list[str]:
        taken = claiming.claim(tx, Claim("w", LEASE_US, 100), desk.parts)
        for receipt in taken:
            if receipt.id in broken:
                working.retry(tx, receipt, "credential_unavailable")
        return [receipt.id for receipt in taken]

    first = await desk.database.write(fail_the_first)
    second = await desk.database.write(fail_the_first)
    assert (len(first), len(second)) == (3, 2)
    assert set(first + second) == {row["id"] for row in asked}
    desk.clock.advance(10 * LEASE_US)
    await desk.work()

    assert await desk.count("deliveries", purpose="agent_reply", status="pending") == 5
    desk.channel.connects.extend(ConnectFailed("connect_failed") for _ in range(4))
    sender = desk.delivery_worker(capacity=100)
    assert await sender.step() == 3
    assert await sender.step() == 2
    await sender.stop(60)
    assert await desk.count("deliveries", purpose="agent_reply", status="sent") == 1
    assert await desk.count("deliveries", purpose="agent_reply", status="retryable_failed") == 4


async def test_a_channel_that_is_gone_keeps_nobody_else_waiting(desk: DeskWorld) -> None:
    mine, other = await several(desk, 2)
    first = await desk.ask("hello", mine)
    (dead,) = await claimed(desk)
    assert await desk.write(working.begin, dead, desk.parts) is not None
    second = await desk.ask("hello", other)
    desk.clock.advance(LEASE_US)

    installations = TABLES["installations"]
    statement = sa.update(installations).values(channel="gone")

    def lose_channel(tx: Tx) -> None:
        with tx.conn.begin_nested():
            tx.execute(statement)

    await desk.database.write(lose_channel)
    worker = desk.receipt_worker()
    await worker.step()
    await worker.stop(60)
    assert (await look(desk, mine, first["id"])).receipt == ("permanent_failed", "agent_execution_indeterminate")
    assert (await look(desk, other, second["id"])).receipt == ("retryable_failed", "connector_processing_failed")


async def test_work_that_kills_its_process_again_and_again_ends_visibly(desk: DeskWorld, seat: Seat) -> None:
    # DESK-305 also speaks of claims while rendering, which are not built yet.
    receipt = await desk.ask("poison", seat)
    for attempt in range(1, limits.RECEIPT_ATTEMPTS_MAX + 1):
        (taken,) = await claimed(desk, owner=f"dies-{attempt}")
        assert taken.attempt_count == attempt
        desk.clock.advance(LEASE_US)
    assert await claimed(desk) == []
    row = await desk.row("receipts", receipt["id"])
    assert (row["status"], row["error_code"]) == ("permanent_failed", "attempts_exhausted")
    assert row["attempt_count"] == limits.RECEIPT_ATTEMPTS_MAX
    delivery_id = await pending(desk, seat)
    for attempt in range(1, limits.DELIVERY_ATTEMPTS_MAX + 1):
        (claim,) = await desk.write(sending.claim_due, ORDER, desk.parts)
        assert claim.delivery.attempt_count == attempt
        desk.clock.advance(LEASE_US)
        assert await desk.write(outbox.settle_lapsed, 10) == 1
    delivery = await desk.row("deliveries", delivery_id)
    assert (delivery["status"], delivery["error_code"]) == ("failed", "attempts_exhausted")
    assert delivery["attempt_count"] == limits.DELIVERY_ATTEMPTS_MAX
    assert desk.channel.sent == []
