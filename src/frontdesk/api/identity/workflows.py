"""HTTP handlers of a project's workflows."""

from __future__ import annotations

from frontdesk.api.binding import Call, Handler
from frontdesk.api.identity.paging import shown
from frontdesk.identity import projects
from frontdesk.wire.identity.workflows import OPERATIONS, WorkflowRead
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor
from frontdesk.wire.registry import Operation


async def list_all(call: Call) -> Page[WorkflowRead]:
    """`identity.workflows.list`."""
    after = decode_cursor(call.query.cursor)
    found = await call.services.database.read(
        lambda tx: projects.list_workflows(
            tx, call.actor, call.workspace_id, call.project_id, limit=call.query.limit, after=after
        )
    )
    return shown(WorkflowRead, found)


async def create(call: Call) -> WorkflowRead:
    """`identity.workflows.create`."""
    made = await call.services.database.write(
        lambda tx: projects.create_workflow(tx, call.actor, call.workspace_id, call.project_id, name=call.body.name)
    )
    return WorkflowRead.model_validate(made)


async def update(call: Call) -> WorkflowRead:
    """`identity.workflows.update`."""
    changed = await call.services.database.write(
        lambda tx: projects.update_workflow(
            tx,
            call.actor,
            call.workspace_id,
            call.project_id,
            call.workflow_id,
            changes=call.body.changes(),
        )
    )
    return WorkflowRead.model_validate(changed)


_HANDLERS: dict[str, Handler] = {
    "identity.workflows.list": list_all,
    "identity.workflows.create": create,
    "identity.workflows.update": update,
}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
