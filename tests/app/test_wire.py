"""What goes over the wire of a served process: header names as clients write them, and where secrets may travel."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from frontdesk.api.desk import callback
from frontdesk.app import reception
from frontdesk.app.example import owner_token
from frontdesk.app.telemetry import configure_logging
from frontdesk.channels.feishu import sdk
from frontdesk.wire.operations import OPERATIONS
from tests.app.conftest import PASSWORD, Running, Serve, tables
from tests.channels.signing import body_of, headers_for

KEY, VERIFICATION = "wire-encrypt-key", "wire-verification-token"


async def connected(running: Running, client: httpx2.AsyncClient) -> str:
    """An installation of the owner's workspace; the path of its callback."""
    me = (await client.get("/api/v1/me")).json()
    workspace = me["memberships"][0]["workspace_id"]
    secrets = {"app_secret": "wire-app-secret", "encrypt_key": KEY, "verification_token": VERIFICATION}
    body = {"channel": "feishu", "name": "Bot", "app_id": "cli_wire", "tenant_key": "t-wire", **secrets}
    made = await client.post(f"/api/v1/workspaces/{workspace}/installations", json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["callback_path"])


def message(message_id: str) -> dict[str, Any]:
    now_ms = str(time.time_ns() // 1_000_000)
    header = {"event_id": f"ev_{message_id}", "event_type": "im.message.receive_v1", "create_time": now_ms}
    return {
        "schema": "2.0",
        "header": {**header, "token": VERIFICATION, "app_id": "cli_wire", "tenant_key": "t-wire"},
        "event": {
            "sender": {"sender_id": {"open_id": "ou_wire"}, "sender_type": "user", "tenant_key": "t-wire"},
            "message": {
                "message_id": message_id,
                "chat_id": "oc_wire",
                "chat_type": "p2p",
                "message_type": "text",
                "create_time": now_ms,
                "content": json.dumps({"text": "hello"}),
            },
        },
    }


async def exchange(address: str, path: str, headers: list[tuple[str, str]], body: bytes) -> tuple[int, bytes]:
    """One request with its header names exactly as given, and the status line and all else of the answer."""
    host, _, port = address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [f"POST {path} HTTP/1.1", f"host: {host}", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers if name != "host"]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await writer.drain()
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    return int(answer.split(b" ", 2)[1]), answer


@pytest.mark.spec("DESK-279")
async def test_header_names_may_be_lower_case_and_the_sdk_gets_its_own(
    data: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over real HTTP, names in any case: a valid push is accepted, a forged one refused; the SDK reads its own names.

    An HTTP client of today sends lower case, and so is it first said by one.
    """
    asked: list[set[str]] = []
    request = sdk.raw_request

    def watched(headers: dict[str, str], body: bytes) -> Any:
        asked.append(set(headers))
        return request(headers, body)

    monkeypatch.setattr(sdk, "raw_request", watched)
    # How loaded the machine is must not decide an answer.
    monkeypatch.setattr(callback, "_TARGET_WAIT_S", 60.0)
    monkeypatch.setattr(reception, "COMMIT_WAIT_S", 60.0)
    async with serve(data) as running:
        client = running.client(await owner_token(data))
        path = await connected(running, client)
        stranger = running.client()

        async def push(name: str, spell: Any, *, forged: bool) -> int:
            body = body_of(message(name), KEY)
            signed = headers_for(body, KEY, str(int(time.time())))
            if forged:
                signed = [(key, "0" * 64 if key == "x-lark-signature" else value) for key, value in signed]
            headers = [(spell(key), value) for key, value in signed]
            if spell is str.lower:
                named = [pair for pair in headers if pair[0] != "host"]
                answer = await stranger.post(path, content=body, headers=named)
                lower = {key for key, _ in answer.request.headers.raw}
                assert {b"x-lark-signature", b"x-lark-request-timestamp", b"x-lark-request-nonce"} <= lower
                return answer.status_code
            return (await exchange(running.address, path, headers, body))[0]

        for number, spell in enumerate((str.lower, str.title, str.upper)):
            assert await push(f"om_{number}", spell, forged=False) == 200
            assert await push(f"om_forged_{number}", spell, forged=True) == 500
    names = {"X-Lark-Request-Timestamp", "X-Lark-Request-Nonce", "X-Lark-Signature", "X-Request-Id"}
    assert asked
    assert all(found == names for found in asked), asked
    receipts = repr(tables(data / "frontdesk.db")["receipts"])
    assert [f"'om_{number}'" in receipts for number in range(3)] == [True] * 3
    assert "om_forged" not in receipts


# What a one-time secret or a token would be called. `code` in a query is a filter over stable codes: the one-time ones
# are shown as `command_text` and `claim_text` and come back inside messages.
TELLING = re.compile(r"token|secret|claim|password|key|digest|signature|challenge_code|binding_code|command|text")


@pytest.mark.spec("DESK-330")
async def test_one_time_secrets_and_tokens_travel_in_bodies_alone_and_no_query_reaches_a_log(
    data: Path, serve: Serve, capfd: pytest.CaptureFixture[str]
) -> None:
    """No operation takes a secret in its path or query, none given there counts, and no log line shows a query."""
    for operation in OPERATIONS.values():
        names = set(re.findall(r"\{(\w+)\}", operation.path))
        names |= set(operation.query.model_fields) if operation.query is not None else set()
        telling = {name for name in names if TELLING.search(name) and not name.endswith("_id")} - {"forget_secrets"}
        assert not telling, (operation.id, telling)

    configure_logging("debug")
    async with serve(data, log_level="debug") as running:
        token = await owner_token(data)
        client, stranger = running.client(token), running.client()
        events = await connected(running, client)
        me = (await client.get("/api/v1/me")).json()
        workspace = f"/api/v1/workspaces/{me['memberships'][0]['workspace_id']}"
        installation = events.split("/")[-2]
        issued = await client.post(f"{workspace}/installations/{installation}/binding-challenges")
        code = issued.json()["command_text"].split(" ")[1]
        login = await stranger.post("/api/v1/session", json={"username": "owner", "password": PASSWORD})
        session = login.json()["token"]
        secrets = [token, code, session, PASSWORD]
        # A token counts as a bearer's alone.
        for name in ("token", "access_token", "bearer", "authorization", "session"):
            assert (await stranger.get("/api/v1/me", params={name: token})).status_code == 401
        answers = [issued, login]
        for secret in secrets:
            plain = ("/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/nowhere", "/static/status.css")
            for path in (*plain, f"{workspace}/receipts"):
                answers += [await client.get(path, params={"seen": secret})]
            answers.append(await client.get(f"{workspace}/receipts/{secret}"))
            answers.append(await stranger.post(events, params={"seen": secret}, content=b"x"))
            answers.append(await stranger.post(f"{events}/{secret}", content=b"x"))
        # Nothing sends a client to an address with a secret in it.
        for answer in answers:
            assert "location" not in answer.headers
            assert not any(secret in value for secret in secrets for value in answer.headers.values())
    logs = "".join(capfd.readouterr())
    assert "desk.inbox.callback" in logs
    assert "api." in logs
    for secret in secrets:
        assert secret not in logs
    assert "seen=" not in logs
    assert "?" not in logs
