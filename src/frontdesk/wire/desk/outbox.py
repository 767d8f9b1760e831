"""Deliveries on the wire (desk.md 4.5): no text, chat or provider id."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from frontdesk.wire.model import Identifier, Instant, Page, PageQuery, Reason, Request, Response
from frontdesk.wire.registry import Operation, W

StatusText = Annotated[str, Field(min_length=1, max_length=24)]
CodeText = Annotated[str, Field(min_length=1, max_length=96)]


class DeliveryQuery(PageQuery):
    """Narrow a list of deliveries."""

    status: StatusText | None = None
    code: CodeText | None = None
    installation_id: Identifier | None = None


class ReadBack(Response):
    """The last look into the provider's history."""

    result: str
    checked_at: Instant


class DeliveryRead(Response):
    """A delivery as operators see it."""

    id: str
    purpose: str
    status: str
    attempts: int
    code: str | None
    provider_code: int | None
    created_at: Instant
    updated_at: Instant
    not_before: Instant
    sent_at: Instant | None
    proved_by: str | None
    read_back: ReadBack | None
    reply_grant_id: str
    installation_id: str
    receipt_id: str | None


class Settlement(Request):
    """A person's decision about an unknown delivery; sends nothing."""

    outcome: Literal["settled_sent", "settled_not_sent"]
    reason: Reason
    accept_read_back: StrictBool = False


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="desk.outbox.list",
        method="GET",
        path=W + "/deliveries",
        summary="List deliveries of a workspace, newest first",
        right="inbox.work",
        query=DeliveryQuery,
        response=Page[DeliveryRead],
    ),
    Operation(
        id="desk.outbox.get",
        method="GET",
        path=W + "/deliveries/{delivery_id}",
        summary="Read one delivery",
        right="inbox.work",
        response=DeliveryRead,
        errors=("delivery_not_found",),
    ),
    Operation(
        id="desk.outbox.read_back",
        method="POST",
        path=W + "/deliveries/{delivery_id}/read-back",
        summary="Look once in the provider's history for this delivery; sends nothing",
        right="inbox.work",
        response=ReadBack,
        errors=("delivery_not_found", "delivery_not_sent", "credential_unavailable", "provider_unreachable"),
    ),
    Operation(
        id="desk.outbox.settle",
        method="POST",
        path=W + "/deliveries/{delivery_id}/settlement",
        summary="Settle an unknown delivery as sent or not sent; sends nothing",
        right="actions.approve",
        request=Settlement,
        response=DeliveryRead,
        errors=(
            "delivery_not_found",
            "delivery_not_indeterminate",
            "already_settled",
            "credential_unavailable",
            "provider_unreachable",
        ),
    ),
)
