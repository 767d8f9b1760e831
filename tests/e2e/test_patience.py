"""Journey 4: the provider pushes for hours, in any order, over a restart."""

from __future__ import annotations

import random

import pytest

from tests.e2e import ledger, rig
from tests.e2e.conftest import Copy
from tests.e2e.rig import House

OTHERS = 15
SEED = 4
# When one and the same event is pushed, in seconds after the first time (the last one after the provider's 6 h).
SCHEDULE = (15, 300, 3_600, 21_900)


async def advance(house: House, seconds: int) -> None:
    """Set provider's and desk's time of day so far ahead of the machine's."""
    await house.step_clock(seconds)
    await house.example.simulate("POST", "/_sim/clock", json={"offset_ms": seconds * 1_000})


async def push_again(house: House, message: str, age_s: int) -> None:
    """The message's event once more, as the provider repeats it: another event id, the first time's timestamp."""
    body = {"message_id": message, "new_event_id": True, "old_timestamp": age_s * 1_000, "wait": True}
    await house.example.simulate("POST", "/_sim/push", json=body)


@pytest.mark.spec("DESK-51")
async def test_one_event_is_pushed_for_six_hours(copy_house: Copy) -> None:
    """One message pushed at once, after 15 s, 5 min, 1 h and 6 h 05, each time as another event, among fifteen others
    that come twice in any order, with a restart before the last: each is one receipt, one turn and one answer, and
    every push is answered 200.
    """
    async with copy_house() as house:
        await house.step_clock(0)
        server = await house.serve()
        await house.listen()
        wires = len(await house.wires())
        chance = random.Random(SEED)
        patient = await rig.say(house.example, "Are you there?", None, wait=True)
        # Each of the others is pushed once at one time, and once more at the same or a later one.
        firsts = [chance.randrange(len(SCHEDULE)) for _ in range(OTHERS)]
        seconds = [chance.randrange(first, len(SCHEDULE)) for first in firsts]
        messages = [patient]
        others: dict[int, tuple[str, int]] = {}
        for step, at in enumerate(SCHEDULE):
            await house.answered(*messages)
            await advance(house, at)
            if step == len(SCHEDULE) - 1:
                assert await server.terminate() == 0
                server = await house.serve()
            due = [("first", number) for number in range(OTHERS) if firsts[number] == step]
            due += [("again", number) for number in range(OTHERS) if seconds[number] == step]
            due.append(("patient", -1))
            chance.shuffle(due)
            due.sort(
                key=lambda item: item[0] == "again" and firsts[item[1]] == step
            )  # nothing comes again before it came
            for what, number in due:
                if what == "patient":
                    await push_again(house, patient, at)
                elif what == "first":
                    message = await rig.say(house.example, f"Question {number}?", None, wait=True)
                    others[number] = (message, at)
                    messages.append(message)
                else:
                    await push_again(house, others[number][0], at - others[number][1])
        await house.answered(*messages)
        receipts = ledger.receipts_of(house, messages)
        assert len(receipts) == 1 + OTHERS
        ledger.one_turn_each(house, receipts)
        assert len(house.rows("turns", conversation=house.example.conversation_id)) == 1 + OTHERS
        assert [row["status"] for row in receipts] == ["completed"] * (1 + OTHERS)
        ledger.cursors_agree(house, [house.example.grant_id])
        pushes = [push for message in messages for push in await rig.pushes_of(house.example, message)]
        assert len(pushes) == 1 + len(SCHEDULE) + 2 * OTHERS
        # None is an answer past the provider's three seconds, on a machine that is very busy.
        assert {attempt["status"] for push in pushes for attempt in push["attempts"]} <= {200, None}
        assert len({push["event_id"] for push in pushes}) == len(pushes)
        rig.once_each(await house.wires())
        assert len(await house.wires()) == wires + 1 + OTHERS
