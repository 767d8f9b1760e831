"""Journey 2: questions in quick succession, and messages that answer nothing."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest

from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.rig import House, until


async def second_grant(house: House) -> None:
    """Another conversation of the same person, authorised for the same chat."""
    example = house.example
    made = await example.call(
        "POST",
        f"{example.workspace}/conversations",
        json={"title": "Another one", "context": {"project_id": example.project_id, "surface": "console"}},
    )
    binding = await example.binding()
    assert binding is not None
    body = {
        "request_id": secrets.token_hex(8),
        "installation_id": example.installation["id"],
        "binding_id": binding["id"],
        "conversation_id": made["id"],
    }
    grant = await example.call("POST", f"{example.project}/reply-grants", json=body)

    async def activated() -> bool:
        found = await example.call("GET", f"{example.project}/reply-grants/{grant['id']}")
        return bool(found["activation_status"] == "sent")

    await until("the second activation", activated)


async def refused(house: House, message: str) -> str:
    """The code a message was refused with; nothing ran and nothing was sent for it."""

    def ended() -> Any:
        return house.rows("receipts", provider_message_id=message)

    receipt = (await until("the receipt", ended))[0]
    assert receipt["status"] == "rejected"
    assert receipt["turn"] is None
    assert house.rows("deliveries", receipt=receipt["id"]) == []
    return str(receipt["error_code"])


@pytest.mark.spec("DESK-109")
async def test_two_questions_in_quick_succession(copy_house: Copy) -> None:
    """Two replies, one after the other or at once, make two turns one at a time and revisions N+1 and N+2; the second
    is asked with the first exchange in its history, and each answer replies to its own question, in that order.
    """
    async with copy_house() as house:
        example = house.example
        await house.serve()
        await house.listen()
        activation = await rig.newest_of_bot(example)
        before = await house.wires()
        # A probe leaves a provider token behind: what a slow token does to the order is the next test's subject.
        await example.call("POST", f"{example.workspace}/installations/{example.installation['id']}/probe", json={})
        house.hold()
        first = await rig.say(example, "What is Frontdesk?", activation, wait=True)
        second = await rig.say(example, "And who may answer?", activation, wait=True)
        await house.held()
        work = [row["status"] for row in house.rows("receipts", reply_grant=example.grant_id)]
        assert work == ["processing", "received"], "one receipt of a grant is in work at a time"
        house.release()
        await house.answered(first, second)
        turns = house.rows("turns", conversation=example.conversation_id)
        assert [(row["sequence"], row["status"], row["committed_revision"]) for row in turns] == [
            (1, "completed", 1),
            (2, "completed", 2),
        ]
        assert house.rows("conversations", id=example.conversation_id)[0]["revision"] == 2
        assert house.rows("reply_grants", id=example.grant_id)[0]["cursor"] == 2
        answers = await example.answers_to(first)
        asked = house.asked()
        assert asked[0]["history"] == []
        assert asked[1]["history"] == [["What is Frontdesk?", answers[0]["text"]]]
        wires = (await house.wires())[len(before) :]
        rig.once_each(wires)
        assert [(row["kind"], row["target_id"]) for row in wires] == [("reply", first), ("reply", second)]

        # Truly at once: both are pushed before either was looked at. They run in the order of their arrival.
        both = await asyncio.gather(*(rig.say(example, text, activation) for text in ("Third?", "Fourth?")))
        await house.answered(*both)
        turns = house.rows("turns", conversation=example.conversation_id)
        assert [(row["sequence"], row["committed_revision"]) for row in turns] == [(1, 1), (2, 2), (3, 3), (4, 4)]
        assert len(house.asked()[3]["history"]) == 3
        arrived = [row["provider_message_id"] for row in house.rows("receipts", reply_grant=example.grant_id)]
        assert [row["target_id"] for row in (await house.wires())[len(before) :]] == arrived


async def test_answers_leave_in_order_also_when_connecting_takes_long(copy_house: Copy) -> None:
    """Two questions in quick succession are answered in their order, also where the provider's token comes late."""
    async with copy_house() as house:
        example = house.example
        await house.serve()
        await house.listen()
        activation = await rig.newest_of_bot(example)
        faults = [{"match": {"route": "token"}, "delay_ms": 1_500}]
        await example.simulate("POST", "/_sim/faults", json={"faults": faults})
        before = len(await house.wires())
        questions = ("What is Frontdesk?", "And who may answer?")
        asked = [await rig.say(example, text, activation, wait=True) for text in questions]
        await house.answered(*asked)
        assert [row["target_id"] for row in (await house.wires())[before:]] == asked


async def test_a_message_that_answers_nothing_needs_an_only_grant(copy_house: Copy) -> None:
    """Typed without replying, a message continues the chat's only usable grant; with a second one, or with `refuse`,
    it is rejected `reply_target_required`.
    """
    async with copy_house() as house:
        example = house.example
        server = await house.serve()
        await house.listen()
        typed = await rig.say(example, "What is Frontdesk?", None)
        await house.answered(typed)
        wires = len(await house.wires())

        assert await server.terminate() == 0
        server = await house.serve(environment={"FRONTDESK_UNADDRESSED_MESSAGES": "refuse"})
        assert await refused(house, await rig.say(example, "Nobody in particular?", None)) == "reply_target_required"
        await house.answered(await rig.say(example, "And in reply?"))
        assert len(await house.wires()) == wires + 1

        assert await server.terminate() == 0
        await house.serve()
        await second_grant(house)
        assert await refused(house, await rig.say(example, "Which of you?", None)) == "reply_target_required"
        await house.answered(await rig.say(example, "You of course?"))
        rig.once_each(await house.wires())
        assert len(await house.wires()) == wires + 3
