"""Exit codes: one per kind of problem, so that a script can tell "wrong" from "not allowed" from "later"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from frontdesk.kernel.codes import PROBLEMS, Kind

USAGE: Final = 2  # click's own
UNREACHABLE: Final = 20
BROKEN_ANSWER: Final = 21

EXITS: Final[Mapping[Kind, int]] = {
    Kind.MALFORMED: 10,
    Kind.INVALID: 10,
    Kind.TOO_LARGE: 10,
    Kind.MEDIA: 10,
    Kind.UNAUTHENTICATED: 11,
    Kind.FORBIDDEN: 12,
    Kind.ABSENT: 13,
    Kind.METHOD: 13,
    Kind.CONFLICT: 14,
    Kind.LIMITED: 15,
    Kind.REFUSED: 16,
    Kind.UPSTREAM: 17,
    Kind.UNAVAILABLE: 18,
}


def exit_of(code: str) -> int:
    """The exit code of a problem code; of an unknown one (a newer server) that of a refusal."""
    entry = PROBLEMS.get(code)
    return EXITS[entry.kind] if entry is not None else EXITS[Kind.REFUSED]
