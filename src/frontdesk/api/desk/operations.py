"""HTTP handlers of operation by people: the overview, dead letters, the live tail. None of them sends anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from frontdesk.api.binding import Call, Handler
from frontdesk.api.desk.event_stream import EventStreamResponse, EventStreams, Follower
from frontdesk.api.identity.paging import shown
from frontdesk.desk import operations
from frontdesk.desk.operations import Filter, Tail
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.errors import invalid
from frontdesk.wire.desk.operations import (
    OPERATIONS,
    Acknowledge,
    Acknowledged,
    Count,
    DeadLetterQuery,
    DeadLetterRead,
    OverviewRead,
    StreamQuery,
)
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor
from frontdesk.wire.registry import Operation

_EVENT_ID: Final = re.compile(r"evt_[0-9a-f]{32}")


async def overview(call: Call) -> OverviewRead:
    """`desk.operations.overview`."""
    numbers = await call.services.database.read(lambda tx: operations.overview(tx, call.actor, call.workspace_id))
    return OverviewRead(
        at=numbers.at,
        receipts=_counts(numbers.receipts),
        deliveries=_counts(numbers.deliveries),
        oldest_open_receipt_age_seconds=_seconds(numbers.oldest_open_receipt_us),
        oldest_pending_delivery_age_seconds=_seconds(numbers.oldest_pending_delivery_us),
        unsettled_indeterminate=numbers.unsettled_indeterminate,
        live_workers=numbers.live_workers,
    )


def _counts(counts: Mapping[tuple[str, str], int]) -> list[Count]:
    return [Count(status=status, code=code or None, rows=rows) for (status, code), rows in sorted(counts.items())]


def _seconds(microseconds: int | None) -> int | None:
    return None if microseconds is None else microseconds // SECOND


async def dead_letters(call: Call) -> Page[DeadLetterRead]:
    """`desk.operations.dead_letters`."""
    query: DeadLetterQuery = call.query
    after = decode_cursor(query.cursor)
    wanted = Filter(
        kind=query.kind,
        code=query.code,
        installation_id=query.installation_id,
        older_than_us=None if query.older_than_seconds is None else query.older_than_seconds * SECOND,
        acknowledged=query.acknowledged,
    )
    found = await call.services.database.read(
        lambda tx: operations.list_dead_letters(
            tx, call.actor, call.workspace_id, wanted, limit=query.limit, after=after
        )
    )
    return shown(DeadLetterRead, found)


async def acknowledge(call: Call) -> Acknowledged:
    """`desk.operations.acknowledge`."""
    body: Acknowledge = call.body
    marked, already = await call.services.database.write(
        lambda tx: operations.acknowledge(tx, call.actor, call.workspace_id, body.ids, body.reason)
    )
    return Acknowledged(acknowledged=marked, already=already)


async def stream(call: Call) -> EventStreamResponse:
    """`desk.operations.stream`. The first reading comes before the answer, so that a refusal is a problem."""
    query: StreamQuery = call.query
    after = call.request.headers.get("last-event-id") or query.after
    if after is not None and not _EVENT_ID.fullmatch(after):
        raise invalid("Last-Event-ID", "not the id of an event")
    streams: EventStreams = call.services.extras["event_streams"]
    follower = Follower(
        Tail(call.workspace_id, after),
        call.services.database,
        call.services.clock,
        call.actor,
        reauthenticate=call.request.scope["reauthenticate"],
        wait=streams.wait,
        follow=query.follow,
    )
    leave = streams.admit(call.actor.user_id)
    try:
        first = await follower.first()
    except BaseException:
        leave()
        raise
    return EventStreamResponse(follower, first, streams, leave)


_HANDLERS: dict[str, Handler] = {
    "desk.operations.overview": overview,
    "desk.operations.dead_letters": dead_letters,
    "desk.operations.acknowledge": acknowledge,
    "desk.operations.stream": stream,
}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
