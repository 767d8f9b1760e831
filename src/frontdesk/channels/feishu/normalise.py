"""A decrypted payload in the desk's words. Pure, total: there is no input it raises on.

Everything here was written by whoever wrote the message; types, sizes and presence are assumptions until checked.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from frontdesk.desk.connections.channel import Ignored, Inbound, InboundMessage, Recall
from frontdesk.kernel.canonical import NotCanonical, bytes_digest, canonical_digest
from frontdesk.kernel.limits import MESSAGE_ESCAPED_CHARS_MAX, PROVIDER_ID_CHARS_MAX

RECEIVE: Final = "im.message.receive_v1"
RECALL: Final = "im.message.recalled_v1"
# The largest integer every JSON reader keeps; as milliseconds it still fits 64-bit microseconds.
_INTEGER_MAX: Final = 2**53 - 1

_Fields = Mapping[str, Any]
_NOTHING: Final[_Fields] = {}


def normalise(payload: object, signed_at_ms: int | None) -> Inbound:
    """The one thing this event is to the desk. `signed_at_ms`: the push's signing time, None on a path without one."""
    event = _fields(payload)
    header = _fields(event.get("header"))
    app_id, tenant_key = header.get("app_id"), header.get("tenant_key")
    if event.get("schema") != "2.0" or not _is_id(app_id) or not _is_id(tenant_key):
        return Ignored("unsupported_event")
    body = _fields(event.get("event"))
    kind = header.get("event_type")
    if kind == RECEIVE:
        return _message(app_id, tenant_key, header, body, signed_at_ms)
    if kind == RECALL:
        message_id = body.get("message_id")
        return Recall(app_id, tenant_key, message_id) if _is_id(message_id) else Ignored("message_id_unusable")
    return Ignored("unsupported_event")


def _message(app_id: str, tenant_key: str, header: _Fields, body: _Fields, signed_at_ms: int | None) -> Inbound:
    message, sender = _fields(body.get("message")), _fields(body.get("sender"))
    if sender.get("sender_type") != "user":
        return Ignored("not_a_person")
    if message.get("chat_type") != "p2p":
        return Ignored("not_private")
    message_id = message.get("message_id")
    if not _is_id(message_id):
        return Ignored("message_id_unusable")
    sender_id = _fields(sender.get("sender_id")).get("open_id")
    chat_id, message_type = message.get("chat_id"), message.get("message_type")
    parent_id, root_id = _absent(message.get("parent_id")), _absent(message.get("root_id"))
    of_sender = _id_or_empty(sender.get("tenant_key")) or tenant_key
    usable = _is_id(sender_id) and _is_id(chat_id) and _is_id_or_none(parent_id) and _is_id_or_none(root_id)
    return InboundMessage(
        app_id=app_id,
        # A person of another tenant is not one of this installation's: their tenant is what the desk compares.
        tenant_key=of_sender,
        event_tenant_key=None if of_sender == tenant_key else tenant_key,
        event_id=_id_or_empty(header.get("event_id")),
        message_id=message_id,
        sender_id=_id_or_empty(sender_id),
        sender_type="user",
        chat_id=_id_or_empty(chat_id),
        chat_type="p2p",
        message_type=_id_or_empty(message_type),
        text=_text(message.get("content")) if usable and message_type == "text" else None,
        parent_id=parent_id if _is_id(parent_id) else None,
        root_id=root_id if _is_id(root_id) else None,
        created_at_ms=_milliseconds(message.get("create_time")),
        signed_at_ms=None if signed_at_ms is None else min(max(signed_at_ms, 0), _INTEGER_MAX),
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
        "parent_id": _absent(message.get("parent_id")),
        "root_id": _absent(message.get("root_id")),
        "created_at_ms": _milliseconds(message.get("create_time")),
    }
    try:
        return canonical_digest(subject)
    except NotCanonical:
        return bytes_digest(_ascii(subject).encode("ascii"))


def _ascii(value: object) -> str:
    """A deterministic spelling of what has no canonical form: lone surrogates, huge integers, NaN, too deep a nest."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        return "unspellable"


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
    if key != "text" or not isinstance(text, str) or not _storable(text):
        return None
    return text if 1 <= len(html.escape(text)) <= MESSAGE_ESCAPED_CHARS_MAX else None


def _fields(value: object) -> _Fields:
    return value if isinstance(value, dict) else _NOTHING


def _absent(value: object) -> object:
    """The provider spells "none" in two ways."""
    return None if value == "" else value


def _is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= PROVIDER_ID_CHARS_MAX and _storable(value)


def _is_id_or_none(value: object) -> bool:
    return value is None or _is_id(value)


def _id_or_empty(value: object) -> str:
    return value if _is_id(value) else ""


def _storable(text: str) -> bool:
    """No database and no digest of ours takes NUL or half a surrogate pair."""
    if "\x00" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _milliseconds(value: object) -> int:
    """The provider writes times as decimal strings; anything else is no time (0)."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 16:
        return min(int(value), _INTEGER_MAX)
    return 0
