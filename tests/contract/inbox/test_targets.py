"""Which grant a reply belongs to: the binding, the message it answers, and the rule for one that answers nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from frontdesk.desk import outbox
from frontdesk.desk.connections.channel import RefusedFinal, RefusedRetry, Unknown
from frontdesk.kernel.clock import SECOND
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import DeskWorld, Seat

REFUSED = ("rejected", "[not kept]", None, None)


def kept(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a row tells of what exists."""
    return row["status"], row["content_text"], row["reply_grant"], row["conversation"]


async def refused(desk: DeskWorld, text: str, seat: Seat, **named: Any) -> str:
    """The code of a message that was refused, whose row tells of nothing."""
    row = await desk.ask(text, seat, **named)
    assert kept(row) == REFUSED
    return str(row["error_code"])


async def second_grant(desk: DeskWorld, seat: Seat, **changes: Any) -> Seat:
    """Another grant of the same person in the same chat, over another conversation."""
    return await desk.seat(seat.actor, binding_id=seat.binding_id, sender=seat.sender, chat=seat.chat, **changes)


# ------------------------------------------------------------------------------------------------ the person


async def test_a_reply_needs_the_binding_of_its_sender_and_chat(desk: DeskWorld) -> None:
    """A stranger's message, one from another chat of a bound person, one after unbinding: `principal_not_bound`."""
    seat = await desk.seat()
    assert await refused(desk, "hi", seat, sender="ou_stranger") == "principal_not_bound"
    assert await refused(desk, "hi", seat, chat="oc_other") == "principal_not_bound"
    await desk.unbind(seat.binding_id)
    assert await refused(desk, "hi", seat) == "principal_not_bound"
    await desk.bind(seat.actor)
    # Bound again, but the grant was made under the older binding.
    assert await refused(desk, "hi", seat) == "reply_grant_unavailable"


# ------------------------------------------------------------------------------------------------ unaddressed


@pytest.mark.spec("DESK-59")
@pytest.mark.parametrize("rule", ["only_grant", "refuse"])
async def test_a_message_that_answers_nothing_goes_by_the_rule(desk: DeskWorld, rule: str) -> None:
    """Without parent and root the only usable grant is taken or none is, judged in the receipt's own commit.

    With no, one and two usable grants, and with one that appears or ends after the receipt; without an active binding
    of sender and chat nothing is looked at.
    """
    desk.unaddressed = rule
    stranger = await desk.receipt(await desk.push(desk.message("hi")))
    assert (*kept(stranger), stranger["error_code"]) == (*REFUSED, "principal_not_bound")
    binding = await desk.bind()
    conversation = await desk.converse()
    nobody = await desk.receipt(await desk.push(desk.message("no grant")))
    one = "reply_grant_unavailable" if rule == "only_grant" else "reply_target_required"
    assert (*kept(nobody), nobody["error_code"]) == (*REFUSED, one)
    for elsewhere in ({"chat": "oc_other"}, {"sender": "ou_other"}):
        row = await desk.receipt(await desk.push(desk.message("hi", **elsewhere)))
        assert row["error_code"] == "principal_not_bound"

    first = await desk.seat(binding_id=binding, conversation_id=conversation)
    # One that appears later does not revive what was refused.
    assert await desk.row("receipts", nobody["id"]) == nobody
    alone = await desk.ask("one grant", first, reply=False)
    if rule == "refuse":
        assert (*kept(alone), alone["error_code"]) == (*REFUSED, "reply_target_required")
    else:
        assert kept(alone) == ("received", "one grant", first.grant_id, first.conversation_id)

    second = await second_grant(desk, first)
    assert await refused(desk, "two grants", first, reply=False) == "reply_target_required"
    # A second one afterwards takes nothing away from the receipt that was accepted.
    assert await desk.row("receipts", alone["id"]) == alone

    # One that became unusable does not count, whatever its status: its conversation moved on.
    await desk.close(second.conversation_id)
    left = await desk.ask("one usable", first, reply=False)
    assert left["error_code"] == (None if rule == "only_grant" else "reply_target_required")
    await desk.work()
    if rule == "only_grant":
        assert [turn["user_content"] for turn in await desk.rows("turns")] == ["one grant", "one usable"]
        last = await desk.ask("ends before its turn", first, reply=False)
        assert last["status"] == "received"
        await desk.revoke(first.grant_id)
        await desk.work()
        ended = await desk.row("receipts", last["id"])
        assert (ended["status"], ended["error_code"]) == ("permanent_failed", "authorization_revoked_before_delivery")
        assert len(await desk.rows("turns")) == 2
    else:
        assert await desk.rows("turns") == []


async def test_the_only_grant_is_one_of_the_senders_own_binding(desk: DeskWorld) -> None:
    """Two people whose bindings name one chat never reach each other's grant by a message that answers nothing."""
    first = await desk.seat()
    mate = await desk.people.person("mate", "operator")
    await desk.bind(mate, sender="ou_2", chat=first.chat)
    row = await desk.receipt(await desk.push(desk.message("hi", sender="ou_2", chat=first.chat)))
    assert (*kept(row), row["error_code"]) == (*REFUSED, "reply_grant_unavailable")
    # Nor by answering the other's message, which stands in that very chat.
    assert await refused(desk, "hi", first, sender="ou_2") == "reply_grant_unavailable"


# ------------------------------------------------------------------------------------------------ the target


@pytest.mark.spec("DESK-60")
async def test_only_a_sent_message_of_ours_is_a_target(desk: DeskWorld) -> None:
    """A delivery of the same installation and chat is a target once sent or settled as sent with its message found.

    Pending, retryable, failed, indeterminate and settled-as-not-sent ones are none, even where they hold a message id.
    """
    seat = await desk.seat()
    assert (await desk.ask("hi", seat))["status"] == "received"
    (activation,) = await desk.rows("deliveries", reply_grant=seat.grant_id)
    for status in (
        "pending",
        "connecting",
        "sending",
        "retryable_failed",
        "failed",
        "indeterminate",
        "settled_not_sent",
    ):
        await desk.force("deliveries", activation["id"], status=status)
        assert await refused(desk, "hi", seat) == "reply_grant_unavailable", status
    await desk.force("deliveries", activation["id"], status="settled_sent")
    assert (await desk.ask("hi", seat))["status"] == "received"
    await desk.force("deliveries", activation["id"], status="sent", chat_id="oc_elsewhere")
    assert await refused(desk, "hi", seat) == "reply_grant_unavailable"
    await desk.force("deliveries", activation["id"], chat_id=seat.chat)
    other = await desk.install("Second", app_id="cli_2")
    await desk.force("deliveries", activation["id"], installation=other)
    assert await refused(desk, "hi", seat) == "reply_grant_unavailable"


async def test_what_the_provider_did_not_take_is_no_target(desk: DeskWorld) -> None:
    """An answer whose send failed, was put off or is unknown cannot be replied to; once sent it can."""
    seat = await desk.seat()
    names = []
    for number, outcome in enumerate(
        (RefusedFinal("target_revoked"), RefusedRetry("rate_limited", 3_600_000), Unknown(), None)
    ):
        if outcome is not None:
            desk.channel.outcomes.append(outcome)
        await desk.ask(f"question {number}", seat)
        await desk.work()
        await desk.send()
        names.append(f"om_bot_{number + 1}")
    statuses = {row["status"] for row in await desk.rows("deliveries")}
    assert statuses == {"sent", "failed", "retryable_failed", "indeterminate"}
    (answered,) = [
        row["provider_message_id"] for row in await desk.rows("deliveries", purpose="agent_reply", status="sent")
    ]
    assert answered == "om_bot_1"  # the fake numbers only what it says it sent
    for name in names[1:]:
        assert await refused(desk, "hi", seat, parent=name) == "reply_grant_unavailable"
    assert (await desk.ask("hi", seat, parent=answered))["status"] == "received"


@pytest.mark.spec("DESK-61")
async def test_a_foreign_or_forged_target_tells_nothing(desk: DeskWorld) -> None:
    """A forged target and one of another grant's person, installation or chat end alike, and the rows are alike."""
    seat = await desk.seat()
    mate = await desk.people.person("mate", "operator")
    theirs = await desk.seat(mate, sender="ou_2", chat="oc_2", title="Their secret title")
    other = await desk.install("Second", app_id="cli_2")
    elsewhere = await desk.seat(sender="ou_1", chat="oc_1", installation_id=other, title="Elsewhere")
    ended = await second_grant(desk, seat, title="Ended")
    await desk.revoke(ended.grant_id)

    targets = ("om_forged", theirs.activation, elsewhere.activation, ended.activation)
    places = [
        place
        for target in targets
        for place in ({"parent": target}, {"reply": False, "root": target}, {"parent": target, "root": target})
    ]
    rows = [await desk.ask("hi", seat, **place) for place in places]
    assert len(rows) == 12
    differs = ("id", "provider_message_id", "provider_event_id", "parent_message_id", "root_message_id", "request_hash")
    shapes = {repr({name: value for name, value in row.items() if name not in differs}) for row in rows}
    assert len(shapes) == 1
    assert kept(rows[0]) == REFUSED
    assert rows[0]["error_code"] == "reply_grant_unavailable"
    text = repr(rows)
    for hidden in ("Their secret title", theirs.grant_id, theirs.conversation_id, elsewhere.grant_id, ended.grant_id):
        assert hidden not in text
    await desk.work()
    await desk.send()
    assert (await desk.rows("turns"), desk.channel.sent) == ([], [])


@pytest.mark.spec("DESK-70")
async def test_parent_and_root_must_not_name_two_grants(desk: DeskWorld) -> None:
    """Two different grants are refused; where the parent is no message of ours, the root decides."""
    first = await desk.seat()
    second = await second_grant(desk, first)
    assert (
        await refused(desk, "hi", first, parent=first.activation, root=second.activation) == "reply_grant_unavailable"
    )
    own = (await desk.ask("my own", first))["provider_message_id"]
    row = await desk.ask("to myself, in a thread", first, parent=own, root=second.activation)
    assert kept(row) == ("received", "to myself, in a thread", second.grant_id, second.conversation_id)
    both = await desk.ask("both the same", first, parent=first.activation, root=first.activation)
    assert both["reply_grant"] == first.grant_id
    assert await refused(desk, "hi", first, parent=own, root=own) == "reply_grant_unavailable"
    await desk.work()
    ran = {(turn["conversation"], turn["user_content"]) for turn in await desk.rows("turns")}
    assert ran == {
        (first.conversation_id, "my own"),
        (first.conversation_id, "both the same"),
        (second.conversation_id, "to myself, in a thread"),
    }


async def test_a_grant_past_its_time_takes_no_reply(desk: DeskWorld) -> None:
    """An expired grant refuses at reception, sweep or not, in the microsecond it ends."""
    seat = await desk.seat(expires_in_seconds=300)
    desk.clock.advance(300 * SECOND - 1)
    assert (await desk.ask("in time", seat))["status"] == "received"
    desk.clock.advance(1)
    assert await refused(desk, "late", seat) == "reply_grant_unavailable"
    assert await refused(desk, "late", seat, reply=False) == "reply_grant_unavailable"


async def test_a_delivery_is_found_by_its_own_installation_alone(desk: DeskWorld) -> None:
    """Two installations may hold the same provider message id; each finds its own."""
    seat = await desk.seat()
    other = await desk.install("Second", app_id="cli_2")
    order = desk.order(
        await desk.bind(sender="ou_1", chat="oc_1", installation_id=other),
        await desk.converse(title="Other"),
        installation_id=other,
    )
    view = await desk.create(order)
    await desk.activate(view.grant.id, seat.activation)

    def targets(tx: Tx) -> list[str]:
        return [
            outbox.find_targets(tx, where, seat.activation, None)[0].reply_grant_id
            for where in (desk.installation_id, other)
        ]

    assert await desk.database.read(targets) == [seat.grant_id, view.grant.id]
    there = dataclasses.replace(seat, installation_id=other)
    assert (await desk.ask("hi", there))["reply_grant"] == view.grant.id
