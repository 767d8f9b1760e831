"""From a bearer to an actor: sessions and the bootstrap token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from frontdesk.app.schema import METADATA
from frontdesk.identity.authentication import BootstrapUserAbsent, authenticate, ensure_bootstrap_user, touch
from frontdesk.identity.model import NewSession
from frontdesk.identity.sessions import create_session, csrf_matches, csrf_token_of, end_session, find_login
from frontdesk.identity.tokens import create_token
from frontdesk.identity.users import set_password, update_user
from frontdesk.kernel.clock import DAY, HOUR, MINUTE, ManualClock
from frontdesk.kernel.errors import Problem
from frontdesk.storage.database import Database
from tests.contract.world import World, refusal

BOOTSTRAP = "b" * 32


async def new_session(world: World, username: str = "owner") -> NewSession:
    login = await world.database.read(lambda tx: find_login(tx, username))
    assert login is not None
    return await world.database.write(lambda tx: create_session(tx, login))


async def ask(world: World, bearer: str, bootstrap: str = "") -> str:
    try:
        actor = await world.database.read(lambda tx: authenticate(tx, bearer, bootstrap))
    except Problem as problem:
        return problem.code
    return actor.subject


async def test_a_session_ends_idle_after_12_hours_and_in_any_case_after_7_days(
    world: World, clock: ManualClock
) -> None:
    idle = await new_session(world)
    clock.advance(12 * HOUR - 1)
    assert await ask(world, idle.token) == "local:owner"
    clock.advance(1)
    assert await ask(world, idle.token) == "unauthenticated"

    used = await new_session(world)
    assert used.expires_at == clock.now_us() + 7 * DAY
    for _ in range(14):
        clock.advance(12 * HOUR - 1)
        actor = await world.database.read(lambda tx: authenticate(tx, used.token))
        assert actor.touch_due
        await world.database.write(lambda tx, actor=actor: touch(tx, actor))
    clock.advance(13)
    assert await ask(world, used.token) == "local:owner"
    clock.advance(1)
    assert await ask(world, used.token) == "unauthenticated"


async def test_use_is_noted_once_a_minute_at_most(world: World, clock: ManualClock) -> None:
    database = world.database
    session = await new_session(world)
    made = await database.write(lambda tx: create_token(tx, world.owner, name="x", expires_in_seconds=3600))

    async def due(bearer: str) -> bool:
        return (await database.read(lambda tx: authenticate(tx, bearer))).touch_due

    assert [await due(session.token), await due(made.token)] == [False, True]
    clock.advance(MINUTE)
    for bearer in (session.token, made.token):
        actor = await database.read(lambda tx, bearer=bearer: authenticate(tx, bearer))
        assert actor.touch_due
        await database.write(lambda tx, actor=actor: touch(tx, actor))
        assert await due(bearer) is False
    clock.advance(MINUTE - 1)
    assert [await due(session.token), await due(made.token)] == [False, False]
    clock.advance(1)
    assert [await due(session.token), await due(made.token)] == [True, True]


async def test_an_ended_session_and_one_of_a_disabled_user_are_refused_at_once(world: World) -> None:
    database = world.database
    session = await new_session(world)
    actor = await database.read(lambda tx: authenticate(tx, session.token))
    assert csrf_matches(actor, session.csrf_token)
    assert session.csrf_token == csrf_token_of(session.token)
    assert not csrf_matches(actor, session.csrf_token + "x")
    assert not csrf_matches(world.owner, session.csrf_token)
    stored = repr([dict(row) for row in await database.read(lambda tx: tx.rows(sa.select(_sessions())))])
    assert session.token[4:] not in stored
    assert session.csrf_token not in stored
    await database.write(lambda tx: end_session(tx, actor))
    assert await ask(world, session.token) == "unauthenticated"
    await database.write(lambda tx: touch(tx, actor))
    assert await ask(world, session.token) == "unauthenticated"

    someone = await world.person("someone", "viewer")
    session = await new_session(world, "someone")
    await database.write(lambda tx: update_user(tx, world.owner, someone.user_id, {"disabled": True}))
    assert await ask(world, session.token) == "membership_required"
    login = await database.read(lambda tx: find_login(tx, "SomeOne"))
    assert login is not None
    assert not login.enabled
    assert await refusal(database.write(lambda tx: create_session(tx, login))) == "login_failed"


async def test_a_new_password_ends_sessions_and_logins_on_their_way(world: World) -> None:
    database = world.database
    await world.person("someone", "viewer")
    before = await new_session(world, "someone")
    login = await database.read(lambda tx: find_login(tx, "someone"))
    assert login is not None
    await database.write(lambda tx: set_password(tx, "Someone", "scrypt$new"))
    assert await ask(world, before.token) == "unauthenticated"
    assert await refusal(database.write(lambda tx: create_session(tx, login))) == "login_failed"
    assert await ask(world, (await new_session(world, "someone")).token) == "local:someone"
    own = await new_session(world, "owner")
    actor = await database.read(lambda tx: authenticate(tx, own.token))
    other = await new_session(world, "owner")
    await database.write(lambda tx: update_user(tx, actor, actor.user_id, {"password_hash": "scrypt$newer"}))
    assert await ask(world, own.token) == "local:owner"
    assert await ask(world, other.token) == "unauthenticated"


@pytest.mark.parametrize(
    "bearer", ["", "x", "fdu_", "fdu_short", "fdx_" + "a" * 43, "fdu_" + "a" * 43, "fdt_" + "é" * 43, "a" * 5000]
)
async def test_what_is_no_credential_is_refused_alike(world: World, bearer: str) -> None:
    assert await ask(world, bearer, BOOTSTRAP) == "unauthenticated"


async def test_the_bootstrap_token_maps_to_one_persisted_user_made_at_first_use(
    world: World, open_session: Callable[[], Database]
) -> None:
    database = world.database
    with pytest.raises(BootstrapUserAbsent):
        await database.read(lambda tx: authenticate(tx, BOOTSTRAP, BOOTSTRAP))
    await asyncio.gather(*(open_session().write(ensure_bootstrap_user) for _ in range(3)))
    actor = await database.read(lambda tx: authenticate(tx, BOOTSTRAP, BOOTSTRAP))
    assert (actor.subject, actor.auth_method, actor.is_platform_admin) == ("bootstrap", "bootstrap", True)
    users = METADATA.tables["users"]
    count = sa.select(sa.func.count()).select_from(users).where(users.c.subject == "bootstrap")
    assert await database.read(lambda tx: tx.count(count)) == 1
    made = await database.write(
        lambda tx: create_token(tx, actor, name="x", expires_in_seconds=60, platform_admin=True)
    )
    by_token = await database.read(lambda tx: authenticate(tx, made.token))
    assert (by_token.auth_method, by_token.is_platform_admin) == ("bootstrap", True)
    login = await database.read(lambda tx: find_login(tx, "bootstrap"))
    assert login is not None
    assert login.password_hash is None
    await database.write(lambda tx: update_user(tx, world.owner, actor.user_id, {"disabled": True}))
    assert await ask(world, BOOTSTRAP, BOOTSTRAP) == "membership_required"


async def test_a_short_or_empty_bootstrap_token_never_matches(world: World) -> None:
    await world.database.write(ensure_bootstrap_user)
    for token in ("", "b", "b" * 31):
        assert await ask(world, token, token) == "unauthenticated"
    assert await ask(world, "b" * 33, BOOTSTRAP) == "unauthenticated"
    assert await ask(world, BOOTSTRAP, BOOTSTRAP) == "bootstrap"


def _sessions() -> sa.Table:
    return METADATA.tables["console_sessions"]
