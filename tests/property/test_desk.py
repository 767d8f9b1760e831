"""The whole desk under random commands on both engines together, watched by the simulation's oracle (DESK-272)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from frontdesk.desk import connections, conversations, inbox, outbox
from frontdesk.desk.conversations.runner import Answer, Failed
from frontdesk.desk.inbox import claiming, working
from frontdesk.desk.inbox.claiming import Claim
from frontdesk.desk.sending import steps
from frontdesk.identity.members import update_member
from frontdesk.identity.users import update_user
from frontdesk.kernel.clock import HOUR, MINUTE, SECOND
from tests.contract.desk_world import LEASE_US
from tests.property.desks import COVER_US, STALE, Desk, Desks, Holder
from tests.property.pair import EXAMPLES, Pair, profile

WORKERS = 2
MENDED = ("installation", "user", "role", "grant")
KINDS = (*MENDED * 4, "close", "unbind")
FOR_GOOD = frozenset({"close", "unbind"})
FATES_DRAWN = ("sent", "sent", "sent", "refused", "retry", "unknown", "no connection")


@dataclasses.dataclass
class Work:
    """Something a worker holds in its memory, on both sides. It is gone with its worker's life."""

    life: Holder
    stage: str  # claimed | begun | stored | attempt | sending | told
    values: list[Any]
    start_before_us: int = 0
    outcomes: list[Any] = dataclasses.field(default_factory=list)


# How often each thing is tried, and what it needs: a stage of somebody's work, something pushed, an unknown delivery.
ACTIONS: dict[str, tuple[int, str | None]] = {
    "push": (8, None),
    "push_again": (2, "pushed"),
    "claim": (5, None),
    "begin_turn": (8, "claimed"),
    "store_answer": (7, "begun"),
    "renew": (2, "begun"),
    "fail_turn": (1, "begun"),
    "make_delivery": (8, "stored"),
    "claim_delivery": (5, None),
    "begin_sending": (8, "attempt"),
    "send": (8, "sending"),
    "conclude": (6, "told"),
    "settle": (2, "unknown"),
    "recover": (3, None),
    "crash": (1, None),
    "pass_time": (4, None),
    "step_the_clock": (1, None),
    "answer_all": (3, None),
    "send_all": (1, None),
    "change": (3, None),
    "take_back_before_sending": (4, "attempt"),
    "outlast_a_connect": (2, "attempt"),
    "outlast_a_send": (4, "told"),
}


class WholeDesk(RuleBasedStateMachine):
    """One person, two workers whose clock steps, and whoever runs the place."""

    desks: Desks
    happened: ClassVar[Counter[str]]

    @initialize()
    def begin(self) -> None:
        self.desks.begin_example()
        self.lives = [0] * WORKERS
        self.work: list[Work] = []
        self.pushed: list[list[Any]] = []
        self.off: set[str] = set()
        self.renewed = False
        self.somebody = Holder("somebody", self.desks.clock)

    def teardown(self) -> None:
        self.desks.end_example()

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """One thing of those that can happen now; the work itself more often than what disturbs it."""
        stages = {work.stage for work in self.work}
        possible = [
            name
            for name, (weight, needs) in ACTIONS.items()
            if needs is None
            or needs in stages
            or (needs == "pushed" and self.pushed)
            or (needs == "unknown" and self._unknown())
            for _ in range(weight)
        ]
        getattr(self, data.draw(st.sampled_from(possible)))(data)

    # ------------------------------------------------------------------------------------------ helpers

    def _some_life(self, data: st.DataObject) -> Holder:
        return self._life(data.draw(st.integers(0, WORKERS - 1)))

    def _life(self, worker: int) -> Holder:
        return Holder(f"worker{worker}-{self.desks.numbers}-{self.lives[worker]}", self.desks.clock)

    def _each(self, work: Any, holder: Holder) -> list[Any]:
        return self.desks.each(work, holder)

    def _at(self, stage: str) -> list[Work]:
        return [work for work in self.work if work.stage == stage]

    def _unknown(self) -> list[str]:
        deliveries = self.desks.sides[0].mirror.tables["deliveries"]
        return sorted(row_id for row_id, row in deliveries.items() if row["status"] == "indeterminate")

    def _pick(self, data: st.DataObject, stage: str) -> Work:
        work: Work = data.draw(st.sampled_from(self._at(stage)))
        self.work.remove(work)
        return work

    def _go_on(self, work: Work, stage: str, outcomes: list[Any], name: str) -> None:
        """Keep what both sides made for the next stage; what one of them refused, both did."""
        made = [outcome is not None and not isinstance(outcome, str) for outcome in outcomes]
        assert made[0] == made[1], outcomes
        if made[0]:
            self.work.append(dataclasses.replace(work, stage=stage, values=outcomes))
        else:
            assert outcomes[0] == outcomes[1]
        self.happened[f"{name} {'done' if made[0] else outcomes[0]}"] += 1

    # ------------------------------------------------------------------------------------------ callback

    def push(self, data: st.DataObject) -> None:
        # The message that may be answered is the first grant's; later ones are reached without naming one.
        answers = data.draw(st.booleans()) and not self.renewed
        number = len(self.pushed)
        events = []
        for desk in self.desks.sides:
            assert desk.seat is not None
            events.append(desk.world.message(f"question {number}", desk.seat, reply=answers))
        self.pushed.append(events)
        self._deliver_push(events)

    def push_again(self, data: st.DataObject) -> None:
        events = data.draw(st.sampled_from(self.pushed))
        before = [len(desk.mirror.tables["receipts"]) for desk in self.desks.sides]
        assert set(self._deliver_push(events)) == {"known"}
        assert [len(desk.mirror.tables["receipts"]) for desk in self.desks.sides] == before

    def _deliver_push(self, events: list[Any]) -> list[str]:
        async def push(desk: Desk) -> str:
            return (await desk.world.push(events[self.desks.sides.index(desk)])).outcome

        outcomes = self._each(push, self.somebody)
        assert outcomes[0] == outcomes[1]
        self.happened[f"push {outcomes[0]}"] += 1
        return outcomes

    # ------------------------------------------------------------------------------------------ answering

    def claim(self, data: st.DataObject) -> None:
        life = self._some_life(data)
        order = Claim(life.owner, LEASE_US, 2)
        claimed = self._each(lambda desk: desk.world.write(claiming.claim, order, desk.world.parts), life)
        assert [receipt.id for receipt in claimed[0]] == [receipt.id for receipt in claimed[1]]
        for pair in zip(*claimed, strict=True):
            self._go_on(Work(life, "claimed", []), "claimed", list(pair), "t1")

    def _step(self, work: Work, stage: str, name: str, verb: Any) -> None:
        values = dict(zip(map(id, self.desks.sides), work.values, strict=True))
        self._go_on(work, stage, self._each(lambda desk: verb(desk, values[id(desk)]), work.life), name)

    def begin_turn(self, data: st.DataObject) -> None:
        work = self._pick(data, "claimed")
        self._step(work, "begun", "t1b", lambda desk, value: desk.world.write(working.begin, value, desk.world.parts))

    def store_answer(self, data: st.DataObject) -> None:
        work = self._pick(data, "begun")
        begun = work.values

        async def commit(desk: Desk, value: Any) -> Any:
            turn = await desk.world.write(working.commit_answer, value, Answer("an answer"))
            return None if turn is None else (value, turn)

        self._step(dataclasses.replace(work, values=begun), "stored", "t3", commit)

    def renew(self, data: st.DataObject) -> None:
        work = data.draw(st.sampled_from(self._at("begun")))
        values = dict(zip(map(id, self.desks.sides), work.values, strict=True))
        outcomes = self._each(
            lambda desk: desk.world.write(working.renew, values[id(desk)].receipt, LEASE_US), work.life
        )
        assert outcomes[0] == outcomes[1]
        self.happened[f"renewal {outcomes[0][0]}"] += 1

    def fail_turn(self, data: st.DataObject) -> None:
        def fail(desk: Desk, begun: Any) -> Any:
            return desk.world.write(working.fail_turn, begun, Failed("runner_unavailable"), desk.world.parts)

        self._step(self._pick(data, "begun"), "", "tF", fail)

    def make_delivery(self, data: st.DataObject) -> None:
        work = self._pick(data, "stored")
        values = dict(zip(map(id, self.desks.sides), work.values, strict=True))
        outcomes = self._each(
            lambda desk: desk.world.write(working.deliver, *values[id(desk)], desk.world.parts), work.life
        )
        assert outcomes[0] == outcomes[1]
        self.happened[f"t4 {outcomes[0]}"] += 1

    # ------------------------------------------------------------------------------------------ sending

    def claim_delivery(self, data: st.DataObject) -> None:
        life = self._some_life(data)
        order = steps.Order(life.owner, LEASE_US, 4 * HOUR, 2)
        claimed = self._each(lambda desk: desk.world.write(steps.claim_due, order, desk.world.parts), life)
        assert [attempt.delivery.id for attempt in claimed[0]] == [attempt.delivery.id for attempt in claimed[1]]
        for pair in zip(*claimed, strict=True):
            self._go_on(Work(life, "attempt", []), "attempt", list(pair), "t5")

    def begin_sending(self, data: st.DataObject) -> None:
        work = self._pick(data, "attempt")
        work.start_before_us = self.desks.clock.monotonic_us() + COVER_US
        self._step(work, "sending", "t7", lambda desk, value: desk.world.write(steps.begin_sending, value, LEASE_US))

    def send(self, data: st.DataObject) -> None:
        fate = data.draw(st.sampled_from(FATES_DRAWN))
        work = self._pick(data, "sending")
        work.outcomes = [
            desk.send(delivery, work.start_before_us, fate, work.life)
            for desk, delivery in zip(self.desks.sides, work.values, strict=True)
        ]
        work.stage = "told"
        self.work.append(work)
        self.happened[f"wire {fate}"] += 1

    def conclude(self, data: st.DataObject) -> None:
        work = self._pick(data, "told")
        told = dict(zip(map(id, self.desks.sides), zip(work.values, work.outcomes, strict=True), strict=True))
        outcomes = self._each(lambda desk: desk.world.write(steps.conclude, *told[id(desk)]), work.life)
        assert outcomes[0] == outcomes[1]
        self.happened[f"t9 {outcomes[0]}"] += 1

    def settle(self, data: st.DataObject) -> None:
        """Somebody decides an unknown delivery, whoever else still works on it."""
        outcome = data.draw(st.sampled_from(("settled_sent", "settled_not_sent")))
        delivery_id = data.draw(st.sampled_from(self._unknown()))
        named = {"outcome": outcome, "reason": "looked", "read_back": None}
        outcomes = self._each(
            lambda desk: desk.world.write(outbox.settle, desk.world.owner, desk.world.home, delivery_id, **named),
            self.somebody,
        )
        told = [each if isinstance(each, str) else each.status for each in outcomes]
        assert told[0] == told[1]
        self.happened[f"settlement {told[0]}"] += 1

    # ------------------------------------------------------------------------------------------ recovery, crash, time

    def recover(self, data: st.DataObject) -> None:
        life = self._some_life(data)

        async def sweep(desk: Desk) -> int:
            return await desk.world.write(outbox.settle_lapsed, 10)

        async def settle(desk: Desk) -> int:
            return await desk.world.write(inbox.recover, life.owner, LEASE_US, 10, desk.world.parts)

        for step in (sweep, settle):
            counts = self._each(step, life)
            assert counts[0] == counts[1]
            self.happened["recovered"] += counts[0]

    def crash(self, data: st.DataObject) -> None:
        """Everything in the worker's memory is gone; its next life has another name."""
        worker = data.draw(st.integers(0, WORKERS - 1))
        life = self._life(worker)
        self.work = [work for work in self.work if work.life != life]
        self.lives[worker] += 1
        self.happened["crash"] += 1

    def pass_time(self, data: st.DataObject) -> None:
        self.desks.clock.advance(data.draw(st.sampled_from((SECOND, SECOND, 3 * SECOND, LEASE_US - 1, LEASE_US))))

    def step_the_clock(self, data: st.DataObject) -> None:
        self.desks.clock.step(data.draw(st.sampled_from((-10 * MINUTE, 10 * MINUTE))))

    # ------------------------------------------------------------------------------------------ one after the other

    def answer_all(self, data: st.DataObject) -> None:
        """A worker goes from t1 to t4 without anybody coming between."""
        self.claim(data)
        while self._at("claimed"):
            self.begin_turn(data)
        while self._at("begun"):
            self.store_answer(data)
        while self._at("stored"):
            self.make_delivery(data)

    def send_all(self, data: st.DataObject) -> None:
        """A worker goes from t5 to t9 without anybody coming between."""
        self.claim_delivery(data)
        while self._at("attempt"):
            self.begin_sending(data)
        while self._at("sending"):
            self.send(data)
        while self._at("told"):
            self.conclude(data)

    def take_back_before_sending(self, data: st.DataObject) -> None:
        """While a worker connects, somebody takes something back; then it wants to begin."""
        kind = data.draw(st.sampled_from(MENDED))
        if kind not in self.off:
            self._turn(kind)
        self.begin_sending(data)

    def outlast_a_connect(self, data: st.DataObject) -> None:
        """Connecting takes longer than the lease, and somebody has looked."""
        self.desks.clock.advance(LEASE_US)
        self.recover(data)
        self.begin_sending(data)

    def outlast_a_send(self, data: st.DataObject) -> None:
        """The provider's answer comes after the lease has passed and somebody has looked."""
        self.desks.clock.advance(LEASE_US)
        self.recover(data)
        self.conclude(data)

    # ------------------------------------------------------------------------------------------ people

    def change(self, data: st.DataObject) -> None:
        """Somebody takes something back, or what was taken back is given again (a closed conversation is not)."""
        # What is off is likely to be put on again: where nothing may be sent, nothing is shown.
        self._turn(data.draw(st.sampled_from((*KINDS, *sorted(self.off - FOR_GOOD) * 16))))

    def _turn(self, kind: str) -> None:
        off = kind not in self.off
        self.off ^= {kind}

        async def change(desk: Desk) -> None:
            seat, world = desk.seat, desk.world
            assert seat is not None
            if kind == "installation":
                await world.enable(not off)
            elif kind == "user":
                await world.write(update_user, world.owner, seat.actor.user_id, {"disabled": off})
            elif kind == "role":
                role = "viewer" if off else "operator"
                await world.write(update_member, world.owner, world.home, desk.member_id, role=role)
            elif kind == "close":
                await world.write(conversations.close_conversation, seat.actor, world.home, seat.conversation_id)
            elif kind == "unbind":
                named = {"workspace_id": world.home, "binding_id": seat.binding_id}
                await world.write(connections.unbind, seat.actor, **named)
            elif off:
                await world.revoke(seat.grant_id, seat.actor)
            else:
                view = await world.create(world.order(seat.binding_id, seat.conversation_id), seat.actor)
                desk.seat = dataclasses.replace(seat, grant_id=view.grant.id)
                self.renewed = True

        outcomes = self._each(change, self.somebody)
        codes = [each if isinstance(each, str) else "done" for each in outcomes]
        assert codes[0] == codes[1]
        if codes[0] != "done":
            self.off ^= {kind}
        self.happened[f"{kind} {'off' if off else 'on'} {codes[0]}"] += 1


# What the fixed examples of `make test` must have come to: a run that never gets there has shown nothing of it.
SHOWN = (
    "push accepted",
    "push known",
    "t1b done",
    "t1b None",
    "t3 done",
    "t4 completed",
    "t5 done",
    "t7 done",
    "t7 None",
    "wire sent",
    "wire retry",
    "t9 sent",
    "t9 indeterminate",
    f"t9 {STALE}",
    "recovered",
)


@pytest.mark.spec("DESK-272")
@pytest.mark.timeout(600)
def test_no_interleaving_breaks_a_promise_on_either_engine(both: Pair) -> None:
    """However callback, two workers, recovery, revocation, closing, clock steps and crashes interleave: no operation is
    sent twice without proof between, no cursor passes its revision, nothing begins to be sent after the commit that
    forbade it, and SQLite and PostgreSQL come to the same rows.
    """
    desks = Desks(both)
    happened: Counter[str] = Counter()

    class Example(WholeDesk):
        pass

    Example.desks, Example.happened = desks, happened
    run_state_machine_as_test(Example, settings=profile(30, 50))
    if not EXAMPLES:
        assert [name for name in SHOWN if not happened[name]] == [], dict(happened)
