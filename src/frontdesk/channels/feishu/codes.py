"""What the provider's answers mean to us (desk.md 6.6), as data: every listed code with its meaning and source.

The SDK's own classes misfile the codes that matter (a rate limit as "permission denied, final"), so nothing of them is
used. A code decides only what the table says; anything unlisted is unknown, whatever the HTTP status suggests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from frontdesk.channels.feishu.transport import Answer
from frontdesk.desk.connections.channel import (
    ConnectFailed,
    NotSent,
    Outcome,
    RefusedFinal,
    RefusedRetry,
    Sent,
    Unknown,
)
from frontdesk.kernel.limits import PROVIDER_ID_CHARS_MAX

RESET_HEADER: Final = "x-ogw-ratelimit-reset"
_RESET_SECONDS_MAX: Final = 86_400
_CODE_MAX: Final = 2**31 - 1


class Means(StrEnum):
    """What a listed code proves."""

    RATE_LIMITED = "rate_limited"
    TOKEN_REJECTED = "provider_token_rejected"  # noqa: S105 - a code's name
    TARGET_REVOKED = "target_revoked"
    PERMISSION_DENIED = "permission_denied"
    FORMAT_ERROR = "format_error"
    CREDENTIALS_REJECTED = "provider_credentials_rejected"


class Source(StrEnum):
    """Where the meaning is known from."""

    DOCS = "the provider's documentation, or a stored copy of it"
    SECOND_HAND = "‡ second-hand only; to be confirmed on a test tenant"


@dataclass(frozen=True, slots=True)
class Row:
    """One listed code."""

    code: int
    means: Means
    meaning: str
    source: Source


_D, _S = Source.DOCS, Source.SECOND_HAND

MESSAGE_ROWS: Final = (
    Row(99991400, Means.RATE_LIMITED, "the app's request rate; a header tells when to come back", _D),
    Row(230020, Means.RATE_LIMITED, "the chat's or person's message rate", _D),
    Row(11232, Means.RATE_LIMITED, "the message service is throttling", _D),
    Row(11233, Means.RATE_LIMITED, "the message service is throttling this chat", _D),
    Row(99991663, Means.TOKEN_REJECTED, "tenant access token invalid or expired", _D),
    Row(99991664, Means.TOKEN_REJECTED, "app access token invalid", _D),
    Row(99991668, Means.TOKEN_REJECTED, "access token invalid for this interface", _D),
    Row(99991671, Means.TOKEN_REJECTED, "access token malformed", _D),
    Row(230011, Means.TARGET_REVOKED, "the message to reply to was recalled", _D),
    Row(231003, Means.TARGET_REVOKED, "the message to reply to is not found", _D),
    Row(230110, Means.TARGET_REVOKED, "the message to reply to was deleted", _S),
    Row(230002, Means.PERMISSION_DENIED, "the bot is not in the chat", _D),
    Row(230006, Means.PERMISSION_DENIED, "the app has no bot", _D),
    Row(230013, Means.PERMISSION_DENIED, "the person is outside of the bot's range", _D),
    Row(230027, Means.PERMISSION_DENIED, "a permission is lacking", _D),
    Row(99991672, Means.PERMISSION_DENIED, "the app lacks the scope", _D),
    Row(230025, Means.FORMAT_ERROR, "the content is too long", _D),
    Row(99992402, Means.FORMAT_ERROR, "a field failed the provider's validation", _D),
)
"""Answers to sending, uploading and reading."""

TOKEN_ROWS: Final = (
    Row(99991400, Means.RATE_LIMITED, "the app's request rate", _D),
    Row(10003, Means.CREDENTIALS_REJECTED, "app id or secret malformed", _S),
    Row(10014, Means.CREDENTIALS_REJECTED, "app secret wrong", _S),
)
"""Answers to asking for a tenant token."""

_MESSAGE: Final = {row.code: row.means for row in MESSAGE_ROWS}
_TOKEN: Final = {row.code: row.means for row in TOKEN_ROWS}


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer, read: its `code` where it has one, what that means, and its fields, which are never shown or kept."""

    code: int | None
    means: Means | None
    accepted: bool
    wait_ms: int | None
    fields: Mapping[str, Any] = field(repr=False)

    @property
    def data(self) -> Mapping[str, Any]:
        """The `data` object, empty where there is none."""
        data = self.fields.get("data")
        return data if isinstance(data, dict) else {}


def read(answer: Answer | None, table: Mapping[int, Means] = _MESSAGE) -> Reading | None:
    """An answer as JSON with a code, or None: none came, a redirect, not JSON, not an object."""
    if answer is None or 300 <= answer.status < 400:
        return None
    try:
        fields = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    value = fields.get("code")
    code = value if type(value) is int and -_CODE_MAX <= value <= _CODE_MAX else None
    means = None if code is None else table.get(code)
    wait_ms = _wait_ms(answer.headers) if means is Means.RATE_LIMITED else None
    return Reading(code, means, code == 0 and 200 <= answer.status < 300, wait_ms, fields)


def read_token(answer: Answer | None) -> Reading | None:
    """An answer of the token endpoint."""
    return read(answer, _TOKEN)


def classify_send(answer: Answer | None, connected: bool) -> Outcome:
    """What became of one wire request. `connected` is the seam's note that a connection stood."""
    reading = read(answer)
    if reading is None:
        return Unknown() if connected else NotSent("not_sent_connection")
    if reading.means in {Means.RATE_LIMITED, Means.TOKEN_REJECTED}:
        return RefusedRetry(reading.means.value, reading.wait_ms, reading.code)
    if reading.means is not None:
        return RefusedFinal(reading.means.value, reading.code)
    message_id = reading.data.get("message_id")
    if reading.accepted and isinstance(message_id, str) and 0 < len(message_id) <= PROVIDER_ID_CHARS_MAX:
        return Sent(message_id, _milliseconds(reading.data.get("create_time")))
    return Unknown(provider_code=reading.code or None)


def classify_upload(answer: Answer | None, connected: bool) -> str:
    """The key of an uploaded file. An upload never makes a message, so whatever went wrong is `ConnectFailed`."""
    reading = read(answer)
    if reading is None:
        raise ConnectFailed("upload_failed" if connected else "connect_failed")
    if reading.means in {Means.RATE_LIMITED, Means.TOKEN_REJECTED}:
        raise ConnectFailed(reading.means.value, provider_code=reading.code, wait_ms=reading.wait_ms)
    if reading.means in {Means.FORMAT_ERROR, Means.PERMISSION_DENIED}:
        raise ConnectFailed(reading.means.value, provider_code=reading.code, final=True)
    key = reading.data.get("file_key")
    if reading.accepted and isinstance(key, str) and 0 < len(key) <= PROVIDER_ID_CHARS_MAX:
        return key
    raise ConnectFailed("upload_failed", provider_code=reading.code or None)


def _wait_ms(headers: Mapping[str, str]) -> int | None:
    value = headers.get(RESET_HEADER, "")
    if not value.isascii() or not value.isdigit() or len(value) > 9:
        return None
    return min(int(value), _RESET_SECONDS_MAX) * 1000


def _milliseconds(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 15:
        return int(value)
    return None
