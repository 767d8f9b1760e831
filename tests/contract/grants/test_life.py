"""A grant's life: one per slot, idempotent creates, replays, revocation, expiry, lists, and what a reader sees."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import IntegrityError

from frontdesk.desk import conversations, grants, runs
from frontdesk.desk.conversations.runner import Answer
from frontdesk.desk.grants import CreateGrant
from frontdesk.desk.grants import service as grant_service
from frontdesk.identity.members import update_member
from frontdesk.identity.model import ProjectChanges
from frontdesk.identity.projects import update_project
from frontdesk.identity.workspaces import create_workspace
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.tx import Tx
from frontdesk.wire.desk.grants import ReplyGrantRead
from tests.contract.desk_world import DeskWorld, Seat
from tests.contract.grants.site import Site
from tests.contract.world import codes, refusal

DEADLINE_S = 10.0


def meet_before_inserting(monkeypatch: pytest.MonkeyPatch, desk: DeskWorld, parties: int) -> None:
    """On PostgreSQL the first `parties` creates wait for each other after everything was read and before any writes.

    SQLite's writers are serial: a second one cannot begin to read.
    """
    if desk.database.engine_name != "postgresql":
        return
    barrier = threading.Barrier(parties)
    waiting = iter(range(parties))
    read = grant_service.store.find_by_slot

    def find_by_slot(tx: Tx, slot: str, *, lock: bool = False) -> Any:
        row = read(tx, slot, lock=lock)
        if next(waiting, None) is not None:
            barrier.wait(DEADLINE_S)
        return row

    monkeypatch.setattr(grant_service.store, "find_by_slot", find_by_slot)


async def at_once(desk: DeskWorld, sessions: Sequence[Any], orders: Sequence[CreateGrant]) -> list[Any]:
    works = [desk.create(order, database=session) for order, session in zip(orders, sessions, strict=True)]
    return list(await asyncio.gather(*works, return_exceptions=True))


# ------------------------------------------------------------------------------------------------ idempotent creates


@pytest.mark.spec("DESK-85")
async def test_one_request_makes_one_grant(desk: DeskWorld, open_session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same id with the same body, one after the other and all at once, is one grant and one activation."""
    order = desk.order(await desk.bind(), await desk.converse())
    sessions = [open_session() for _ in range(4)]
    meet_before_inserting(monkeypatch, desk, 4)
    views = await at_once(desk, sessions, [order] * 4)
    views += [await desk.create(order) for _ in range(2)]
    assert sorted(view.created for view in views) == [False] * 5 + [True]
    assert len({view.grant.id for view in views}) == 1
    assert await desk.count("reply_grants") == 1
    assert await desk.count("deliveries", purpose="activation") == 1
    assert await desk.count("events", kind="reply_grant.created") == 1


@pytest.mark.spec("DESK-88")
async def test_one_slot_holds_one_grant(desk: DeskWorld, open_session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Different ids for one conversation and person at once: one success, one exact 409, one activation."""
    binding, conversation = await desk.bind(), await desk.converse()
    sessions = [open_session(), open_session()]
    meet_before_inserting(monkeypatch, desk, 2)
    outcomes = await at_once(desk, sessions, [desk.order(binding, conversation) for _ in sessions])
    assert codes(outcomes) == ["active_reply_grant_exists", "ok"]
    assert await desk.count("reply_grants") == 1
    assert await desk.count("deliveries", purpose="activation") == 1


def _alter_driver_messages(engine: Engine) -> list[str]:
    """Every refusal of a constraint says something else than what the driver says."""
    altered: list[str] = []

    @event.listens_for(engine, "handle_error")
    def alter(context: Any) -> None:
        if isinstance(context.sqlalchemy_exception, IntegrityError):
            altered.append(str(context.original_exception))
            raise IntegrityError("altered", None, Exception("FOREIGN KEY ux_somewhere_else"))

    return altered


@pytest.mark.spec("DESK-86")
async def test_a_reused_id_is_told_by_reading_not_by_the_driver(
    desk: DeskWorld, open_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same id with another body is `idempotency_key_reused` and no row, whatever the driver says of the refusal."""
    binding, conversation, second = await desk.bind(), await desk.converse(), await desk.converse()
    first = desk.order(binding, conversation, request_id="one")
    other = desk.order(binding, second, request_id="one")
    made = await desk.create(first)
    assert await refusal(desk.create(other)) == "idempotency_key_reused"

    # A session that looked before the winner wrote: its insert is refused by the creator key, and it reads again.
    look, slot = grant_service.store.find_by_creator_key, grant_service.store.find_by_slot
    for order, code in (
        (other, "idempotency_key_reused"),
        (desk.order(binding, conversation, request_id="two"), "active_reply_grant_exists"),
    ):
        session = open_session()
        altered = _alter_driver_messages(session.engine())
        blind = iter([None])
        transactions = []

        def find_once(tx: Tx, *key: str, _blind: Any = blind, _seen: list[Any] = transactions) -> Any:
            _seen.append(id(tx))
            return None if next(_blind, "no") is None else look(tx, *key)

        hidden = iter([None])

        def slot_once(tx: Tx, name: str, *, lock: bool = False, _hidden: Any = hidden) -> Any:
            return None if next(_hidden, "no") is None else slot(tx, name, lock=lock)

        with monkeypatch.context() as patch:
            patch.setattr(grant_service.store, "find_by_creator_key", find_once)
            patch.setattr(grant_service.store, "find_by_slot", slot_once)
            assert await refusal(desk.create(order, database=session)) == code
        assert len(altered) == 1
        assert len(transactions) == 2  # the second reading is another transaction's
    assert [row["id"] for row in await desk.rows("reply_grants")] == [made.grant.id]
    assert await desk.count("deliveries") == 1


async def test_a_truly_concurrent_reuse_is_one_grant_and_one_refusal(
    desk: DeskWorld, open_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    binding = await desk.bind()
    orders = [desk.order(binding, await desk.converse(), request_id="one") for _ in range(2)]
    sessions = [open_session(), open_session()]
    meet_before_inserting(monkeypatch, desk, 2)
    assert codes(await at_once(desk, sessions, orders)) == ["idempotency_key_reused", "ok"]
    assert await desk.count("reply_grants") == 1


async def test_a_race_is_resolved_for_who_may_still_create(desk: DeskWorld) -> None:
    """The second transaction of a create authorises anew."""
    person = await desk.people.person("mate", "operator")
    order = desk.order(await desk.bind(person), await desk.converse(person))
    await desk.create(order, person)
    (member,) = await desk.rows("workspace_members", user=person.user_id)
    await desk.write(update_member, desk.owner, desk.home, member["id"], role="viewer")
    assert await refusal(desk.write(grants.resolve_race, person, order, **desk.keys)) == "permission_required"


# ------------------------------------------------------------------------------------------------ one at a time


@pytest.mark.spec("DESK-89")
async def test_an_active_grant_is_not_replaced_and_an_ended_one_gives_way(desk: DeskWorld) -> None:
    """While a grant is active and unexpired a second is refused; once expired or revoked a new id gets the slot."""
    binding, conversation = await desk.bind(), await desk.converse()
    first = desk.order(binding, conversation, expires_in_seconds=300)
    made = await desk.create(first)
    assert await refusal(desk.create(desk.order(binding, conversation))) == "active_reply_grant_exists"
    desk.clock.advance(300 * SECOND - 1)
    assert await refusal(desk.create(desk.order(binding, conversation))) == "active_reply_grant_exists"
    desk.clock.advance(1)
    # The old id is its old grant's; a new one gets the slot though nobody swept.
    assert (await desk.create(first)).grant.id == made.grant.id
    second = await desk.create(desk.order(binding, conversation))
    assert second.created
    ended = await desk.row("reply_grants", made.grant.id)
    assert (ended["status"], ended["active_slot"], ended["version"]) == ("expired", None, 2)
    await desk.revoke(second.grant.id)
    assert (await desk.create(first)).grant.id == made.grant.id
    third = await desk.create(desk.order(binding, conversation))
    assert third.created
    holders = [row["id"] for row in await desk.rows("reply_grants") if row["active_slot"] is not None]
    assert holders == [third.grant.id]


@pytest.mark.spec("DESK-90")
async def test_a_replay_tells_the_state_for_ever(desk: DeskWorld) -> None:
    """An old id answers with its grant as it now is, a terminal one for good, whatever its parents are; never anew."""
    seat = await desk.seat(request_id="old", expires_in_seconds=300)
    old = desk.order(seat.binding_id, seat.conversation_id, request_id="old", expires_in_seconds=300)
    short = desk.order(seat.binding_id, await desk.converse(), request_id="short", expires_in_seconds=300)
    await desk.create(short)

    async def expect_replay(order: CreateGrant, status: str) -> None:
        before = await desk.rows("reply_grants"), await desk.rows("deliveries"), await desk.rows("events")
        for ready in (True, False):
            view = await desk.create(order, ready=ready)
            assert (view.status, view.created) == (status, False)
        assert (await desk.rows("reply_grants"), await desk.rows("deliveries"), await desk.rows("events")) == before

    await expect_replay(old, "active")
    await desk.revoke(seat.grant_id)
    await expect_replay(old, "revoked")
    desk.clock.advance(300 * SECOND)
    await expect_replay(short, "expired")
    await desk.close(seat.conversation_id)
    await desk.unbind(seat.binding_id)
    await desk.enable(False)
    await expect_replay(old, "revoked")
    await desk.revoke_installation()
    desk.keyring = KeyRing("")
    await desk.write(update_project, desk.owner, desk.home, desk.project, ProjectChanges(archived=True))
    await expect_replay(old, "revoked")
    await desk.write(grants.expire_due, 100)
    await expect_replay(short, "expired")


async def test_revoking_is_one_step_and_needs_no_key(desk: DeskWorld) -> None:
    """The first revocation ends the grant and clears its slot; repeats answer the same; ended ones are left alone."""
    seat = await desk.seat()
    desk.keyring = KeyRing("")
    await desk.enable(False)
    first = await desk.revoke(seat.grant_id)
    row = await desk.row("reply_grants", seat.grant_id)
    assert (row["status"], row["version"], row["active_slot"]) == ("revoked", 2, None)
    assert (row["revoked_at"], row["revoked_by"]) == (desk.clock.now_us(), desk.owner.user_id)
    desk.clock.advance(SECOND)
    assert await desk.revoke(seat.grant_id) == first
    assert await desk.row("reply_grants", seat.grant_id) == row
    assert await desk.count("events", kind="reply_grant.revoked") == 1


async def test_expiry_is_read_at_once_and_never_undone(desk: DeskWorld) -> None:
    """Past its time a grant reads expired before any sweep; reading, listing, revoking and access leave it so."""
    seat = await desk.seat(expires_in_seconds=300)
    created = (await desk.row("reply_grants", seat.grant_id))["expires_at"]
    desk.clock.advance(300 * SECOND - 1)
    assert (await desk.view(seat.grant_id)).status == "active"
    await desk.ask("used", seat)
    await desk.work()
    desk.clock.advance(1)

    async def expect_expired() -> None:
        view = await desk.view(seat.grant_id)
        assert (view.status, view.unusable_reason) == ("expired", "expired")
        listed, _ = await desk.read(
            grants.list_grants,
            desk.owner,
            desk.home,
            desk.project,
            seat.conversation_id,
            limit=20,
            after=None,
            **desk.keys,
        )
        assert [view.status for view in listed] == ["expired"]

    await expect_expired()
    assert (await desk.revoke(seat.grant_id)).status == "expired"
    await expect_expired()
    access = {"access": "administrators", "active_reply_grants": "revoke"}
    await desk.write(grants.set_project_access, desk.owner, desk.home, desk.project, **access)
    await expect_expired()
    await desk.write(grants.expire_due, 100)
    await expect_expired()
    row = await desk.row("reply_grants", seat.grant_id)
    assert (row["status"], row["expires_at"], row["revoked_at"], row["version"]) == ("expired", created, None, 2)
    assert await desk.count("events", kind="reply_grant.expired") == 1
    assert await desk.count("events", kind="reply_grant.revoked") == 0


async def test_the_sweep_and_a_revocation_have_one_winner(desk: DeskWorld, open_session: Any) -> None:
    seat = await desk.seat(expires_in_seconds=300)
    desk.clock.advance(300 * SECOND)
    other = open_session()
    await asyncio.gather(
        desk.write(grants.expire_due, 10),
        other.write(lambda tx: grants.revoke(tx, desk.owner, desk.home, desk.project, seat.grant_id, **desk.keys)),
    )
    row = await desk.row("reply_grants", seat.grant_id)
    assert (row["status"], row["version"]) == ("expired", 2)


# ------------------------------------------------------------------------------------------------ reading


@pytest.mark.spec("DESK-91")
async def test_a_grant_is_its_persons_alone_and_lists_are_bounded(desk: DeskWorld) -> None:
    """Others, other workspaces and other projects get 404; a list names its conversation, bounded, newest first."""
    seat = await desk.seat()
    mate = await desk.people.person("mate", "admin", platform_admin=True)
    other = await desk.write(create_workspace, desk.owner, name="Other", slug="other")
    second = await desk.people.project("second")
    site = Site(desk)
    query = {"conversation_id": seat.conversation_id}
    one = f"/reply-grants/{seat.grant_id}"
    for method in ("GET", "DELETE"):
        for path, actor in (
            (site.path(one), mate),
            (site.path(one, project=second.id), None),
            (site.path(one, workspace=other.id), None),
            (site.path("/reply-grants/grt_" + "0" * 32), None),
        ):
            status, answer = await site.call(method, path, actor)
            assert (status, answer["code"]) == (404, "reply_grant_not_found")
    for path, actor, code in (
        (site.path(), mate, "conversation_not_found"),
        (site.path(project=second.id), None, "conversation_not_found"),
        (site.path(workspace=other.id), None, "project_not_found"),
    ):
        status, answer = await site.call("GET", path, actor, params=query)
        assert (status, answer["code"]) == (404, code)
    assert (await desk.row("reply_grants", seat.grant_id))["status"] == "active"

    def many(tx: Tx) -> None:
        """44 more of this conversation in one microsecond."""
        for number in range(44):
            grants.revoke(tx, desk.owner, desk.home, desk.project, newest[-1], **desk.keys)
            order = desk.order(seat.binding_id, seat.conversation_id, request_id=f"many-{number}")
            newest.append(grants.create(tx, desk.owner, order, reply_ready=True, **desk.keys).grant.id)

    newest = [seat.grant_id]
    desk.clock.advance(SECOND)
    await desk.database.write(many)
    await desk.create(desk.order(seat.binding_id, await desk.converse()))
    expected = [*sorted(newest[1:], reverse=True), seat.grant_id]  # one instant: by id; then the older one

    status, answer = await site.call("GET", site.path())
    assert (status, answer["code"]) == (422, "request_invalid")
    for limit in (0, 101, -1):
        assert (await site.call("GET", site.path(), params={**query, "limit": limit}))[0] == 422
    for limit, size in ((None, 20), (1, 1), (100, 45)):
        params = query if limit is None else {**query, "limit": limit}
        status, answer = await site.call("GET", site.path(), params=params)
        assert status == 200
        assert [item["id"] for item in answer["items"]] == expected[:size]
    found: list[str] = []
    params = {**query, "limit": 15}
    while True:
        _, answer = await site.call("GET", site.path(), params=params)
        found += [item["id"] for item in answer["items"]]
        if answer["next_cursor"] is None:
            break
        params["cursor"] = answer["next_cursor"]
    assert found == expected
    mine = await desk.seat(mate, sender="ou_2", chat="oc_2")
    status, answer = await site.call("GET", site.path(), mate, params={"conversation_id": mine.conversation_id})
    assert [item["id"] for item in answer["items"]] == [mine.grant_id]


async def test_a_grant_shows_exactly_these_fields(desk: DeskWorld) -> None:
    """A reply grant's answer has the published fields and no other: no chat, sender, hash or slot."""
    seat = await desk.seat()
    fields = (
        "id installation_id binding_id workspace_id project_id workflow_id run_id conversation_id status version "
        "expires_at revoked_at activation_status usable unusable_reason created_at updated_at"
    ).split()
    assert list(ReplyGrantRead.model_fields) == fields
    status, answer = await Site(desk).call("GET", Site(desk).path(f"/reply-grants/{seat.grant_id}"))
    assert (status, list(answer)) == (200, fields)
    assert answer == {
        "id": seat.grant_id,
        "installation_id": desk.installation_id,
        "binding_id": seat.binding_id,
        "workspace_id": desk.home,
        "project_id": desk.project,
        "workflow_id": None,
        "run_id": None,
        "conversation_id": seat.conversation_id,
        "status": "active",
        "version": 1,
        "expires_at": "2026-01-08T00:00:00.000000Z",
        "revoked_at": None,
        "activation_status": "sent",
        "usable": True,
        "unusable_reason": None,
        "created_at": "2026-01-01T00:00:00.000000Z",
        "updated_at": "2026-01-01T00:00:00.000000Z",
    }


# ------------------------------------------------------------------------------------------------ usable or not


async def move_revision(desk: DeskWorld, seat: Seat) -> None:
    """A turn of the console: the conversation moves on without the grant."""

    def turn(tx: Tx) -> None:
        conversation = conversations.find_conversation(tx, seat.conversation_id)
        assert conversation is not None
        begun = conversations.begin_turn(tx, conversation, f"console-{desk.number()}", "by hand", surface="console")
        outcome = conversations.outcome_of(Answer("done"), "fake")
        assert conversations.complete_turn(tx, begun.turn.id, expected_revision=conversation.revision, outcome=outcome)

    await desk.database.write(turn)


async def move_context(desk: DeskWorld, seat: Seat) -> None:
    await desk.write(
        conversations.update_conversation,
        seat.actor,
        desk.home,
        seat.conversation_id,
        context={"project_id": desk.project, "surface": "elsewhere"},
        find_run=runs.find_run_scope,
    )


async def lose_export(desk: DeskWorld, seat: Seat) -> None:
    (member,) = await desk.rows("workspace_members", user=seat.actor.user_id)
    await desk.write(update_member, desk.owner, desk.home, member["id"], role="viewer")


async def _bring_about(desk: DeskWorld, reason: str, seat: Seat) -> None:
    """Make `seat`'s grant unusable in this one way."""
    if reason == "expired":
        desk.clock.advance(7 * 86_400 * SECOND)
    elif reason == "revoked":
        await desk.revoke(seat.grant_id, seat.actor)
    elif reason == "installation_disabled":
        await desk.enable(False)
    elif reason == "installation_revoked":
        await desk.revoke_installation()
    elif reason == "credential_unavailable":
        desk.keyring = KeyRing("")
    elif reason == "binding_revoked":
        await desk.unbind(seat.binding_id)
    elif reason == "conversation_closed":
        await desk.close(seat.conversation_id, seat.actor)
    elif reason == "conversation_context_changed":
        await move_context(desk, seat)
    elif reason == "conversation_revision_changed":
        await move_revision(desk, seat)
    else:
        await lose_export(desk, seat)


LOST, MOVED = "authorization_revoked_before_delivery", "conversation_revision_changed"
REASONS = {  # in the order of 4.4, with what t1b makes of a receipt
    "expired": ("permanent_failed", LOST),
    "revoked": ("permanent_failed", LOST),
    "installation_disabled": ("permanent_failed", LOST),
    "installation_revoked": ("permanent_failed", LOST),
    "credential_unavailable": ("retryable_failed", "credential_unavailable"),
    "binding_revoked": ("permanent_failed", LOST),
    "conversation_closed": ("permanent_failed", MOVED),
    "conversation_context_changed": ("permanent_failed", MOVED),
    "conversation_revision_changed": ("permanent_failed", MOVED),
    "authority_lost": ("permanent_failed", LOST),
}


async def person_seat(desk: DeskWorld) -> Seat:
    """A seat of somebody who is not the last admin."""
    return await desk.seat(await desk.people.person("mate", "operator"), sender="ou_2", chat="oc_2")


@pytest.mark.spec("DESK-298")
@pytest.mark.parametrize("reason", [None, *REASONS])
async def test_what_a_reader_sees_is_what_the_turn_would_decide(desk: DeskWorld, reason: str | None) -> None:
    """Each reason alone shows as that reason, and at that instant t1b ends the receipt so; others hide behind it."""
    seat = await person_seat(desk)
    waiting = await desk.ask("waiting", seat)
    if reason is not None:
        await _bring_about(desk, reason, seat)
    view = await desk.view(seat.grant_id, seat.actor)
    assert view.unusable_reason == reason
    status, answer = await Site(desk).call("GET", Site(desk).path(f"/reply-grants/{seat.grant_id}"), seat.actor)
    assert (status, answer["usable"], answer["unusable_reason"]) == (200, reason is None, reason)
    await desk.work()
    row = await desk.row("receipts", waiting["id"])
    expected = ("completed", None) if reason is None else REASONS[reason]
    assert (row["status"], row["error_code"]) == expected
    assert len(desk.runner.requests) == (1 if reason is None else 0)
    if reason is None:
        # Everything goes wrong, from the last reason to the first: each hides those after it.
        order = [name for name in REASONS if name not in ("installation_revoked", "revoked")]
        for name in reversed(order):
            await _bring_about(desk, name, seat)
            assert (await desk.view(seat.grant_id, seat.actor)).unusable_reason == name


async def test_events_tell_the_life_of_a_grant_without_content(desk: DeskWorld) -> None:
    """Creation, delivery, turn, revocation and expiry each write one row of their own, which holds no content."""
    seat = await desk.seat(title="Secret title")
    await desk.ask("secret question", seat)
    await desk.work()
    await desk.send()
    await desk.revoke(seat.grant_id)
    kinds = [row["kind"] for row in await desk.rows("events", reply_grant=seat.grant_id)]
    assert sorted(kinds) == sorted(
        ["reply_grant.created", "delivery.sent", "turn.completed", "delivery.sent", "reply_grant.revoked"]
    )
    short = await desk.seat(binding_id=seat.binding_id, expires_in_seconds=300)
    desk.clock.advance(300 * SECOND)
    await desk.write(grants.expire_due, 10)
    kinds = [row["kind"] for row in await desk.rows("events", reply_grant=short.grant_id)]
    assert kinds[-1] == "reply_grant.expired"
    text = repr(await desk.rows("events")).lower()
    for content in ("secret", "answer to", "ou_1", "oc_1"):
        assert content not in text
    answer = await Site(desk).call("GET", Site(desk).path(f"/reply-grants/{seat.grant_id}/timeline"))
    assert answer[1]["items"][0]["kind"] == "reply_grant.revoked"


async def test_access_turns_with_its_grants_or_not_at_all(desk: DeskWorld) -> None:
    """Turning to `administrators` over active grants needs an answer; `revoke` ends them in that commit."""
    seat = await desk.seat()

    async def turn(answer: str | None, access: str = "administrators") -> Any:
        return await desk.write(
            grants.set_project_access,
            desk.owner,
            desk.home,
            desk.project,
            access=access,
            active_reply_grants=answer,
        )

    assert await refusal(turn(None)) == "active_reply_grants_required"
    assert (await desk.row("projects", desk.project))["access"] == "members"
    await turn("keep")
    assert (await desk.view(seat.grant_id)).unusable_reason is None
    await turn(None, "members")
    await turn("revoke")
    assert (await desk.view(seat.grant_id)).status == "revoked"
    await turn(None, "members")
    await turn(None)  # nothing is active any more
    assert (await desk.row("projects", desk.project))["access"] == "administrators"
