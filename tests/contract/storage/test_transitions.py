"""The sweep: every (state, event) of every transition table through the guarded UPDATE, on rows of both engines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from frontdesk.app.schema import METADATA
from frontdesk.kernel.clock import ManualClock
from frontdesk.kernel.machine import Edge, Fence, Lease, Machine
from frontdesk.storage.database import Database
from frontdesk.storage.guarded import Take, held, lease_of, renew, transition, why_missed
from frontdesk.storage.tx import Tx
from tests.migration.rows import fill, listed_values
from tests.unit.kernel.machines import MACHINES

FENCED = (Fence.HELD, Fence.LIVE)


def place(tx: Tx, table: sa.Table, row_id: str, state: str, **values: Any) -> None:
    """Put the row into a state, whatever led there."""
    given: dict[str, Any] = {"status": state, **values}
    if "active_slot" in table.c:
        given["active_slot"] = "slot" if state == "active" else None
    tx.execute(sa.update(table).where(table.c.id == row_id).values(given))


def extra(table: sa.Table, edge: Edge) -> dict[str, Any]:
    """Columns that follow the status by a CHECK."""
    return {"active_slot": None} if "active_slot" in table.c and edge.target != "active" else {}


def due(now: int, table: sa.Table, *, lapsed: bool, generation: int = 4) -> dict[str, Any]:
    """A lease of `me` that is live or lapsed, and a row that is due."""
    values: dict[str, Any] = {"lease_owner": "me", "lease_generation": generation}
    values["lease_expires_at"] = now if lapsed else now + 1
    if "not_before" in table.c:
        values["not_before"] = now
    return {name: value for name, value in values.items() if name in table.c}


def ask(tx: Tx, table: sa.Table, machine: Machine, event: str, row_id: str, **changed: Any) -> Any:
    """The transition with everything its fence asks for."""
    edge = machine.edges[event]
    lease = changed.get("lease", Lease("me", 4, tx.now + 1)) if edge.fence in FENCED else None
    take = Take("taker", tx.now + 100) if edge.fence is Fence.CLAIM else None
    return transition(tx, table, machine, event, row_id, lease=lease, take=take, values=extra(table, edge))


DIAGRAMS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "state-machines.md"


def derived(table: sa.Table, machine: Machine) -> None:
    """The status column's CHECK and the published diagram say what the table says."""
    assert listed_values(table)["status"] == list(machine.states)
    assert f"```mermaid\n{machine.mermaid()}```" in DIAGRAMS.read_text(encoding="utf-8")


@pytest.mark.spec("DESK-331")
@pytest.mark.parametrize("name", MACHINES)
async def test_a_guarded_update_passes_exactly_where_the_table_lists_the_pair(
    name: str, database: Database, clock: ManualClock
) -> None:
    """CHECK and published diagram follow the table; each pair of state and event: listed, the row moves as it says;
    not listed, nothing is written.
    """
    table, machine = METADATA.tables[name], MACHINES[name]
    derived(table, machine)
    now = clock.now_us()

    def sweep(tx: Tx) -> int:
        row_id = fill(tx.conn)[name]["id"]
        seen = 0
        for state in machine.states:
            for event, edge in machine.edges.items():
                place(tx, table, row_id, state, **due(now, table, lapsed=edge.fence is Fence.LAPSED))
                before = dict(tx.find(sa.select(table).where(table.c.id == row_id)) or {})
                moved = ask(tx, table, machine, event, row_id)
                after = dict(tx.find(sa.select(table).where(table.c.id == row_id)) or {})
                seen += 1
                if not machine.legal(state, event):
                    assert moved is None, (state, event)
                    assert after == before, (state, event)
                    assert why_missed(tx, table, machine, event, row_id, lease=None).reason == "wrong_state"
                    continue
                assert moved is not None, (state, event)
                assert dict(moved) == after
                assert after["status"] == edge.target
                judge_lease(edge, before, after, now)
        return seen

    assert await database.write(sweep) == len(machine.states) * len(machine.edges)


def judge_lease(edge: Edge, before: dict[str, Any], after: dict[str, Any], now: int) -> None:
    """What became of the lease: taken by a claim, raised by whoever takes over, given up by its holder, else kept."""
    if "lease_owner" not in after:
        return
    raised = edge.fence in (Fence.CLAIM, Fence.LAPSED)
    assert after["lease_generation"] == before["lease_generation"] + raised
    if edge.fence is Fence.CLAIM:
        assert (after["lease_owner"], after["lease_expires_at"]) == ("taker", now + 100)
    elif edge.fence is Fence.NONE or edge.keeps_lease:
        assert (after["lease_owner"], after["lease_expires_at"]) == (before["lease_owner"], before["lease_expires_at"])
    else:
        assert (after["lease_owner"], after["lease_expires_at"]) == (None, None)


FENCED_PAIRS = [
    (name, event) for name, machine in MACHINES.items() for event, edge in machine.edges.items() if edge.fence in FENCED
]


@pytest.mark.parametrize("name", sorted({name for name, _ in FENCED_PAIRS}))
async def test_a_stale_holder_writes_nothing(name: str, database: Database, clock: ManualClock) -> None:
    """Another owner, an older and a later generation move no row by any fenced event, and the miss says so."""
    table, machine = METADATA.tables[name], MACHINES[name]
    now = clock.now_us()

    def sweep(tx: Tx) -> None:
        row_id = fill(tx.conn)[name]["id"]
        for event in (event for each, event in FENCED_PAIRS if each == name):
            edge = machine.edges[event]
            for lease in (Lease("other", 4, now + 1), Lease("me", 3, now + 1), Lease("me", 5, now + 1)):
                place(tx, table, row_id, min(edge.sources), **due(now, table, lapsed=False))
                assert ask(tx, table, machine, event, row_id, lease=lease) is None
                assert why_missed(tx, table, machine, event, row_id, lease=lease).reason == "stale_fence"
            place(tx, table, row_id, min(edge.sources), **due(now, table, lapsed=True))
            mine = Lease("me", 4, now)
            passed = ask(tx, table, machine, event, row_id, lease=mine) is not None
            assert passed is (edge.fence is Fence.HELD), "a lapsed lease that nobody took still ends its own row"
            if not passed:
                assert why_missed(tx, table, machine, event, row_id, lease=mine).reason == "expired"

    await database.write(sweep)


@pytest.mark.parametrize("name", ["receipts", "deliveries"])
async def test_what_is_not_due_is_not_claimed_and_a_live_lease_is_not_taken(
    name: str, database: Database, clock: ManualClock
) -> None:
    table, machine = METADATA.tables[name], MACHINES[name]
    now = clock.now_us()
    taking = {"receipts": "take_over", "deliveries": "lapse"}[name]

    def sweep(tx: Tx) -> None:
        row_id = fill(tx.conn)[name]["id"]
        waiting = min(machine.edges["claim"].sources)
        place(tx, table, row_id, waiting, **due(now, table, lapsed=True) | {"not_before": now + 1})
        assert ask(tx, table, machine, "claim", row_id) is None
        place(tx, table, row_id, min(machine.edges[taking].sources), **due(now, table, lapsed=False))
        assert ask(tx, table, machine, taking, row_id) is None
        assert ask(tx, table, machine, taking, "nowhere") is None
        assert why_missed(tx, table, machine, taking, "nowhere", lease=None).reason == "absent"

    await database.write(sweep)


async def test_a_lease_is_renewed_by_its_holder_alone_and_only_while_it_is_live(
    database: Database, clock: ManualClock
) -> None:
    table = METADATA.tables["receipts"]
    now = clock.now_us()

    def sweep(tx: Tx) -> list[bool]:
        row_id = fill(tx.conn)["receipts"]["id"]
        answers = []
        for lease, lapsed, states in (
            (Lease("me", 4, now), False, ["processing"]),
            (Lease("other", 4, now), False, ["processing"]),
            (Lease("me", 3, now), False, ["processing"]),
            (Lease("me", 4, now), True, ["processing"]),
            (Lease("me", 4, now), False, ["received"]),
        ):
            place(tx, table, row_id, "processing", **due(now, table, lapsed=lapsed))
            answers.append(renew(tx, table, states, row_id, lease, expires_at=now + 50))
        place(tx, table, row_id, "processing", **due(now, table, lapsed=False))
        assert renew(tx, table, ["processing"], row_id, Lease("me", 4, now), expires_at=now + 50)
        row = tx.find(sa.select(table).where(table.c.id == row_id))
        assert row is not None
        assert lease_of(row) == Lease("me", 4, now + 50)
        assert held(row, lease_of(row), now=now + 49)
        assert not held(row, lease_of(row), now=now + 50)
        return answers

    assert await database.write(sweep) == [True, False, False, False, False]


async def test_a_transition_that_lacks_what_its_fence_needs_is_a_mistake(database: Database) -> None:
    table, machine = METADATA.tables["receipts"], MACHINES["receipts"]
    mistakes: list[tuple[str, type[Exception]]] = [
        ("claim", ValueError),
        ("complete", ValueError),
        ("vanish", KeyError),
    ]
    for event, kind in mistakes:
        with pytest.raises(kind):
            await database.write(lambda tx, event=event: transition(tx, table, machine, event, "x"))  # type: ignore[misc]


async def test_of_many_sessions_that_claim_one_row_exactly_one_holds_it(
    open_session: Callable[[], Database], clock: ManualClock
) -> None:
    """Separate sessions, one due row: one claim passes, by generation; the others touch nothing."""
    import asyncio

    table, machine = METADATA.tables["receipts"], MACHINES["receipts"]
    sessions = [open_session() for _ in range(4)]
    row_id = await sessions[0].write(lambda tx: fill(tx.conn)["receipts"]["id"])
    now = clock.now_us()
    await sessions[0].write(lambda tx: place(tx, table, row_id, "received", not_before=now, lease_generation=0))

    def claim(owner: str) -> Callable[[Tx], Any]:
        return lambda tx: transition(tx, table, machine, "claim", row_id, take=Take(owner, now + 10))

    taken = await asyncio.gather(*(session.write(claim(f"w{place}")) for place, session in enumerate(sessions)))
    winners = [row for row in taken if row is not None]
    assert len(winners) == 1
    assert winners[0]["lease_generation"] == 1
