"""A timeline's reasons in words: the fixed sentence of a code, in English or Chinese."""

from __future__ import annotations

from typing import Final

from frontdesk.kernel.codes import ROW_CODES, UNUSABLE_REASONS

# What ends a grant carries no code; the kind of the event is the reason.
_ENDINGS: Final = {"reply_grant.revoked": "revoked", "reply_grant.expired": "expired"}


def reason_in_words(kind: str, code: str | None, language: str | None) -> str | None:
    """Why an event of a grant's life happened; None where it needs no reason. `language` zh, else English."""
    words = UNUSABLE_REASONS[_ENDINGS[kind]] if kind in _ENDINGS else ROW_CODES.get(code or "")
    if words is None:
        return None
    return words[1] if language == "zh" else words[0]
