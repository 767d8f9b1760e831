"""Two desks, one on each engine, that are told the same and watched by the oracle of `tests/sim/watch.py`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any

import sqlalchemy as sa

from frontdesk.desk.connections.channel import NotSent, Outcome, RefusedFinal, RefusedRetry, Sent, Unknown
from frontdesk.desk.outbox import Delivery
from frontdesk.kernel.clock import DAY, SECOND, ManualClock
from frontdesk.kernel.errors import Problem, StaleFence
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import LEASE_US, TABLES, DeskWorld, Seat, open_desk
from tests.property.pair import Pair, Side
from tests.sim.life import Violation
from tests.sim.mirror import WATCHED, Mirror
from tests.sim.provider import Shown, Wire
from tests.sim.watch import Watch

# What a step says instead of a result: the fence was lost, or the code it was refused with.
STALE = "stale"
COVER_US = LEASE_US - 25 * SECOND  # a send begins only while its lease covers it and the close after it
FATES: dict[str, Outcome] = {
    "sent": Sent("", 1),
    "refused": RefusedFinal("target_revoked", 230011),
    "retry": RefusedRetry("rate_limited", None, 230020),
    "unknown": Unknown(),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    """Whoever writes: one life of a worker, or a person."""

    owner: str
    clock: ManualClock

    @property
    def name(self) -> str:
        """For messages."""
        return self.owner


class _Nobody:
    """The simulation's people, who do nothing of their own accord here."""

    def rush(self) -> None:
        """See `People.rush`."""

    def tempt(self, grant_id: str | None) -> None:
        """See `People.tempt`."""


class _Outside:
    """What reached the chat."""

    def __init__(self) -> None:
        self.attempts: dict[str, list[Wire | None]] = {}
        self.by_operation: dict[str, list[Wire]] = {}
        self.shown: list[Shown] = []

    def visible(self, operation_id: str) -> list[Shown]:
        """See `Provider.visible`."""
        return [shown for shown in self.shown if shown.operation_id == operation_id]


class _Around:
    """What the oracle asks of a world."""

    def __init__(self, clock: ManualClock) -> None:
        self.true = clock
        self.people = _Nobody()
        self.provider = _Outside()

    def note(self, text: str) -> None:
        """Nothing is traced."""

    def violation(self, violation: Violation) -> Violation:
        """It is raised by whoever asks."""
        return violation


class Desk:
    """One side: a desk, the mirror of its rows, and the oracle."""

    def __init__(self, side: Side, world: DeskWorld, clock: ManualClock) -> None:
        self.side = side
        self.world = world
        self.clock = clock
        self.around = _Around(clock)
        self.mirror = Mirror(lambda since: _watched_columns(side.log.read(since)))
        self.watch = Watch(self.around, self.mirror)  # type: ignore[arg-type]
        self.seat: Seat | None = None

    async def take_place(self, number: int) -> None:
        """A new person with binding, conversation, grant and a sent activation, before anybody watches."""
        world = self.world
        actor, member = await world.people.person_and_member(f"person{number}", "operator")
        self.seat = await world.seat(actor, sender=f"ou_{number}", chat=f"oc_{number}")
        self.member_id = "" if member is None else member.id
        self.mirror.look()

    async def clear(self) -> None:
        """Nothing of this example is open any more."""

        def end(tx: Tx) -> None:
            free = {"lease_owner": None, "lease_expires_at": None}
            for name, status, states in (
                ("receipts", "permanent_failed", ("received", "retryable_failed", "processing")),
                ("deliveries", "failed", ("pending", "retryable_failed", "connecting", "sending", "indeterminate")),
                ("turns", "failed", ("running",)),
            ):
                table = TABLES[name]
                tx.execute(sa.update(table).where(table.c.status.in_(states)).values(status=status, **free))
            grants, installations = TABLES["reply_grants"], TABLES["installations"]
            tx.execute(sa.update(grants).where(grants.c.status == "active").values(status="revoked", active_slot=None))
            tx.execute(sa.update(installations).values(status="active"))

        await self.world.write(end)
        self.mirror.look()

    async def told(self, work: Callable[[Desk], Awaitable[Any]], holder: Holder) -> Any:
        """What came of one transaction; afterwards the oracle looks at every row it wrote."""
        try:
            outcome = await work(self)
        except StaleFence:
            outcome = STALE
        except Problem as problem:
            outcome = problem.code
        self.watch.committed(holder)  # type: ignore[arg-type]
        return outcome

    def send(self, delivery: Delivery, start_before_us: int, fate: str, holder: Holder) -> Outcome:
        """One wire request, or none where the lease does not cover it any more or no connection stands."""
        outside, operation = self.around.provider, delivery.operation_id
        attempts = outside.attempts.setdefault(operation, [])
        if self.clock.monotonic_us() >= start_before_us:
            attempts.append(None)
            return Unknown()
        if fate == "no connection":
            attempts.append(None)
            return NotSent("not_sent_connection")
        earlier = outside.by_operation.setdefault(operation, [])
        number = 1 + sum(map(len, outside.by_operation.values()))
        wire = Wire(
            number,
            operation,
            delivery.provider_uuid,
            delivery.text or "",
            delivery.chat_id,
            delivery.reply_to,
            holder,  # type: ignore[arg-type]
        )
        self.watch.wire_begins(wire, earlier)
        wire.ended = fate
        earlier.append(wire)
        attempts.append(wire)
        if fate in ("sent", "unknown"):
            shown = Shown(f"om_bot_{operation}", operation, wire.chat_id, wire.reply_to, wire.content)
            outside.shown.append(shown)
        return Sent(f"om_bot_{operation}", 1) if fate == "sent" else FATES[fate]


def _watched_columns(log: list[tuple[int, str, str, str | None]]) -> list[tuple[int, str, str, str | None]]:
    return [(seq, table, row_id, None if body is None else _watched(table, body)) for seq, table, row_id, body in log]


def _watched(table: str, body: str) -> str:
    values = json.loads(body)
    if table == "turns" and isinstance(values["response"], str):  # SQLite keeps JSON as text
        values["response"] = json.loads(values["response"])
    return json.dumps({name: values[name] for name in WATCHED[table].split()})


class Desks:
    """Both sides."""

    def __init__(self, both: Pair) -> None:
        self.both = both
        self.clock = both.clock
        self.numbers = 0
        self.sides = [
            Desk(side, both.loop.run(open_desk(side.database, both.clock)), both.clock)  # type: ignore[arg-type]
            for side in both.sides
        ]

    def begin_example(self) -> None:
        """A day later, with a new person."""
        self.clock.advance(DAY)
        self.numbers += 1
        for desk in self.sides:
            self.both.loop.run(desk.take_place(self.numbers))

    def end_example(self) -> None:
        """Leave nothing to the next one."""
        for desk in self.sides:
            self.both.loop.run(desk.clear())

    def each(self, work: Callable[[Desk], Awaitable[Any]], holder: Holder) -> list[Any]:
        """The same on both sides, at the same instant; afterwards they hold the same rows."""
        self.clock.advance(1)
        outcomes = [self.both.loop.run(desk.told(work, holder)) for desk in self.sides]
        first, second = (desk.mirror.tables for desk in self.sides)
        for table, rows in first.items():
            other = second[table]
            differ = {row_id: (rows.get(row_id), other.get(row_id)) for row_id in {*rows, *other}}
            differ = {row_id: pair for row_id, pair in differ.items() if pair[0] != pair[1]}
            assert not differ, f"the engines differ in {table}: {differ}"
        return outcomes
