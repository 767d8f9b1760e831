"""A grant's timeline: every step of its life in order, without content, with its reason in words."""

from __future__ import annotations

import pytest

from frontdesk.desk import grants, outbox
from frontdesk.desk.connections.channel import Unknown
from frontdesk.desk.grants.wording import reason_in_words
from frontdesk.identity.model import Event
from frontdesk.kernel import limits
from frontdesk.kernel.clock import DAY, MINUTE
from frontdesk.kernel.codes import ROW_CODES
from tests.contract.desk_world import DeskWorld, Seat

MARK = "planted-4711-text"


async def timeline(desk: DeskWorld, seat: Seat) -> list[Event]:
    """All of it, oldest first."""
    found: list[Event] = []
    after: tuple[int, str] | None = None
    while True:
        page, after = await desk.read(
            grants.timeline, seat.actor, desk.home, desk.project, seat.grant_id, limit=4, after=after
        )
        found += page
        if after is None:
            return found[::-1]


async def test_a_timeline_tells_a_grants_life_in_order(desk: DeskWorld, seat: Seat) -> None:
    """Creation, activation, turns, deliveries, refusals, an unknown delivery with its settlement and acknowledgement,
    and revocation come in the order in which they happened, with codes and without content.
    """
    desk.clock.advance(MINUTE)
    await desk.ask(f"{MARK} one", seat)
    await desk.work()
    await desk.send()
    desk.clock.advance(MINUTE)
    desk.channel.outcomes.append(Unknown())
    unknown = await desk.ask(f"{MARK} two", seat)
    await desk.work()
    await desk.send()
    desk.clock.advance(MINUTE)
    recalled = await desk.ask(f"{MARK} three", seat)
    await desk.push(desk.recall(recalled["provider_message_id"]))
    delivery = await desk.delivery_of(unknown["id"])
    assert delivery is not None
    desk.clock.advance(MINUTE)
    await desk.write(outbox.acknowledge, desk.owner, desk.home, delivery.id, "looking into it")
    desk.clock.advance(MINUTE)
    decided = {"outcome": "settled_not_sent", "reason": "not there", "read_back": None}
    await desk.write(outbox.settle, desk.owner, desk.home, delivery.id, **decided)
    desk.clock.advance(MINUTE)
    await desk.revoke(seat.grant_id)
    desk.clock.advance(MINUTE)
    assert (await desk.ask(f"{MARK} four", seat))["error_code"] == "reply_grant_unavailable"

    told = [(event.kind, event.data.get("purpose"), event.code) for event in await timeline(desk, seat)]
    assert told == [
        ("reply_grant.created", None, None),
        ("delivery.sent", "activation", None),
        ("turn.completed", None, None),
        ("delivery.sent", "agent_reply", None),
        ("turn.completed", None, None),
        ("delivery.indeterminate", "agent_reply", "send_result_unknown"),
        ("receipt.rejected", None, "message_recalled"),
        ("delivery.acknowledged", "agent_reply", "send_result_unknown"),
        ("delivery.settled_not_sent", "agent_reply", "send_result_unknown"),
        ("reply_grant.revoked", None, None),
        ("receipt.rejected", None, "reply_grant_unavailable"),
    ]
    rows = await desk.rows("events", reply_grant=seat.grant_id)
    for hidden in (MARK, "ou_1", "oc_1", "om_", "not there", "looking into it"):
        assert hidden not in repr(rows)


async def test_a_refusal_stands_in_the_timeline_of_a_grant_of_that_person_alone(desk: DeskWorld, seat: Seat) -> None:
    """A full inbox and a reply after expiry are told; a stranger's reply to that message is not."""
    for number in range(limits.INBOX_PENDING_MAX_PER_GRANT):
        if number % 15 == 0:
            desk.clock.advance(2 * MINUTE)  # within what one sender may send in a minute
        await desk.ask(f"{MARK} {number}", seat)
    assert (await desk.ask("one too many", seat))["error_code"] == "inbox_full"
    other = await desk.people.person("ann", "operator")
    await desk.bind(other, sender="ou_2", chat="oc_2")
    stranger = await desk.push(desk.message("me too", sender="ou_2", chat="oc_2", parent=seat.activation))
    assert stranger.code == "reply_grant_unavailable"
    desk.clock.advance(8 * DAY)
    assert await desk.write(grants.expire_due, 100) == 1
    await desk.ask("too late", seat)
    told = [(event.kind, event.code) for event in await timeline(desk, seat) if event.kind != "delivery.sent"]
    assert told == [
        ("reply_grant.created", None),
        ("receipt.rejected", "inbox_full"),
        ("reply_grant.expired", None),
        ("receipt.rejected", "reply_grant_unavailable"),
    ]
    assert stranger.receipt_id not in {event.object_id for event in await timeline(desk, seat)}


async def test_a_receipt_tried_too_often_is_in_the_timeline(desk: DeskWorld, seat: Seat) -> None:
    """What ends at the cap before it is claimed again ends with its event."""
    receipt = await desk.ask(MARK, seat)
    await desk.force("receipts", receipt["id"], attempt_count=limits.RECEIPT_ATTEMPTS_MAX)
    await desk.work()
    last = (await timeline(desk, seat))[-1]
    assert (last.kind, last.code) == ("receipt.permanent_failed", "attempts_exhausted")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_reason_has_its_words(language: str) -> None:
    """Each code has its sentence in both languages; how a grant ended has one without a code; a success needs none."""
    place = 1 if language == "zh" else 0
    for code, words in ROW_CODES.items():
        assert reason_in_words("receipt.permanent_failed", code, language) == words[place]
    assert reason_in_words("reply_grant.revoked", None, language) == (
        "授权已撤销。" if language == "zh" else "The authorisation was revoked."
    )
    assert reason_in_words("reply_grant.expired", None, language) is not None
    assert reason_in_words("delivery.sent", None, language) is None
