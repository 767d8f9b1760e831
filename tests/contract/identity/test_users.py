"""Accounts, workspaces and the first start."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from frontdesk.app.schema import METADATA
from frontdesk.identity.bootstrap import first_start
from frontdesk.identity.members import add_member, list_members
from frontdesk.identity.model import Right
from frontdesk.identity.rights import require
from frontdesk.identity.users import create_user, get_me, list_users, set_password, update_me, update_user
from frontdesk.identity.workspaces import create_workspace, list_workspaces, update_workspace
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.world import World, codes, logged_in, race, refusal


def user_count(tx: Tx) -> int:
    return tx.count(sa.select(sa.func.count()).select_from(METADATA.tables["users"]))


async def test_the_first_start_makes_one_owner_and_happens_once(
    database: Database, open_session: Callable[[], Database]
) -> None:
    def start(tx: Tx) -> None:
        first_start(tx, "hash")

    assert codes(await race([open_session(), open_session()], start, start)) == ["database_has_users", "ok"]
    assert await refusal(database.write(start)) == "database_has_users"
    assert await database.read(user_count) == 1
    users = METADATA.tables["users"]
    user_id = (await database.read(lambda tx: tx.rows(sa.select(users.c.id))))[0]["id"]
    actor = await database.write(lambda tx: logged_in(tx, user_id, password_hash="hash"))
    user, memberships = await database.read(lambda tx: get_me(tx, actor))
    assert (user.username, user.is_platform_admin, actor.is_platform_admin) == ("owner", True, True)
    assert [(each.name, each.role) for each in memberships] == [("Home", "admin")]


async def test_only_platform_administrators_handle_accounts(world: World) -> None:
    database = world.database
    admin = await world.person("admin", "admin")
    for work in (
        lambda tx: list_users(tx, admin, limit=10),
        lambda tx: create_user(tx, admin, username="x", display_name="x"),
        lambda tx: update_user(tx, admin, admin.user_id, {"is_platform_admin": True}),
        lambda tx: create_workspace(tx, admin, name="x", slug="x"),
    ):
        assert await refusal(database.write(work)) == "platform_admin_required"  # type: ignore[arg-type]
    assert await database.read(user_count) == 2


async def test_a_user_name_is_taken_in_every_spelling(world: World, open_session: Callable[[], Database]) -> None:
    database, owner = world.database, world.owner

    def make(name: str) -> Callable[[Tx], None]:
        def run(tx: Tx) -> None:
            create_user(tx, owner, username=name, display_name="x")

        return run

    outcomes = await race([open_session(), open_session()], make("Zoë"), make("ZOE\u0308"))
    assert codes(outcomes) == ["ok", "username_taken"]
    for taken in ("zoë", " OWNER ", "ｏｗｎｅｒ", "bootstrap", "Bootstrap"):
        assert await refusal(database.write(make(taken))) == "username_taken"
    assert await refusal(database.write(make("  "))) == "request_invalid"
    assert await refusal(database.write(make("ß" * 200))) == "request_invalid"
    long = "İ" * 200 + "@example.com"  # 212 characters as typed, 412 in lower case
    made = database.write(lambda tx: create_user(tx, world.owner, username="long", display_name="L", email=long))
    assert await refusal(made) == "request_invalid"
    changed = database.write(lambda tx: update_user(tx, world.owner, world.owner.user_id, {"email": long}))
    assert await refusal(changed) == "request_invalid"


async def test_changing_an_account(world: World) -> None:
    database, owner = world.database, world.owner
    someone = await world.person("someone", "viewer")
    changed = await database.write(
        lambda tx: update_user(tx, owner, someone.user_id, {"email": " New@Example.org ", "locale": "zh"})
    )
    assert (changed.email, changed.locale, changed.display_name) == ("new@example.org", "zh", "Someone")
    asked = database.write(lambda tx: update_user(tx, owner, "usr_x", {"locale": None}))
    assert await refusal(asked) == "user_not_found"
    await database.write(lambda tx: update_me(tx, someone, {"display_name": "Me", "locale": None}))
    user, memberships = await database.read(lambda tx: get_me(tx, someone))
    assert (user.display_name, user.locale) == ("Me", None)
    assert [each.workspace_id for each in memberships] == [world.workspace_id]
    assert await refusal(database.write(lambda tx: set_password(tx, "nobody", "x"))) == "user_not_found"


async def test_the_creator_is_a_workspaces_first_admin(world: World) -> None:
    database = world.database
    platform = await world.person("platform", platform_admin=True)
    made = await database.write(lambda tx: create_workspace(tx, platform, name="Lab", slug="lab"))
    members, _ = await database.read(lambda tx: list_members(tx, platform, made.id, limit=10))
    assert [(member.user_id, member.role) for member in members] == [(platform.user_id, "admin")]
    asked = database.write(lambda tx: create_workspace(tx, platform, name="Lab", slug="lab"))
    assert await refusal(asked) == "slug_taken"
    assert await refusal(database.read(lambda tx: require(tx, world.owner, made.id))) == "membership_required"
    own, _ = await database.read(lambda tx: list_workspaces(tx, platform, limit=10))
    assert [workspace.slug for workspace in own] == ["lab"]


async def test_a_switched_off_workspace_is_switched_on_again_by_who_manages_it(world: World) -> None:
    database, home = world.database, world.workspace_id
    maintainer = await world.person("maintainer", "maintainer")
    viewer = await world.person("viewer", "viewer")
    await database.write(lambda tx: update_workspace(tx, maintainer, home, {"active": False}))
    for actor in (world.owner, maintainer, viewer):
        asked = database.read(lambda tx, actor=actor: require(tx, actor, home, Right.READ))
        assert await refusal(asked) == "membership_required"
    renamed = database.write(lambda tx: update_workspace(tx, maintainer, home, {"name": "x"}))
    assert await refusal(renamed) == "membership_required"
    refused = database.write(lambda tx: update_workspace(tx, viewer, home, {"active": True}))
    assert await refusal(refused) == "permission_required"
    _, memberships = await database.read(lambda tx: get_me(tx, maintainer))
    assert memberships == []
    own, _ = await database.read(lambda tx: list_workspaces(tx, maintainer, limit=10))
    assert [workspace.active for workspace in own] == [False]
    on = await database.write(lambda tx: update_workspace(tx, maintainer, home, {"active": True, "name": "Back"}))
    assert (on.active, on.name) == (True, "Back")


@pytest.mark.parametrize("role", ["operator", "viewer"])
async def test_who_does_not_manage_members_does_not_change_the_workspace(world: World, role: str) -> None:
    actor = await world.person("someone", role)
    stranger = await world.person("stranger")
    home = world.workspace_id
    asked = world.database.write(lambda tx: update_workspace(tx, actor, home, {"name": "x"}))
    assert await refusal(asked) == "permission_required"
    asked_by_stranger = world.database.write(lambda tx: update_workspace(tx, stranger, home, {"active": True}))
    assert await refusal(asked_by_stranger) == "membership_required"
    added = world.database.write(lambda tx: add_member(tx, actor, home, role="viewer", user_id=stranger.user_id))
    assert await refusal(added) == "permission_required"
