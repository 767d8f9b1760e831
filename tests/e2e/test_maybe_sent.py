"""Journey 5: what may have been sent is never sent again; history is looked at, and a person settles it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.people import join
from tests.e2e.rig import House, until

TWO_HOURS = 2 * 3600


async def provider_fails(house: House, **knob: Any) -> None:
    """The provider's next answer to a send of this house is broken so."""
    match = {"route": "send", "app": house.example.app["app_id"], "times": 1}
    await house.example.simulate("POST", "/_sim/faults", json={"faults": [{"match": match, **knob}]})


async def unknown(house: House, text: str, **knob: Any) -> str:
    """Ask, and let the provider's answer to our answer be lost; the question's message id."""
    await provider_fails(house, **knob)
    message = await rig.say(house.example, text, None)
    await until("it to be unknown", lambda: house.delivery_is(message, "indeterminate"))
    assert house.delivery(message)["error_code"] == "send_result_unknown"
    return message


async def sends(house: House, message: str) -> int:
    """Wire requests that were to answer a message."""
    return len([row for row in await house.wires() if row["target_id"] == message])


def path_of(house: House, message: str) -> str:
    """The API path of the delivery that answers a message."""
    return f"{house.example.workspace}/deliveries/{house.delivery(message)['id']}"


async def read_back(house: House, message: str) -> str:
    """What the provider's own history says."""
    return str((await house.example.call("POST", path_of(house, message) + "/read-back", json={}))["result"])


@pytest.mark.spec("DESK-158", "DESK-358")
async def test_what_may_have_been_sent_is_not_sent_again(copy_house: Copy) -> None:
    """An answer the provider took and whose reply was lost stands in the chat while its delivery reads indeterminate;
    no restart sends it, or anything sent, failed or settled, again, within the provider's hour or beyond. History
    shows a person which of them is there, and the settlement sends nothing either.
    """
    async with copy_house() as house:
        example = house.example
        await house.step_clock(0)
        server = await house.serve()
        await house.listen()
        dropped = await unknown(house, "What is Frontdesk?", accept_then_drop=True)
        (shown,) = await example.answers_to(dropped)
        assert shown["answer_dropped"] is True
        page = await example.sim.get(example.chat_page, headers={"Authorization": ""})
        assert page.text.count(f'id="{shown["message_id"]}"') == 1, "the chat page shows it once"
        assert page.text.count('<article class="row theirs') == 2  # the activation and this answer
        lost = await unknown(house, "And who may answer?", drop_before_accept=True)
        settled = await unknown(house, "Who decides?", accept_then_drop=True)
        body = {"outcome": "settled_sent", "reason": "seen in the chat"}
        await example.call("POST", path_of(house, settled) + "/settlement", json=body)
        failed = await _answer_to_a_recalled_question(house)
        ended = [(row["id"], row["status"]) for row in house.rows("deliveries")]
        wires = await house.wires()
        rig.once_each(wires)

        server.kill()
        for life in range(3):
            if life == 1:  # beyond the hour in which the provider itself would drop a second request of one uuid
                await house.step_clock(TWO_HOURS)
                await example.simulate("POST", "/_sim/clock", json={"offset_ms": TWO_HOURS * 1000})
            server = await house.serve()
            # By the time its worker has answered the next question, it has looked at everything before.
            await house.answered(await rig.say(example, f"Life {life}?", None))
            server.kill()
        await house.serve()
        assert [(row["id"], row["status"]) for row in house.rows("deliveries")][: len(ended)] == ended
        assert [await sends(house, message) for message in (dropped, lost, settled, failed)] == [1, 1, 1, 1]
        assert len(await house.wires()) == len(wires) + 3
        rig.once_each(await house.wires())
        assert [await read_back(house, message) for message in (dropped, lost)] == ["found", "absent"]
        assert len(await house.wires()) == len(wires) + 3, "looking sends nothing"
        for message, outcome in ((dropped, "settled_sent"), (lost, "settled_not_sent")):
            body = {"outcome": outcome, "reason": "as the history says", "accept_read_back": True}
            await example.call("POST", path_of(house, message) + "/settlement", json=body)
            assert house.delivery_is(message, outcome)
        assert len(await house.wires()) == len(wires) + 3, "settling sends nothing"
        await house.answered(await rig.say(example, "As you said?", shown["message_id"]))
        assert [await sends(house, message) for message in (dropped, lost)] == [1, 1]
        assert [len(await example.answers_to(message)) for message in (dropped, lost)] == [1, 0]


async def _answer_to_a_recalled_question(house: House) -> str:
    calls = len(house.asked())
    house.hold()
    message = await rig.say(house.example, "Never mind", None)
    await house.held(calls + 1)
    await house.example.simulate("POST", "/_sim/recall", json={"message_id": message, "wait": True})
    house.release()
    await until("its delivery to fail", lambda: house.delivery_is(message, "failed"))
    return message


@pytest.mark.spec("DESK-361")
async def test_a_person_settles_what_is_unknown(copy_house: Copy) -> None:
    """Settling needs `actions.approve` and a reason of 1..1,000 characters, keeps who and why, and sends nothing; a
    second settlement is `already_settled`, one of any other state `delivery_not_indeterminate`.
    """
    async with copy_house() as house:
        await house.serve()
        await house.listen()
        taken = await unknown(house, "What is Frontdesk?", accept_then_drop=True)
        lost = await unknown(house, "And who may answer?", drop_before_accept=True)
        wires = await house.wires()
        operator, viewer = await join(house, "operator"), await join(house, "viewer")
        path = path_of(house, taken) + "/settlement"
        body = {"outcome": "settled_sent", "reason": "x" * 1000, "accept_read_back": True}
        assert _seen(await viewer.ask("POST", path, json=body)) == (403, "permission_required")
        for reason in ("", "x" * 1001):
            refused = await operator.ask("POST", path, json={**body, "reason": reason})
            assert _seen(refused) == (422, "request_invalid")
        assert house.delivery_is(taken, "indeterminate")
        assert house.rows("settlements") == []

        assert await read_back(house, taken) == "found"
        status, settled = await operator.ask("POST", path, json=body)
        assert (status, settled["status"]) == (200, "settled_sent")
        assert _seen(await operator.ask("POST", path, json=body)) == (409, "already_settled")
        assert await read_back(house, lost) == "absent"
        status, settled = await operator.ask(
            "POST", path_of(house, lost) + "/settlement", json={"outcome": "settled_not_sent", "reason": "not there"}
        )
        assert (status, settled["status"]) == (200, "settled_not_sent")
        rows = [
            (row["delivery"], row["outcome"], row["reason"], row["actor_user"]) for row in house.rows("settlements")
        ]
        assert rows == [
            (house.delivery(taken)["id"], "settled_sent", "x" * 1000, operator.user_id),
            (house.delivery(lost)["id"], "settled_not_sent", "not there", operator.user_id),
        ]
        assert [await sends(house, message) for message in (taken, lost)] == [1, 1]
        assert await house.wires() == wires, "settling and looking send nothing"
        for other in await _other_deliveries(house):
            path = f"{house.example.workspace}/deliveries/{other}/settlement"
            assert _seen(await operator.ask("POST", path, json=body)) == (409, "delivery_not_indeterminate")
        assert len(house.rows("settlements")) == 2


def _seen(answer: tuple[int, dict[str, Any]]) -> tuple[int, str]:
    return answer[0], answer[1]["code"]


async def _other_deliveries(house: House) -> list[str]:
    """Deliveries that are sent, failed, waiting to retry, and on their way."""
    sent = house.rows("deliveries", reply_grant=house.example.grant_id, status="sent")[0]
    failed = house.delivery(await _answer_to_a_recalled_question(house))
    await provider_fails(house, status=429, code=99991400, headers={"x-ogw-ratelimit-reset": "120"})
    message = await rig.say(house.example, "Who else?", None)
    await until("it to wait", lambda: house.delivery_is(message, "retryable_failed"))
    waiting = house.delivery(message)
    await provider_fails(house, stall=True)
    message = await rig.say(house.example, "And who else?", None)
    await until("it to be on its way", lambda: house.delivery_is(message, "sending"))
    return [row["id"] for row in (sent, failed, waiting, house.delivery(message))]


@pytest.mark.spec("DESK-364")
async def test_an_accepted_read_back_makes_the_message_a_reply_target(copy_house: Copy) -> None:
    """`settled_sent` with an accepted read-back stores the message that was found, and a reply to it is accepted;
    without one it stores none, and a reply to that message is refused.
    """
    async with copy_house() as house:
        example = house.example
        await house.serve()
        await house.listen()
        proven = await unknown(house, "What is Frontdesk?", accept_then_drop=True)
        believed = await unknown(house, "And who may answer?", accept_then_drop=True)
        for message, accept in ((proven, True), (believed, False)):
            body = {"outcome": "settled_sent", "reason": "seen in the chat", "accept_read_back": accept}
            await example.call("POST", path_of(house, message) + "/settlement", json=body)
        (found,), (unproven,) = await example.answers_to(proven), await example.answers_to(believed)
        assert house.delivery(proven)["provider_message_id"] == found["message_id"]
        assert house.delivery(believed)["provider_message_id"] is None
        await house.answered(await rig.say(example, "And then?", found["message_id"]))
        message = await rig.say(example, "And then?", unproven["message_id"], wait=True)
        receipt = house.receipt(message)
        assert (receipt["status"], receipt["error_code"]) == ("rejected", "reply_grant_unavailable")
        assert [await sends(house, message) for message in (proven, believed)] == [1, 1]


@pytest.mark.spec("DESK-360")
async def test_a_person_recalls_and_edits(copy_house: Copy) -> None:
    """A person can edit and recall messages; the answer to one recalled meanwhile is refused by the provider with
    230011 and its delivery fails `target_revoked`, with no fresh message in its place.
    """
    async with copy_house() as house:
        example = house.example
        await house.serve()
        await house.listen()
        edited = await rig.say(example, "What is Frontdesk?", None)
        await house.answered(edited)
        await example.simulate("POST", "/_sim/edit", json={"message_id": edited, "text": "What is it?"})
        recalled = await _answer_to_a_recalled_question(house)
        messages = {item["message_id"]: item for item in await rig.chat(example)}
        assert (messages[edited]["updated"], messages[edited]["text"]) == (True, "What is it?")
        assert messages[recalled]["deleted"] is True
        delivery = house.delivery(recalled)
        assert (delivery["status"], delivery["error_code"]) == ("failed", "target_revoked")
        (wire,) = [row for row in await house.wires() if row["target_id"] == recalled]
        assert wire["code"] == 230011
        assert await example.answers_to(recalled) == []
        assert len(await house.wires()) == 3  # activation, answer, and the refused one
        shown = await example.call("GET", path_of(house, recalled))
        assert (shown["code"], shown["provider_code"]) == ("target_revoked", 230011)
