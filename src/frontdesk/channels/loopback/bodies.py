"""Request bodies as they leave, and their sizes: limits hold for what is sent, not for what was meant. Pure."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from frontdesk.channels.untrusted import storable
from frontdesk.desk.connections.channel import OutboundFile, OutboundMessage
from frontdesk.kernel.limits import FILE_BYTES_MAX, PROVIDER_ID_CHARS_MAX, TEXT_BODY_BYTES_MAX

TEXT: Final = "text"
FILE: Final = "file"
# Ids of this channel are any text of that many characters; a control character takes the most room, six bytes.
_LONGEST_ID: Final = "\x01" * PROVIDER_ID_CHARS_MAX
_OPERATION_ID: Final = "o" * 36


def text_body_bytes(text: str) -> int:
    """Size of the largest body that could carry `text`: what fits by this always fits."""
    return len(_encoded(_head(_OPERATION_ID, _LONGEST_ID, _LONGEST_ID) | {"kind": TEXT, "text": text}))


def outgoing(message: OutboundMessage) -> bytes | None:
    """The body of one message, or None for what must not be sent: neither text nor file, both, or over the limits."""
    if (message.text is None) == (message.file is None):
        return None
    head = _head(message.operation_id, message.chat_id, message.reply_to)
    try:
        if message.text is not None:
            body = _encoded(head | {"kind": TEXT, "text": message.text})
            return body if len(body) <= TEXT_BODY_BYTES_MAX else None
        if message.file is None or not file_fits(message.file):
            return None
        return _encoded(head | {"kind": FILE, "file": _file(message.file)})
    except UnicodeEncodeError:  # half a surrogate pair has no place on the wire
        return None


def file_fits(file: OutboundFile) -> bool:
    """1..30,000,000 bytes, with a name and a media type."""
    named = bool(file.name) and storable(file.name) and bool(file.media_type) and storable(file.media_type)
    return named and 0 < len(file.content) <= FILE_BYTES_MAX


def _head(operation_id: str, chat: str, reply_to: str | None) -> dict[str, Any]:
    head = {"operation_id": operation_id, "chat": chat}
    return head if reply_to is None else head | {"reply_to": reply_to}


def _file(file: OutboundFile) -> dict[str, str]:
    return {
        "name": file.name,
        "media_type": file.media_type,
        "base64": base64.b64encode(file.content).decode("ascii"),
    }


def _encoded(body: dict[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
