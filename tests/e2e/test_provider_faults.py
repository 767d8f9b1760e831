"""Every fault knob of the simulator: what is seen at the wire, and what the desk makes of it (desk.md 7)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, fields
from typing import Any

import pytest

from frontdesk.app.example import Example
from frontdesk.simulator import faults
from tests.e2e import ledger, rig
from tests.e2e.conftest import Copy
from tests.e2e.people import listen, own
from tests.e2e.rig import House, until
from tests.e2e.test_forged_pushes import counted

UNKNOWN = ("indeterminate", "send_result_unknown")
SENT = ("sent", None)
DOCTOR_OFFSET_S = 4_000


@dataclass
class SendFault:
    """One knob on the provider's next answer to a send; the wire requests it leads to, each by its outcome and HTTP
    status, the delivery's end, and how many messages stand in the chat.
    """

    name: str
    knobs: dict[str, Any]
    wires: list[tuple[str, int | None]]
    ends: tuple[str, str | None]
    shown: int


SENDS = [
    SendFault("late answer", {"delay_ms": 300}, [("accepted", 200)], SENT, 1),
    SendFault("late acceptance", {"delay_ms": 300, "delay_at": "accept"}, [("accepted", 200)], SENT, 1),
    SendFault("taken and cut", {"accept_then_drop": True}, [("accepted_dropped", None)], UNKNOWN, 1),
    SendFault("cut", {"drop_before_accept": True}, [("dropped", None)], UNKNOWN, 0),
    SendFault(
        "429 with reset",
        {"status": 429, "code": 99991400, "headers": {"x-ogw-ratelimit-reset": "3"}},
        [("fault", 429), ("accepted", 200)],
        SENT,
        1,
    ),
    SendFault("429 empty", {"status": 429, "body": "empty"}, [("fault", 429)], UNKNOWN, 0),
    SendFault("500", {"status": 500}, [("fault", 500)], UNKNOWN, 0),
    SendFault("502 HTML", {"status": 502, "body": "html"}, [("fault", 502)], UNKNOWN, 0),
    SendFault("403", {"status": 403, "code": 99991672}, [("fault", 403)], ("failed", "permission_denied"), 0),
    SendFault("HTML", {"body": "html"}, [("accepted", 200)], UNKNOWN, 1),
    SendFault("empty", {"body": "empty"}, [("accepted", 200)], UNKNOWN, 1),
    SendFault("{}", {"body": "{}"}, [("accepted", 200)], UNKNOWN, 1),
    SendFault("truncated", {"body": "truncated"}, [("accepted", 200)], UNKNOWN, 1),
    SendFault("drip", {"body": "drip", "drip_ms": 400}, [("accepted", 200)], UNKNOWN, 1),
    SendFault("drip of the head", {"body": "drip_head", "drip_ms": 400}, [("accepted", 200)], UNKNOWN, 1),
    SendFault("redirect", {"redirect": "/elsewhere"}, [("fault", 307)], UNKNOWN, 0),
    SendFault("no message id", {"message_id": ""}, [("accepted", 200)], UNKNOWN, 1),
    SendFault("token expired", {"token_expired": True}, [("refused", 400), ("accepted", 200)], SENT, 1),
    SendFault("stall", {"stall": True}, [("stalled", None)], UNKNOWN, 0),
]


@pytest.mark.spec("DESK-357")
@pytest.mark.timeout(420)
async def test_faults_of_a_send(copy_house: Copy, known: list[dict[str, Any]]) -> None:
    """Whatever becomes of a send, it is repeated only where the provider's answer proves that it made no message, with
    the same uuid and not before the time it names; a listed refusal fails, and everything else stays unknown.
    """
    async with copy_house() as house:
        await house.serve()
        chats = [own(house, known[number]) for number in range(len(SENDS))]
        broken = []
        for case, chat in zip(SENDS, chats, strict=True):
            await listen(chat, house.address)
            match = {"route": "send", "app": chat.app["app_id"], "times": 1}
            broken.append({"match": match, **case.knobs})
        await house.example.simulate("POST", "/_sim/faults", json={"faults": broken})
        messages = [await rig.say(chat, f"What of {case.name}?", None) for case, chat in zip(SENDS, chats, strict=True)]
        await until("all of them to end", lambda: ledger.ended(house, messages), 200, 0.5)
        wrong = []
        for case, chat, message in zip(SENDS, chats, messages, strict=True):
            wrong += await _judged(house, case, chat, message)
        assert not wrong, "\n".join(wrong)


async def _judged(house: House, case: SendFault, chat: Example, message: str) -> list[str]:
    wires = [row for row in await rig.wires_of(chat) if row["target_id"] == message]
    ledger.never_blindly(wires)
    assert len({row["uuid"] for row in wires}) == 1
    delivery = house.delivery(message)
    seen = (
        [(row["outcome"], row["status"]) for row in wires],
        (delivery["status"], delivery["error_code"]),
        len(await chat.answers_to(message)),
    )
    if case.name == "429 with reset":
        assert wires[1]["at_ms"] - wires[0]["at_ms"] >= 3_000
    if case.name == "token expired":
        assert wires[0]["code"] == 99991663
    expected = (case.wires, case.ends, case.shown)
    return [] if seen == expected else [f"{case.name}: {seen} instead of {expected}"]


# How a knob works, not what it breaks; and what only a long connection has.
DETAILS = {"match", "msg", "delay_at", "accept", "drip_ms", "attempts", "fragments", "via"}


def test_no_knob_is_left_out() -> None:
    """Each knob of the simulator that breaks something stands in one of the tables below or above."""
    used = {name for case in SENDS for name in case.knobs} | {name for _, knobs in LOOKS for name in knobs}
    assert {each.name for each in fields(faults.Fault)} - DETAILS - used == set()
    pushed = {name for case in PUSHES for name in case.knobs} | {"reorder", "delay_ms"}
    assert {each.name for each in fields(faults.PushFault)} - DETAILS - pushed == set()


# ---------------------------------------------------------------------------------------------- reads


ANSWER = "<the answer>"
LOOKS: list[tuple[str, dict[str, Any]]] = [
    ("found", {}),
    ("found", {"reorder": "reverse"}),
    ("found", {"reorder": "shuffle"}),
    ("found", {"date_offset_ms": 400_000}),
    ("found", {"no_date": True}),
    ("found", {"delay_ms": 300}),
    ("unknown", {"status": 500}),
    ("unknown", {"repeat_page": True}),
    ("unknown", {"drop_before_accept": True}),
    ("absent", {"rewrite": {"message_id": ANSWER, "text": "Something else"}}),
    ("absent", {"rewrite": {"message_id": ANSWER, "sender_id": "ou_" + "0" * 32}}),
    # Between this read and the next the message is edited, or taken back.
    ("found", {"then": {"edit": ANSWER, "text": "Edited"}}),
    ("absent", {}),
]


async def _look(house: House, chat: Example, message: str, **knobs: Any) -> str:
    """What a person is told who looks into the history while the provider's reads are broken so."""
    match = {"route": "list", "app": chat.app["app_id"]}
    await house.example.simulate("POST", "/_sim/faults", json={"faults": [{"match": match, **knobs}] if knobs else []})
    path = f"{chat.workspace}/deliveries/{house.delivery(message)['id']}/read-back"
    return str((await chat.call("POST", path, json={}))["result"])


async def _unknown(house: House, chat: Example) -> tuple[str, str]:
    """A question whose answer the provider took and never confirmed, and that answer's id."""
    match = {"route": "send", "app": chat.app["app_id"], "times": 1}
    await house.example.simulate("POST", "/_sim/faults", json={"faults": [{"match": match, "accept_then_drop": True}]})
    message = await rig.say(chat, "What is Frontdesk?", None)
    await until("it to be unknown", lambda: house.delivery_is(message, "indeterminate"))
    (answer,) = await chat.answers_to(message)
    return message, str(answer["message_id"])


@pytest.mark.spec("DESK-357")
async def test_faults_of_a_look(copy_house: Copy, known: list[dict[str, Any]]) -> None:
    """A look finds the one message whatever the order of the rows and the clock in the header; an incomplete or failed
    list tells nothing; another text or sender, an edit or a recall is not ours. None of it changes or sends anything.
    """
    async with copy_house() as house:
        await house.serve()
        chat, other = own(house, known[0]), own(house, known[1])
        for each in (chat, other):
            await listen(each, house.address)
        message, answer = await _unknown(house, chat)
        recalled, recalled_answer = await _unknown(house, other)
        wires = [len(await rig.wires_of(each)) for each in (chat, other)]
        assert await _look(house, other, recalled, then={"recall": recalled_answer}) == "found"
        other.api.timeout = 120
        stalled = asyncio.create_task(_look(house, other, recalled, stall=True))  # hangs while the others look
        await until("the look to hang", lambda: _stalled(house))
        wrong = [
            f"{knobs}: {seen} instead of {expected}"
            for expected, knobs in LOOKS
            if (seen := await _look(house, chat, message, **_about(answer, knobs))) != expected
        ]
        assert not wrong, "\n".join(wrong)
        await _doctor_compares_clocks(house)
        assert await stalled == "unknown"
        assert await _look(house, other, recalled) == "absent"
        assert house.delivery_is(message, "indeterminate")
        assert house.delivery_is(recalled, "indeterminate")
        assert [len(await rig.wires_of(each)) for each in (chat, other)] == wires


def _about(answer: str, knobs: dict[str, Any]) -> dict[str, Any]:
    """The knobs with the message that they are about."""
    return {
        name: {key: answer if each == ANSWER else each for key, each in value.items()}
        if isinstance(value, dict)
        else value
        for name, value in knobs.items()
    }


async def _stalled(house: House) -> bool:
    seen = await house.example.simulate("GET", "/_sim/requests", params={"kind": "list", "limit": 10_000})
    return any(row["outcome"] == "stalled" for row in seen["items"])


async def _doctor_compares_clocks(house: House) -> None:
    """What the provider's `Date` says of our clock is told by `doctor`, and so is that it says nothing."""
    for knobs, pattern in (
        ({"date_offset_ms": -DOCTOR_OFFSET_S * 1_000}, r"clock.*\+(399\d|400\d) s from the provider's"),
        ({"no_date": True}, "clock.*not compared: the provider names no time"),
    ):
        broken = [{"match": {"route": "bot_info"}, **knobs}]
        await house.example.simulate("POST", "/_sim/faults", json={"faults": broken})
        words = ["doctor", "--data", str(house.data)]
        told = await rig.run("doctor", words, house.logs, house.settings({"FRONTDESK_TEST_STAGE": ""}))
        assert re.search(pattern, told.text), told.text


# ---------------------------------------------------------------------------------------------- pushes


@dataclass
class PushFault:
    """One knob on the next push; what its attempts are answered, and how its receipt reads (None: there is none)."""

    knobs: dict[str, Any]
    answers: list[list[int]]
    receipt: tuple[str, str | None] | None


ANSWERED = ("completed", None)
PUSHES = [
    PushFault({"duplicate": 2}, [[200], [200], [200]], ANSWERED),
    PushFault({"duplicate": 1, "new_event_id": True}, [[200], [200]], ANSWERED),
    PushFault({"lower_headers": True}, [[200]], ANSWERED),
    PushFault({"drop": True}, [[]], None),
    PushFault({"bad_signature": True}, [[500]], None),
    PushFault({"unsigned": True}, [[500]], None),
    PushFault({"plaintext": True}, [[400]], None),
    PushFault({"wrong_token": True}, [[500]], None),
    PushFault({"old_timestamp": True}, [[200]], ("rejected", "timestamp_outside_window")),
    PushFault({"wrong_tenant": True}, [[200]], ("rejected", "installation_identity_mismatch")),
    PushFault({"wrong_app": True}, [[200]], ("rejected", "installation_identity_mismatch")),
    PushFault({"other_type": True}, [[200]], None),
]


@pytest.mark.spec("DESK-357")
async def test_faults_of_a_push(copy_house: Copy) -> None:
    """Duplicated, reordered, delayed and renamed pushes are one receipt each; what does not verify leaves none and is
    not accepted; what verifies and is another's, too old or of another type is acknowledged and answered by nobody.
    """
    async with copy_house() as house:
        await house.step_clock(0)
        await house.serve()
        await house.listen()
        wires = len(await house.wires())
        ignored = await counted(house, "unsupported_event")
        messages: list[str] = []
        for case in PUSHES:
            broken = [{"match": {"route": "push", "times": 1}, **case.knobs}]
            await house.example.simulate("POST", "/_sim/faults", json={"faults": broken})
            messages.append(await rig.say(house.example, f"What of {next(iter(case.knobs))}?", None, wait=True))
        answered = [message for case, message in zip(PUSHES, messages, strict=True) if case.receipt == ANSWERED]
        await house.answered(*answered)
        wrong = []
        for case, message in zip(PUSHES, messages, strict=True):
            pushes = await until("every push to be answered", lambda message=message: _answered(house, message), 60)
            receipts = house.rows("receipts", provider_message_id=message)
            seen = (
                [_first_answer(push) for push in pushes],
                (receipts[0]["status"], receipts[0]["error_code"]) if receipts else None,
                len(receipts),
            )
            if seen != (case.answers, case.receipt, int(case.receipt is not None)):
                wrong.append(f"{case.knobs}: {seen}")
            if case.knobs.get("new_event_id"):
                assert len({push["event_id"] for push in pushes}) == 2
        assert not wrong, "\n".join(wrong)
        assert await counted(house, "unsupported_event") == ignored + 1
        assert len(await house.wires()) == wires + len(answered)
        await _reordered_and_delayed(house)
        rig.once_each(await house.wires())


def _first_answer(push: dict[str, Any]) -> list[int]:
    """What a push was answered first; None would be an answer past the provider's three seconds."""
    return [attempt["status"] for attempt in push["attempts"] if attempt["status"] is not None][:1]


async def _answered(house: House, message: str) -> list[dict[str, Any]]:
    """The pushes of a message, once each that went out was answered; what came too late is pushed again after 15 s."""
    pushes = await rig.pushes_of(house.example, message)
    return pushes if all(_first_answer(push) or push["state"] == "dropped" for push in pushes) else []


async def _reordered_and_delayed(house: House) -> None:
    example = house.example
    wires = len(await house.wires())
    await example.simulate("POST", "/_sim/faults", json={"faults": [{"match": {"route": "push"}, "reorder": 3}]})
    held = [await rig.say(example, f"Question {number}?", None) for number in range(3)]
    await house.answered(*held)
    assert [row["target_id"] for row in (await house.wires())[wires:]] == held[::-1], "in the order of arrival"
    broken = [{"match": {"route": "push", "times": 1}, "delay_ms": 3_600_000}]
    await example.simulate("POST", "/_sim/faults", json={"faults": broken})
    late = await rig.say(example, "And in an hour?", None, wait=True)
    assert house.rows("receipts", provider_message_id=late) == []
    (push,) = await rig.pushes_of(example, late)
    assert push["attempts"] == []
    await house.step_clock(3_600)
    await example.simulate("POST", "/_sim/clock", json={"offset_ms": 3_600_000})
    await house.answered(late)
