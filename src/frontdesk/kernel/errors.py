"""The one error tree. A room raises `Problem(code)`; surfaces translate the code in one file each.

A code is registered once in `kernel.codes` with its kind, its retry advice and one fixed sentence per language; nothing
else ever reaches a caller: no stack, driver text, provider text or value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from frontdesk.kernel.codes import PROBLEMS


class FieldError(NamedTuple):
    """Where a request is wrong: a path and a reason, never a value."""

    path: str
    reason: str


class Problem(Exception):
    """An expected refusal with a stable code.

    `absent_id` lets a surface say which id was asked for; `retry_after_s` becomes `Retry-After`.
    Raises KeyError at construction for a code that is not registered.
    """

    def __init__(self, code: str, *, errors: Sequence[FieldError] = (), retry_after_s: int | None = None) -> None:
        self.entry = PROBLEMS[code]
        self.code = code
        self.errors = tuple(errors[:5])
        self.retry_after_s = retry_after_s
        super().__init__(code)


class Defect(AssertionError):
    """A broken invariant: the transaction rolls back and the caller learns only that it failed."""


class StaleFence(Exception):
    """The caller no longer owns the lease: stop now, write nothing, drop the result. Never reaches a surface."""


class DatabaseBusy(Exception):
    """The database could not take the transaction in its bound; nothing was done, the same request may be repeated."""


def invalid(path: str, reason: str) -> Problem:
    """A 422 that names one path."""
    return Problem("request_invalid", errors=[FieldError(path, reason)])
