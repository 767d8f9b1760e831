"""A person decides an unknown delivery while its late worker, the sweep or another person writes (DESK-365)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frontdesk.desk import outbox
from frontdesk.desk.connections.channel import NotSent, Outcome, RefusedFinal, RefusedRetry, Sent, Unknown
from frontdesk.desk.outbox import Delivery
from frontdesk.desk.sending import steps
from frontdesk.kernel.clock import HOUR
from frontdesk.kernel.errors import Problem, StaleFence
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import LEASE_US, DeskWorld, Seat
from tests.contract.world import race

LATE: tuple[Outcome, ...] = (
    Sent("om_late", 1),
    RefusedFinal("target_revoked", 230011),
    RefusedRetry("rate_limited", None, 230020),
    NotSent("not_sent_connection"),
    Unknown(),
)


async def sending(desk: DeskWorld, seat: Seat, text: str) -> Delivery:
    """A delivery of a new answer, committed as `sending`, whose lease has just come to its end."""
    await desk.ask(text, seat)
    await desk.work()
    (attempt,) = await desk.write(steps.claim_due, steps.Order("late", LEASE_US, 4 * HOUR, 1), desk.parts)
    begun = await desk.write(steps.begin_sending, attempt, LEASE_US)
    assert begun is not None
    desk.clock.advance(LEASE_US)
    return begun


def settling(desk: DeskWorld, delivery_id: str, outcome: str = "settled_not_sent") -> Callable[[Tx], Any]:
    """A person's decision."""
    named = {"outcome": outcome, "reason": "looked", "read_back": None}
    return lambda tx: outbox.settle(tx, desk.owner, desk.home, delivery_id, **named).status  # type: ignore[arg-type]


def told(outcome: Any) -> str:
    """How one of the racers ended."""
    if isinstance(outcome, StaleFence):
        return "stale"
    if isinstance(outcome, Problem):
        return outcome.code
    assert not isinstance(outcome, BaseException), outcome
    return str(outcome)


@pytest.mark.spec("DESK-365")
async def test_a_settlement_and_a_late_write_have_one_winner(
    desk: DeskWorld, seat: Seat, open_session: Callable[[], Database]
) -> None:
    """Whatever the late worker learned, once its delivery counts as unknown it writes nothing: the settlement stands.

    Where the sweep is still to come, whoever is first wins: a worker that wrote in time leaves nothing to settle.
    """
    sessions = [open_session() for _ in range(3)]
    for number, late in enumerate(LATE):
        delivery = await sending(desk, seat, f"one {number}")
        assert await desk.write(outbox.settle_lapsed, 10) == 1
        outcomes = await race(
            sessions[:2], settling(desk, delivery.id), lambda tx, d=delivery, o=late: steps.conclude(tx, d, o)
        )
        assert [told(each) for each in outcomes] == ["settled_not_sent", "stale"], late
        row = await desk.row("deliveries", delivery.id)
        assert (row["status"], row["provider_message_id"]) == ("settled_not_sent", None)
        assert row["error_code"] == "send_result_unknown"
        assert await desk.count("settlements", delivery=delivery.id) == 1

    for number, late in enumerate(LATE):
        delivery = await sending(desk, seat, f"two {number}")
        settled, concluded, swept = await race(
            sessions,
            settling(desk, delivery.id),
            lambda tx, d=delivery, o=late: steps.conclude(tx, d, o),
            lambda tx: outbox.settle_lapsed(tx, 10),
        )
        row = await desk.row("deliveries", delivery.id)
        in_time = told(concluded) != "stale"
        assert told(swept) == ("0" if in_time else "1"), "of worker and sweep one wrote"
        if told(settled) == "settled_not_sent":
            assert row["status"] == "settled_not_sent"
            assert not in_time or told(concluded) == "indeterminate"
        else:
            assert told(settled) == "delivery_not_indeterminate"
            assert row["status"] == (told(concluded) if in_time else "indeterminate")
        assert await desk.count("settlements", delivery=delivery.id) == (row["status"] == "settled_not_sent")
        # What may be tried again would hold up the next answer of this chat.
        await desk.force("deliveries", delivery.id, status="failed")
    assert desk.channel.sent == []


async def test_of_two_settlements_one_stands(desk: DeskWorld, seat: Seat, open_session: Callable[[], Database]) -> None:
    """Two people decide differently at once: one decision is kept, the other is told that it came second."""
    sessions = [open_session(), open_session()]
    delivery = await sending(desk, seat, "hello")
    await desk.write(outbox.settle_lapsed, 10)
    choices = ("settled_sent", "settled_not_sent")
    outcomes = await race(sessions, *(settling(desk, delivery.id, choice) for choice in choices))
    winners = [told(each) for each in outcomes if not isinstance(each, BaseException)]
    assert sorted(map(told, outcomes)) == sorted([*winners, "already_settled"])
    assert (await desk.row("deliveries", delivery.id))["status"] == winners[0]
    assert [row["outcome"] for row in await desk.rows("settlements", delivery=delivery.id)] == winners
