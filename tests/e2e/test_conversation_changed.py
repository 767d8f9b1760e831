"""Journey 6, second half: the conversation itself changes while the runner thinks, or between two replies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from frontdesk.app.example import Example
from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.people import listen, own
from tests.e2e.rig import House, until

MOVED = "conversation_revision_changed"


@dataclass
class Change:
    """One chat, what changes its conversation, and why its grant is then unusable."""

    example: Example
    make: Callable[[Example], Awaitable[Any]]
    reason: str
    message: str = ""


def path_of(example: Example) -> str:
    """The API path of a chat's conversation."""
    return f"{example.workspace}/conversations/{example.conversation_id}"


async def close(example: Example) -> None:
    """The owner closes the conversation."""
    await example.call("POST", path_of(example) + "/close", json={})


async def change_context(example: Example) -> None:
    """The owner lets it belong to something else of the project."""
    context = {"project_id": example.project_id, "surface": "api"}
    await example.call("PATCH", path_of(example), json={"context": context})


async def speak(example: Example) -> None:
    """The owner asks in the console."""
    body = {"request_id": "between", "content": "Said in the console"}
    assert (await example.call("POST", path_of(example) + "/messages", json=body))["status"] == "completed"


async def ended(house: House, message: str) -> dict[str, Any]:
    """The receipt of a message, once it has ended."""

    def look() -> Any:
        found = house.rows("receipts", provider_message_id=message)
        return found if found and found[0]["processed_at"] else []

    return dict((await until("the receipt to end", look))[0])


async def unusable(house: House, example: Example, reason: str, message: str) -> None:
    """The message ended without a turn's answer or anything sent, and the grant says why it is of no use any more."""
    receipt = await ended(house, message)
    assert (receipt["status"], receipt["error_code"]) == ("permanent_failed", MOVED)
    assert house.rows("deliveries", receipt=receipt["id"]) == []
    grant = await example.grant()
    assert (grant["status"], grant["usable"], grant["unusable_reason"]) == ("active", False, reason)


async def test_a_conversation_that_changes_takes_its_answer_with_it(
    copy_house: Copy, known: list[dict[str, Any]]
) -> None:
    """Closed, or given another context, while the runner thinks: no answer is kept, the cursor stays, nothing is sent.
    A console turn between two replies strands the grant as well. The grant says why, and a new authorisation works.
    """
    async with copy_house() as house:
        await house.serve()
        chats = [own(house, each) for each in known[:3]]
        for chat in chats:
            await listen(chat, house.address)
        closed, moved, spoken = chats
        changes = [
            Change(closed, close, "conversation_closed"),
            Change(moved, change_context, "conversation_context_changed"),
        ]
        wires = [len(await rig.wires_of(chat)) for chat in chats]
        house.hold()
        for change in changes:
            change.message = await rig.say(change.example, "While you change?")
        await house.held(len(changes))
        for change in changes:
            await change.make(change.example)
        house.release()
        for change in changes:
            await unusable(house, change.example, change.reason, change.message)
            (turn,) = house.rows("turns", conversation=change.example.conversation_id)
            assert (turn["status"], turn["response"], turn["committed_revision"]) == ("failed", None, None)
            assert house.rows("conversations", id=change.example.conversation_id)[0]["revision"] == 1
            assert house.rows("reply_grants", id=change.example.grant_id)[0]["cursor"] == 0

        first = await rig.say(spoken, "What is Frontdesk?")
        await until("the answer", lambda: house.delivery_is(first, "sent"))
        assert (await spoken.grant())["usable"] is True
        await speak(spoken)
        assert (await spoken.grant())["unusable_reason"] == MOVED
        asked = len(house.asked())
        await unusable(house, spoken, MOVED, await rig.say(spoken, "And then?"))
        assert len(house.asked()) == asked, "the runner is not asked"
        assert house.rows("reply_grants", id=spoken.grant_id)[0]["cursor"] == 1
        assert [len(await rig.wires_of(chat)) for chat in chats] == [wires[0], wires[1], wires[2] + 1]

        # A closed conversation is not authorised again; another one is. The two others go on as they are now.
        closed.title = "Another conversation"
        await closed.converse()
        for chat in chats:
            await chat.authorise()
            again = await rig.say(chat, "And now?")
            await until("the answer under the new grant", lambda again=again: house.delivery_is(again, "sent"))
            assert len(await chat.answers_to(again)) == 1
        assert [len(await rig.wires_of(chat)) for chat in chats] == [wires[0] + 2, wires[1] + 2, wires[2] + 3]
        assert [pair[0] for pair in house.asked()[-1]["history"]] == ["What is Frontdesk?", "Said in the console"]
