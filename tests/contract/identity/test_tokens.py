"""Tokens of every kind: shown once, narrower than their owner, gone at once."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import sqlalchemy as sa

from frontdesk.app.schema import METADATA
from frontdesk.identity.authentication import authenticate
from frontdesk.identity.model import TOKEN_KINDS, Actor, NewToken, Right
from frontdesk.identity.rights import membership, passes_gate
from frontdesk.identity.tokens import create_token, list_tokens, revoke_token
from frontdesk.identity.users import update_user
from frontdesk.kernel.clock import DAY, SECOND, ManualClock
from frontdesk.kernel.errors import Problem
from frontdesk.storage.tx import Tx
from tests.contract.world import World, logged_in, refusal

SHAPES = {"access": "fdt_", "host": "fdh_", "results": "fdp_"}


async def make(world: World, actor: Actor, **asked: Any) -> NewToken:
    wanted: dict[str, Any] = {"name": "mine", "expires_in_seconds": 3600, "workspace_id": world.workspace_id, **asked}
    return await world.database.write(lambda tx: create_token(tx, actor, **wanted))


def everything_stored(tx: Tx) -> str:
    return repr([tuple(row) for table in METADATA.sorted_tables for row in tx.execute(sa.select(table))])


@pytest.mark.spec("DESK-335")
@pytest.mark.parametrize("kind", TOKEN_KINDS)
async def test_a_token_is_shown_once_and_ends_at_once(world: World, clock: ManualClock, kind: str) -> None:
    """Each kind is kept as a digest, appears in no later answer, and ends with revocation, expiry or disabling."""
    database = world.database
    actor = await world.person("someone", "operator")

    async def ask(secret: str) -> str:
        try:
            found = await database.read(lambda tx: authenticate(tx, secret))
        except Problem as problem:
            return problem.code
        assert found.token is not None
        return found.token.kind

    made = await make(world, actor, kind=kind)
    assert made.token.startswith(SHAPES[kind])
    assert len(made.token) == 47
    stored = await database.read(everything_stored)
    assert made.token[4:] not in stored
    assert made.token[4:] not in repr(await database.read(lambda tx: list_tokens(tx, actor, limit=10)))
    assert made.token not in repr(made)
    assert await ask(made.token) == kind
    await database.write(lambda tx: revoke_token(tx, actor, made.record.id))
    assert await ask(made.token) == "unauthenticated"

    made = await make(world, actor, kind=kind)
    clock.advance(3600 * SECOND - 1)
    assert await ask(made.token) == kind
    clock.advance(1)
    assert await ask(made.token) == "unauthenticated"

    made = await make(world, actor, kind=kind)
    await database.write(lambda tx: update_user(tx, world.owner, actor.user_id, {"disabled": True}))
    assert await ask(made.token) == "membership_required"
    for other in set(SHAPES.values()) - {SHAPES[kind]}:
        assert await ask(other + made.token[4:]) == "unauthenticated"


@pytest.mark.spec("DESK-335")
async def test_a_token_never_gives_more_than_its_owner_has_now(world: World) -> None:
    """Rights the owner loses are lost to the token; platform power needs the token's own mark and the owner's still."""
    database, home = world.database, world.workspace_id
    actor, member = await world.person_and_member("someone", "admin", platform_admin=True)
    assert member is not None
    made = await make(world, actor, rights=["inbox.work", "members.manage"], platform_admin=True)
    plain = await make(world, actor)

    async def used(token: NewToken) -> tuple[set[str], bool]:
        def read(tx: Tx) -> tuple[set[str], bool]:
            found = authenticate(tx, token.token)
            return {right.value for right in membership(tx, found, home).rights}, passes_gate(found)

        return await database.read(read)

    assert await used(made) == ({"inbox.work", "members.manage"}, True)
    assert (await used(plain))[1] is False
    await database.write(lambda tx: _set_role(tx, member.id, "operator"))
    assert await used(made) == ({"inbox.work"}, True)
    await database.write(lambda tx: update_user(tx, world.owner, actor.user_id, {"is_platform_admin": False}))
    assert await used(made) == ({"inbox.work"}, False)


@pytest.mark.spec("DESK-335")
async def test_a_token_of_an_oidc_session_has_no_administrator_power(world: World) -> None:
    """An OIDC session cannot ask for the power, and a row that claims it all the same does not give it."""
    database = world.database
    oidc = await database.write(lambda tx: logged_in(tx, world.owner.user_id, auth_method="oidc"))
    assert oidc.is_platform_admin is False
    asked = database.write(lambda tx: create_token(tx, oidc, name="x", expires_in_seconds=60, platform_admin=True))
    assert await refusal(asked) == "platform_admin_required"
    made = await make(world, oidc)
    assert made.record.auth_method == "oidc"
    await database.write(_claim_platform_admin)
    found = await database.read(lambda tx: authenticate(tx, made.token))
    assert (found.auth_method, found.is_platform_admin, passes_gate(found)) == ("oidc", False, False)


async def test_host_and_results_tokens_never_have_administrator_power(world: World) -> None:
    database = world.database
    for kind in ("host", "results"):
        asked = make(world, world.owner, kind=kind, platform_admin=True)
        assert await refusal(asked) == "platform_admin_required"
        made = await make(world, world.owner, kind=kind)
        await database.write(_claim_platform_admin)
        found = await database.read(lambda tx, made=made: authenticate(tx, made.token))
        assert (found.is_platform_admin, passes_gate(found)) == (False, False)


async def test_what_a_token_may_not_be_made_with(world: World) -> None:
    database, home = world.database, world.workspace_id
    actor = await world.person("someone", "operator")
    stranger = await world.person("stranger")
    secret_project = await world.project("secret", access="administrators")
    assert await refusal(make(world, stranger)) == "membership_required"
    assert await refusal(make(world, actor, rights=["members.manage"])) == "permission_required"
    assert await refusal(make(world, actor, rights=["everything.please"])) == "request_invalid"
    assert await refusal(make(world, actor, rights=["results.own"])) == "request_invalid"
    assert await refusal(make(world, actor, kind="results", rights=["inbox.work"])) == "request_invalid"
    assert await refusal(make(world, actor, kind="results", workspace_id=None)) == "request_invalid"
    assert await refusal(make(world, actor, expires_in_seconds=None)) == "request_invalid"
    assert await refusal(make(world, actor, expires_in_seconds=0)) == "request_invalid"
    assert await refusal(make(world, actor, expires_in_seconds=90 * DAY // SECOND + 1)) == "request_invalid"
    assert await refusal(make(world, actor, platform_admin=True)) == "platform_admin_required"
    assert await refusal(make(world, actor, project_ids=["prj_x"])) == "project_not_found"
    assert (
        await refusal(make(world, stranger, workspace_id=None, project_ids=[world.project_id])) == "project_not_found"
    )
    narrow = await make(world, actor, kind="results", rights=["results.own"], project_ids=[secret_project.id])
    assert narrow.record.rights == ("results.own",)
    host = await make(world, actor, kind="host", expires_in_seconds=None, source_application="claude")
    assert (host.record.expires_at, host.record.source_application) == (None, "claude")
    wide = await make(world, actor, workspace_id=None)
    found = await database.read(lambda tx: authenticate(tx, wide.token))
    assert Right.INBOX_WORK in (await database.read(lambda tx: membership(tx, found, home))).rights


async def test_a_token_makes_no_tokens_and_ends_only_itself(world: World) -> None:
    database = world.database
    actor = await world.person("someone", "operator")
    stranger = await world.person("stranger")
    one, two = await make(world, actor), await make(world, actor)
    by_token = await database.read(lambda tx: authenticate(tx, one.token))
    assert await refusal(make(world, by_token)) == "permission_required"

    async def revoke(who: Actor, token_id: str) -> str:
        return await refusal(database.write(lambda tx: revoke_token(tx, who, token_id)))

    assert await revoke(by_token, two.record.id) == "permission_required"
    assert await revoke(stranger, one.record.id) == "token_not_found"
    assert await revoke(dataclasses.replace(actor), "tok_x") == "token_not_found"
    await database.write(lambda tx: revoke_token(tx, by_token, one.record.id))
    assert await refusal(database.read(lambda tx: authenticate(tx, one.token))) == "unauthenticated"
    listed, _ = await database.read(lambda tx: list_tokens(tx, actor, limit=10))
    assert {token.id: token.revoked_at is not None for token in listed} == {one.record.id: True, two.record.id: False}


def _claim_platform_admin(tx: Tx) -> None:
    tx.execute(sa.update(METADATA.tables["access_tokens"]).values(platform_admin=True))


def _set_role(tx: Tx, member_id: str, role: str) -> None:
    members = METADATA.tables["workspace_members"]
    tx.execute(sa.update(members).where(members.c.id == member_id).values(role=role))
