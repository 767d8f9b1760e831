"""HTTP handlers of projects."""

from __future__ import annotations

from frontdesk.api.binding import Call, Handler
from frontdesk.api.identity.paging import shown
from frontdesk.identity import projects
from frontdesk.wire.identity.projects import OPERATIONS, ProjectCreate, ProjectRead
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor
from frontdesk.wire.registry import Operation


async def list_all(call: Call) -> Page[ProjectRead]:
    """`identity.projects.list`."""
    after = decode_cursor(call.query.cursor)
    found = await call.services.database.read(
        lambda tx: projects.list_projects(tx, call.actor, call.workspace_id, limit=call.query.limit, after=after)
    )
    return shown(ProjectRead, found)


async def create(call: Call) -> ProjectRead:
    """`identity.projects.create`."""
    body: ProjectCreate = call.body
    made = await call.services.database.write(
        lambda tx: projects.create_project(
            tx, call.actor, call.workspace_id, name=body.name, slug=body.slug, access=body.access
        )
    )
    return ProjectRead.model_validate(made)


async def get(call: Call) -> ProjectRead:
    """`identity.projects.get`."""
    found = await call.services.database.read(
        lambda tx: projects.get_project(tx, call.actor, call.workspace_id, call.project_id)
    )
    return ProjectRead.model_validate(found)


async def update(call: Call) -> ProjectRead:
    """`identity.projects.update`."""
    changed = await call.services.database.write(
        lambda tx: projects.update_project(tx, call.actor, call.workspace_id, call.project_id, call.body.changes())
    )
    return ProjectRead.model_validate(changed)


_HANDLERS: dict[str, Handler] = {
    "identity.projects.list": list_all,
    "identity.projects.create": create,
    "identity.projects.get": get,
    "identity.projects.update": update,
}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
