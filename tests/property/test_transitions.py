"""Each transition table under random commands, against an oracle in plain Python, on both engines together."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from frontdesk.app.schema import METADATA
from frontdesk.desk.grants import store as grant_store
from frontdesk.kernel.machine import Fence, Lease, Machine
from frontdesk.storage.guarded import Take, note, renew, transition
from frontdesk.storage.tx import Tx
from tests.migration.rows import fill
from tests.property.pair import Pair, profile
from tests.unit.kernel.machines import MACHINES

OWNERS = ("anna", "bert")
SHOWN = ("status", "lease_owner", "lease_generation", "lease_expires_at", "not_before")
UNDER_LEASE = {"receipts": ("processing",), "deliveries": ("connecting", "sending"), "turns": ("running",)}


@dataclasses.dataclass
class Model:
    """What the specification says of one row. Times are microseconds; a lease is held while its expiry lies ahead."""

    status: str
    lease_owner: str | None = None
    lease_generation: int = 0
    lease_expires_at: int | None = None
    not_before: int = 0

    def holds(self, lease: Lease) -> bool:
        """Whether this is the present holder's fence."""
        return (self.lease_owner, self.lease_generation) == (lease.owner, lease.generation)

    def lapsed(self, now: int) -> bool:
        """Whether there is a lease whose time is over: at its expiry it is."""
        return self.lease_expires_at is not None and self.lease_expires_at <= now

    def live(self, now: int) -> bool:
        """Whether there is a lease whose time is not over."""
        return self.lease_expires_at is not None and self.lease_expires_at > now

    def admits(self, machine: Machine, event: str, lease: Lease, now: int) -> bool:
        """Whether the event may happen now, asked for by whoever presents this fence."""
        edge = machine.edges[event]
        right = {
            Fence.NONE: True,
            Fence.CLAIM: self.not_before <= now,
            Fence.HELD: self.holds(lease),
            Fence.LIVE: self.holds(lease) and self.live(now),
            Fence.LAPSED: self.lapsed(now),
        }
        return self.status in edge.sources and right[edge.fence]

    def apply(self, machine: Machine, event: str, take: Take | None) -> None:
        """Let it happen."""
        edge = machine.edges[event]
        self.status = edge.target
        self.lease_generation += edge.fence in (Fence.CLAIM, Fence.LAPSED)
        if take is not None:
            self.lease_owner, self.lease_expires_at = take.owner, take.expires_at
        elif edge.fence is not Fence.NONE and not edge.keeps_lease:
            self.lease_owner = self.lease_expires_at = None


def started(table: sa.Table, row_id: str, state: str) -> dict[str, Any]:
    """The columns that bring a row to the begin of an example."""
    values: dict[str, Any] = {"status": state, "lease_owner": None, "lease_generation": 0, "lease_expires_at": None}
    values["not_before"] = 0
    values["active_slot"] = row_id[-30:] if state == "active" else None
    return {name: value for name, value in values.items() if name in table.c}


class Rows(RuleBasedStateMachine):
    """Two rows of one table on each engine, and what should have become of them."""

    name: str
    both: Pair
    ids: list[list[str]]  # by side, then by row

    @initialize(states=st.data())
    def begin(self, states: st.DataObject) -> None:
        self.table, self.machine = METADATA.tables[self.name], MACHINES[self.name]
        self.now = 1_000_000
        first = sorted(self.machine.initial)
        self.models = [Model(states.draw(st.sampled_from(first))) for _ in range(2)]
        for place, model in enumerate(self.models):
            self._each(place, lambda tx, row_id, model=model: self._put(tx, row_id, model.status))

    def _put(self, tx: Tx, row_id: str, state: str) -> None:
        tx.execute(sa.update(self.table).where(self.table.c.id == row_id).values(started(self.table, row_id, state)))

    def _each(self, place: int, work: Any) -> list[Any]:
        """One transaction on each engine at the model's time."""
        results = []
        for side, ids in zip(self.both.sides, self.ids, strict=True):

            def run(tx: Tx, row_id: str = ids[place]) -> Any:
                tx.now = self.now
                return work(tx, row_id)

            results.append(self.both.loop.run(side.database.write(run)))
        return results

    def _lease(self, place: int, data: st.DataObject) -> Lease:
        """The present holder's fence, or one that is a little off."""
        model = self.models[place]
        owner = data.draw(st.sampled_from((model.lease_owner or "anna", *OWNERS)))
        generation = data.draw(st.sampled_from((0, 0, 0, -1, 1))) + model.lease_generation
        return Lease(owner, generation, self.now + 1)

    def _take(self, data: st.DataObject) -> Take:
        return Take(data.draw(st.sampled_from(OWNERS)), self.now + data.draw(st.sampled_from((1, 2, 30))))

    @rule(place=st.integers(0, 1), data=st.data())
    def happen(self, place: int, data: st.DataObject) -> None:
        """Any event of the table; those that may happen are tried more often."""
        model, edges = self.models[place], self.machine.edges
        likely = [event for event in edges if model.status in edges[event].sources]
        event = data.draw(st.sampled_from(likely * 3 + list(edges)))
        lease, fence = self._lease(place, data), edges[event].fence
        may_take = fence in (Fence.LAPSED, Fence.LIVE) and data.draw(st.booleans())
        take = self._take(data) if fence is Fence.CLAIM or may_take else None
        extra = {"active_slot": None} if "active_slot" in self.table.c and edges[event].target != "active" else {}
        given = lease if fence in (Fence.HELD, Fence.LIVE) else None

        def work(tx: Tx, row_id: str) -> bool:
            moved = transition(tx, self.table, self.machine, event, row_id, lease=given, take=take, values=extra)
            return moved is not None

        expected = model.admits(self.machine, event, lease, self.now)
        if expected:
            model.apply(self.machine, event, take)
        assert self._each(place, work) == [expected, expected], (event, model)

    @precondition(lambda self: self.name in UNDER_LEASE)
    @rule(place=st.integers(0, 1), data=st.data())
    def renew(self, place: int, data: st.DataObject) -> None:
        """A heartbeat extends a live lease of its own, and nothing else."""
        model, states = self.models[place], UNDER_LEASE[self.name]
        lease, until = self._lease(place, data), self.now + 20
        expected = model.status in states and model.holds(lease) and model.live(self.now)
        if expected:
            model.lease_expires_at = until

        def work(tx: Tx, row_id: str) -> bool:
            return renew(tx, self.table, states, row_id, lease, expires_at=until)

        assert self._each(place, work) == [expected, expected]

    @precondition(lambda self: self.name in UNDER_LEASE)
    @rule(place=st.integers(0, 1), data=st.data())
    def keep_a_note(self, place: int, data: st.DataObject) -> None:
        """A holder may set a column that is no state, as long as nobody took over."""
        model, states = self.models[place], UNDER_LEASE[self.name]
        lease = self._lease(place, data)
        expected = model.status in states and model.holds(lease)

        def work(tx: Tx, row_id: str) -> bool:
            return note(tx, self.table, states, row_id, lease, values={"error_code": "noted"})

        assert self._each(place, work) == [expected, expected]

    @precondition(lambda self: "not_before" in METADATA.tables[self.name].c)
    @rule(place=st.integers(0, 1), wait=st.sampled_from((-1, 0, 1, 5)))
    def wait_for(self, place: int, wait: int) -> None:
        """The row is due at some moment around now."""
        self.models[place].not_before = due = self.now + wait
        column = self.table.c
        self._each(
            place,
            lambda tx, row_id: tx.execute(sa.update(self.table).where(column.id == row_id).values(not_before=due)),
        )

    @rule(step=st.sampled_from((1, 1, 2, 30, -1, -600)))
    def pass_time(self, step: int) -> None:
        """Time goes on, or a clock steps back."""
        self.now += step

    @invariant()
    def agree(self) -> None:
        """Both engines hold what the model says, column by column."""
        if not hasattr(self, "models"):
            return
        names = [name for name in SHOWN if name in self.table.c]
        columns = [self.table.c[name] for name in ("id", *names)]
        for side, ids in zip(self.both.sides, self.ids, strict=True):
            statement = sa.select(*columns).where(self.table.c.id.in_(ids))
            rows = self.both.loop.run(side.database.read(lambda tx, statement=statement: tx.rows(statement)))
            found = {row["id"]: {name: row[name] for name in names} for row in rows}
            expected = [{name: getattr(model, name) for name in names} for model in self.models]
            assert [found[row_id] for row_id in ids] == expected, side.engine


@pytest.mark.parametrize("name", MACHINES)
def test_a_table_does_what_it_says_and_both_engines_the_same(name: str, both: Pair) -> None:
    """Whatever is asked of two rows in whatever order, by whoever, at whatever time, they do what the table says."""
    pairs = [both.write(lambda tx: str(fill(tx.conn)[name]["id"])) for _ in range(2)]
    ids = [[pair[side] for pair in pairs] for side in range(2)]

    class Example(Rows):
        pass

    Example.name, Example.both, Example.ids = name, both, ids
    run_state_machine_as_test(Example, settings=profile(10, 20))


@pytest.mark.parametrize("expected", [3, 4, 5])
def test_a_cursor_moves_from_exactly_one_revision(both: Pair, expected: int) -> None:
    """Compare-and-set: only who expects the revision at which the cursor stands moves it, by one."""
    table = METADATA.tables["reply_grants"]

    def move(tx: Tx) -> tuple[bool, int]:
        grant = str(fill(tx.conn)["reply_grants"]["id"])
        tx.execute(sa.update(table).where(table.c.id == grant).values(cursor=4))
        moved = grant_store.advance_cursor(tx, grant, expected)
        return moved, tx.count(sa.select(table.c.cursor).where(table.c.id == grant))

    wanted = (True, 5) if expected == 4 else (False, 4)
    assert both.write(move) == [wanted, wanted]
