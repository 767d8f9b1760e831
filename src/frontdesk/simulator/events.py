"""Event payloads (schema 2.0) as the provider pushes them."""

from __future__ import annotations

from typing import Any

from frontdesk.simulator.model import App, Message, Person
from frontdesk.simulator.signing import compact_json

RECEIVED = "im.message.receive_v1"
RECALLED = "im.message.recalled_v1"


def wrap(app: App, event_id: str, event_type: str, event: dict[str, Any], created_ms: int) -> str:
    """The whole plaintext of a push: header and event."""
    header = {
        "event_id": event_id,
        "event_type": event_type,
        "create_time": str(created_ms),
        "token": app.verification_token,
        "app_id": app.app_id,
        "tenant_key": app.tenant_key,
    }
    return compact_json({"schema": "2.0", "header": header, "event": event})


def message_received(app: App, person: Person, message: Message) -> dict[str, Any]:
    """The ``event`` of ``im.message.receive_v1``."""
    shown: dict[str, Any] = {
        "message_id": message.message_id,
        "create_time": str(message.created_ms),
        "update_time": str(message.updated_ms or message.created_ms),
        "chat_id": message.chat_id,
        "chat_type": message.chat_type,
        "message_type": message.message_type,
        "content": message.content,
        "user_agent": "Frontdesk simulator",
    }
    if message.root_id:
        shown["root_id"] = message.root_id
    if message.parent_id:
        shown["parent_id"] = message.parent_id
    sender = {
        "sender_id": {"open_id": person.open_id, "union_id": person.union_id, "user_id": None},
        "sender_type": "user",
        "tenant_key": app.tenant_key,
    }
    return {"sender": sender, "message": shown}


def message_recalled(message: Message, recalled_ms: int) -> dict[str, Any]:
    """The ``event`` of ``im.message.recalled_v1``."""
    return {
        "message_id": message.message_id,
        "chat_id": message.chat_id,
        "recall_time": str(recalled_ms),
        "recall_type": "message_owner",
    }


def challenge(app: App, value: str) -> str:
    """The plaintext of the URL check."""
    return compact_json({"challenge": value, "token": app.verification_token, "type": "url_verification"})
