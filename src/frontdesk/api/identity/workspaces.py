"""HTTP handlers of workspaces."""

from __future__ import annotations

from frontdesk.api.binding import Call, Handler
from frontdesk.api.identity.paging import shown
from frontdesk.identity import workspaces
from frontdesk.wire.identity.workspaces import OPERATIONS, WorkspaceRead
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor
from frontdesk.wire.registry import Operation


async def list_own(call: Call) -> Page[WorkspaceRead]:
    """`identity.workspaces.list`."""
    after = decode_cursor(call.query.cursor)
    found = await call.services.database.read(
        lambda tx: workspaces.list_workspaces(tx, call.actor, limit=call.query.limit, after=after)
    )
    return shown(WorkspaceRead, found)


async def create(call: Call) -> WorkspaceRead:
    """`identity.workspaces.create`."""
    made = await call.services.database.write(
        lambda tx: workspaces.create_workspace(tx, call.actor, name=call.body.name, slug=call.body.slug)
    )
    return WorkspaceRead.model_validate(made)


async def update(call: Call) -> WorkspaceRead:
    """`identity.workspaces.update`."""
    changed = await call.services.database.write(
        lambda tx: workspaces.update_workspace(tx, call.actor, call.workspace_id, call.body.changes())
    )
    return WorkspaceRead.model_validate(changed)


_HANDLERS: dict[str, Handler] = {
    "identity.workspaces.list": list_own,
    "identity.workspaces.create": create,
    "identity.workspaces.update": update,
}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
