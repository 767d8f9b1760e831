"""A person's settlement and a worker's late write: one of them wins."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from frontdesk.desk import outbox
from frontdesk.desk.connections.channel import Sent
from frontdesk.desk.outbox import Delivery
from frontdesk.desk.sending import steps
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.errors import Problem, StaleFence
from frontdesk.storage.tx import Tx
from tests.contract.conftest import TimedDatabase
from tests.contract.desk_world import LEASE_US, DeskWorld, Seat
from tests.contract.world import race


async def on_the_wire(desk: DeskWorld, seat: Seat) -> Delivery:
    """A delivery in `sending` under a worker's lease."""
    receipt = await desk.ask("hello", seat)
    await desk.work()
    waiting = await desk.delivery_of(receipt["id"])
    assert waiting is not None
    claimed = await desk.write(outbox.claim, waiting, "worker", LEASE_US)
    assert claimed is not None
    begun = await desk.write(outbox.begin, claimed, LEASE_US)
    assert begun is not None
    return begun


def settlement(desk: DeskWorld, delivery: Delivery) -> Callable[[Tx], str]:
    def run(tx: Tx) -> str:
        decided = outbox.settle(
            tx, desk.owner, desk.home, delivery.id, outcome="settled_not_sent", reason="not there", read_back=None
        )
        return decided.status

    return run


@pytest.mark.spec("DESK-365")
@pytest.mark.parametrize("first", ["settlement", "worker", "both"])
async def test_a_settlement_and_a_late_write_have_one_winner(
    desk: DeskWorld, seat: Seat, open_session: Callable[..., TimedDatabase], first: str
) -> None:
    """Whichever order, also at the same moment: a delivery that recovery found unknown takes the person's decision, and
    its former worker's late result touches nothing; while the worker still holds it, it is not the person's to settle.
    """
    delivery = await on_the_wire(desk, seat)
    late: Callable[[Tx], str] = lambda tx: steps.conclude(tx, delivery, Sent("om_late", 1))  # noqa: E731
    decide = settlement(desk, delivery)
    if first == "worker":  # in time, so there is nothing to settle
        assert await desk.database.write(late) == "sent"
        with pytest.raises(Problem) as refused:
            await desk.database.write(decide)
        assert refused.value.code == "delivery_not_indeterminate"
        assert await desk.count("settlements") == 0
        return
    with pytest.raises(Problem) as refused:
        await desk.database.write(decide)
    assert refused.value.code == "delivery_not_indeterminate", "its worker may still be told"
    desk.clock.advance(LEASE_US + SECOND)
    assert await desk.write(outbox.settle_lapsed, 100) == 1
    if first == "settlement":
        assert await desk.database.write(decide) == "settled_not_sent"
        settled = await desk.row("deliveries", delivery.id)
        with pytest.raises(StaleFence):
            await desk.database.write(late)
        assert await desk.row("deliveries", delivery.id) == settled
    else:
        outcomes = await race([open_session(), open_session()], late, decide)
        assert isinstance(outcomes[0], StaleFence), outcomes
        assert outcomes[1] == "settled_not_sent"
    row = await desk.row("deliveries", delivery.id)
    assert (row["status"], row["provider_message_id"]) == ("settled_not_sent", None)
    assert await desk.count("settlements") == 1
    with pytest.raises(Problem) as refused:
        await desk.database.write(decide)
    assert refused.value.code == "already_settled"
