"""The look-out that stands over the whole suite: each kind of leak is planted here once, and found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
import structlog

from frontdesk.api.application import Api
from frontdesk.api.desk import callback
from frontdesk.api.desk.callback import Callback
from frontdesk.app import reception as door
from frontdesk.desk.inbox import reception
from tests.contract.whole.house import House
from tests.support import secrecy

ACCOUNT, CHAT, BOT = "ou_" + "a1" * 16, "oc_" + "b2" * 16, "ou_" + "c3" * 16
LEAKS = {
    "message text": "who-may-read-this",
    "answer text": "Answer to who-may-read-this",
    "sender": ACCOUNT,
    "chat": CHAT,
    "bot": BOT,
    "claim": "fdc_" + "x" * 32,
    "binding code": "FDB_0123456789ABCDEFGHJK",
    "token": "fdt_" + "y" * 43,
    "session": "fdu_" + "z" * 43,
    "secret": "planted-app-secret",
    "provider's answer": "marker-raw-provider-answer",
    "provider's text": "PROVIDER-TEXT-MARKER",
    "exception": "marker-4711-must-not-show",
}


def reported(kind: str, *sections: tuple[str, str], marker: Any = None) -> pytest.TestReport:
    """What becomes of a passed phase with these captures."""
    report = pytest.TestReport("t", ("t", 1, "t"), {}, "passed", None, "call", sections=list(sections))
    item = SimpleNamespace(get_closest_marker=lambda name: marker)
    hook = secrecy.pytest_runtest_makereport(item, None)  # type: ignore[arg-type]
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send(report)
    assert ended.value.value is report, kind
    return report


@pytest.mark.spec("DESK-216")
@pytest.mark.engine("sqlite")
async def test_whatever_leaks_in_any_test_of_the_suite_fails_it(
    house: House, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every test's output, refusals and reported exceptions are looked through; a unique marker of each kind is found.

    Text, sender and chat are noted where reception takes them, answers where they leave; the rest is known by shape.
    A line of the product that told one of them fails the test that ran it: shown with one that does.
    """
    desk = house.desk
    row = await house.say("/bind " + await house.code(), sender=ACCOUNT, chat=CHAT)
    seat = await desk.seat(binding_id=row["binding"], sender=ACCOUNT, chat=CHAT)
    await house.say(LEAKS["message text"], sender=ACCOUNT, chat=CHAT, parent=seat.activation)
    await desk.work()
    await desk.send()
    (answer,) = desk.channel.sent
    assert {LEAKS["message text"], ACCOUNT, CHAT, answer.text} <= secrecy._noted

    line = '{{"event": "desk.inbox.callback", "status": 500, "code": "{}"}}'
    assert reported("nothing", ("Captured stderr call", line.format("callback_not_accepted"))).outcome == "passed"
    for kind, value in {**LEAKS, "answer text": str(answer.text)}.items():
        for title in ("Captured stdout call", "Captured stderr call", "Captured log call"):
            report = reported(kind, (title, line.format(value)))
            assert (kind, title, report.outcome) == (kind, title, "failed")
            assert value not in str(report.longrepr), "the find itself tells it"
        assert reported(kind, ("Captured stderr setup", line.format(value))).outcome == "passed", "another phase's"

    # Answers: a refusal that tells any of it, and any answer that tells a chat account.
    said = {"status": 400, "text": ""}

    class Telling:
        looked_through = True

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": said["status"], "headers": []})
            for letter in (said["text"][:7], said["text"][7:]):
                await send({"type": "http.response.body", "body": letter.encode(), "more_body": True})
            await send({"type": "http.response.body", "body": b""})

    Telling.__call__ = secrecy.watch_answers(Telling.__call__)  # type: ignore[method-assign]
    transport = httpx2.ASGITransport(app=Telling())
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for kind, value in LEAKS.items():
            for status in (400, 500, 200):
                said.update(status=status, text=f'{{"detail": "{value}"}}')
                await client.get("/")
                expected = status >= 400 or kind in ("sender", "chat", "bot")
                assert (kind, status, bool(secrecy._found)) == (kind, status, expected)
                secrecy._found.clear()
    for application in (Api, Callback):
        assert application.looked_through  # type: ignore[attr-defined]

    # The product itself, made to tell: in a log line, and in a refusal.
    telling = reception.receive

    def logging(tx: Any, installation_id: str, event: Any, **named: Any) -> Any:
        structlog.get_logger("frontdesk").warning("desk.inbox.receive", code=event.text)
        return telling(tx, installation_id, event, **named)

    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(door.inbox, "receive", logging)
        await house.say("never-to-be-logged", sender=ACCOUNT, chat=CHAT)
    out = capsys.readouterr().out
    assert reported("a telling product", ("Captured stdout call", out)).outcome == "failed"
    with monkeypatch.context() as patch:
        patch.setitem(callback._NOT_AUTHENTIC.body, "body", b'{"detail": "' + CHAT.encode() + b'"}')
        await house.push(house.message("forged", "om_f"), key="another-key")
    assert secrecy._found == ["a chat account in the answer 500 to POST", *secrecy._found[1:]]
    secrecy._found.clear()
