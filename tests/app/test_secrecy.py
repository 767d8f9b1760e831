"""Planted markers through a whole small journey: what is said, logged and kept holds none of them where it must not."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from frontdesk.app import reception
from frontdesk.app.example import Example
from frontdesk.app.telemetry import configure_logging
from frontdesk.channels.feishu import FeishuChannel
from tests.app.conftest import PASSWORD, Running, Serve, tables
from tests.simulator.harness import Sim

QUESTION = "marker-question-4711 what is Frontdesk"
TITLE = "marker-title-4712"
NAMES = ("app_secret", "encrypt_key", "verification_token", "bot_open_id")


class Heard:
    """Every HTTP answer of the server to this test's clients."""

    def __init__(self, running: Running, example: Example) -> None:
        self.answers: list[tuple[str, str]] = []
        example.api.event_hooks["response"].append(self._keep)

    async def _keep(self, answer: Any) -> None:
        await answer.aread()
        self.answers.append((f"{answer.request.method} {answer.request.url.path}", answer.text))

    def without(self, *allowed: str) -> str:
        """All bodies but those of the named routes, whose purpose it is to show the thing."""
        return "\n".join(
            f"{where} {body}" for where, body in self.answers if not any(re.search(a, where) for a in allowed)
        )


async def journey(example: Example) -> dict[str, str]:
    """Bind, authorise, ask, be refused, look at everything; gives what was secret in it."""
    example.title = TITLE
    await example.prepare()
    sent = await example.say(QUESTION, reply=True)

    async def answered() -> bool:
        return bool(await example.answers_to(sent))

    await example.until("the answer", answered)
    await example.say("/bind FDB_00000000000000000000")
    await example.say("my password = hunter2-marker-4713", reply=True)
    issued = await example.call(
        "POST", f"{example.workspace}/installations/{example.installation['id']}/binding-challenges", json={}
    )
    for path in ("receipts", "deliveries", "events", "installations", "conversations", "members"):
        await example.call("GET", f"{example.workspace}/{path}")
    await example.call("GET", f"{example.workspace}/installations/{example.installation['id']}/health")
    await example.call("POST", f"{example.workspace}/installations/{example.installation['id']}/probe")
    await example.call("GET", f"{example.project}/reply-grants/{example.grant_id}/timeline")
    for method, path, body in (
        ("POST", "/session", {"username": "owner", "password": "wrong-marker-4714"}),
        ("PATCH", f"{example.workspace}/installations/ins_x", {"app_secret": "marker-4715"}),
        ("POST", f"{example.workspace}/conversations", {"title": "marker-4716" * 40}),
        ("POST", f"{example.workspace}/conversations", {"unknown": "marker-4717"}),
    ):
        refused = await example.api.request(method, "/api/v1" + path, json=body)
        assert refused.status_code >= 400
    chat = {"sender": example.person["open_id"], "chat": example.person["chat_id"]}
    return chat | {
        "code": issued["command_text"].split(" ")[1],
        "token": str(example.api.headers["Authorization"]).removeprefix("Bearer "),
        **{name: example.app[name] for name in NAMES},
    }


def file_bytes(data: Path) -> bytes:
    """The database as it lies on the disk."""
    return b"".join(path.read_bytes() for path in data.glob("frontdesk.db*"))


async def test_a_journey_leaves_no_secret_in_logs_errors_rows_or_answers(
    data: Path, serve: Serve, simulator: Sim, capfd: pytest.CaptureFixture[str]
) -> None:
    """Message text, codes, secrets, tokens, persons, chats and the bot stay out of logs; secrets and codes out of rows;
    and out of every answer but the one whose purpose each is.
    """
    configure_logging("debug")
    async with serve(data, feishu_domain=simulator.base, log_level="debug") as running:
        example = await running.example(simulator, "secrecy")
        heard = Heard(running, example)
        secret = await journey(example)
        metrics = await example.api.get("/metrics")
        status = await example.api.get("/")
    logs = "".join(capfd.readouterr())
    assert "sending.concluded" in logs
    assert "desk.connections.probe" in logs
    texts = {"question": QUESTION, "title": TITLE, "password": PASSWORD, "typed": "marker-471", "hunter": "hunter2"}
    for name, clear in {**secret, **texts}.items():
        assert clear not in logs, f"{name} is in the logs"
        assert clear not in metrics.text, f"{name} is in the metrics"
        assert clear not in status.text, f"{name} is on the status page"

    for name in ("app_secret", "encrypt_key", "verification_token", "token", "bot_open_id", "sender", "chat"):
        assert secret[name] not in heard.without(), f"{name} is in an answer"
    assert secret["code"] not in heard.without(r"/binding-challenges$")
    assert QUESTION not in heard.without()
    for marker in ("wrong-marker-4714", "marker-4715", "marker-4716", "marker-4717", "hunter2"):
        assert marker not in heard.without(), f"{marker} came back"

    kept = repr(tables(data / "frontdesk.db"))
    raw = file_bytes(data)
    for name in ("app_secret", "encrypt_key", "verification_token", "token", "code"):
        assert secret[name] not in kept, f"{name} is kept in clear"
        assert secret[name].encode() not in raw, f"{name} lies in the file"
    assert "hunter2" not in kept
    assert QUESTION in kept, "what the person asked is what the desk keeps"


async def push(example: Example, text: str) -> list[dict[str, Any]]:
    """The answers to the pushes of one message."""
    body = {"app_id": example.app["app_id"], "person": example.person["open_id"], "text": text, "wait": True}
    sent = await example.simulate("POST", "/_sim/send", json=body)
    seen = await example.simulate("GET", "/_sim/pushes", params={"message_id": sent["message_id"]})
    return list(seen["items"][0]["attempts"])


@pytest.mark.parametrize("how", ["normalising", "commit failed", "commit late"])
async def test_a_push_that_fails_inside_is_a_constant_500_and_a_code_in_the_log(
    how: str,
    data: Path,
    serve: Serve,
    simulator: Sim,
    *,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The webhook half of the rule: the marker of the message and of the exception is in neither answer nor log."""
    configure_logging("debug")
    marker = f"marker-{how.replace(' ', '-')}-4720"
    async with serve(data, feishu_domain=simulator.base) as running:
        example = await running.example(simulator, how)
        await example._find_place()
        await example.connect()
        go, began = threading.Event(), threading.Event()

        def broken(*_: Any, **__: Any) -> Any:
            raise RuntimeError(marker)

        def hold(_: Any) -> None:
            began.set()
            go.wait(20)

        with monkeypatch.context() as patch:
            if how == "normalising":
                patch.setattr(FeishuChannel, "verify", broken)
            elif how == "commit failed":
                patch.setattr(reception.inbox, "receive", broken)
            else:
                holding = asyncio.ensure_future(running.process.database.write(hold))
                assert await asyncio.to_thread(began.wait, 10)
            attempts = await push(example, f"{marker} in a message")
        go.set()
        if how == "commit late":
            await holding
    assert attempts
    assert attempts[0]["status"] == 500, attempts
    logs = "".join(capfd.readouterr())
    assert "desk.inbox.callback" in logs
    assert marker not in logs
    assert marker not in json.dumps(attempts)
