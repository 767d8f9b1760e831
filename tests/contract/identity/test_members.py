"""Members: who may give which place, and that an admin stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from frontdesk.identity.members import add_member, list_members, remove_member, update_member
from frontdesk.identity.model import Actor, Member, Right
from frontdesk.identity.rights import require
from frontdesk.identity.users import insert_local_user, update_user
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.world import World, codes, logged_in, race, refusal


async def members_seen_by(world: World, actor: Actor) -> dict[str, Member]:
    members, _ = await world.database.read(lambda tx: list_members(tx, actor, world.workspace_id, limit=100))
    return {member.user_id: member for member in members}


@pytest.mark.spec("DESK-260")
async def test_the_last_admin_stays(world: World) -> None:
    """The only admin left can be neither demoted nor removed; with a second one either is possible."""
    database, home = world.database, world.workspace_id
    first_id = (await members_seen_by(world, world.owner))[world.owner.user_id].id
    for role in ("maintainer", "operator", "viewer"):
        asked = database.write(lambda tx, role=role: update_member(tx, world.owner, home, first_id, role=role))
        assert await refusal(asked) == "last_admin"
    assert await refusal(database.write(lambda tx: remove_member(tx, world.owner, home, first_id))) == "last_admin"
    second, member = await world.person_and_member("second", "admin")
    assert member is not None
    changed = await database.write(lambda tx: update_member(tx, second, home, first_id, role="viewer"))
    assert changed.role == "viewer"
    assert await refusal(database.write(lambda tx: remove_member(tx, second, home, member.id))) == "last_admin"


@pytest.mark.spec("DESK-260")
@pytest.mark.parametrize("how", ["each itself", "each the other", "one removed"])
async def test_of_two_demotions_at_once_one_is_refused(
    world: World, open_session: Callable[[], Database], how: str
) -> None:
    """Two sessions take the last two admins away at the same moment: one succeeds and one admin is left."""
    home = world.workspace_id
    one, one_member = await world.person_and_member("one", "admin")
    two, two_member = await world.person_and_member("two", "admin")
    viewer = await world.person("viewer", "viewer")
    assert one_member is not None
    assert two_member is not None
    owner_id = (await members_seen_by(world, one))[world.owner.user_id].id
    await world.database.write(lambda tx: remove_member(tx, one, home, owner_id))
    first, second = (two_member, one_member) if how == "each the other" else (one_member, two_member)

    def take_one(tx: Tx) -> None:
        update_member(tx, one, home, first.id, role="viewer")

    def take_two(tx: Tx) -> None:
        if how == "one removed":
            remove_member(tx, two, home, second.id)
        else:
            update_member(tx, two, home, second.id, role="viewer")

    outcomes = await race([open_session(), open_session()], take_one, take_two)
    # Who was demoted by the other meanwhile lacks the right; who would be the last one stays.
    expected = ["ok", "permission_required"] if how == "each the other" else ["last_admin", "ok"]
    assert codes(outcomes) == expected
    roles = [member.role for member in (await members_seen_by(world, viewer)).values()]
    assert roles.count("admin") == 1


async def test_a_disabled_admin_does_not_count_as_the_one_who_stays(world: World) -> None:
    database, home = world.database, world.workspace_id
    owner_id = (await members_seen_by(world, world.owner))[world.owner.user_id].id
    away = await world.person("away", "admin")
    await database.write(lambda tx: update_user(tx, world.owner, away.user_id, {"disabled": True}))
    asked = database.write(lambda tx: update_member(tx, world.owner, home, owner_id, role="viewer"))
    assert await refusal(asked) == "last_admin"


async def test_what_concerns_admins_needs_its_own_right(world: World) -> None:
    database, home = world.database, world.workspace_id
    maintainer, maintainer_member = await world.person_and_member("maintainer", "maintainer")
    admin, admin_member = await world.person_and_member("admin", "admin")
    viewer, viewer_member = await world.person_and_member("viewer", "viewer")
    outsider = await world.person("outsider")
    assert maintainer_member is not None
    assert admin_member is not None
    assert viewer_member is not None

    async def add(actor: Actor, role: str) -> str:
        return await refusal(
            database.write(lambda tx: add_member(tx, actor, home, role=role, user_id=outsider.user_id))
        )

    async def change(actor: Actor, member_id: str, role: str) -> str:
        return await refusal(database.write(lambda tx: update_member(tx, actor, home, member_id, role=role)))

    assert await add(maintainer, "admin") == "permission_required"
    assert await add(viewer, "viewer") == "permission_required"
    assert await add(outsider, "viewer") == "membership_required"
    assert await change(maintainer, viewer_member.id, "admin") == "permission_required"
    assert await change(maintainer, admin_member.id, "viewer") == "permission_required"
    assert await change(maintainer, maintainer_member.id, "admin") == "permission_required"
    asked = database.write(lambda tx: remove_member(tx, maintainer, home, admin_member.id))
    assert await refusal(asked) == "permission_required"
    assert await change(maintainer, "mbr_00000000000000000000000000000000", "viewer") == "member_not_found"
    raised = await database.write(lambda tx: update_member(tx, maintainer, home, viewer_member.id, role="operator"))
    assert raised.role == "operator"
    await database.write(lambda tx: update_member(tx, admin, home, viewer_member.id, role="admin"))
    await database.write(lambda tx: remove_member(tx, maintainer, home, maintainer_member.id))
    assert await refusal(database.read(lambda tx: require(tx, maintainer, home))) == "membership_required"


async def test_a_platform_administrator_adds_members_and_themselves(world: World) -> None:
    database, home = world.database, world.workspace_id
    platform = await world.person("platform", platform_admin=True)
    asked = database.read(lambda tx: require(tx, platform, home, Right.READ))
    assert await refusal(asked) == "membership_required"
    refused = database.write(lambda tx: add_member(tx, platform, home, role="admin", user_id=platform.user_id))
    assert await refusal(refused) == "membership_required"
    await database.write(lambda tx: add_member(tx, platform, home, role="maintainer", user_id=platform.user_id))
    found = await database.read(lambda tx: require(tx, platform, home, Right.MEMBERS_MANAGE))
    assert found.role == "maintainer"
    nowhere = "wsp_00000000000000000000000000000000"
    absent = database.write(lambda tx: add_member(tx, platform, nowhere, role="viewer", user_id=platform.user_id))
    assert await refusal(absent) == "workspace_not_found"


async def test_an_address_names_a_user_only_where_one_account_has_it(world: World) -> None:
    database, home = world.database, world.workspace_id

    def make(tx: Tx, name: str, email: str) -> Actor:
        user = insert_local_user(tx, username=name, display_name=name, email=email, password_hash="x")
        return logged_in(tx, user.id, password_hash="x")

    sole = await database.write(lambda tx: make(tx, "sole", "Sole@Example.org"))
    await database.write(lambda tx: make(tx, "twin-one", "twin@example.org"))
    await database.write(lambda tx: make(tx, "twin-two", "TWIN@example.org"))
    await database.write(lambda tx: make(tx, "none", ""))

    async def add(email: str | None) -> str:
        return await refusal(database.write(lambda tx: add_member(tx, world.owner, home, role="viewer", email=email)))

    for address in ("twin@example.org", "nobody@example.org", "", " "):
        assert await add(address) == "user_not_found"
    member = await database.write(
        lambda tx: add_member(tx, world.owner, home, role="viewer", email=" sole@example.ORG")
    )
    assert member.user_id == sole.user_id
    assert await add("sole@example.org") == "already_member"


async def test_of_two_additions_at_once_one_is_a_member_already(
    world: World, open_session: Callable[[], Database]
) -> None:
    someone = await world.person("someone")

    def add(tx: Tx) -> None:
        add_member(tx, world.owner, world.workspace_id, role="viewer", user_id=someone.user_id)

    assert codes(await race([open_session(), open_session()], add, add)) == ["already_member", "ok"]
