"""A text as a reader sees it: without what is invisible, full-width forms as plain ones, letters without marks.

For looking at a text alone: what comes out here is never stored and never given to a runner.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# The blocks of combining marks that go upon any letter.
_MARKS: Final = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")
# Unicode's default-ignorable code points (DerivedCoreProperties.txt): what a reader does not see.
INVISIBLE: Final = dict.fromkeys(
    [
        0x00AD, 0x034F, 0x061C, *range(0x115F, 0x1161), *range(0x17B4, 0x17B6), *range(0x180B, 0x1810),
        *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10),
        0xFEFF, 0xFFA0, *range(0xFFF0, 0xFFFC), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B),
        *range(0xE0000, 0xE1000),
    ]
)  # fmt: skip


def plain(text: str) -> str:
    """NFKC without invisible characters: for detection alone, never stored and never given to a runner."""
    if text.isascii():
        return text  # nothing to normalise and nothing invisible: true for most English text, and free to see
    return unicodedata.normalize("NFKC", text.translate(INVISIBLE)).translate(INVISIBLE)


def views(text: str) -> tuple[str, ...]:
    """The text as a reader sees it: normalised, as it is, and normalised without marks upon its letters.

    Normalising joins a letter with the mark after it and would hide a secret that stands there in full.
    """
    if text.isascii():
        return (text,)
    bare = unicodedata.normalize("NFKD", text.translate(INVISIBLE)).translate(INVISIBLE)
    return (plain(text), text.translate(INVISIBLE), _MARKS.sub("", bare))
