"""Journey 11: what a model may answer, in text and size, and sixty answers to one chat."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e import ledger, rig
from tests.e2e.conftest import Copy
from tests.e2e.rig import House, until

TEXT_BODY_BYTES_MAX = 150_000
ANSWERS = 60
TIMER_MS = 10  # a timer may fire a moment early
SLOT_MS = 200  # five messages a second in one chat


def answer_with(house: House, text: str) -> None:
    """Every question is answered with this from now on."""
    (house.stage / "answer").write_text(text, encoding="utf-8")
    house.order("answer")


def of_body_bytes(count: int) -> str:
    """A text whose message body, as a fresh message of the provider's API, has so many bytes; some of them foreign."""
    head = "é界" * 1_000

    def size(text: str) -> int:
        content = json.dumps({"text": text}, ensure_ascii=False, separators=(",", ":"))
        body = {"receive_id": "o" * 35, "msg_type": "text", "content": content, "uuid": "u" * 36}
        return len(json.dumps(body, ensure_ascii=False).encode())

    text = head + "x" * (count - size(head))
    assert size(text) == count
    return text


async def asked(house: House, question: str, status: str) -> str:
    """Ask, and wait until the one delivery of the question has this status; the question's id."""
    message = await rig.say(house.example, question, None)
    await until(f"it to be {status}", lambda: house.delivery_is(message, status))
    return message


async def test_hostile_text_and_size(copy_house: Copy) -> None:
    """A mention in an answer loses its sign; an answer one byte over what a message may carry leaves as one file, or
    is refused where files are not wanted; never as two messages.
    """
    async with copy_house() as house:
        example = house.example
        server = await house.serve()
        await house.listen()
        wires = len(await house.wires())
        hostile = 'All: <at user_id="all"></at>, <AT id=x>, <a href="https://example.com">here</a>; a < b, <atlas>.'
        answer_with(house, hostile)
        (shown,) = await example.answers_to(await asked(house, "Who is there?", "sent"))
        assert shown["text"] == hostile.replace("<at ", "＜at ").replace("</at>", "＜/at>").replace(
            "<AT ", "＜AT "
        ).replace("<a ", "＜a ").replace("</a>", "＜/a>")
        content = json.loads(shown["content"])
        assert content == {"text": shown["text"]}, "no mention"

        largest = of_body_bytes(TEXT_BODY_BYTES_MAX)
        answer_with(house, largest)
        (shown,) = await example.answers_to(await asked(house, "All of it?", "sent"))
        assert (shown["message_type"], shown["text"]) == ("text", largest)

        larger = of_body_bytes(TEXT_BODY_BYTES_MAX + 1)
        answer_with(house, larger)
        message = await asked(house, "And more?", "sent")
        (shown,) = await example.answers_to(message)
        assert shown["message_type"] == "file"
        await _is_the_file(house, shown, larger)
        assert len(await house.wires()) == wires + 3

        assert await server.terminate() == 0
        await house.serve(environment={"FRONTDESK_OVERSIZE_ANSWER": "refuse"})
        message = await asked(house, "And without files?", "failed")
        assert house.delivery(message)["error_code"] == "answer_too_long"
        answer_with(house, "Short.")
        await house.answered(await rig.say(example, "And short?", None))
        assert await example.answers_to(message) == []
        assert len(await house.wires()) == wires + 4
        rig.once_each(await house.wires())
        assert len((await example.simulate("GET", "/_sim/files"))["items"]) == 1


async def _is_the_file(house: House, shown: dict[str, Any], text: str) -> None:
    key = json.loads(shown["content"])["file_key"]
    (file,) = (await house.example.simulate("GET", "/_sim/files"))["items"]
    assert (file["file_key"], file["file_name"]) == (key, "answer.md")
    sent = await house.example.sim.get(f"/_sim/files/{key}")
    assert sent.content == text.encode()


async def test_sixty_answers_to_one_chat(copy_house: Copy) -> None:
    """Sixty answers to one chat leave one by one, in the order of the questions, no sooner than five in a second."""
    async with copy_house() as house:
        limits = {"INBOX_PENDING_MAX_PER_GRANT": 100, "SENDER_MESSAGES_PER_MINUTE": 100}
        (house.stage / "limits").write_text(json.dumps(limits))
        await house.serve()
        await house.listen()
        answer_with(house, "Yes.")
        house.hold()
        before = await house.wires()
        messages = [await rig.say(house.example, f"Question {number}?", None, wait=True) for number in range(ANSWERS)]
        clock = await house.example.simulate("GET", "/_sim/clock")
        house.order("answer")
        await until("all of them to be answered", lambda: ledger.ended(house, messages), 200, 0.5)
        receipts = ledger.receipts_of(house, messages)
        assert ledger.ends_are_named(house, receipts) == {"sent": ANSWERS}
        ledger.one_turn_each(house, receipts)
        wires = (await house.wires())[len(before) :]
        ledger.never_blindly(wires)
        # The n-th slot lies n-1 slots after the first, and that after the runner was let go: a request that is late, as
        # on a busy machine, only comes later still. What came too close all the same, the provider refused.
        early = [row["at_ms"] - clock["now_ms"] - SLOT_MS * number for number, row in enumerate(wires)]
        assert min(early) >= -TIMER_MS
        accepted = [row["target_id"] for row in wires if row["accepted"]]
        assert sorted(accepted) == sorted(messages)
