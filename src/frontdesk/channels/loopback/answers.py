"""What the other side's answers mean to us (desk.md 6.8): a status decides only where it is listed. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from frontdesk.channels.transport import Answer
from frontdesk.channels.untrusted import is_id
from frontdesk.desk.connections.channel import NotSent, Outcome, RefusedFinal, RefusedRetry, Sent, Unknown
from frontdesk.kernel.clock import SECOND

PROBLEM: Final = "application/problem+json"
GONE: Final = 410
TOO_MANY: Final = 429
REFUSALS: Final[Mapping[int, str]] = {
    400: "format_error",
    403: "permission_denied",
    404: "permission_denied",  # as where a bot is not in the chat: there is no such chat for us
    422: "format_error",
}
"""Definite refusals, each only with a problem body: without one it may be a proxy that speaks."""

_WAIT_S_MAX: Final = 86_400


def classify(answer: Answer | None, connected: bool, now_us: int) -> Outcome:
    """What became of one wire request. `connected` is the call's note that a connection stood.

    `now_us` is the wall clock, for a `Retry-After` that names a moment. The status is kept as the provider's code.
    """
    if answer is None:
        return Unknown() if connected else NotSent("not_sent_connection")
    status = answer.status
    if 200 <= status < 300:
        fields = _fields(answer.body)
        message_id = fields.get("message_id") if fields is not None else None
        return Sent(message_id) if is_id(message_id) else Unknown(provider_code=status)
    if status == GONE:
        return RefusedFinal("target_revoked", status)
    if status == TOO_MANY:
        wait_ms = _wait_ms(answer.headers.get("retry-after", ""), now_us)
        return Unknown(provider_code=status) if wait_ms is None else RefusedRetry("rate_limited", wait_ms, status)
    if status in REFUSALS and _is_problem(answer):
        return RefusedFinal(REFUSALS[status], status)
    return Unknown(provider_code=status)


def _is_problem(answer: Answer) -> bool:
    media_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type == PROBLEM and _fields(answer.body) is not None


def _fields(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _wait_ms(value: str, now_us: int) -> int | None:
    """Seconds, or a moment of HTTP; a day at most. None where it is neither."""
    if value.isascii() and value.isdigit() and len(value) <= 9:
        return min(int(value), _WAIT_S_MAX) * 1000
    try:
        moment_us = int(parsedate_to_datetime(value).timestamp()) * SECOND
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return min(max(moment_us - now_us, 0), _WAIT_S_MAX * SECOND) // 1000
