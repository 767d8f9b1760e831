"""The overview and the metrics read the same numbers, and those are what a direct count over the tables says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from frontdesk.desk import connections, operations
from frontdesk.desk.connections.channel import RefusedFinal, Unknown
from frontdesk.identity.workspaces import create_workspace
from frontdesk.kernel.clock import MINUTE
from frontdesk.kernel.errors import Problem
from tests.contract.desk_world import DeskWorld, Seat

WAITING = {"pending", "retryable_failed"}
OPEN = {"received", "retryable_failed", "processing"}


async def busy_desk(desk: DeskWorld, seat: Seat) -> None:
    """Receipts and deliveries in many states, some of them a while old."""
    desk.channel.outcomes.extend([Unknown(), RefusedFinal("target_revoked", 230011)])
    for text in ("one", "two", "three"):
        await desk.ask(text, seat)
    await desk.work()
    await desk.send()
    await desk.push(desk.message("hello", sender="ou_9", chat="oc_9"))
    desk.clock.advance(7 * MINUTE)
    await desk.ask("four", seat)
    await desk.work()
    await desk.ask("five", seat)
    await desk.work()
    desk.clock.advance(MINUTE)
    # Two states of each that still wait, of different ages.
    (*_, newest) = await desk.rows("deliveries", status="pending")
    await desk.force("deliveries", newest["id"], status="retryable_failed", error_code="connect_failed")
    busy = await desk.ask("six", seat)
    await desk.force("receipts", busy["id"], status="retryable_failed", error_code="conversation_busy")
    desk.clock.advance(MINUTE)
    await desk.ask("seven", seat)
    desk.clock.advance(MINUTE)


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((row["status"], row["error_code"] or "") for row in rows)


@pytest.mark.spec("DESK-374")
async def test_counts_and_ages_of_the_overview_are_those_of_the_tables(desk: DeskWorld, seat: Seat) -> None:
    """Counts by status and code, the ages of the oldest open receipt and waiting delivery, the unsettled unknown ones
    and the live workers equal a direct count over the rows of that workspace at the same instant.
    """
    await busy_desk(desk, seat)
    elsewhere = await desk.write(create_workspace, desk.owner, name="Other", slug="other")
    await desk.write(
        connections.beat,
        "w-1",
        started_at=1,
        accepting=True,
        outbound_started=True,
        artifact_configured=False,
        version="x",
    )
    numbers = await desk.read(operations.overview, desk.owner, desk.home)
    receipts, deliveries = await desk.rows("receipts"), await desk.rows("deliveries")
    assert dict(numbers.receipts) == dict(counted(receipts))
    assert dict(numbers.deliveries) == dict(counted(deliveries))
    assert {status for status, _ in numbers.receipts} >= {"completed", "rejected", "received"}
    assert {status for status, _ in numbers.deliveries} >= {"sent", "indeterminate", "failed", "pending"}
    now = desk.clock.now_us()
    assert numbers.at == now
    assert numbers.oldest_open_receipt_us == now - min(row["created_at"] for row in receipts if row["status"] in OPEN)
    assert numbers.oldest_pending_delivery_us == now - min(
        row["created_at"] for row in deliveries if row["status"] in WAITING
    )
    assert numbers.unsettled_indeterminate == 1
    assert numbers.live_workers == 1
    nothing = await desk.read(operations.overview, desk.owner, elsewhere.id)
    assert (dict(nothing.receipts), dict(nothing.deliveries)) == ({}, {})
    assert (nothing.oldest_open_receipt_us, nothing.oldest_pending_delivery_us) == (None, None)
    assert await desk.read(operations.read_numbers) == numbers, "metrics count every workspace"


async def test_the_overview_is_for_who_works_the_inbox(desk: DeskWorld) -> None:
    """A viewer is refused; an operator is not."""
    viewer, operator = await desk.people.person("vera", "viewer"), await desk.people.person("olaf", "operator")
    await desk.read(operations.overview, operator, desk.home)
    with pytest.raises(Problem) as refused:
        await desk.read(operations.overview, viewer, desk.home)
    assert refused.value.code == "permission_required"
