"""Fault knobs: which request or push they hit, how often, and what they do. In memory; a new list replaces the old.

A fault counts every request it matches; it *applies* to the ``nth`` match (and ``times`` in a row from there), to the
first ``times``, or to every match when neither is given. Where several would apply, the first in the list does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, get_args

from frontdesk.simulator.config import SimulatorError
from frontdesk.simulator.model import READ_KINDS, SEND_KINDS, Kind

FAULTS_MAX = 200
DELAY_MS_MAX = 24 * 3_600_000
ROUTES = ("any", "send", "read", "push", "pong", *get_args(Kind))
Body = Literal["html", "empty", "{}", "truncated", "drip", "drip_head"]


@dataclass(slots=True)
class Match:
    """Which requests: ``route`` is a request kind, ``send`` (create, reply), ``read``, ``any`` of those, ``push``."""

    route: str = "any"
    app: str | None = None
    chat: str | None = None
    nth: int | None = None
    times: int | None = None
    seen: int = 0
    applied: int = 0

    def fits(self, kind: str, app_id: str | None, chat_id: str | None) -> bool:
        """Whether a request of this kind, app and chat is meant at all."""
        if self.route == "send":
            right_route = kind in SEND_KINDS
        elif self.route == "read":
            right_route = kind in READ_KINDS
        elif self.route == "any":
            right_route = kind not in ("push", "pong")
        else:
            right_route = kind == self.route
        return right_route and self.app in (None, app_id) and self.chat in (None, chat_id)

    def count(self) -> bool:
        """Counts one fitting request; whether the fault is due for it."""
        self.seen += 1
        first = self.nth or 1
        times = self.times if self.times is not None else (1 if self.nth is not None else None)
        return self.seen >= first and (times is None or self.seen < first + times)


@dataclass(slots=True)
class Fault:
    """One fault for provider routes. See ``README.md`` for each knob; unset knobs do nothing."""

    match: Match
    delay_ms: int = 0
    delay_at: Literal["accept", "answer"] = "answer"
    accept_then_drop: bool = False
    drop_before_accept: bool = False
    status: int | None = None
    code: int | None = None
    msg: str = "simulated fault"
    headers: dict[str, str] = field(default_factory=dict)
    accept: bool | None = None
    body: Body | None = None
    drip_ms: int = 200
    redirect: str | None = None
    message_id: str | None = None
    token_expired: bool = False
    reorder: Literal["reverse", "shuffle"] | None = None
    stall: bool = False
    repeat_page: bool = False
    rewrite: dict[str, Any] | None = None
    date_offset_ms: int = 0
    no_date: bool = False
    then: dict[str, Any] | None = None

    @property
    def label(self) -> str:
        """The set knobs' names, for the observer."""
        return _label(self)

    def handles_request(self) -> bool:
        """Whether the request is carried out although its answer is not the usual one."""
        if self.accept is not None:
            return self.accept
        return self.status is None and self.code is None and self.redirect is None


@dataclass(slots=True)
class PushFault:
    """One fault for event pushes. ``attempts`` limits signing oddities to the first n attempts of a push (0 = all)."""

    match: Match
    duplicate: int = 0
    reorder: int = 0
    delay_ms: int = 0
    new_event_id: bool = False
    drop: bool = False
    bad_signature: bool = False
    unsigned: bool = False
    plaintext: bool = False
    old_timestamp: bool | int = False
    wrong_tenant: bool = False
    wrong_app: bool = False
    wrong_token: bool = False
    other_type: bool | str = False
    lower_headers: bool = False
    fragments: int = 1
    via: Literal["", "webhook", "ws"] = ""
    attempts: int = 0

    @property
    def label(self) -> str:
        """The set knobs' names, for the observer."""
        return _label(self)


def _label(fault: Fault | PushFault) -> str:
    names = []
    for entry in fields(fault):
        value = getattr(fault, entry.name)
        if entry.name in ("match", "msg", "drip_ms", "delay_at", "attempts", "headers") or value is None:
            continue
        if value is not False and value not in ("", 0, [], {}) and not (entry.name == "fragments" and value == 1):
            names.append(entry.name)
        elif entry.name == "message_id":
            names.append(entry.name)  # the empty message id *is* the fault
    return ",".join(names) or "none"


class FaultList:
    """The faults in force."""

    def __init__(self) -> None:
        self.items: list[Fault | PushFault] = []

    def replace(self, items: list[Fault | PushFault]) -> None:
        """Puts a new list in place of the old one, all counters at zero."""
        self.items = items

    def take(self, kind: str, app_id: str | None, chat_id: str | None) -> Fault | None:
        """The fault for a provider request, counted."""
        chosen = self._take(kind, app_id, chat_id)
        return chosen if isinstance(chosen, Fault) else None

    def take_push(self, app_id: str, chat_id: str | None) -> PushFault | None:
        """The fault for a new push, counted."""
        chosen = self._take("push", app_id, chat_id)
        return chosen if isinstance(chosen, PushFault) else None

    def _take(self, kind: str, app_id: str | None, chat_id: str | None) -> Fault | PushFault | None:
        chosen: Fault | PushFault | None = None
        for fault in self.items:
            if fault.match.fits(kind, app_id, chat_id) and fault.match.count() and chosen is None:
                chosen = fault
                fault.match.applied += 1
        return chosen


# -- reading a list of faults ----------------------------------------------------------------------------------------

_CHOICES: dict[str, tuple[Any, ...]] = {
    "delay_at": ("accept", "answer"),
    "body": get_args(Body),
    "via": ("", "webhook", "ws"),
}
_TEXT = {"msg", "message_id"}
_FLAGS = {
    *("accept_then_drop", "drop_before_accept", "accept", "token_expired", "stall", "repeat_page", "no_date"),
    *("new_event_id", "drop", "bad_signature", "unsigned", "plaintext"),
    *("wrong_tenant", "wrong_app", "wrong_token", "lower_headers"),
}
_NUMBERS = {"delay_ms": DELAY_MS_MAX, "status": 599, "code": 2**63, "drip_ms": 60_000, "nth": 10**6, "times": 10**6}
_NUMBERS |= {"duplicate": 1_000, "fragments": 100, "attempts": 10}
_REWRITE_KEYS = {"message_id", "content", "text", "sender_id", "sender_type", "parent_id", "root_id", "msg_type"}
_REWRITE_KEYS |= {"create_time", "deleted", "updated", "chat_id"}
_THEN_KEYS = {"recall", "edit", "text", "once"}


def parse_faults(value: object) -> list[Fault | PushFault]:
    """Reads ``[{...}]`` or ``{"faults": [{...}]}``; an unknown knob or a wrong type raises :class:`SimulatorError`."""
    rows = value.get("faults") if isinstance(value, dict) else value
    if not isinstance(rows, list) or len(rows) > FAULTS_MAX:
        raise SimulatorError(f"faults is a list of at most {FAULTS_MAX} objects")
    return [_parse_fault(index, row) for index, row in enumerate(rows)]


def _parse_fault(index: int, row: object) -> Fault | PushFault:
    if not isinstance(row, dict):
        raise SimulatorError(f"fault {index} is not an object")
    knobs = dict(row)
    match = _build(Match, knobs.pop("match", {}), f"fault {index} match", {"seen", "applied"})
    if match.route not in ROUTES:
        raise SimulatorError(f"fault {index} match.route is one of {', '.join(ROUTES)}")
    if match.route == "push":
        return _build(PushFault, {**knobs, "match": match}, f"fault {index}", set())
    return _build(Fault, {**knobs, "match": match}, f"fault {index}", set())


Built = TypeVar("Built", Match, Fault, PushFault)


def _build(cls: type[Built], values: object, where: str, closed: set[str]) -> Built:
    if not isinstance(values, Mapping):
        raise SimulatorError(f"{where} is not an object")
    known = {entry.name for entry in fields(cls)} - closed
    for name, value in values.items():
        if name not in known:
            raise SimulatorError(f"{where}: unknown knob {name!r}; known are {', '.join(sorted(known - {'match'}))}")
        if not _good_value(cls, name, value):
            raise SimulatorError(f"{where}: bad value for {name!r}")
    return cls(**values)


def _good_value(cls: type, name: str, value: object) -> bool:
    if name == "match":
        return True
    if name in _CHOICES:
        return value in _CHOICES[name]
    if name in _FLAGS:
        return isinstance(value, bool)
    if name in _NUMBERS:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _NUMBERS[name]
    if name == "reorder":
        return value in ("reverse", "shuffle") if cls is Fault else isinstance(value, int) and 0 <= value <= 1_000
    if name in ("old_timestamp", "date_offset_ms"):
        return isinstance(value, int)
    if name == "other_type":
        return isinstance(value, (bool, str))
    return _good_object(name, value)


def _good_object(name: str, value: object) -> bool:
    if name == "headers":
        return isinstance(value, dict) and all(_header_text(k) and _header_text(v) for k, v in value.items())
    if name == "rewrite":
        return isinstance(value, dict) and set(value) <= _REWRITE_KEYS
    if name == "then":
        return isinstance(value, dict) and set(value) <= _THEN_KEYS and ("recall" in value or "edit" in value)
    return isinstance(value, str) and (name in _TEXT or value != "") and "\r" not in value and "\n" not in value


def _header_text(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable()
