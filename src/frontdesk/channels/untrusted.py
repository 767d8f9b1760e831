"""What may be believed of a value that somebody else wrote: ids, texts, times. Pure, total, for every channel."""

from __future__ import annotations

import html
import json
from typing import Any, Final, TypeGuard

from frontdesk.kernel.canonical import NotCanonical, bytes_digest, canonical_digest
from frontdesk.kernel.limits import MESSAGE_ESCAPED_CHARS_MAX, PROVIDER_ID_CHARS_MAX

# The largest integer every JSON reader keeps; as milliseconds it still fits 64-bit microseconds.
INTEGER_MAX: Final = 2**53 - 1


def is_id(value: object) -> TypeGuard[str]:
    """A text of 1..255 characters that can be stored."""
    return isinstance(value, str) and 0 < len(value) <= PROVIDER_ID_CHARS_MAX and storable(value)


def is_id_or_none(value: object) -> bool:
    """An id, or its absence."""
    return value is None or is_id(value)


def id_or_empty(value: object) -> str:
    """The id, or an empty text for anything else."""
    return value if is_id(value) else ""


def absent(value: object) -> object:
    """Providers spell "none" in two ways."""
    return None if value == "" else value


def storable(text: str) -> bool:
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


def message_text(value: object) -> str | None:
    """The text of a message where it is one of a bearable length (1..20,000 characters, escaped), else None."""
    if not isinstance(value, str) or not storable(value):
        return None
    return value if 1 <= len(html.escape(value)) <= MESSAGE_ESCAPED_CHARS_MAX else None


def digest_of(subject: dict[str, Any]) -> str:
    """The canonical digest, or that of a deterministic spelling where the values have no canonical form."""
    try:
        return canonical_digest(subject)
    except NotCanonical:
        return bytes_digest(_ascii(subject).encode("ascii"))


def _ascii(value: object) -> str:
    """For lone surrogates, huge integers, NaN, too deep a nest."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError):
        return "unspellable"
