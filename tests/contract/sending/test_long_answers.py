"""Long and odd answers arrive whole: one message, or one file; nothing is split, recalled, dropped or retried forever.

The lengths are those at which comparable systems lost text, by their providers' and their own limits.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from frontdesk.channels.feishu.codes import classify_send
from frontdesk.channels.transport import Answer as WireAnswer
from frontdesk.desk.conversations.runner import Answer
from frontdesk.kernel.clock import HOUR
from tests.contract.desk_world import DeskWorld, Seat
from tests.contract.inbox.pushing import Provider, payload


async def sent_for(desk: DeskWorld, seat: Seat, text: str) -> Any:
    """The one wire request that an answer led to, and its delivery."""

    async def behave(request: Any, cancel: Any) -> Answer:
        return Answer(text)

    desk.runner.behaviour = behave
    receipt = await desk.ask("tell me", seat)
    await desk.work()
    await desk.send()
    (message,) = [each for each in desk.channel.sent if each.reply_to == receipt["provider_message_id"]]
    (delivery,) = await desk.rows("deliveries", receipt=receipt["id"])
    return message, delivery


def fenced(length: int) -> str:
    """A text of so many characters with a code fence over every place where others split."""
    line = "| a | b |\n" * 20
    text = "intro\n```python\n" + line * (length // len(line) + 1)
    return text[: length - 8] + "\n```\nend"


@pytest.mark.parametrize("length", [4_096, 4_097, 28_000, 28_001, 30_721, 100_000])
async def test_all_of_a_long_answer_arrives_in_one_message(desk: DeskWorld, seat: Seat, length: int) -> None:
    """FC-32, FC-36, FC-37, FC-38: at 4,097, 28,001, 30,721 and 100,000 characters, with tables and a code fence over
    every splitting point, the whole text is in one request, in one state, once.
    """
    text = fenced(length)
    assert len(text) == length
    message, delivery = await sent_for(desk, seat, text)
    assert message.text == text
    assert (delivery["status"], delivery["attempt_count"]) == ("sent", 1)
    assert await desk.send() == 0


async def test_more_than_a_message_holds_arrives_as_one_file(desk: DeskWorld, seat: Seat) -> None:
    """FC-36, FC-37: 100,000 Chinese characters are twice what a message takes: they arrive as one file, byte for byte,
    the fence in its middle with them.
    """
    text = "好" * 50_000 + "\n```\n" + "的" * 50_000 + "\n```"
    message, _ = await sent_for(desk, seat, text)
    assert message.text is None
    (file,) = desk.channel.uploaded
    assert file.content == text.encode()


async def test_a_body_the_provider_calls_too_large_is_not_tried_for_ever(desk: DeskWorld, seat: Seat) -> None:
    """FC-32, FC-38: refused as too large (230025), a delivery ends `format_error`: no second try, and the next answer
    of the chat is not held up by it. No card is ever built, so its limits of 30 KB and five tables do not apply.
    """
    body = json.dumps({"code": 230025, "msg": "too large"}).encode()
    desk.channel.outcomes.append(classify_send(WireAnswer(400, {}, body), True))
    _, delivery = await sent_for(desk, seat, fenced(30_721))
    assert (delivery["status"], delivery["error_code"]) == ("failed", "format_error")
    desk.clock.advance(HOUR)
    assert await desk.send() == 0
    message, delivery = await sent_for(desk, seat, "short")
    assert (message.text, delivery["status"]) == ("short", "sent")


async def test_text_picture_text_loses_no_text(desk: DeskWorld, seat: Seat) -> None:
    """FC-40: an answer that mixes text, a picture and text leaves as one message with both texts; a message of a person
    that mixes them is refused as a whole and says so, never kept in part.
    """
    text = "before ![chart](chart.png) after"
    message, _ = await sent_for(desk, seat, text)
    assert message.text == text
    post = {"content": [[{"tag": "text", "text": "before"}, {"tag": "img"}, {"tag": "text", "text": "after"}]]}
    push = payload(message_id="om_post", parent_id=seat.activation, message_type="post", content=json.dumps(post))
    assert await Provider(desk, patient=True).push(push) == 200
    (row,) = await desk.rows("receipts", provider_message_id="om_post")
    assert (row["status"], row["error_code"], row["content_text"]) == (
        "rejected",
        "unsupported_message_shape",
        "[not kept]",
    )
