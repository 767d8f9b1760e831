"""What a message's text is: a binding command, a claim, credential-looking text, or an ordinary reply. Pure.

Detection works on a normalised head and on token shapes anywhere, so that white space, zero-width characters,
full-width letters and a leading mention can't smuggle a one-time secret into stored text.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Final

from frontdesk.kernel.secret_shapes import find_secret_shape

BINDING_WORDS: Final = ("绑定", "/bind")
CLAIM_WORDS: Final = ("领取", "/claim")
BINDING_TEXT: Final = "[binding]"
CLAIM_TEXT: Final = "[artifact claim]"
NOT_KEPT: Final = "[not kept]"

_CLAIM_TOKEN: Final = re.compile(r"fdc_[A-Za-z0-9_-]{32}")
_BINDING_TOKEN: Final = re.compile(r"fdb_[0-9A-HJKMNP-TV-Z]{20}", re.IGNORECASE)
_SKIPPED: Final = re.compile(r"(?:\s|@_user_[0-9]+|@_all(?![A-Za-z0-9_]))+")
# The blocks of combining marks that go upon any letter.
_MARKS: Final = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")
# Unicode's default-ignorable code points (DerivedCoreProperties.txt): what a reader does not see.
_INVISIBLE: Final = dict.fromkeys(
    [
        0x00AD, 0x034F, 0x061C, *range(0x115F, 0x1161), *range(0x17B4, 0x17B6), *range(0x180B, 0x1810),
        *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10),
        0xFEFF, 0xFFA0, *range(0xFFF0, 0xFFFC), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B),
        *range(0xE0000, 0xE1000),
    ]
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Intent:
    """`kind` is binding | artifact_claim | reply | credential; `code` is the one-time secret found, where one is."""

    kind: str
    code: str | None = field(default=None, repr=False)


def plain(text: str) -> str:
    """NFKC without invisible characters: for detection alone, never stored and never given to a runner."""
    if text.isascii():
        return text  # nothing to normalise and nothing invisible: true for most English text, and free to see
    return unicodedata.normalize("NFKC", text.translate(_INVISIBLE)).translate(_INVISIBLE)


def head(text: str) -> str:
    """`plain` text without leading white space and mention placeholders."""
    normal = plain(text)
    match = _SKIPPED.match(normal)
    return normal[match.end() :] if match else normal


def detect(text: str) -> Intent:
    """Classify a message. A claim wins over a binding where both shapes occur: neither is stored either way."""
    start = head(text)
    views = _views(text)
    claim = _token(_CLAIM_TOKEN, views)
    if claim or _starts(start, CLAIM_WORDS):
        return Intent("artifact_claim", claim)
    binding = _token(_BINDING_TOKEN, views)
    if binding or _starts(start, BINDING_WORDS):
        return Intent("binding", binding)
    if any(find_secret_shape(view) for view in {text, *views}):
        return Intent("credential")
    return Intent("reply")


def _views(text: str) -> tuple[str, ...]:
    """The text as a reader sees it: normalised, as it is, and normalised without marks upon its letters.

    Normalising joins a letter with the mark after it and would hide a secret that stands there in full.
    """
    if text.isascii():
        return (text,)
    bare = unicodedata.normalize("NFKD", text.translate(_INVISIBLE)).translate(_INVISIBLE)
    return (plain(text), text.translate(_INVISIBLE), _MARKS.sub("", bare))


def _token(shape: re.Pattern[str], views: tuple[str, ...]) -> str | None:
    found = next(filter(None, map(shape.search, views)), None)
    return found.group() if found else None


def _starts(start: str, words: tuple[str, ...]) -> bool:
    lowered = start.lower()
    return any(lowered.startswith(word) for word in words)
