"""What becomes of work whose process died: the matrix of desk.md 5.4, row by row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from frontdesk.desk import outbox
from frontdesk.desk.connections.channel import Unknown
from frontdesk.desk.conversations.runner import Answer, Failed, Proposal, ProposalDraft
from frontdesk.desk.inbox import claiming, working
from frontdesk.desk.inbox.claiming import Claim
from frontdesk.desk.outbox import templates
from frontdesk.desk.sending import steps as sending
from frontdesk.desk.sending.steps import Order
from frontdesk.kernel.clock import HOUR
from frontdesk.kernel.errors import StaleFence
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.storage.database import Database
from tests.contract.answering.steps import Seen, claimed, crashed, look, recover
from tests.contract.desk_world import LEASE_US, DeskWorld, Seat

INDETERMINATE = "agent_execution_indeterminate"
DRAFT = ProposalDraft("roster_tasks_submit", {}, "Close it", "task", "t-1", 3)
ORDER = Order("sender", LEASE_US, 4 * HOUR, 8)


async def by_claim(desk: DeskWorld) -> None:
    """Whoever wants to claim."""
    await desk.work()


async def by_recovery(desk: DeskWorld) -> None:
    """The sweep, then ordinary work."""
    await recover(desk)
    await desk.work()


BOTH = pytest.mark.parametrize("restart", [by_claim, by_recovery])


# ---------------------------------------------------------------------------------------------- receipts


@pytest.mark.spec("DESK-138")
@BOTH
async def test_without_a_turn_it_runs_normally(desk: DeskWorld, seat: Seat, restart: Any) -> None:
    """Nothing had begun, so the message is answered as if nothing had happened."""
    receipt = await desk.ask("hello", seat)
    await crashed(desk, "t1b.before")
    assert desk.runner.requests == []
    await restart(desk)
    assert await look(desk, seat, receipt["id"]) == Seen(
        1, 1, ("completed", None), ("completed", None), ("pending", None)
    )
    assert (await desk.row("receipts", receipt["id"]))["attempt_count"] == 2


@pytest.mark.spec("DESK-119", "DESK-138")
@pytest.mark.parametrize(
    ("restart", "point"),
    [(by_claim, "t1b.after"), (by_recovery, "t2.before"), (by_claim, "t2.after"), (by_recovery, "t3.before")],
)
async def test_a_running_turn_is_not_run_again(desk: DeskWorld, seat: Seat, restart: Any, point: str) -> None:
    """It may have acted: it ends unknown, nothing is run, sent or told, and the grant's next receipt is due at once."""
    receipt = await desk.ask("hello", seat)
    following = await desk.ask("and then?", seat)
    await crashed(desk, point)
    ran = len(desk.runner.requests)
    assert ran == (point in ("t2.after", "t3.before"))
    if restart is by_claim:
        taken = await claimed(desk)  # settles and takes the next one, which dies before its turn
        assert [each.id for each in taken] == [following["id"]]
    else:
        assert await recover(desk) == 1
        assert (await desk.row("receipts", following["id"]))["not_before"] <= desk.clock.now_us()
    assert await look(desk, seat, receipt["id"]) == Seen(
        0, 0, ("permanent_failed", INDETERMINATE), ("failed", INDETERMINATE), None
    )
    assert len(desk.runner.requests) == ran
    desk.clock.advance(LEASE_US)
    await desk.work()
    await desk.send()
    assert (await look(desk, seat, following["id"])).receipt == ("completed", None)
    assert [request.text for request in desk.runner.requests[ran:]] == ["and then?"]
    assert [message.text for message in desk.channel.sent] == ["answer to and then?"]


@pytest.mark.spec("DESK-138")
@pytest.mark.parametrize(("restart", "kind"), [(by_recovery, "completed"), (by_claim, "proposal")])
async def test_a_committed_turn_gets_its_one_delivery(desk: DeskWorld, seat: Seat, restart: Any, kind: str) -> None:
    """The cursor proves the commit: the runner is not called, the delivery is inserted, the receipt ends."""

    async def propose(request: Any, cancel: Any) -> Any:
        return Proposal(DRAFT)

    desk.runner.behaviour = propose if kind == "proposal" else None
    receipt = await desk.ask("hello", seat)
    await crashed(desk, "t3.after")
    assert await look(desk, seat, receipt["id"]) == Seen(1, 1, ("processing", None), (kind, None), None)
    await restart(desk)
    assert await look(desk, seat, receipt["id"]) == Seen(1, 1, (kind, None), (kind, None), ("pending", None))
    assert len(desk.runner.requests) == 1
    await desk.send()
    await restart(desk)
    await desk.send()
    assert len(desk.channel.sent) == 1


@pytest.mark.spec("DESK-138")
@pytest.mark.parametrize(
    ("restart", "status"), [(by_claim, "pending"), (by_recovery, "sent"), (by_claim, "indeterminate")]
)
async def test_a_delivery_that_is_there_goes_its_own_way(
    desk: DeskWorld, seat: Seat, restart: Any, status: str
) -> None:
    """The receipt is completed around it, and no second one is made."""
    receipt = await desk.ask("hello", seat)
    await desk.work()
    if status != "pending":
        if status == "indeterminate":
            desk.channel.outcomes.append(Unknown())
        await desk.send()
    await desk.force(
        "receipts",
        receipt["id"],
        status="processing",
        lease_owner="dead",
        lease_generation=1,
        lease_expires_at=desk.clock.now_us(),
        processed_at=None,
    )
    (before,) = await desk.rows("deliveries", receipt=receipt["id"])
    await restart(desk)
    seen = await look(desk, seat, receipt["id"])
    assert (seen.receipt, seen.turn) == (("completed", None), ("completed", None))
    assert (await desk.rows("deliveries", receipt=receipt["id"])) == [before]
    assert before["status"] == status


@pytest.mark.spec("DESK-138")
@BOTH
async def test_a_completed_turn_without_proof_is_not_believed(desk: DeskWorld, seat: Seat, restart: Any) -> None:
    """Neither status nor text counts where the cursor does not stand at the turn's own revision."""
    receipt = await desk.ask("hello", seat)
    await crashed(desk, "t3.after")
    await desk.force("reply_grants", seat.grant_id, cursor=0)
    await restart(desk)
    seen = await look(desk, seat, receipt["id"])
    assert (seen.receipt, seen.delivery) == (("permanent_failed", INDETERMINATE), None)
    assert len(desk.runner.requests) == 1


FAILED = [
    ("runner_overloaded", False, "runner_overloaded", True),
    ("runner_cancelled", False, "runner_cancelled", True),
    ("runner_cancelled", True, "stopped_by_owner", False),
    ("conversation_revision_changed", False, "conversation_revision_changed", False),
    (INDETERMINATE, False, INDETERMINATE, False),
]


@pytest.mark.spec("DESK-138")
@BOTH
async def test_a_failed_turn_ends_its_receipt_with_its_code(desk: DeskWorld, seat: Seat, restart: Any) -> None:
    """The one notice is there exactly where the failure was definite and nobody asked for it."""
    for code, stopped, kept, told in FAILED:
        receipt = await desk.ask("hello", seat)
        (dead,) = await claimed(desk)
        begun = await desk.write(working.begin, dead, desk.parts)
        assert begun is not None
        cancelled = desk.clock.now_us() if stopped else None
        await desk.force("turns", begun.turn.id, status="failed", error_code=code, cancel_requested_at=cancelled)
        desk.clock.advance(LEASE_US)
        await restart(desk)
        await restart(desk)
        seen = await look(desk, seat, receipt["id"])
        assert (seen.receipt, seen.turn) == (("permanent_failed", kept), ("failed", code))
        notices = await desk.rows("deliveries", receipt=receipt["id"])
        assert [notice["text"] for notice in notices] == ([templates.failure_notice("zh", code)] if told else [])
        assert [notice["purpose"] for notice in notices] == ["failure_notice"] * told
    assert desk.runner.requests == []


# ---------------------------------------------------------------------------------------------- deliveries


async def answered(desk: DeskWorld, seat: Seat) -> str:
    receipt = await desk.ask("hello", seat)
    await desk.work()
    (delivery,) = await desk.rows("deliveries", receipt=receipt["id"])
    return str(delivery["id"])


@pytest.mark.spec("DESK-138")
async def test_a_lapsed_connect_is_tried_again(desk: DeskWorld, seat: Seat) -> None:
    """Nothing was sent while connecting, so it waits for another try under a new generation."""
    delivery_id = await answered(desk, seat)
    await desk.write(sending.claim_due, ORDER, desk.parts)
    desk.clock.advance(LEASE_US)
    assert await desk.write(outbox.settle_lapsed, 10) == 1
    row = await desk.row("deliveries", delivery_id)
    assert (row["status"], row["error_code"], row["lease_generation"]) == ("retryable_failed", "connect_interrupted", 2)
    assert row["lease_owner"] is None
    await desk.send()
    assert ((await desk.row("deliveries", delivery_id))["status"], len(desk.channel.sent)) == ("sent", 1)


@pytest.mark.spec("DESK-138")
async def test_a_lapsed_send_is_unknown_for_good(desk: DeskWorld, seat: Seat) -> None:
    """It may have been sent: it becomes indeterminate under a new generation, and nobody sends it again."""
    delivery_id = await answered(desk, seat)
    (attempt,) = await desk.write(sending.claim_due, ORDER, desk.parts)
    assert await desk.write(sending.begin_sending, attempt, LEASE_US) is not None
    desk.clock.advance(LEASE_US)
    assert await desk.write(outbox.settle_lapsed, 10) == 1
    row = await desk.row("deliveries", delivery_id)
    assert (row["status"], row["error_code"], row["lease_generation"]) == ("indeterminate", "send_result_unknown", 2)
    await desk.send()
    assert desk.channel.sent == []


@pytest.mark.spec("DESK-138")
async def test_an_ended_delivery_is_left_alone(desk: DeskWorld, seat: Seat) -> None:
    """No scan claims, sends or changes it, however old its lease columns are."""
    before = []
    for status in ("sent", "failed", "indeterminate", "settled_sent", "settled_not_sent"):
        delivery_id = await answered(desk, seat)
        await desk.force("deliveries", delivery_id, status=status, lease_owner="dead", lease_expires_at=1)
        before.append(await desk.row("deliveries", delivery_id))
    for _ in range(3):
        desk.clock.advance(2 * HOUR)
        await desk.write(outbox.settle_lapsed, 10)
        await desk.write(outbox.expire_aged, HOUR, 10)
        await desk.send()
    assert [await desk.row("deliveries", row["id"]) for row in before] == before
    assert desk.channel.sent == []


# ---------------------------------------------------------------------------------------------- two at once


@pytest.mark.spec("DESK-139")
async def test_recovery_in_two_processes_does_each_thing_once(
    desk: DeskWorld, open_session: Callable[[], Database]
) -> None:
    """Each abandoned row is settled by one of them, no turn or delivery is made twice, and the late owner is fenced."""
    seats = [
        await desk.seat(
            await desk.people.person(f"p{number}", "operator"), sender=f"ou_{number}x", chat=f"oc_{number}x"
        )
        for number in range(4)
    ]
    asked = [await desk.ask("hello", seat) for seat in seats]
    worker = desk.receipt_worker(failpoints=Failpoints({"t3.after": "raise"}), capacity=3)
    await worker.step()
    await worker.stop(60)
    (running,) = await claimed(desk)
    late = await desk.write(working.begin, running, desk.parts)
    assert late is not None
    desk.clock.advance(LEASE_US)
    sessions = [open_session(), open_session()]
    done = await asyncio.gather(
        *(
            session.write(lambda tx: claiming.recover(tx, "recoverer", LEASE_US, 100, desk.parts))
            for session in sessions
        )
    )
    assert sum(done) == 4
    ends = sorted(
        [(await look(desk, seat, row["id"])).receipt for seat, row in zip(seats, asked, strict=True)], key=str
    )
    assert ends == [("completed", None)] * 3 + [("permanent_failed", INDETERMINATE)]
    assert await desk.count("turns") == 4
    assert await desk.count("deliveries", purpose="agent_reply") == 3
    before = await desk.everything()
    for write in (
        lambda tx: working.commit_answer(tx, late, Answer("late")),
        lambda tx: working.fail_turn(tx, late, Failed("runner_exited"), desk.parts),
    ):
        with pytest.raises(StaleFence):
            await desk.database.write(write)
    assert await desk.everything() == before

    attempts = await desk.write(sending.claim_due, ORDER, desk.parts)
    assert len(attempts) == 3
    begun = await desk.write(sending.begin_sending, attempts[0], LEASE_US)
    assert begun is not None
    desk.clock.advance(LEASE_US)
    changed = await asyncio.gather(*(session.write(lambda tx: outbox.settle_lapsed(tx, 100)) for session in sessions))
    assert sum(changed) == 3
    with pytest.raises(StaleFence):
        await desk.write(sending.conclude, begun, Unknown())
    senders = [desk.delivery_worker(database=session) for session in sessions]
    await asyncio.gather(*(sender.step() for sender in senders))
    for sender in senders:
        await sender.stop(60)
    assert len(desk.channel.sent) == 2
    claims = await asyncio.gather(
        *(session.write(lambda tx: claiming.claim(tx, Claim("w", LEASE_US, 8), desk.parts)) for session in sessions)
    )
    assert claims == [[], []]
