"""HTTP handler of the audit view."""

from __future__ import annotations

from frontdesk.api.binding import Call, Handler
from frontdesk.api.identity.paging import shown
from frontdesk.identity.events import list_events
from frontdesk.wire.identity.events import OPERATIONS, EventQuery, EventRead
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor
from frontdesk.wire.registry import Operation


async def list_all(call: Call) -> Page[EventRead]:
    """`identity.events.list`."""
    query: EventQuery = call.query
    after = decode_cursor(query.cursor)
    found = await call.services.database.read(
        lambda tx: list_events(
            tx,
            call.actor,
            call.workspace_id,
            kind=query.kind,
            object_id=query.object_id,
            actor_id=query.actor,
            limit=query.limit,
            after=after,
        )
    )
    return shown(EventRead, found)


_HANDLERS: dict[str, Handler] = {"identity.events.list": list_all}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
