"""A decrypted payload in the desk's words. Pure, total: there is no input it raises on.

Everything here was written by whoever wrote the message; types, sizes and presence are assumptions until checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from frontdesk.channels.untrusted import (
    INTEGER_MAX,
    absent,
    digest_of,
    id_or_empty,
    is_id,
    is_id_or_none,
    message_text,
)
from frontdesk.desk.connections.channel import Ignored, Inbound, InboundMessage, Recall

RECEIVE: Final = "im.message.receive_v1"
RECALL: Final = "im.message.recalled_v1"
_Fields = Mapping[str, Any]
_NOTHING: Final[_Fields] = {}


def normalise(payload: object, signed_at_ms: int | None) -> Inbound:
    """The one thing this event is to the desk. `signed_at_ms`: the push's signing time, None on a path without one."""
    event = _fields(payload)
    header = _fields(event.get("header"))
    app_id, tenant_key = header.get("app_id"), header.get("tenant_key")
    if event.get("schema") != "2.0" or not is_id(app_id) or not is_id(tenant_key):
        return Ignored("unsupported_event")
    body = _fields(event.get("event"))
    kind = header.get("event_type")
    if kind == RECEIVE:
        return _message(app_id, tenant_key, header, body, signed_at_ms)
    if kind == RECALL:
        message_id = body.get("message_id")
        return Recall(app_id, tenant_key, message_id) if is_id(message_id) else Ignored("message_id_unusable")
    return Ignored("unsupported_event")


def _message(app_id: str, tenant_key: str, header: _Fields, body: _Fields, signed_at_ms: int | None) -> Inbound:
    message, sender = _fields(body.get("message")), _fields(body.get("sender"))
    if sender.get("sender_type") != "user":
        return Ignored("not_a_person")
    if message.get("chat_type") != "p2p":
        return Ignored("not_private")
    message_id = message.get("message_id")
    if not is_id(message_id):
        return Ignored("message_id_unusable")
    sender_id = _fields(sender.get("sender_id")).get("open_id")
    chat_id, message_type = message.get("chat_id"), message.get("message_type")
    parent_id, root_id = absent(message.get("parent_id")), absent(message.get("root_id"))
    of_sender = id_or_empty(sender.get("tenant_key")) or tenant_key
    usable = is_id(sender_id) and is_id(chat_id) and is_id_or_none(parent_id) and is_id_or_none(root_id)
    return InboundMessage(
        app_id=app_id,
        # A person of another tenant is not one of this installation's: their tenant is what the desk compares.
        tenant_key=of_sender,
        event_tenant_key=None if of_sender == tenant_key else tenant_key,
        event_id=id_or_empty(header.get("event_id")),
        message_id=message_id,
        sender_id=id_or_empty(sender_id),
        sender_type="user",
        chat_id=id_or_empty(chat_id),
        chat_type="p2p",
        message_type=id_or_empty(message_type),
        text=_text(message.get("content")) if usable and message_type == "text" else None,
        parent_id=parent_id if is_id(parent_id) else None,
        root_id=root_id if is_id(root_id) else None,
        created_at_ms=_milliseconds(message.get("create_time")),
        signed_at_ms=None if signed_at_ms is None else min(max(signed_at_ms, 0), INTEGER_MAX),
        request_hash=request_hash(app_id, tenant_key, sender_id, message),
    )


def request_hash(app_id: str, tenant_key: str, sender_id: object, message: _Fields) -> str:
    """What two pushes of one message share (check value V8): the provider's own fields, not what we made of them."""
    subject: dict[str, Any] = {
        "schema": "inbound-message-v1",
        "app_id": app_id,
        "tenant_key": tenant_key,
        "sender_id": sender_id,
        "chat_id": message.get("chat_id"),
        "chat_type": message.get("chat_type"),
        "message_id": message.get("message_id"),
        "message_type": message.get("message_type"),
        "content": message.get("content"),
        "parent_id": absent(message.get("parent_id")),
        "root_id": absent(message.get("root_id")),
        "created_at_ms": _milliseconds(message.get("create_time")),
    }
    return digest_of(subject)


def _text(content: object) -> str | None:
    """The text of a plain text message: an object with exactly one string `text` of a bearable length, else None."""
    if not isinstance(content, str):
        return None
    try:
        pairs = json.loads(content, object_pairs_hook=tuple)  # a tuple of pairs, so that a repeated key is seen
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, tuple) or len(pairs) != 1:
        return None
    key, text = pairs[0]
    return message_text(text) if key == "text" else None


def _fields(value: object) -> _Fields:
    return value if isinstance(value, dict) else _NOTHING


def _milliseconds(value: object) -> int:
    """The provider writes times as decimal strings; anything else is no time (0)."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 16:
        return min(int(value), INTEGER_MAX)
    return 0
