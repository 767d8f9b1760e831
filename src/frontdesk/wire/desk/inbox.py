"""Receipts on the wire (desk.md 4.5): no content, sender or chat."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from frontdesk.wire.model import Instant, Page, PageQuery, Response
from frontdesk.wire.registry import Operation, W


class ReceiptQuery(PageQuery):
    """Narrow a list of receipts."""

    status: Annotated[str, Field(min_length=1, max_length=24)] | None = None
    code: Annotated[str, Field(min_length=1, max_length=96)] | None = None


class ReceiptRead(Response):
    """A receipt as operators see it."""

    id: str
    installation_id: str
    transport: str
    intent: str
    status: str
    code: str | None
    attempts: int
    reply_grant_id: str | None
    created_at: Instant
    updated_at: Instant
    not_before: Instant
    processed_at: Instant | None


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="desk.inbox.list",
        method="GET",
        path=W + "/receipts",
        summary="List receipts of a workspace, newest first",
        right="inbox.work",
        query=ReceiptQuery,
        response=Page[ReceiptRead],
    ),
    Operation(
        id="desk.inbox.get",
        method="GET",
        path=W + "/receipts/{receipt_id}",
        summary="Read one receipt",
        right="inbox.work",
        response=ReceiptRead,
        errors=("receipt_not_found",),
    ),
)
