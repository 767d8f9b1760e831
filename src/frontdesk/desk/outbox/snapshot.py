"""Taking a snapshot: choose text or file, neutralise, hash, insert once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from frontdesk.desk.connections.channel import Channel
from frontdesk.desk.outbox import store
from frontdesk.desk.outbox.model import Delivery, Payload, delivery_of
from frontdesk.desk.outbox.neutral import neutralise
from frontdesk.desk.outbox.templates import TEMPLATE_VERSION
from frontdesk.kernel.canonical import bytes_digest, canonical_digest
from frontdesk.kernel.errors import Defect
from frontdesk.kernel.ids import uuid7
from frontdesk.storage.tx import Tx

SNAPSHOT_KEYS: Final = (
    "channel",
    "chat_id",
    "file_name",
    "media_type",
    "operation_id",
    "payload_hash",
    "payload_kind",
    "provider_uuid",
    "purpose",
    "reply_to_message_id",
    "template_version",
)


def answer_payload(text: str, channel: Channel, oversize_answer: str) -> Payload:
    """An answer as text, or as the one file `answer.md` where it is over the provider's limit and the setting says so.

    With `refuse` the text is kept whole and the delivery fails `answer_too_long` before anything is sent; it is never
    split. File contents are left as they are; text has its tags neutralised.
    """
    neutral = neutralise(text)
    if channel.text_body_bytes(neutral) <= channel.limits.text_bytes_max or oversize_answer != "file":
        return Payload(kind="text", text=neutral)
    return Payload(kind="file", content=text.encode("utf-8"), file_name="answer.md", media_type="text/markdown")


def text_payload(text: str) -> Payload:
    """A text whose parts are already neutral (templates)."""
    return Payload(kind="text", text=text)


def delivery_hash(snapshot: Mapping[str, Any]) -> str:
    """Digest of everything a delivery fixes at its birth (check value V9); a key without a value is null."""
    return canonical_digest({**dict.fromkeys(SNAPSHOT_KEYS), **snapshot, "schema": "delivery-v1"})


def take_snapshot(
    tx: Tx,
    *,
    workspace_id: str,
    installation_id: str,
    channel_key: str,
    reply_grant_id: str,
    purpose: str,
    chat_id: str,
    reply_to: str | None,
    payload: Payload,
    dedupe_key: str,
    receipt_id: str | None = None,
) -> Delivery:
    """Insert the one delivery of `dedupe_key`, or return the one that is there. Wakes the sender.

    Guard: the uniqueness of the dedupe key and of the receipt. The operation id is the delivery id; the provider uuid
    is random and stays the same over every attempt.
    """
    delivery_id = tx.new_id("dlv")
    payload_hash = _payload_hash(payload)
    provider_uuid = str(uuid7(tx.now, tx.entropy))
    fixed: dict[str, Any] = {
        "chat_id": chat_id,
        "file_name": payload.file_name,
        "media_type": payload.media_type,
        "operation_id": delivery_id,
        "payload_hash": payload_hash,
        "payload_kind": payload.kind,
        "provider_uuid": provider_uuid,
        "purpose": purpose,
        "reply_to_message_id": reply_to,
        "template_version": TEMPLATE_VERSION,
    }
    values = {
        **fixed,
        "id": delivery_id,
        "created_at": tx.now,
        "updated_at": tx.now,
        "workspace": workspace_id,
        "installation": installation_id,
        "reply_grant": reply_grant_id,
        "receipt": receipt_id,
        "text": payload.text,
        "payload_bytes": payload.content,
        "request_hash": delivery_hash({**fixed, "channel": channel_key}),
        "status": "pending",
        "attempt_count": 0,
        "not_before": tx.now,
        "dedupe_key": dedupe_key,
    }
    store.insert_delivery(tx, values)
    row = store.find_by_dedupe_key(tx, dedupe_key)
    if row is None:
        raise Defect("a delivery was refused by a rule other than its dedupe key")
    tx.wake("deliveries")
    return delivery_of(row)


def _payload_hash(payload: Payload) -> str:
    if payload.kind == "text" and payload.text is not None:
        return bytes_digest(payload.text.encode("utf-8"))
    if payload.content is not None:
        return bytes_digest(payload.content)
    raise Defect("a payload holds a text or bytes")
