"""What a message's text is: a binding command, a claim, credential-looking text, or an ordinary reply. Pure.

Detection works on a normalised head and on token shapes anywhere, so that white space, zero-width characters,
full-width letters and a leading mention can't smuggle a one-time secret into stored text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from frontdesk.kernel.disguises import plain, views
from frontdesk.kernel.secret_shapes import find_secret_in_disguise

BINDING_WORDS: Final = ("绑定", "/bind")
CLAIM_WORDS: Final = ("领取", "/claim")
BINDING_TEXT: Final = "[binding]"
CLAIM_TEXT: Final = "[artifact claim]"
NOT_KEPT: Final = "[not kept]"

_CLAIM_TOKEN: Final = re.compile(r"fdc_[A-Za-z0-9_-]{32}")
_BINDING_TOKEN: Final = re.compile(r"fdb_[0-9A-HJKMNP-TV-Z]{20}", re.IGNORECASE)
_SKIPPED: Final = re.compile(r"(?:\s|@_user_[0-9]+|@_all(?![A-Za-z0-9_]))+")


@dataclass(frozen=True, slots=True)
class Intent:
    """`kind` is binding | artifact_claim | reply | credential; `code` is the one-time secret found, where one is."""

    kind: str
    code: str | None = field(default=None, repr=False)


def head(text: str) -> str:
    """`plain` text without leading white space and mention placeholders."""
    normal = plain(text)
    match = _SKIPPED.match(normal)
    return normal[match.end() :] if match else normal


def detect(text: str) -> Intent:
    """Classify a message. A claim wins over a binding where both shapes occur: neither is stored either way."""
    start = head(text)
    seen = views(text)
    claim = _token(_CLAIM_TOKEN, seen)
    if claim or _starts(start, CLAIM_WORDS):
        return Intent("artifact_claim", claim)
    binding = _token(_BINDING_TOKEN, seen)
    if binding or _starts(start, BINDING_WORDS):
        return Intent("binding", binding)
    if find_secret_in_disguise(text):
        return Intent("credential")
    return Intent("reply")


def _token(shape: re.Pattern[str], seen: tuple[str, ...]) -> str | None:
    found = next(filter(None, map(shape.search, seen)), None)
    return found.group() if found else None


def _starts(start: str, words: tuple[str, ...]) -> bool:
    lowered = start.lower()
    return any(lowered.startswith(word) for word in words)
