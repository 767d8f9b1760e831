"""HTTP handlers of deliveries. Reading back looks once in the provider's history; nothing here can send."""

from __future__ import annotations

from frontdesk.api.binding import Call, Handler
from frontdesk.desk import outbox, sending
from frontdesk.desk.connections.channel import ConnectFailed
from frontdesk.desk.outbox import Delivery
from frontdesk.kernel.errors import Problem
from frontdesk.storage.tx import Tx
from frontdesk.wire.desk.outbox import OPERATIONS, DeliveryRead, ReadBack
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor, encode_cursor
from frontdesk.wire.registry import Operation


def _read(delivery: Delivery) -> DeliveryRead:
    looked = delivery.read_back_result is not None and delivery.read_back_at is not None
    return DeliveryRead(
        id=delivery.id,
        purpose=delivery.purpose,
        status=delivery.status,
        attempts=delivery.attempt_count,
        code=delivery.error_code,
        provider_code=delivery.provider_code,
        created_at=delivery.created_at,
        updated_at=delivery.updated_at,
        not_before=delivery.not_before,
        sent_at=delivery.sent_at,
        proved_by=delivery.proved_by,
        read_back=ReadBack(result=delivery.read_back_result or "", checked_at=delivery.read_back_at or 0)
        if looked
        else None,
        reply_grant_id=delivery.reply_grant_id,
        installation_id=delivery.installation_id,
        receipt_id=delivery.receipt_id,
    )


async def list_deliveries(call: Call) -> Page[DeliveryRead]:
    """`desk.outbox.list`."""
    after = decode_cursor(call.query.cursor)
    query = call.query
    found, following = await call.services.database.read(
        lambda tx: outbox.list_deliveries(
            tx,
            call.actor,
            call.workspace_id,
            status=query.status,
            code=query.code,
            installation_id=query.installation_id,
            limit=query.limit,
            after=after,
        )
    )
    return Page[DeliveryRead](
        items=[_read(delivery) for delivery in found],
        next_cursor=encode_cursor(*following) if following else None,
    )


async def get(call: Call) -> DeliveryRead:
    """`desk.outbox.get`."""
    delivery = await call.services.database.read(
        lambda tx: outbox.get(tx, call.actor, call.workspace_id, call.delivery_id)
    )
    return _read(delivery)


async def read_back(call: Call) -> ReadBack:
    """`desk.outbox.read_back`. No transaction is open while the provider is asked."""
    services = call.services
    look = await services.database.read(
        lambda tx: sending.begin_look(
            tx,
            call.actor,
            call.workspace_id,
            call.delivery_id,
            keyring=services.keyring,
            channels=services.channels,
        )
    )
    try:
        seen = await sending.look(look)
    except ConnectFailed:
        raise Problem("provider_unreachable") from None
    delivery = await services.database.write(
        lambda tx: sending.note_look(tx, call.actor, call.workspace_id, call.delivery_id, seen)
    )
    return ReadBack(result=delivery.read_back_result or "unknown", checked_at=delivery.read_back_at or 0)


async def settle(call: Call) -> DeliveryRead:
    """`desk.outbox.settle`. An accepted read-back is looked for afresh, so that what is stored was seen now."""
    services, body = call.services, call.body
    order = seen = None
    if body.accept_read_back:
        order = await services.database.read(
            lambda tx: sending.begin_settling_look(
                tx,
                call.actor,
                call.workspace_id,
                call.delivery_id,
                keyring=services.keyring,
                channels=services.channels,
            )
        )
    if order is not None:
        try:
            seen = await sending.look(order)
        except ConnectFailed:
            raise Problem("provider_unreachable") from None

    def decide(tx: Tx) -> Delivery:
        weighed = sending.weigh(tx, order.delivery, seen) if order is not None and seen is not None else None
        return outbox.settle(
            tx,
            call.actor,
            call.workspace_id,
            call.delivery_id,
            outcome=body.outcome,
            reason=body.reason,
            read_back=None if weighed is None else (weighed.result, weighed.message_id),
        )

    delivery = await services.database.write(decide)
    return _read(delivery)


_HANDLERS: dict[str, Handler] = {
    "desk.outbox.list": list_deliveries,
    "desk.outbox.get": get,
    "desk.outbox.read_back": read_back,
    "desk.outbox.settle": settle,
}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
