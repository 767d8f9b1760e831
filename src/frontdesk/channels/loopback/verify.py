"""Is this push authentic? Header shape first, then the signature over the raw bytes, and only then is the body read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from frontdesk.channels.loopback import signature
from frontdesk.channels.loopback.normalise import normalise
from frontdesk.desk.connections.channel import Credentials, RawPush, Refused, Verdict, Verified
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.limits import (
    SIGNATURE_HEADER_CHARS_MAX,
    WEBHOOK_SIGNATURES_CHARS_MAX,
    WEBHOOK_TOLERANCE_US,
)

SHAPE: Final = Refused("callback_shape_invalid")
REFUSED: Final = Refused("callback_not_accepted")

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
_CHARS_MAX: Final[Mapping[str, int]] = {
    ID: SIGNATURE_HEADER_CHARS_MAX,
    TIMESTAMP: SIGNATURE_HEADER_CHARS_MAX,
    SIGNATURE: WEBHOOK_SIGNATURES_CHARS_MAX,
}


def precheck(push: RawPush) -> Refused | None:
    """The three headers, each exactly once, bounded, the timestamp in digits."""
    return None if _headers(push.headers) is not None else SHAPE


def verify(push: RawPush, credentials: Credentials, now_us: int) -> Verdict:
    """Authenticate, then read. A body that is signed but no object of ours is a shape error; nothing raises."""
    headers = _headers(push.headers)
    if headers is None:
        return SHAPE
    event_id, timestamp = headers[ID], headers[TIMESTAMP]
    keys = signature.keys_of(credentials)
    if not signature.matches(keys, event_id, timestamp, push.body, headers[SIGNATURE]):
        return REFUSED
    if abs(now_us - int(timestamp) * SECOND) > WEBHOOK_TOLERANCE_US:
        return REFUSED
    fields = _object(push.body)
    if fields is None or not isinstance(fields.get("type"), str):
        return SHAPE
    return Verified((normalise(fields, event_id, int(timestamp) * 1000),))


def _headers(headers: Sequence[tuple[str, str]]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for name, value in headers:
        if name not in _CHARS_MAX:
            continue
        if name in found or not 0 < len(value) <= _CHARS_MAX[name]:
            return None
        found[name] = value
    if len(found) != len(_CHARS_MAX):
        return None
    timestamp = found[TIMESTAMP]
    return found if timestamp.isascii() and timestamp.isdigit() else None


def _object(body: bytes) -> dict[str, Any] | None:
    """One JSON object in UTF-8 without repeated keys, NaN or a nest that is too deep; None for anything else."""
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key stands twice")
    return fields


def _no_number(_spelling: str) -> None:
    raise ValueError("not a number of JSON")
