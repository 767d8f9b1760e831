"""A pytest plugin that looks through what a whole run logged, answered and reported for what must never be there.

While a test runs, what comes in from outside is noted: the text, sender and chat of each message that reception takes,
the bot's id, each text that leaves. With the shapes of tokens, codes and claims, and the markers that the suite plants
in secrets, exceptions, provider answers and SQL parameters (`planted-…`, `marker-…`), it is then looked for in

    what the test's processes wrote        captured output and log records; for servers of their own, their log files
    refusals                               the body of every answer of 400 and above of the product's application
    exceptions                             what loops, threads and destructors reported, which is captured output too

A find fails the test that caused it. Successful answers are looked through for people's chat accounts alone: their
purpose is to show texts. What a test reads itself from a capture is its own to judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

SHAPES = {
    "a token or claim": re.compile(r"\bfd[a-z]_[A-Za-z0-9_-]{32,}"),
    "a binding code": re.compile(r"\bfdb_[0-9A-HJKMNP-TV-Z]{20}\b", re.IGNORECASE),
    "a planted marker": re.compile(r"\b(?:(?:planted|marker)-[a-z0-9-]+|PROVIDER-TEXT-MARKER)", re.IGNORECASE),
    "a chat account": re.compile(r"\bo[uc]_[A-Za-z0-9]+"),
}
SHORTEST = 5  # a noted text below this could stand in any log line by chance
LOGGED = re.compile(r"^(?:Captured (?:stdout|stderr|log))")

_noted: set[str] = set()
_found: list[str] = []


def note(*values: str | None) -> None:
    """Something came in that may not come out."""
    _noted.update(value for value in values if value is not None and len(value) >= SHORTEST)


def leaks(text: str, *, shapes: dict[str, re.Pattern[str]] = SHAPES, noted: bool = True) -> list[str]:
    """What of the forbidden stands in a text: the kind, never the value."""
    found = [name for name, shape in shapes.items() if shape.search(text)]
    if noted and any(value in text for value in _noted):
        found.append("a text, sender or chat of this test")
    return found


# ---------------------------------------------------------------------------------------------- what comes in


def _watch_reception() -> None:
    from frontdesk.desk import outbox
    from frontdesk.desk.inbox import reading, reception
    from frontdesk.desk.outbox import service

    read, confirm = reading.read_around, service.confirm

    def reading_around(tx: Any, messages: Any) -> Any:
        for _, message in messages:
            note(message.text, message.sender_id, message.chat_id)
        return read(tx, messages)

    def confirming(tx: Any, delivery: Any, *given: Any) -> Any:
        note(delivery.text, delivery.chat_id)
        return confirm(tx, delivery, *given)

    reception.read_around = reading_around  # type: ignore[assignment]
    outbox.confirm = service.confirm = confirming


# ---------------------------------------------------------------------------------------------- what goes out

_IN_ANSWERS = {name: SHAPES[name] for name in ("a chat account",)}


def watch_answers(call: Any) -> Any:
    """The application's `__call__`, its answers looked through."""

    async def called(self: Any, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not hasattr(self, "looked_through"):
            await call(self, scope, receive, send)
            return
        status, body = 0, bytearray()

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                body.extend(message.get("body", b""))
            await send(message)

        await call(self, scope, receive, sending)
        said = bytes(body).decode("utf-8", errors="replace")
        found = leaks(said) if status >= 400 else leaks(said, shapes=_IN_ANSWERS, noted=False)
        _found.extend(f"{kind} in the answer {status} to {scope['method']}" for kind in found)

    return called


def _watch_answers() -> None:
    from frontdesk.api.application import Api
    from frontdesk.api.desk.callback import Callback

    Callback.looked_through = Api.looked_through = True  # type: ignore[attr-defined]
    Callback.__call__ = watch_answers(Callback.__call__)  # type: ignore[method-assign]


# ---------------------------------------------------------------------------------------------- hooks


def pytest_configure() -> None:
    """Watch in every process of the run."""
    _watch_reception()
    _watch_answers()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Iterator[None]:
    """Nothing of an earlier test is held against this one."""
    _noted.clear()
    _found.clear()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """A phase that went well fails where it told what it may not."""
    report: pytest.TestReport = yield
    if report.outcome == "passed" and item.get_closest_marker("tells") is None:
        found = list(_found)
        for title, text in report.sections:
            if LOGGED.match(title) and title.endswith(report.when or ""):
                found += [f"{kind} in what is captured as {title!r}" for kind in leaks(text)]
        if found:
            _found.clear()
            report.outcome = "failed"
            report.longrepr = "; ".join(dict.fromkeys(found))
    return report
