"""HTTP handlers of runs. Each is one transaction."""

from __future__ import annotations

from frontdesk.api.binding import Call, Handler
from frontdesk.desk import runs
from frontdesk.wire.desk.runs import OPERATIONS, RunRead, RunStarted
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor, encode_cursor
from frontdesk.wire.registry import Operation


async def start_run(call: Call) -> RunStarted:
    """`desk.runs.start`."""
    body = call.body
    started = await call.services.database.write(
        lambda tx: runs.start_run(
            tx,
            call.actor,
            call.workspace_id,
            call.project_id,
            call.workflow_id,
            request_id=body.request_id,
            input_data=body.input,
            conversation_id=body.conversation_id,
            parent_run_id=body.parent_run_id,
        )
    )
    shown = {name: getattr(started.run, name) for name in RunRead.model_fields}
    return RunStarted.model_validate(shown | {"created": started.created}, from_attributes=True)


async def list_runs(call: Call) -> Page[RunRead]:
    """`desk.runs.list`."""
    after = decode_cursor(call.query.cursor)
    found, following = await call.services.database.read(
        lambda tx: runs.list_runs(
            tx, call.actor, call.workspace_id, call.project_id, limit=call.query.limit, after=after
        )
    )
    return Page[RunRead](
        items=[_shown(each) for each in found],
        next_cursor=encode_cursor(*following) if following else None,
    )


async def get_run(call: Call) -> RunRead:
    """`desk.runs.get`."""
    return _shown(
        await call.services.database.read(
            lambda tx: runs.get_run(tx, call.actor, call.workspace_id, call.project_id, call.run_id)
        )
    )


def _shown(run: runs.Run) -> RunRead:
    return RunRead.model_validate(run, from_attributes=True)


_HANDLERS: tuple[Handler, ...] = (start_run, list_runs, get_run)
ROUTES: tuple[tuple[Operation, Handler], ...] = tuple(zip(OPERATIONS, _HANDLERS, strict=True))
