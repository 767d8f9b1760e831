"""Operation by people on the wire (desk.md 4.5): counts, dead letters, the live tail. No content, sender or chat."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from frontdesk.kernel.limits import ACKNOWLEDGE_IDS_MAX
from frontdesk.wire.model import Clean, Identifier, Instant, Page, PageQuery, Reason, Request, Response
from frontdesk.wire.registry import Operation, W


class Count(Response):
    """How many rows have this status and code."""

    status: str
    code: str | None
    rows: int


class OverviewRead(Response):
    """The desk of one workspace at one instant. An age is null where nothing waits."""

    at: Instant
    receipts: list[Count]
    deliveries: list[Count]
    oldest_open_receipt_age_seconds: int | None
    oldest_pending_delivery_age_seconds: int | None
    unsettled_indeterminate: int
    live_workers: int


class DeadLetterQuery(PageQuery):
    """Narrow the list of dead letters."""

    kind: Literal["receipt", "delivery"] | None = None
    code: Annotated[str, Clean, Field(min_length=1, max_length=96)] | None = None
    installation_id: Identifier | None = None
    older_than_seconds: int | None = Field(default=None, ge=0, le=315_360_000, description="At least this old")
    acknowledged: bool = Field(default=False, description="Those already acknowledged instead of the others")


class DeadLetterRead(Response):
    """A receipt or delivery that ended badly, and why."""

    id: str
    kind: Literal["receipt", "delivery"]
    status: str
    code: str | None
    purpose: str
    attempts: int
    age_seconds: int
    installation_id: str
    reply_grant_id: str | None
    created_at: Instant
    updated_at: Instant
    acknowledged_at: Instant | None
    acknowledged_by: str | None
    acknowledged_reason: str | None


class Acknowledge(Request):
    """Dead letters to mark as seen, and why."""

    ids: list[Identifier] = Field(min_length=1, max_length=ACKNOWLEDGE_IDS_MAX, description="Ids of dead letters")
    reason: Reason


class Acknowledged(Response):
    """How many were marked now, and how many had been before and keep their first reason."""

    acknowledged: int
    already: int


class StreamQuery(Request):
    """From where, and whether to wait for more."""

    after: Annotated[str, Field(pattern=r"^evt_[0-9a-f]{32}$")] | None = Field(
        default=None, description="Id of the last event seen; the header Last-Event-ID wins"
    )
    follow: bool = Field(default=True, description="False: what there is by now, then the end")


class StreamEvent(Response):
    """What happened to which object."""

    kind: str
    id: str
    status: str


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="desk.operations.overview",
        method="GET",
        path=W + "/desk/overview",
        summary="Count receipts and deliveries of a workspace, and say what waits longest",
        right="inbox.work",
        response=OverviewRead,
    ),
    Operation(
        id="desk.operations.dead_letters",
        method="GET",
        path=W + "/dead-letters",
        summary="List receipts and deliveries that ended badly, newest first",
        right="inbox.work",
        query=DeadLetterQuery,
        response=Page[DeadLetterRead],
    ),
    Operation(
        id="desk.operations.acknowledge",
        method="POST",
        path=W + "/dead-letters/acknowledge",
        summary="Mark dead letters as seen: hides them and does nothing else",
        right="inbox.work",
        request=Acknowledge,
        response=Acknowledged,
        errors=("dead_letter_not_found",),
    ),
    Operation(
        id="desk.operations.stream",
        method="GET",
        path=W + "/desk/events",
        summary="Follow what happens in a workspace, without content, as server-sent events",
        right="workspace.read",
        query=StreamQuery,
        response=StreamEvent,
        media_type="text/event-stream",
    ),
)
