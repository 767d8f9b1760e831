"""HTTP handlers of receipts."""

from __future__ import annotations

from frontdesk.api.binding import Call, Handler
from frontdesk.desk import inbox
from frontdesk.desk.inbox import Receipt
from frontdesk.wire.desk.inbox import OPERATIONS, ReceiptRead
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor, encode_cursor
from frontdesk.wire.registry import Operation


def _read(receipt: Receipt) -> ReceiptRead:
    return ReceiptRead(
        id=receipt.id,
        installation_id=receipt.installation_id,
        transport=receipt.transport,
        intent=receipt.intent,
        status=receipt.status,
        code=receipt.error_code,
        attempts=receipt.attempt_count,
        reply_grant_id=receipt.reply_grant_id,
        created_at=receipt.created_at,
        updated_at=receipt.updated_at,
        not_before=receipt.not_before,
        processed_at=receipt.processed_at,
    )


async def list_receipts(call: Call) -> Page[ReceiptRead]:
    """`desk.inbox.list`."""
    after = decode_cursor(call.query.cursor)
    query = call.query
    found, following = await call.services.database.read(
        lambda tx: inbox.list_receipts(
            tx,
            call.actor,
            call.workspace_id,
            status=query.status,
            code=query.code,
            limit=query.limit,
            after=after,
        )
    )
    return Page[ReceiptRead](
        items=[_read(receipt) for receipt in found],
        next_cursor=encode_cursor(*following) if following else None,
    )


async def get(call: Call) -> ReceiptRead:
    """`desk.inbox.get`."""
    receipt = await call.services.database.read(
        lambda tx: inbox.get(tx, call.actor, call.workspace_id, call.receipt_id)
    )
    return _read(receipt)


_HANDLERS: dict[str, Handler] = {"desk.inbox.list": list_receipts, "desk.inbox.get": get}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
