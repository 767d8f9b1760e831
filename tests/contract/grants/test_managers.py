"""What stays possible when a grant's owner has lost something, and what a manager can end of somebody else's grant."""

from __future__ import annotations

from typing import Any

import pytest

from frontdesk.desk import connections, grants
from frontdesk.identity.members import add_member, remove_member, update_member
from frontdesk.identity.model import Actor
from frontdesk.kernel import limits
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import DeskWorld, Seat
from tests.contract.grants.site import Site
from tests.contract.world import logged_in, refusal

LOST = "authorization_revoked_before_delivery"


async def seated(desk: DeskWorld, name: str, project_id: str) -> Seat:
    """An operator at a chat of their own, authorised in the project."""
    person = await desk.people.person(name, "operator")
    conversation = await desk.converse(person, project_id=project_id)
    where = {"sender": f"ou_{name}", "chat": f"oc_{name}", "conversation_id": conversation, "project_id": project_id}
    return await desk.seat(person, **where)


async def member_of(desk: DeskWorld, seat: Seat) -> str:
    (member,) = await desk.rows("workspace_members", user=seat.actor.user_id)
    return str(member["id"])


async def as_now(desk: DeskWorld, seat: Seat) -> Actor:
    """The person in a new session."""
    return await desk.write(logged_in, seat.actor.user_id)


@pytest.mark.spec("DESK-271")
async def test_losing_export_leaves_reading_and_revoking(desk: DeskWorld) -> None:
    """An owner demoted to viewer still reads, lists, follows and revokes their own grant; nothing of it is sent."""
    seat = await seated(desk, "ada", desk.project)
    row = await desk.ask("question", seat)
    await desk.work()
    await desk.write(update_member, desk.owner, desk.home, await member_of(desk, seat), role="viewer")
    site, person = Site(desk), await as_now(desk, seat)
    path = site.path(f"/reply-grants/{seat.grant_id}")
    status, shown = await site.call("GET", path, person)
    assert (status, shown["status"], shown["unusable_reason"]) == (200, "active", "authority_lost")
    listed = await site.call("GET", site.path(f"/reply-grants?conversation_id={seat.conversation_id}"), person)
    assert [each["id"] for each in listed[1]["items"]] == [seat.grant_id]
    assert (await site.call("GET", path + "/timeline", person))[0] == 200
    order = desk.order(seat.binding_id, seat.conversation_id)
    assert await refusal(desk.create(order, person)) == "permission_required"
    for _ in range(2):
        status, shown = await site.call("DELETE", path, person)
        assert (status, shown["status"], shown["version"]) == (200, "revoked", 2)
    await desk.send()
    assert desk.channel.sent == []
    assert (await desk.row("receipts", row["id"]))["error_code"] == LOST


async def unbind(desk: DeskWorld, seat: Seat, manager: Actor) -> Any:
    return await desk.write(connections.unbind, manager, workspace_id=desk.home, binding_id=seat.binding_id)


async def disable(desk: DeskWorld, seat: Seat, manager: Actor) -> Any:
    where = {"workspace_id": desk.home, "installation_id": seat.installation_id, "changes": {"enabled": False}}
    return await desk.write(connections.update_installation, manager, **where, **desk.keys)


@pytest.mark.spec("DESK-271")
@pytest.mark.parametrize("stop", [unbind, disable])
@pytest.mark.parametrize("loss", ["READ", "the gate"])
async def test_a_manager_stops_a_grant_whose_owner_cannot(desk: DeskWorld, stop: Any, loss: str) -> None:
    """Where the owner lost READ, or the gate keeps them out, they can neither read nor revoke; a configuration manager,
    whom the gate keeps out too, ends it by the binding or the connection, and the next send does not happen.
    """
    project = (await desk.people.project("inner")).id
    seat = await seated(desk, "ada", project)
    manager = await desk.people.person("mia", "maintainer")
    if loss == "the gate":
        turning = {"access": "administrators", "active_reply_grants": "keep"}
        await desk.write(grants.set_project_access, desk.owner, desk.home, project, **turning)
    row = await desk.ask("question", seat)
    await desk.work()
    assert (await desk.delivery_of(row["id"])) is not None  # an answer is ready to leave
    if loss == "READ":
        await desk.write(remove_member, desk.owner, desk.home, await member_of(desk, seat))
    person = await as_now(desk, seat)
    code = "administrators_only" if loss == "the gate" else "membership_required"
    for verb in (grants.get, grants.revoke):
        asked = desk.write(verb, person, desk.home, project, seat.grant_id, **desk.keys)
        assert await refusal(asked) == code
    if loss == "the gate":
        asked = desk.write(grants.revoke, manager, desk.home, project, seat.grant_id, **desk.keys)
        assert await refusal(asked) == code
    await stop(desk, seat, manager)
    if loss == "READ":  # back again, so that nothing but the manager's act is in the way
        again = {"role": "operator", "user_id": seat.actor.user_id}
        await desk.write(add_member, desk.owner, desk.home, **again)
    await desk.send()
    assert desk.channel.sent == []
    delivery = await desk.delivery_of(row["id"])
    assert delivery is not None
    assert (delivery.status, delivery.error_code) == ("failed", LOST)
    later = await desk.ask("another", seat)
    assert later["status"] == "rejected"


async def test_a_failed_activation_leaves_a_grant_to_revoke_and_make_anew(desk: DeskWorld) -> None:
    """An activation that failed shows in the grant; its owner revokes it, and a new request id makes another, while the
    old id goes on answering with the revoked one.
    """
    binding, conversation = await desk.bind(), await desk.converse()
    order = desk.order(binding, conversation)
    made = await desk.create(order)
    (activation,) = await desk.rows("deliveries", reply_grant=made.grant.id)
    await desk.enable(False)
    await desk.send()
    await desk.enable(True)
    assert (await desk.row("deliveries", activation["id"]))["status"] == "failed"
    site = Site(desk)
    path = site.path(f"/reply-grants/{made.grant.id}")
    status, shown = await site.call("GET", path)
    assert (status, shown["status"], shown["activation_status"]) == (200, "active", "failed")
    assert await refusal(desk.create(desk.order(binding, conversation))) == "active_reply_grant_exists"
    assert (await site.call("DELETE", path))[1]["status"] == "revoked"
    again = await desk.create(order)
    assert (again.created, again.status, again.grant.id) == (False, "revoked", made.grant.id)
    anew = await desk.create(desk.order(binding, conversation))
    assert (anew.created, anew.activation_status) == (True, "pending")
    await desk.send()
    assert len(desk.channel.sent) == 1
    assert (await site.call("GET", site.path(f"/reply-grants/{anew.grant.id}")))[1]["activation_status"] == "sent"


class Undone(Exception):
    """Ends a transaction before its commit."""


@pytest.mark.spec("DESK-338")
async def test_turning_a_project_ends_its_grants_in_the_same_commit(
    desk: DeskWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turning to `administrators` over active grants is 422 without an answer and changes nothing; with `revoke` all of
    them, and none of another project, end in the one commit that turns it: undone together, seen together, and the
    answers they were about to send are not sent.
    """
    monkeypatch.setattr(limits, "SCAN_PAGE", 2)  # more grants than one page of them
    project = (await desk.people.project("inner")).id
    seats = [await seated(desk, name, project) for name in ("ada", "bob", "cy")]
    elsewhere = await desk.seat()
    rows = [await desk.ask("question", seat) for seat in (*seats, elsewhere)]
    await desk.work()
    site = Site(desk)
    path = site.path("/access", project=project)
    before = await desk.everything()
    for body in ({"access": "administrators"}, {"access": "administrators", "active_reply_grants": None}):
        status, answer = await site.call("PUT", path, json=body)
        assert (status, answer["code"]) == (422, "active_reply_grants_required")
    assert (await site.call("PUT", path, json={"access": "administrators", "active_reply_grants": "end"}))[0] == 422
    assert await desk.everything() == before

    def turn(tx: Tx) -> None:
        how = {"access": "administrators", "active_reply_grants": "revoke"}
        grants.set_project_access(tx, desk.owner, desk.home, project, **how)
        raise Undone

    with pytest.raises(Undone):
        await desk.database.write(turn)
    assert await desk.everything() == before

    status, answer = await site.call("PUT", path, json={"access": "administrators", "active_reply_grants": "revoke"})
    assert (status, answer["access"]) == (200, "administrators")
    found = [await desk.row("reply_grants", seat.grant_id) for seat in (*seats, elsewhere)]
    assert [each["status"] for each in found] == ["revoked"] * 3 + ["active"]
    turned = await desk.row("projects", project)
    assert {(each["revoked_at"], each["revoked_by"]) for each in found[:3]} == {
        (turned["updated_at"], desk.owner.user_id)
    }
    monkeypatch.undo()
    await desk.send()
    assert [message.chat_id for message in desk.channel.sent] == [elsewhere.chat]
    ended = [await desk.row("receipts", row["id"]) for row in rows]
    assert [(each["status"], each["error_code"]) for each in ended] == [("permanent_failed", LOST)] * 3 + [
        ("completed", None)
    ]


@pytest.mark.spec("DESK-338")
async def test_turning_a_project_may_keep_its_grants(desk: DeskWorld) -> None:
    """With `keep` the grants go on as they are, and their next answer is sent."""
    project = (await desk.people.project("inner")).id
    seat = await seated(desk, "ada", project)
    before = await desk.row("reply_grants", seat.grant_id)
    turning = {"access": "administrators", "active_reply_grants": "keep"}
    await desk.write(grants.set_project_access, desk.owner, desk.home, project, **turning)
    assert await desk.row("reply_grants", seat.grant_id) == before
    await desk.ask("question", seat)
    await desk.work()
    await desk.send()
    assert [message.chat_id for message in desk.channel.sent] == [seat.chat]
