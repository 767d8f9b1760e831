"""A listener beside a served process: which secrets it needs, and what neither the SDK nor a log gets to see."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from frontdesk.app import reception
from frontdesk.app.example import Example
from frontdesk.app.listener import Ending, Listener, Patience
from frontdesk.app.telemetry import FOREIGN, configure_logging
from frontdesk.channels.feishu import line, line_client, sdk, verify
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND
from tests.app.conftest import Running, Serve, tables
from tests.app.test_doctor import asking, look, of
from tests.simulator import harness
from tests.simulator.harness import Sim

WAIT_S = 60.0


@pytest.fixture(scope="module")
def simulator() -> Iterator[Sim]:
    """One that waits for an answer as long as a busy machine needs for it."""
    with harness.running(answer_timeout_ms=60_000) as sim:
        yield sim


@contextlib.asynccontextmanager
async def listening(
    running: Running, installation_id: str, *, commit_wait_s: float = WAIT_S
) -> AsyncIterator[asyncio.Task[Ending]]:
    """A connected listener on the served process's data folder; it stops at the end of the block."""
    patience = Patience(look_s=0.02, commit_wait_s=commit_wait_s)
    listener = Listener(running.settings, running.data, installation_id, patience=patience)
    stop, ready = asyncio.Event(), asyncio.Event()

    async def stopped() -> None:
        await stop.wait()

    task = asyncio.create_task(listener.run(stopped, ready.set))
    waiting = asyncio.ensure_future(ready.wait())
    try:
        await asyncio.wait({task, waiting}, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        assert ready.is_set()
        yield task
    finally:
        waiting.cancel()
        stop.set()
        await asyncio.wait({task}, timeout=WAIT_S)


async def connect(running: Running, simulator: Sim, name: str, *secrets: str) -> Example:
    """A connection by long connection with the app secret and these, its callback address known to the provider."""
    example = await running.example(simulator, name)
    await example._find_place()
    example.app = await example.simulate("POST", "/_sim/apps", json={"name": name})
    example.person = await example.simulate(
        "POST", "/_sim/people", json={"name": "Ada", "app_id": example.app["app_id"]}
    )
    named = {each: example.app[each] for each in ("app_id", "tenant_key", "app_secret", *secrets)}
    body = {"channel": "feishu", "name": name, "inbound": "long_connection", "command_language": "en"}
    example.installation = await example.call("POST", f"{example.workspace}/installations", json=body | named)
    url = running.address + example.installation["callback_path"]
    await example.simulate("PUT", f"/_sim/apps/{example.app['app_id']}/callback", json={"url": url})
    return example


async def give(example: Example, *secrets: str) -> None:
    """Enter further secrets of the connection."""
    path = f"{example.workspace}/installations/{example.installation['id']}"
    await example.call("PATCH", path, json={each: example.app[each] for each in secrets})


async def said(example: Example, text: str) -> tuple[str, list[dict[str, Any]]]:
    """A message of the person and the attempts to hand it over."""
    body = {"app_id": example.app["app_id"], "person": example.person["open_id"], "text": text, "wait": True}
    sent = await example.simulate("POST", "/_sim/send", json=body)
    seen = await example.simulate("GET", "/_sim/pushes", params={"message_id": sent["message_id"]})
    return str(sent["message_id"]), list(seen["items"][0]["attempts"])


async def pushed(example: Example, message_id: str, via: str) -> int:
    """How a further push by that way was answered; a 500, which a busy machine's late commit is, is pushed anew."""
    while True:
        body = {"message_id": message_id, "via": via, "wait": True, "redeliver": False}
        made = await example.simulate("POST", "/_sim/push", json=body)
        push = await example.simulate("GET", f"/_sim/pushes/{made['push']}")
        if push["attempts"][0]["status"] != 500:
            return int(push["attempts"][0]["status"])


@pytest.mark.spec("DESK-276")
async def test_the_app_secret_is_enough_and_the_webhook_needs_the_others_too(
    data: Path, serve: Serve, simulator: Sim
) -> None:
    """With the app secret alone messages arrive by long connection while the webhook is 503, and so it stays until
    both other secrets are entered, whichever comes first.
    """
    async with serve(data, feishu_domain=simulator.base) as running:
        example = await connect(running, simulator, "secret alone")
        path = f"{example.workspace}/installations/{example.installation['id']}/health"
        found = await example.call("GET", path)
        assert (found["status"], found["callback_ready"], found["long_connection"]) == ("active", True, "stopped")
        async with listening(running, example.installation["id"]):
            assert (await example.call("GET", path))["long_connection"] == "connected"
            message, attempts = await said(example, "hello")
            assert [(each["via"], each["status"]) for each in attempts] == [("ws", 200)]
            rows = tables(data / "frontdesk.db")["receipts"]
            assert len(rows) == 1
            assert await pushed(example, message, "webhook") == 503
            await give(example, "encrypt_key")
            assert await pushed(example, message, "webhook") == 503
            assert tables(data / "frontdesk.db")["receipts"] == rows
            await give(example, "verification_token")
            assert await pushed(example, message, "webhook") == 200
            assert await pushed(example, message, "ws") == 200
            assert tables(data / "frontdesk.db")["receipts"] == rows
        other = await connect(running, simulator, "the other first", "verification_token")
        message, attempts = await said(other, "hello")
        assert [(each["via"], each["status"]) for each in attempts] == [("webhook", 503)]
        await give(other, "encrypt_key")
        assert await pushed(other, message, "webhook") == 200


class Seen:
    """What the SDK gets to see of each failure."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.errors: list[tuple[str, BaseException | None, bool]] = []
        inner = line_client.Handler._do_without_validation

        def watched(handler: line_client.Handler, payload: bytes) -> None:
            try:
                inner(handler, payload)
            except BaseException as error:
                self.errors.append((str(error), error.__cause__, error.__suppress_context__))
                raise

        patch.setattr(line_client.Handler, "_do_without_validation", watched)


@pytest.mark.spec("DESK-217")
@pytest.mark.parametrize("way", ["webhook", "long connection"])
@pytest.mark.parametrize("how", ["normalising", "commit failed", "commit late"])
async def test_what_fails_inside_is_a_constant_and_a_code_in_the_log(
    way: str,
    how: str,
    data: Path,
    serve: Serve,
    simulator: Sim,
    *,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """An exception while normalising, a failed commit and a late one are a constant 500 to the provider, and on the
    long connection a constant without a cause to the SDK; the log has a code, and the marker is in none of them.
    """
    configure_logging("debug")
    marker = f"marker-{how.replace(' ', '-')}-4731"
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(serve(data, feishu_domain=simulator.base))
        secrets = ("encrypt_key", "verification_token")
        example = await connect(running, simulator, f"{way} {how}", *secrets)
        if way == "long connection":
            wait_s = limits.CALLBACK_COMMIT_WAIT_US / SECOND
            await stack.enter_async_context(listening(running, example.installation["id"], commit_wait_s=wait_s))
        go, began = threading.Event(), threading.Event()

        def broken(*_: Any, **__: Any) -> Any:
            raise RuntimeError(marker)

        def hold(_: Any) -> None:
            began.set()
            go.wait(WAIT_S)

        with monkeypatch.context() as patch:
            seen = Seen(patch)
            if how == "normalising":
                patch.setattr(verify, "normalise", broken)
                patch.setattr(line, "normalise", broken)
            elif how == "commit failed":
                patch.setattr(reception.inbox, "receive", broken)
            else:
                holding = asyncio.ensure_future(running.process.database.write(hold))
                assert await asyncio.to_thread(began.wait, WAIT_S)
            _, attempts = await said(example, f"{marker} in a message")
        go.set()
        if how == "commit late":
            await holding
    logs = "".join(capfd.readouterr())
    assert attempts[0]["status"] == 500, attempts
    operation = "desk.inbox.callback" if way == "webhook" else "desk.inbox.listen"
    assert re.search(rf'"code": "(callback_not_accepted|internal_error)".*"event": "{operation}"', logs) or (
        how == "commit late" and '"phase": "commit_late"' in logs
    )
    assert marker not in logs
    assert marker not in json.dumps(attempts)
    answer = json.loads(attempts[0]["answer"])
    if way == "webhook":
        assert (answer["code"], answer["status"]) == ("callback_not_accepted", 500)
        assert seen.errors == []
    else:
        assert set(answer) <= {"code", "headers", "data"}
        assert seen.errors == [(str(line_client.EventNotTaken()), None, True)]


@pytest.mark.spec("DESK-329")
async def test_a_listeners_log_names_no_address_and_no_ticket_at_any_level(
    data: Path,
    serve: Serve,
    simulator: Sim,
    *,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Through a connect, a failing event, a cut, a reconnect and a refused one, with every library told to say all:
    no address of a socket, no ticket, no access key and nothing of the SDK's logger gets out, while ours does.
    """
    configure_logging("debug")
    addresses: list[str] = []
    post = line_client.post_endpoint

    def heard(url: str, **named: Any) -> Any:
        answer = post(url, **named)
        addresses.extend(re.findall(r'ws://[^"\\]+', answer.content.decode()))
        return answer

    monkeypatch.setattr(line_client, "post_endpoint", heard)
    async with serve(data, feishu_domain=simulator.base) as running:
        example = await connect(running, simulator, "quiet")
        before = {name: logging.getLogger(name).level for name in FOREIGN}
        try:
            for name in FOREIGN:
                logging.getLogger(name).setLevel(logging.DEBUG)
            async with listening(running, example.installation["id"]) as task:
                with monkeypatch.context() as patch:
                    patch.setattr(reception.inbox, "receive", None)
                    assert (await said(example, "fails"))[1][0]["status"] == 500
                close = {"app_id": example.app["app_id"]}
                await example.simulate("POST", "/_sim/connections/close", json=close)

                async def twice() -> bool:
                    return len(addresses) == 2

                await example.until("the reconnect", twice, WAIT_S)
                assert (await said(example, "works"))[1][0]["status"] in {200, None}
                match = {"route": "endpoint", "app": example.app["app_id"]}
                faults = [{"match": match, "status": 200, "code": 1000040350}]
                await example.simulate("POST", "/_sim/faults", json={"faults": faults})
                await example.simulate("POST", "/_sim/connections/close", json=close)
                await asyncio.wait({task}, timeout=WAIT_S)
                assert task.result() is Ending.REFUSED
        finally:
            await example.simulate("POST", "/_sim/faults", json={"faults": []})
            for name, level in before.items():
                logging.getLogger(name).setLevel(level)
    logs = "".join(capfd.readouterr())
    assert "desk.inbox.listen" in logs
    assert "connect_failed" in logs
    secret = [str(example.app["app_secret"])]
    for address in addresses:
        secret += [address, *(value for _, value in re.findall(r"(ticket|access_key|device_id)=(\w+)", address))]
    assert len(secret) >= 8
    for each in [*secret, "ticket", "access_key", "ws://", "callback/ws"]:
        assert each not in logs
    assert "Lark" not in logs
    assert sdk.drift() == ()


async def test_doctor_says_how_the_listener_stands(data: Path, serve: Serve, simulator: Sim) -> None:
    async with serve(data, feishu_domain=simulator.base) as running:
        example = await connect(running, simulator, "looked at", "encrypt_key", "verification_token")
        name, environment = "connection ", asking(running, simulator, example)

        async def says() -> str:
            lines = [each for each in of(await look(data, **environment), name) if "listener" in each.says]
            assert len(lines) == 1
            return f"{lines[0].status} {lines[0].says}"

        assert await says() == "wrong no listener has ever run for it: no message arrives by long connection"
        async with listening(running, example.installation["id"]):
            assert await says() == "ok a listener has its long connection"
        row = await running.process.database.read(
            lambda tx: reception.connections.find_installation(tx, example.installation["id"])
        )
        assert row is not None
        assert re.fullmatch(
            r"wrong its listener is stopped since 2\S+Z: no message arrives by long connection", await says()
        )
