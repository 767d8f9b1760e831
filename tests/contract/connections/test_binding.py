"""One-time binding of a person's chat account: challenge, consumption, unbinding, and who may be bound to whom."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from frontdesk.desk import connections
from frontdesk.desk.connections.model import BindingOutcome
from frontdesk.kernel import limits
from frontdesk.kernel.clock import MINUTE, SECOND
from frontdesk.kernel.oncesecret import binding_code_digest
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.connections.world import (
    BINDINGS,
    CHALLENGES,
    EVENTS,
    MEMBERS,
    USERS,
    WORKSPACES,
    World,
    code_of,
)

INVALID = BindingOutcome("binding_challenge_invalid", None)
CONFLICT = BindingOutcome("binding_principal_conflict", None)
EXCEEDED = BindingOutcome("binding_attempts_exceeded", None)


@pytest.mark.spec("DESK-17")
async def test_a_code_is_shown_once_and_only_its_digest_is_kept(world: World) -> None:
    """Only an active installation gives a code; it is in that one answer, and the database knows its digest alone."""
    one = (await world.install()).id
    async with world.http("viewer") as client:
        answer = await client.post(world.path(one, "/binding-challenges"))
        assert answer.status_code == 201
        shown = answer.json()
        code = shown["command_text"].removeprefix("绑定 ")
        assert re.fullmatch(r"fdb_[0-9A-HJKMNP-TV-Z]{20}", code)
        assert shown["expires_at"] == "2026-01-01T00:10:00.000000Z"
        assert set(shown) == {"id", "installation_id", "command_text", "expires_at"}
        for rest in ("", "/health", "/my-binding"):
            assert code not in (await client.get(world.path(one, rest))).text
        (kept,) = await world.rows(CHALLENGES)
        assert kept["code_digest"] == binding_code_digest(code)
        rows = [*(await world.rows(CHALLENGES)), *(await world.rows(EVENTS)), await world.row(one)]
        assert code[4:] not in repr(rows)

        for change in ({"enabled": False}, None):
            await (world.patch(one, **change) if change else world.revoke(one))
            refused = await client.post(world.path(one, "/binding-challenges"))
            assert (refused.status_code, refused.json()["code"]) == (409, "installation_not_active")
    assert len(await world.rows(CHALLENGES)) == 1


async def test_the_command_is_in_the_installations_language(world: World) -> None:
    """The texts' half of DESK-274."""
    one = (await world.install(command_language="en")).id
    issue = (connections.create_challenge, world.people["viewer"])
    english = await world.write(*issue, installation_id=one, **world.scope)
    await world.patch(one, command_language="zh")
    chinese = await world.write(*issue, installation_id=one, **world.scope)
    assert english.command_text.startswith("/bind fdb_")
    assert chinese.command_text.startswith("绑定 fdb_")


async def test_a_code_binds_once_and_within_ten_minutes(world: World) -> None:
    """The room's half of DESK-18: the outcome that the rejected receipt keeps, and no binding."""
    one = (await world.install()).id
    late, right = await world.code(one, "viewer"), await world.code(one, "operator")
    world.clock.advance(10 * MINUTE - 1)
    bound = await world.consume(one, right.lower(), "ou_2")
    assert bound.code is None
    assert bound.binding is not None
    assert (bound.binding.user_id, bound.binding.revision) == (world.people["operator"].user_id, 1)
    assert (bound.binding.sender_id, bound.binding.chat_id) == ("ou_2", "oc_ou_2")
    assert await world.consume(one, right, "ou_2") == INVALID
    assert await world.consume(one, right, "ou_3") == INVALID
    world.clock.advance(1)
    assert await world.consume(one, late) == INVALID
    for wrong in (None, "fdb_" + "0" * 20):
        assert await world.consume(one, wrong) == INVALID
    assert len(await world.rows(BINDINGS)) == 1
    consumed = [row["consumed_at"] for row in await world.rows(CHALLENGES)]
    assert consumed.count(None) == 1


async def test_a_code_of_another_installation_is_invalid(world: World) -> None:
    one, two = (await world.install()).id, (await world.install(app_id="cli_2")).id
    code = await world.code(two, "viewer")
    assert await world.consume(one, code) == INVALID
    assert (await world.consume(two, code)).code is None


async def test_a_transaction_that_does_not_commit_consumes_and_binds_nothing(world: World) -> None:
    """The room's half of DESK-19: consumption and binding stand and fall with the caller's transaction."""
    one = (await world.install()).id
    code = await world.code(one, "viewer")
    before = (await world.rows(CHALLENGES), await world.rows(BINDINGS), len(await world.rows(EVENTS)))

    def crash(tx: Tx) -> None:
        installation = connections.find_installation(tx, one)
        assert installation is not None
        outcome = connections.consume_challenge(
            tx,
            installation=installation,
            code=code,
            tenant_key="t-1",
            sender_id="ou_1",
            chat_id="oc_1",
            wrong_in_chat=0,
            wrong_in_installation=0,
        )
        assert outcome.code is None
        raise LookupError

    with pytest.raises(LookupError):
        await world.database.write(crash)
    assert (await world.rows(CHALLENGES), await world.rows(BINDINGS), len(await world.rows(EVENTS))) == before
    assert (await world.consume(one, code)).code is None


@pytest.mark.spec("DESK-21")
async def test_an_account_has_one_person_and_a_person_one_account(world: World) -> None:
    """A bound account refuses another person's code, and a bound person's code is refused from another account."""
    one = (await world.install()).id
    viewer = (await world.bind(one, "viewer", "ou_1")).binding
    theirs = await world.code(one, "operator")
    assert await world.consume(one, theirs, "ou_1") == CONFLICT
    assert await world.bind(one, "viewer", "ou_2") == CONFLICT
    assert [row["sender_id"] for row in await world.rows(BINDINGS)] == ["ou_1"]
    assert (await world.rows(BINDINGS))[0]["revision"] == 1
    # A refusal consumes nothing: the same code binds from a free account, and in another installation all is free.
    assert (await world.consume(one, theirs, "ou_2")).code is None
    two = (await world.install(app_id="cli_2")).id
    assert (await world.bind(two, "viewer", "ou_2")).code is None
    assert viewer is not None
    await world.unbind(viewer.id, "viewer")
    assert await world.bind(one, "viewer", "ou_2") == CONFLICT
    assert (await world.bind(one, "viewer", "ou_3")).code is None
    active = [(row["user"], row["sender_id"]) for row in await world.rows(BINDINGS, BINDINGS.c.active)]
    assert len(active) == 3


async def test_a_code_from_the_account_that_is_bound_already_changes_nothing(world: World) -> None:
    one = (await world.install()).id
    first = await world.bind(one, "viewer")
    again = await world.bind(one, "viewer")
    assert again == first
    assert [row["consumed_at"] is None for row in await world.rows(CHALLENGES)] == [False, False]


async def test_a_code_from_another_private_chat_moves_the_binding_one_revision_higher(world: World) -> None:
    one = (await world.install()).id
    first = (await world.bind(one, "viewer")).binding
    moved = (await world.consume(one, await world.code(one, "viewer"), chat="oc_new")).binding
    assert first is not None
    assert moved is not None
    assert (moved.id, moved.active, moved.revision, moved.chat_id) == (first.id, True, 2, "oc_new")
    assert await world.consume(one, await world.code(one, "operator"), chat="oc_new") == CONFLICT


async def test_who_lost_their_standing_is_not_bound(world: World) -> None:
    """The room's half of DESK-22: disabled, no longer a member, workspace off, between challenge and message."""
    one = (await world.install()).id
    codes = {name: await world.code(one, name) for name in ("viewer", "operator", "maintainer")}
    await world.change(USERS, USERS.c.id == world.people["viewer"].user_id, disabled_at=1)
    await world.write(
        lambda tx: tx.execute(MEMBERS.delete().where(MEMBERS.c.user == world.people["operator"].user_id)) and None
    )
    assert await world.consume(one, codes["viewer"], "ou_1") == INVALID
    assert await world.consume(one, codes["operator"], "ou_2") == INVALID
    await world.change(WORKSPACES, WORKSPACES.c.id == world.home, active=False)
    assert await world.consume(one, codes["maintainer"], "ou_3") == INVALID
    assert await world.rows(BINDINGS) == []
    await world.change(WORKSPACES, WORKSPACES.c.id == world.home, active=True)
    assert (await world.consume(one, codes["maintainer"], "ou_3")).code is None


@pytest.mark.spec("DESK-23")
async def test_a_binding_is_revoked_by_its_person_or_a_manager_exactly_once(world: World) -> None:
    """Its person and a configuration manager may; others can't tell that it exists; the revision rises once."""
    one = (await world.install()).id
    bindings = []
    for number, owner in enumerate(("viewer", "operator")):
        binding = (await world.bind(one, owner, f"ou_{number}")).binding
        assert binding is not None
        bindings.append(binding)
    own, others = bindings
    assert await code_of(world.unbind(own.id, "operator")) == "binding_not_found"
    assert await code_of(world.unbind("bnd_" + "0" * 32, "maintainer")) == "binding_not_found"
    assert await code_of(world.unbind(own.id, "stranger")) == "membership_required"
    foreign = {"workspace_id": world.other, "binding_id": own.id}
    assert await code_of(world.write(connections.unbind, world.people["stranger"], **foreign)) == "binding_not_found"

    async with world.http("viewer") as client:
        path = f"/api/v1/workspaces/{world.home}/bindings/{own.id}"
        answers = [await client.delete(path), await client.delete(path)]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert answers[0].json() == answers[1].json()
        assert (answers[0].json()["active"], answers[0].json()["revision"]) == (False, 2)
    by_manager = await world.unbind(others.id, "maintainer")
    world.clock.advance(SECOND)
    assert await world.unbind(others.id, "admin") == by_manager
    assert await world.unbind(others.id, "operator") == by_manager
    assert (by_manager.active, by_manager.revision) == (False, 2)
    assert by_manager.revoked_by == world.people["maintainer"].user_id
    assert [event["kind"] for event in await world.rows(EVENTS)].count("binding.revoked") == 2


async def test_two_revocations_at_once_raise_the_revision_once(
    world: World, open_session: Callable[[], Database]
) -> None:
    one = (await world.install()).id
    binding = (await world.bind(one, "viewer")).binding
    assert binding is not None
    barrier = threading.Barrier(2)

    def revoke(name: str) -> Callable[[Tx], Any]:
        def run(tx: Tx) -> Any:
            if world.database.engine_name == "postgresql":  # SQLite's writers are serial
                barrier.wait(10)
            return connections.unbind(tx, world.people[name], workspace_id=world.home, binding_id=binding.id)

        return run

    sessions = [(open_session(), "viewer"), (open_session(), "maintainer")]
    first, second = await asyncio.gather(*(session.write(revoke(name)) for session, name in sessions))
    assert first == second
    assert first.revision == 2


async def test_binding_again_raises_the_revision(world: World) -> None:
    """The room's half of DESK-24; that grants of the old revision stay unusable is proved where grants are."""
    one = (await world.install()).id
    first = (await world.bind(one, "viewer")).binding
    assert first is not None
    await world.unbind(first.id, "viewer")
    again = (await world.bind(one, "viewer")).binding
    assert again is not None
    assert (again.id, again.active, again.revision, again.revoked_at) == (first.id, True, 3, None)


@pytest.mark.spec("DESK-25")
async def test_my_binding_is_the_active_one_else_the_newest(world: World) -> None:
    """Null before any, the caller's active row, else their inactive one that changed last; no query names anyone."""
    one = (await world.install()).id
    path = world.path(one, "/my-binding")
    async with world.http("viewer") as client:

        async def mine() -> Any:
            return (await client.get(path)).json()["binding"]

        assert await mine() is None
        await world.bind(one, "operator", "ou_9")
        assert await mine() is None
        seen = []
        for sender in ("ou_1", "ou_2", "ou_1"):
            world.clock.advance(SECOND)
            bound = (await world.bind(one, "viewer", sender)).binding
            assert bound is not None
            shown = await mine()
            assert (shown["id"], shown["active"], shown["revoked_at"]) == (bound.id, True, None)
            world.clock.advance(SECOND)
            await world.unbind(bound.id, "viewer")
            shown = await mine()
            assert (shown["id"], shown["active"]) == (bound.id, False)
            seen.append((bound.id, shown["revision"]))
        assert seen == [(seen[0][0], 2), (seen[1][0], 2), (seen[0][0], 4)]
        someone = world.people["operator"].user_id
        for query in ({"user_id": someone}, {"user_id": world.people["viewer"].user_id}, {"active": "true"}):
            refused = await client.get(path, params=query)
            assert (refused.status_code, refused.json()["code"]) == (422, "request_invalid")


@pytest.mark.spec("DESK-26")
async def test_my_binding_never_shows_the_chat_account(world: World) -> None:
    """The answer has exactly the documented fields, none of which is a sender or chat id."""
    one = (await world.install()).id
    bound = (await world.bind(one, "viewer", "ou_planted")).binding
    assert bound is not None
    async with world.http("viewer") as client:
        for _ in ("active", "inactive"):
            answer = await client.get(world.path(one, "/my-binding"))
            fields = {"id", "installation_id", "user_id", "active", "revision", "revoked_at", "updated_at"}
            assert set(answer.json()["binding"]) == fields
            assert "planted" not in answer.text
            await world.unbind(bound.id, "viewer")
    assert "planted" not in repr(bound)


@pytest.mark.spec("DESK-27")
async def test_two_uses_of_one_code_at_once_make_one_binding(
    world: World, open_session: Callable[[], Database]
) -> None:
    """Two accounts send the same code in two sessions at the same moment: one is bound, the other's code is invalid."""
    one = (await world.install()).id
    code = await world.code(one, "viewer")
    outcomes = await race(world, open_session, one, [(code, "ou_1"), (code, "ou_2")])
    assert sorted(outcome.code or "bound" for outcome in outcomes) == ["binding_challenge_invalid", "bound"]
    (binding,) = await world.rows(BINDINGS)
    winner = next(outcome.binding for outcome in outcomes if outcome.binding is not None)
    assert (binding["id"], binding["revision"], binding["active"]) == (winner.id, 1, True)


async def race(
    world: World, open_session: Callable[[], Database], installation_id: str, uses: list[tuple[str, str]]
) -> list[BindingOutcome]:
    """Each (code, sender) in a session of its own, all begun before any goes on."""
    barrier = threading.Barrier(len(uses))

    class Together:
        def __init__(self, database: Database) -> None:
            self.inner = database

        async def write(self, fn: Callable[[Tx], Any]) -> Any:
            def run(tx: Tx) -> Any:
                if world.database.engine_name == "postgresql":  # SQLite's writers are serial
                    barrier.wait(10)
                return fn(tx)

            return await self.inner.write(run)

    sessions = [Together(open_session()) for _ in uses]
    return await asyncio.gather(
        *(
            world.consume(installation_id, code, sender, database=session)  # type: ignore[arg-type]
            for session, (code, sender) in zip(sessions, uses, strict=True)
        )
    )


async def test_two_people_at_once_from_one_account_make_one_binding(
    world: World, open_session: Callable[[], Database]
) -> None:
    one = (await world.install()).id
    uses = [(await world.code(one, name), "ou_1") for name in ("viewer", "operator")]
    outcomes = await race(world, open_session, one, uses)
    assert sorted(outcome.code or "bound" for outcome in outcomes) == ["binding_principal_conflict", "bound"]
    assert len(await world.rows(BINDINGS)) == 1
    assert [row["consumed_at"] is None for row in await world.rows(CHALLENGES)].count(True) == 1


async def test_two_codes_of_one_person_at_once_from_two_accounts_make_one_binding(
    world: World, open_session: Callable[[], Database]
) -> None:
    one = (await world.install()).id
    for sender in ("ou_1", "ou_2"):  # both rows exist and are inactive: two activations race
        bound = (await world.bind(one, "viewer", sender)).binding
        assert bound is not None
        await world.unbind(bound.id, "viewer")
    uses = [(await world.code(one, "viewer"), sender) for sender in ("ou_1", "ou_2")]
    outcomes = await race(world, open_session, one, uses)
    assert sorted(outcome.code or "bound" for outcome in outcomes) == ["binding_principal_conflict", "bound"]
    assert sorted((row["active"], row["revision"]) for row in await world.rows(BINDINGS)) == [(False, 2), (True, 3)]


async def test_two_codes_of_one_person_at_once_from_one_account_are_one_binding(
    world: World, open_session: Callable[[], Database]
) -> None:
    one = (await world.install()).id
    uses = [(await world.code(one, "viewer"), "ou_1") for _ in range(2)]
    outcomes = await race(world, open_session, one, uses)
    assert [outcome.code for outcome in outcomes] == [None, None]
    (row,) = await world.rows(BINDINGS)
    assert row["revision"] == 1


async def test_a_free_account_may_go_to_another_person_as_another_binding(world: World) -> None:
    """The room's half of DESK-28: a new row, the old one untouched, and a higher revision when the first comes back."""
    one = (await world.install()).id
    first = (await world.bind(one, "viewer")).binding
    assert first is not None
    await world.unbind(first.id, "viewer")
    before = await world.rows(BINDINGS, BINDINGS.c.id == first.id)
    second = (await world.bind(one, "operator")).binding
    assert second is not None
    assert (second.id != first.id, second.user_id, second.revision) == (True, world.people["operator"].user_id, 1)
    assert await world.rows(BINDINGS, BINDINGS.c.id == first.id) == before
    assert await world.bind(one, "viewer") == CONFLICT
    await world.unbind(second.id, "operator")
    back = (await world.bind(one, "viewer")).binding
    assert back is not None
    assert (back.id, back.user_id, back.revision) == (first.id, first.user_id, 3)


async def test_after_too_many_wrong_codes_a_right_one_is_refused_too(world: World) -> None:
    """The room's half of DESK-29: the bounds; the counts are the inbox's, over its receipts."""
    assert limits.BINDING_ATTEMPTS_MAX_PER_CHAT == 5
    assert limits.BINDING_ATTEMPTS_MAX_PER_INSTALLATION == 50
    assert limits.BINDING_ATTEMPT_WINDOW_US == 10 * MINUTE
    one = (await world.install()).id
    code = await world.code(one, "viewer")
    for wrong in ((5, 5), (0, 50), (6, 51)):
        assert await world.consume(one, code, wrong=wrong) == EXCEEDED
        assert await world.consume(one, None, wrong=wrong) == EXCEEDED
    assert await world.rows(BINDINGS) == []
    assert (await world.consume(one, code, wrong=(4, 49))).code is None


async def test_a_disabled_installation_binds_nobody(world: World) -> None:
    one = (await world.install()).id
    code = await world.code(one, "viewer")
    await world.patch(one, enabled=False)
    assert await world.consume(one, code) == BindingOutcome("installation_disabled", None)
    await world.patch(one, enabled=True)
    assert (await world.consume(one, code)).code is None


async def test_the_active_binding_of_a_sender_is_found_by_account_alone(world: World) -> None:
    one = (await world.install()).id
    bound = (await world.bind(one, "viewer")).binding
    assert bound is not None
    find = connections.find_active_binding_of_sender
    assert await world.write(find, one, "t-1", "ou_1", share=True) == bound
    assert await world.read(find, one, "t-2", "ou_1") is None
    assert await world.read(find, one, "t-1", "ou_2") is None
    await world.unbind(bound.id, "viewer")
    assert await world.read(find, one, "t-1", "ou_1") is None
    kept = await world.write(connections.find_binding, bound.id, share=True)
    assert kept is not None
    assert kept.active is False


async def test_events_of_a_binding_hold_no_chat_account_and_no_code(world: World) -> None:
    one = (await world.install()).id
    bound = (await world.bind(one, "viewer", "ou_planted")).binding
    assert bound is not None
    await world.bind(one, "viewer", "ou_planted")
    await world.unbind(bound.id, "maintainer")
    events = [event for event in await world.rows(EVENTS) if event["kind"].startswith("binding.")]
    assert sorted(event["kind"] for event in events) == [
        "binding.activated",
        "binding.challenged",
        "binding.challenged",
        "binding.confirmed",
        "binding.revoked",
    ]
    assert "planted" not in repr(events)
    assert "fdb_" not in repr(events)
