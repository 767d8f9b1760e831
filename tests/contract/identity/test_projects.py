"""Projects and workflows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from frontdesk.identity.events import list_events
from frontdesk.identity.model import TokenScope
from frontdesk.identity.projects import (
    create_project,
    create_workflow,
    find_workflow,
    get_project,
    list_projects,
    list_workflows,
    update_project,
    update_workflow,
)
from frontdesk.identity.rights import find_project
from frontdesk.identity.workspaces import create_workspace
from frontdesk.kernel.clock import SECOND, ManualClock
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.world import World, codes, race, refusal

NOWHERE = "prj_00000000000000000000000000000000"


async def test_a_short_name_is_taken_once_in_a_workspace(world: World, open_session: Callable[[], Database]) -> None:
    home, owner = world.workspace_id, world.owner

    def make(tx: Tx) -> None:
        create_project(tx, owner, home, name="Shop", slug="shop")

    assert codes(await race([open_session(), open_session()], make, make)) == ["ok", "slug_taken"]
    other = await world.database.write(lambda tx: create_workspace(tx, owner, name="Other", slug="other"))
    made = await world.database.write(lambda tx: create_project(tx, owner, other.id, name="Shop", slug="shop"))
    assert (made.workspace_id, made.access, made.archived) == (other.id, "members", False)


async def test_who_may_make_and_change_a_project(world: World) -> None:
    database, home = world.database, world.workspace_id
    maintainer = await world.person("maintainer", "maintainer")
    operator = await world.person("operator", "operator")

    async def make(actor: object, access: str = "members") -> str:
        return await refusal(
            database.write(
                lambda tx: create_project(tx, actor, home, name="x", slug="x", access=access)  # type: ignore[arg-type]
            )
        )

    assert await make(operator) == "permission_required"
    assert await make(maintainer, "administrators") == "administrators_only"
    narrow = TokenScope("tok_1", "access", None, None, frozenset({world.project_id}), platform_admin=False)
    assert await make(dataclasses.replace(maintainer, token=narrow)) == "permission_required"
    asked = database.write(lambda tx: update_project(tx, operator, home, world.project_id, {"name": "x"}))
    assert await refusal(asked) == "permission_required"
    asked = database.write(lambda tx: update_project(tx, maintainer, home, NOWHERE, {"name": "x"}))
    assert await refusal(asked) == "project_not_found"
    changed = await database.write(
        lambda tx: update_project(tx, maintainer, home, world.project_id, {"name": "Renamed", "runner": "demo"})
    )
    assert (changed.name, changed.runner, changed.archived_at) == ("Renamed", "demo", None)
    seen = await database.read(lambda tx: get_project(tx, operator, home, world.project_id))
    assert seen == changed


async def test_archiving_keeps_its_time_and_can_be_undone(world: World, clock: ManualClock) -> None:
    database, home, owner = world.database, world.workspace_id, world.owner

    async def archive(wanted: bool) -> int | None:
        changed = await database.write(
            lambda tx: update_project(tx, owner, home, world.project_id, {"archived": wanted})
        )
        return changed.archived_at

    first = await archive(True)
    assert first == clock.now_us()
    clock.advance(SECOND)
    assert await archive(True) == first
    assert await archive(False) is None


async def test_a_foreign_project_reads_as_an_absent_one(world: World) -> None:
    database, owner = world.database, world.owner
    other = await database.write(lambda tx: create_workspace(tx, owner, name="Other", slug="other"))
    for project_id in (world.project_id, NOWHERE):
        asked = database.read(lambda tx, wanted=project_id: get_project(tx, owner, other.id, wanted))
        assert await refusal(asked) == "project_not_found"
        assert await database.read(lambda tx, wanted=project_id: find_project(tx, other.id, wanted)) is None


async def test_workflows_of_a_project(world: World, open_session: Callable[[], Database]) -> None:
    database, home, owner, project = world.database, world.workspace_id, world.owner, world.project_id
    other = await world.project("other")

    def make(tx: Tx) -> None:
        create_workflow(tx, owner, home, project, name="Ship")

    assert codes(await race([open_session(), open_session()], make, make)) == ["name_taken", "ok"]
    second = await database.write(lambda tx: create_workflow(tx, owner, home, project, name="Pack"))
    asked = database.write(lambda tx: update_workflow(tx, owner, home, project, second.id, changes={"name": "Ship"}))
    assert await refusal(asked) == "name_taken"
    asked = database.write(lambda tx: update_workflow(tx, owner, home, other.id, second.id, changes={"name": "x"}))
    assert await refusal(asked) == "workflow_not_found"
    changed = await database.write(
        lambda tx: update_workflow(tx, owner, home, project, second.id, changes={"name": "Wrap", "archived": True})
    )
    assert (changed.name, changed.archived) == ("Wrap", True)
    assert await database.read(lambda tx: find_workflow(tx, project, second.id)) == changed
    assert await database.read(lambda tx: find_workflow(tx, other.id, second.id)) is None
    listed, following = await database.read(lambda tx: list_workflows(tx, owner, home, project, limit=10))
    assert {flow.name for flow in listed} == {"Ship", "Wrap"}
    assert following is None
    viewer = await world.person("viewer", "viewer")
    asked = database.write(lambda tx: create_workflow(tx, viewer, home, project, name="x"))
    assert await refusal(asked) == "permission_required"


async def test_lists_page_through_everything_once_newest_first(world: World, clock: ManualClock) -> None:
    database, home, owner = world.database, world.workspace_id, world.owner
    for number in range(6):
        clock.advance(SECOND if number % 2 else 0)  # pairs share an instant
        await world.project(f"p{number}")
    seen: list[str] = []
    after: tuple[int, str] | None = None
    while True:
        rows, after = await database.read(lambda tx, after=after: list_projects(tx, owner, home, limit=2, after=after))
        seen += [row.slug for row in rows]
        assert len(rows) <= 2
        if after is None:
            break
    assert sorted(seen) == ["first", "p0", "p1", "p2", "p3", "p4", "p5"]
    times = {row.slug: row.created_at for row in (await _all(world))}
    assert [times[slug] for slug in seen] == sorted((times[slug] for slug in seen), reverse=True)


async def test_what_changes_leaves_a_content_free_event(world: World) -> None:
    database, home, owner = world.database, world.workspace_id, world.owner
    await database.write(lambda tx: update_project(tx, owner, home, world.project_id, {"name": "Secret name"}))
    events, _ = await database.read(lambda tx: list_events(tx, owner, home, limit=20))
    assert sorted(event.kind for event in events) == ["project.changed", "project.created", "workspace.created"]
    assert {event.project_id for event in events if event.object_kind == "project"} == {world.project_id}
    assert {event.actor_id for event in events} == {owner.user_id}
    assert "Secret name" not in repr(events)


async def _all(world: World) -> list:  # type: ignore[type-arg]
    rows, _ = await world.database.read(lambda tx: list_projects(tx, world.owner, world.workspace_id, limit=100))
    return rows
