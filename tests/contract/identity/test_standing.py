"""What the authority query reads, and that a revocation cannot slip past it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from frontdesk.identity.members import remove_member
from frontdesk.identity.model import ROLE_RIGHTS
from frontdesk.identity.projects import create_workflow, set_access_row, update_project, update_workflow
from frontdesk.identity.standing import connector_actor, read_scope, read_standing
from frontdesk.identity.users import update_user
from frontdesk.identity.workspaces import update_workspace
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.world import World

WAITS = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")


async def test_standing_tells_each_part_and_gives_rights_only_where_all_are_in_order(world: World) -> None:
    database, home = world.database, world.workspace_id
    actor, member = await world.person_and_member("someone", "operator")
    assert member is not None

    def read(tx: Tx) -> tuple[bool, bool, str | None, bool]:
        found = read_standing(tx, actor.user_id, home)
        assert found.rights == (ROLE_RIGHTS["operator"] if found.active else frozenset())
        assert found.subject == "local:someone"
        return found.user_enabled, found.workspace_active, found.role, found.active

    assert await database.write(read) == (True, True, "operator", True)
    await database.write(lambda tx: update_user(tx, world.owner, actor.user_id, {"disabled": True}))
    assert await database.write(read) == (False, True, "operator", False)
    await database.write(lambda tx: update_user(tx, world.owner, actor.user_id, {"disabled": False}))
    await database.write(lambda tx: update_workspace(tx, world.owner, home, {"active": False}))
    assert await database.write(read) == (True, False, "operator", False)
    await database.write(lambda tx: update_workspace(tx, world.owner, home, {"active": True}))
    await database.write(lambda tx: remove_member(tx, world.owner, home, member.id))
    assert await database.write(read) == (True, True, None, False)
    nobody = await database.read(lambda tx: read_standing(tx, "usr_x", "wsp_x", share=False))
    assert (nobody.subject, nobody.active, nobody.rights) == ("", False, frozenset())


async def test_the_connector_acts_as_the_persisted_user_without_any_power_of_a_login(world: World) -> None:
    standing = await world.database.read(lambda tx: read_standing(tx, world.owner.user_id, world.workspace_id))
    actor = connector_actor(standing)
    assert (actor.user_id, actor.subject) == (world.owner.user_id, world.owner.subject)
    assert (actor.auth_method, actor.is_platform_admin) == ("connector", False)
    assert (actor.token, actor.session_id) == (None, None)


async def test_scope_tells_whether_project_and_workflow_belong_together(world: World) -> None:
    database, home, owner = world.database, world.workspace_id, world.owner
    other = await world.project("other")
    flow = await database.write(lambda tx: create_workflow(tx, owner, home, world.project_id, name="flow"))

    async def usable(workspace_id: str, project_id: str, workflow_id: str | None = None) -> tuple[bool, bool, bool]:
        found = await database.write(lambda tx: read_scope(tx, workspace_id, project_id, workflow_id))
        return found.exists, found.archived, found.usable

    assert await usable(home, world.project_id) == (True, False, True)
    assert await usable(home, world.project_id, flow.id) == (True, False, True)
    assert await usable(home, other.id, flow.id) == (False, False, False)
    assert await usable("wsp_x", world.project_id, flow.id) == (False, False, False)
    assert await usable(home, "prj_x") == (False, False, False)
    assert await usable(home, world.project_id, "wfl_x") == (False, False, False)
    await database.write(
        lambda tx: update_workflow(tx, owner, home, world.project_id, flow.id, changes={"archived": True})
    )
    assert await usable(home, world.project_id, flow.id) == (True, True, False)
    assert await usable(home, world.project_id) == (True, False, True)
    await database.write(lambda tx: update_project(tx, owner, home, world.project_id, {"archived": True}))
    assert await usable(home, world.project_id) == (True, True, False)
    await database.write(lambda tx: set_access_row(tx, other.id, "administrators"))
    found = await database.read(lambda tx: read_scope(tx, home, other.id, share=False))
    assert (found.access, found.usable) == ("administrators", True)


@pytest.mark.engine("postgresql")
@pytest.mark.parametrize("revocation", ["member", "user", "workspace", "project"])
async def test_a_revocation_waits_for_the_commit_that_read_the_standing(
    world: World, open_session: Callable[[], Database], revocation: str
) -> None:
    """On PostgreSQL; SQLite lets no second writer begin, so there the same holds by itself."""
    home = world.workspace_id
    actor, member = await world.person_and_member("someone", "operator")
    assert member is not None
    order: list[str] = []
    has_read, other_began = threading.Event(), threading.Event()

    def authorised(tx: Tx) -> None:
        assert read_standing(tx, actor.user_id, home).active
        assert read_scope(tx, home, world.project_id).usable
        has_read.set()
        assert other_began.wait(10)
        deadline = time.monotonic() + 10
        while tx.count(WAITS) == 0:
            assert time.monotonic() < deadline, "the revocation does not wait"
        order.append("authorised")

    def revoke(tx: Tx) -> None:
        other_began.set()
        if revocation == "member":
            remove_member(tx, world.owner, home, member.id)
        elif revocation == "user":
            update_user(tx, world.owner, actor.user_id, {"disabled": True})
        elif revocation == "workspace":
            update_workspace(tx, world.owner, home, {"active": False})
        else:
            set_access_row(tx, world.project_id, "administrators")
        order.append("revoked")

    first, second = open_session(), open_session()
    work = asyncio.create_task(first.write(authorised))
    await asyncio.to_thread(has_read.wait, 10)
    await asyncio.gather(work, second.write(revoke))
    assert order == ["authorised", "revoked"]
