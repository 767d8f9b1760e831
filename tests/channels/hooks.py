"""The other side of the loopback channel, written from its documentation: it shares no code with the product."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from frontdesk.desk.connections.channel import Credentials, Installed, RawPush
from tests.channels.provider import Provider, answer

AT = "1767225600"
# Check value V14 of the specification.
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
V14_BODY = b'{"type":"message","id":"msg_1"}'
V14_SIGNATURE = "v1,3Blmr7iz0wpNZGXTJToWiUYtrMjEvMrwwZEFBAiqm78="

OTHER_SECRET = "whsec_" + base64.b64encode(bytes(range(100, 140))).decode()
CREDENTIALS = Credentials(SECRET)
BOTH = Credentials(SECRET, OTHER_SECRET)
PATH = "/hook"


def sign(body: bytes, *, secret: str = SECRET, event_id: str = "wh_1", at: str = AT) -> str:
    """One entry of `webhook-signature`, as the standard words it."""
    key = base64.b64decode(secret.partition("_")[2])
    digest = hmac.new(key, f"{event_id}.{at}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def headers(body: bytes, *, event_id: str = "wh_1", at: str = AT, **named: Any) -> list[tuple[str, str]]:
    """Header pairs of a signed push; `signatures` replaces the one that is right."""
    given = named.pop("signatures", None) or sign(body, event_id=event_id, at=at, **named)
    return [
        ("host", "desk.example"),
        ("content-type", "application/json"),
        ("webhook-id", event_id),
        ("webhook-timestamp", at),
        ("webhook-signature", given),
    ]


def body_of(payload: Any) -> bytes:
    return payload if isinstance(payload, bytes) else json.dumps(payload, ensure_ascii=False).encode()


def signed(payload: Any, **named: Any) -> RawPush:
    body = body_of(payload)
    return RawPush(headers(body, **named), body)


def message(**changes: Any) -> dict[str, Any]:
    """A private message; a change to None leaves the key out."""
    fields = {
        "type": "message",
        "id": "msg_1",
        "sender": "person-1",
        "chat": "chat-1",
        "chat_type": "p2p",
        "created_at_ms": 1_767_225_600_000,
        "parent": "msg_0",
        "text": "你好 <b>",
    } | changes
    return {name: value for name, value in fields.items() if value is not None}


def installed(url: str, credentials: Credentials = CREDENTIALS) -> Installed:
    return Installed("ins_1", "app-label", "tenant-label", url, credentials)


def hook(provider: Provider) -> str:
    return provider.origin + PATH


def took(message_id: Any = "peer_1", status: int = 200) -> bytes:
    return answer({"message_id": message_id}, status)


def problem(status: int, headers: dict[str, str] | None = None) -> bytes:
    fields = {"type": "about:blank", "title": "PROVIDER-TEXT-MARKER", "status": status}
    return answer(fields, status, {"Content-Type": "application/problem+json; charset=utf-8"} | (headers or {}))
