"""Request bodies as they leave, and their sizes: limits hold for what is sent, not for what was meant."""

from __future__ import annotations

import json
from typing import Final

from frontdesk.desk.connections.channel import OutboundFile, OutboundMessage
from frontdesk.kernel.limits import FILE_BYTES_MAX, PROVIDER_UUID_CHARS_MAX, TEXT_BODY_BYTES_MAX

TEXT: Final = "text"
FILE: Final = "file"
# The longest ids as they really are: `oc_` + 32 hex, and a UUID.
_CHAT_ID: Final = "o" * 35
_UUID: Final = "u" * 36


def text_content(text: str) -> str:
    """The `content` of a text message; compact, as the provider's history shows it."""
    return json.dumps({"text": text}, ensure_ascii=False, separators=(",", ":"))


def same_text(content: str, text: str) -> bool:
    """True where a history item's `content` carries exactly `text`, however its JSON is written."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found == {"text": text}


def file_content(upload_key: str) -> str:
    """The `content` of a file message."""
    return json.dumps({"file_key": upload_key}, ensure_ascii=False, separators=(",", ":"))


def text_body_bytes(text: str) -> int:
    """Size of the larger of the two bodies, reply and fresh message, that would carry `text`."""
    return _bytes({"receive_id": _CHAT_ID, "msg_type": TEXT, "content": text_content(text), "uuid": _UUID})


def outgoing(message: OutboundMessage) -> tuple[str, str] | None:
    """Message type and content, or None for what the provider is known not to take and must not be asked."""
    if (message.text is None) == (message.upload_key is None):
        return None
    if not 0 < len(message.provider_uuid) <= PROVIDER_UUID_CHARS_MAX:
        return None
    if message.text is None:
        kind, content = FILE, file_content(message.upload_key or "")
    else:
        kind, content = TEXT, text_content(message.text)
    head = {"receive_id": message.chat_id} if message.reply_to is None else {}
    body = head | {"msg_type": kind, "content": content, "uuid": message.provider_uuid}
    try:
        return (kind, content) if _bytes(body) <= TEXT_BODY_BYTES_MAX else None
    except UnicodeEncodeError:  # half a surrogate pair has no place on the wire
        return None


def file_fits(file: OutboundFile) -> bool:
    """The provider takes neither an empty file nor one over its limit, and says so only after the upload.

    Name and media type go into part headers: what could not stand there as it is does not go.
    """
    if not file.media_type or not file.media_type.isascii() or not file.media_type.isprintable():
        return False
    try:
        named = file.name.encode("utf-8") != b""
    except UnicodeEncodeError:
        named = False
    return named and 0 < len(file.content) <= FILE_BYTES_MAX


def _bytes(body: dict[str, str]) -> int:
    # As the SDK spells it: default separators, nothing escaped that need not be.
    return len(json.dumps(body, ensure_ascii=False).encode("utf-8"))
