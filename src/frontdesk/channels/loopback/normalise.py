"""A verified body in the desk's words. Pure, total: there is no object it raises on.

Authentic says who wrote it, not that it makes sense: types, sizes and presence are assumptions until checked.
"""

from __future__ import annotations

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

MESSAGE: Final = "message"
RECALL: Final = "recall"
PRIVATE: Final = "p2p"

_Fields = Mapping[str, Any]


def normalise(fields: _Fields, event_id: str, signed_at_ms: int) -> Inbound:
    """The one thing this body is to the desk. `event_id` and `signed_at_ms` come from the signed headers."""
    message_id = fields.get("id")
    if fields.get("type") == RECALL:
        return Recall("", "", message_id) if is_id(message_id) else Ignored("message_id_unusable")
    if fields.get("type") != MESSAGE:
        return Ignored("unsupported_event")
    if fields.get("chat_type") != PRIVATE:
        return Ignored("not_private")
    if not is_id(message_id):
        return Ignored("message_id_unusable")
    sender_id, chat_id = fields.get("sender"), fields.get("chat")
    parent_id, root_id = absent(fields.get("parent")), absent(fields.get("root"))
    usable = is_id(sender_id) and is_id(chat_id) and is_id_or_none(parent_id) and is_id_or_none(root_id)
    return InboundMessage(
        app_id="",  # the secret alone says whose push this is
        tenant_key="",
        event_id=id_or_empty(event_id),
        message_id=message_id,
        sender_id=id_or_empty(sender_id),
        sender_type="user",
        chat_id=id_or_empty(chat_id),
        chat_type=PRIVATE,
        message_type="text",
        text=message_text(fields.get("text")) if usable else None,
        parent_id=parent_id if is_id(parent_id) else None,
        root_id=root_id if is_id(root_id) else None,
        created_at_ms=_milliseconds(fields.get("created_at_ms")),
        signed_at_ms=min(max(signed_at_ms, 0), INTEGER_MAX),
        request_hash=request_hash(fields),
    )


def request_hash(fields: _Fields) -> str:
    """What two pushes of one message share: the sender's own fields, not what we made of them."""
    return digest_of(
        {
            "schema": "inbound-message-v1",
            "app_id": "",
            "tenant_key": "",
            "sender_id": fields.get("sender"),
            "chat_id": fields.get("chat"),
            "chat_type": fields.get("chat_type"),
            "message_id": fields.get("id"),
            "message_type": "text",
            "content": fields.get("text"),
            "parent_id": absent(fields.get("parent")),
            "root_id": absent(fields.get("root")),
            "created_at_ms": _milliseconds(fields.get("created_at_ms")),
        }
    )


def _milliseconds(value: object) -> int:
    """A whole number of milliseconds since 1970; anything else is no time (0)."""
    return min(value, INTEGER_MAX) if type(value) is int and value >= 0 else 0
