"""Tying chat accounts to people, end to end: codes asked for over HTTP, commands pushed through the real callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frontdesk.desk import connections, inbox
from frontdesk.identity.members import remove_member
from frontdesk.identity.model import Actor, UserChanges, WorkspaceChanges
from frontdesk.identity.users import update_user
from frontdesk.identity.workspaces import update_workspace
from frontdesk.kernel.clock import MINUTE, SECOND
from tests.contract.desk_world import DeskWorld, Seat
from tests.contract.whole.house import BreakableDatabase, House, Interrupted
from tests.contract.world import refusal

BOUND = ("completed", None)
INVALID = ("rejected", "binding_challenge_invalid")
EXCEEDED = ("rejected", "binding_attempts_exceeded")
WRONG = "fdb_" + "0" * 20


def ended(row: dict[str, Any]) -> tuple[str, str | None]:
    return row["status"], row["error_code"]


@pytest.mark.spec("DESK-18")
async def test_a_code_binds_within_ten_minutes_and_once(house: House) -> None:
    """At its tenth minute and after its use a code is a rejected receipt and no binding; just before, it binds."""
    desk = house.desk
    mate = await desk.people.person("mate", "viewer")
    late, right = await house.code(mate), await house.code()
    desk.clock.advance(10 * MINUTE - 1)
    assert ended(await house.say(f"/bind {right}")) == BOUND
    # Used, by whoever it was and from wherever.
    assert ended(await house.say(f"/bind {right}")) == INVALID
    assert ended(await house.say(f"/bind {right}", sender="ou_2", chat="oc_2")) == INVALID
    desk.clock.advance(1)
    refused = await house.say(f"/bind {late}", sender="ou_2", chat="oc_2")
    assert ended(refused) == INVALID
    assert refused["binding"] is None
    (binding,) = await desk.rows("bindings")
    assert (binding["user"], binding["sender_id"], binding["revision"]) == (desk.owner.user_id, "ou_1", 1)
    assert [row["consumed_at"] is None for row in await desk.rows("binding_challenges")].count(True) == 1
    assert (await house.get(house.installation(rest="/my-binding"), as_=mate))["binding"] is None


STEPS = {
    "the binding's row": (connections.store, "try_insert_binding"),
    "the code's consumption": (connections.store, "try_consume_challenge"),
    "the receipt's row": (inbox.store, "insert"),
}


@pytest.mark.spec("DESK-19")
async def test_code_binding_and_receipt_are_one_commit(
    house: House, database: BreakableDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off after any of its parts, or with all done and the commit to come, nothing of the three is left."""
    desk = house.desk
    code = await house.code()
    before = await desk.counts()
    pushed = house.message(f"/bind {code}", "om_bind")

    async def refused(why: str) -> None:
        answer = await house.push(pushed)
        assert (why, answer.status_code, answer.json()["code"]) == (why, 500, "callback_not_accepted")
        assert (why, await desk.counts()) == (why, before)
        (challenge,) = await desk.rows("binding_challenges")
        assert (why, challenge["consumed_at"]) == (why, None)

    for name, (module, function) in STEPS.items():
        done: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(module, function, after(getattr(module, function), done))
            await refused(name)
        assert done == [function], name
    database.broken.append("the commit")
    await refused("the commit")
    database.broken.clear()
    assert (await house.push(pushed)).status_code == 200
    assert [row["status"] for row in await desk.rows("receipts")] == ["completed"]
    assert [row["revision"] for row in await desk.rows("bindings")] == [1]
    (challenge,) = await desk.rows("binding_challenges")
    assert challenge["consumed_at"] is not None


def after(function: Callable[..., Any], done: list[str]) -> Callable[..., Any]:
    """The function, and then the end of its transaction."""

    def run(*arguments: Any, **named: Any) -> Any:
        assert function(*arguments, **named)
        done.append(function.__name__)
        raise Interrupted

    return run


@pytest.mark.spec("DESK-20")
async def test_a_bind_message_pushed_again_binds_nothing_again(house: House) -> None:
    """Pushed again, also under a new event id, or once the binding is gone, it changes neither binding nor any code."""
    desk = house.desk
    code, spare = await house.code(), await house.code()
    pushed = house.message(f"/bind {code}", "om_bind")
    tables = ("bindings", "binding_challenges", "receipts", "events")
    assert (await house.push(pushed)).status_code == 200
    assert [ended(row) for row in await desk.rows("receipts")] == [BOUND]

    async def again() -> dict[str, Any]:
        before = [await desk.rows(name) for name in tables]
        for event_id in (pushed["header"]["event_id"], "ev_another"):
            answer = await house.push({**pushed, "header": {**pushed["header"], "event_id": event_id}})
            assert (answer.status_code, answer.json()) == (200, {"msg": "success"})
        assert [await desk.rows(name) for name in tables] == before
        (binding,) = before[0]
        return binding

    binding = await again()
    assert (binding["active"], binding["revision"]) == (True, 1)
    desk.clock.advance(10 * SECOND)
    await desk.unbind(binding["id"])
    binding = await again()
    assert (binding["active"], binding["revision"]) == (False, 2)
    # The other code was never touched: it still binds.
    assert ended(await house.say(f"/bind {spare}")) == BOUND


async def disable(desk: DeskWorld, person: Actor) -> None:
    await desk.write(update_user, desk.owner, person.user_id, UserChanges(disabled=True))


async def remove(desk: DeskWorld, person: Actor) -> None:
    (member,) = await desk.rows("workspace_members", user=person.user_id)
    await desk.write(remove_member, desk.owner, desk.home, member["id"])


async def close_workspace(desk: DeskWorld, _person: Actor) -> None:
    await desk.write(update_workspace, desk.owner, desk.home, WorkspaceChanges(active=False))


LOSSES = {"user disabled": disable, "membership removed": remove, "workspace inactive": close_workspace}


@pytest.mark.spec("DESK-22")
@pytest.mark.parametrize("loss", LOSSES)
async def test_who_lost_their_standing_is_not_bound_and_not_served(house: House, loss: str) -> None:
    """Lost before the bind message: rejected, no binding. Lost later: the binding serves no reply, grant or send."""
    desk = house.desk
    early, late = [await desk.people.person(name, "operator") for name in ("early", "late")]
    code = await house.code(early)
    seat = await desk.seat(late, sender="ou_9", chat="oc_9")
    running = await house.say("asked before", sender="ou_9", chat="oc_9", parent=seat.activation)
    assert running["status"] == "received"
    await LOSSES[loss](desk, early)
    assert ended(await house.say(f"/bind {code}")) == INVALID
    assert [row["user"] for row in await desk.rows("bindings")] == [late.user_id]
    assert [row["consumed_at"] is None for row in await desk.rows("binding_challenges", user=early.user_id)] == [True]

    if loss != "workspace inactive":
        await LOSSES[loss](desk, late)
    await desk.work()
    assert ended(await desk.row("receipts", running["id"])) == (
        "permanent_failed",
        "authorization_revoked_before_delivery",
    )
    later = await house.say("asked after", sender="ou_9", chat="oc_9", parent=seat.activation)
    await desk.work()
    assert (await desk.row("receipts", later["id"]))["status"] in ("rejected", "permanent_failed")
    assert (desk.runner.requests, await desk.count("turns")) == ([], 0)
    order = desk.order(seat.binding_id, seat.conversation_id)
    assert await refusal(desk.create(order, late)) == "membership_required"
    assert desk.channel.sent == []


async def old_grant_is_dead(house: House, seat: Seat, speaker: str, code: str) -> None:
    """No reply to its activation is taken, nothing of it runs or leaves, and its owner reads why."""
    desk = house.desk
    requests, sent = len(desk.runner.requests), len(desk.channel.sent)
    row = await house.say("to the old grant", sender=speaker, chat=seat.chat, parent=seat.activation)
    assert ended(row) == ("rejected", code)
    await desk.work()
    await desk.send()
    assert (len(desk.runner.requests), len(desk.channel.sent)) == (requests, sent)
    view = await desk.view(seat.grant_id, seat.actor)
    assert (view.status, view.unusable_reason) == ("active", "binding_revoked")


@pytest.mark.spec("DESK-24")
async def test_binding_again_does_not_bring_old_grants_back(house: House) -> None:
    """Bound again the revision is higher; a grant frozen on the old one takes, runs and sends nothing, at any stage."""
    desk = house.desk
    seat = await desk.seat()
    waiting = await house.say("waiting", parent=seat.activation)
    answered = await desk.seat(binding_id=seat.binding_id, title="Second")
    done = await house.say("answered", parent=answered.activation)
    # The second is answered before the end, its answer not yet sent; the first has not begun.
    await desk.force("receipts", waiting["id"], not_before=desk.clock.now_us() + 30 * SECOND)
    await desk.work()
    assert (await desk.row("receipts", done["id"]))["status"] == "completed"

    await desk.unbind(seat.binding_id)
    assert ended(await house.say(f"/bind {await house.code()}")) == BOUND
    (binding,) = await desk.rows("bindings")
    assert (binding["id"], binding["active"], binding["revision"]) == (seat.binding_id, True, 3)
    desk.clock.advance(40 * SECOND)
    await desk.work()
    await desk.send()
    lost = ("permanent_failed", "authorization_revoked_before_delivery")
    assert [ended(await desk.row("receipts", row["id"])) for row in (waiting, done)] == [lost, lost]
    assert (len(desk.runner.requests), desk.channel.sent, desk.channel.connected) == (1, [], [])
    await old_grant_is_dead(house, seat, "ou_1", "reply_grant_unavailable")
    # With a new grant, on the new revision, the same person goes on.
    await desk.revoke(seat.grant_id)
    again = await desk.seat(binding_id=seat.binding_id, conversation_id=seat.conversation_id)
    assert (await desk.view(again.grant_id)).unusable_reason is None
    assert (await house.say("again", parent=again.activation))["status"] == "received"


@pytest.mark.spec("DESK-28")
async def test_a_free_account_goes_to_another_person_as_another_binding(house: House) -> None:
    """The next person gets a row of their own and none of the grants; the first one's are dead, then and later."""
    desk = house.desk
    first, second = [await desk.people.person(name, "operator") for name in ("first", "second")]
    seat = await desk.seat(first)
    await desk.unbind(seat.binding_id)
    kept = await desk.row("bindings", seat.binding_id)
    assert ended(await house.say(f"/bind {await house.code(second)}")) == BOUND
    (theirs,) = await desk.rows("bindings", active=True)
    assert (theirs["id"] != seat.binding_id, theirs["user"], theirs["revision"]) == (True, second.user_id, 1)
    assert await desk.row("bindings", seat.binding_id) == kept

    # The account is the same, the chat is the same, the message answered is the same: the grant is not.
    await old_grant_is_dead(house, seat, seat.sender, "reply_grant_unavailable")
    assert ended(await house.say("to nobody")) == ("rejected", "reply_grant_unavailable")
    place = f"{house.workspace}/projects/{desk.project}/reply-grants"
    listed = await house.get(f"{place}?conversation_id={await desk.converse(second)}", as_=second)
    assert listed["items"] == []
    async with await house.client(second) as client:
        assert (await client.get(f"{place}/{seat.grant_id}")).status_code == 404
        assert (await client.get(f"{place}?conversation_id={seat.conversation_id}")).status_code == 404
    own = await desk.seat(second, binding_id=theirs["id"])
    await old_grant_is_dead(house, seat, seat.sender, "reply_grant_unavailable")
    assert (await house.say("mine", parent=own.activation))["reply_grant"] == own.grant_id

    await desk.unbind(theirs["id"])
    assert ended(await house.say(f"/bind {await house.code(first)}")) == BOUND
    back = await desk.row("bindings", seat.binding_id)
    assert (back["active"], back["revision"] > kept["revision"] > 1) == (True, True)
    await old_grant_is_dead(house, seat, seat.sender, "reply_grant_unavailable")


@pytest.mark.spec("DESK-29")
async def test_guessing_closes_the_door_for_a_while(house: House) -> None:
    """Five wrong codes in a chat, or fifty in an installation, and a right one is refused until ten minutes passed."""
    desk = house.desk
    other = await desk.install("Other", app_id="cli_2")
    for _ in range(4):
        assert ended(await house.say(f"/bind {WRONG}")) == INVALID
    # Four are not five: the chat may still bind.
    desk.clock.advance(SECOND)
    assert ended(await house.say(f"/bind {await house.code()}")) == BOUND
    (binding,) = await desk.rows("bindings")
    await desk.unbind(binding["id"])
    assert ended(await house.say(f"/bind {WRONG}")) == INVALID
    for _ in range(2):
        assert ended(await house.say(f"/bind {await house.code()}")) == EXCEEDED
    # Another chat is not touched by the chat's count.
    mate = await desk.people.person("mate", "viewer")
    assert ended(await house.say(f"/bind {await house.code(mate)}", sender="ou_2", chat="oc_2")) == BOUND

    desk.clock.advance(10 * MINUTE - SECOND - 1)  # the first four are a second older than the fifth
    assert ended(await house.say(f"/bind {await house.code()}")) == EXCEEDED
    desk.clock.advance(1)
    assert ended(await house.say(f"/bind {await house.code()}")) == BOUND

    # Fifty, a few from each of many chats; the other installation is another door.
    desk.clock.advance(20 * MINUTE)
    for number in range(50):
        spread = {"sender": f"ou_g{number // 4}", "chat": f"oc_g{number // 4}"}
        assert ended(await house.say(f"/bind {WRONG}", **spread)) == INVALID, number
    third = await desk.people.person("third", "viewer")
    fresh = {"sender": "ou_fresh", "chat": "oc_fresh"}
    assert ended(await house.say(f"/bind {await house.code(third)}", **fresh)) == EXCEEDED
    code = await house.code(third, other)
    assert ended(await house.say(f"/bind {code}", installation_id=other, **fresh)) == BOUND
    desk.clock.advance(10 * MINUTE)
    assert ended(await house.say(f"/bind {await house.code(third)}", **fresh)) == BOUND


async def test_both_binding_words_work_whatever_the_language_and_texts_are_in_it(house: House) -> None:
    """DESK-274 but for claims, which do not exist yet: either word binds, shown and sent texts follow the setting."""
    desk = house.desk
    for number, (language, word) in enumerate([("zh", "绑定"), ("en", "/bind")]):
        where = desk.installation_id if number == 0 else await desk.install("English", app_id="cli_en")
        answer = await house.api.patch(house.installation(where), json={"command_language": language})
        assert answer.status_code == 200
        assert (await house.command(installation_id=where)).split(" ")[0] == word
        for person, typed in enumerate(("绑定", "/bind")):
            who = await desk.people.person(f"person-{number}-{person}", "operator")
            account = {"sender": f"ou_{number}{person}", "chat": f"oc_{number}{person}"}
            row = await house.say(f"{typed} {await house.code(who, where)}", installation_id=where, **account)
            assert ended(row) == BOUND, (language, typed)
            seat = await desk.seat(who, binding_id=row["binding"], installation_id=where, **account)
            desk.runner.behaviour = failing
            await house.say("question", installation_id=where, parent=seat.activation, **account)
            await desk.work()
            await desk.send()
            texts = [each["text"] for each in await desk.rows("deliveries", reply_grant=seat.grant_id)]
            assert len(texts) == 2
            for text in texts:
                assert any("一" <= letter <= "鿿" for letter in text) == (language == "zh"), text


async def failing(*_: Any) -> Any:
    raise RuntimeError
