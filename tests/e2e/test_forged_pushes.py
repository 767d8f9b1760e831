"""Journey 12: forged and odd pushes against a real server."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from frontdesk.simulator import signing
from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.rig import House

MARKER = "zanzibar-4711"
BODY_BYTES_MAX = 262_144


def event(house: House, *, token: str | None = None, event_type: str = "im.message.receive_v1") -> str:
    """A private message of the house's person, as the provider would write it."""
    example = house.example
    header = {
        "event_id": "evt-" + "0" * 28,
        "event_type": event_type,
        "create_time": str(int(time.time() * 1000)),
        "token": token or example.app["verification_token"],
        "app_id": example.app["app_id"],
        "tenant_key": example.app["tenant_key"],
    }
    sender = {"sender_id": {"open_id": example.person["open_id"]}, "sender_type": "user"}
    message = {
        "message_id": "om_" + "f" * 32,
        "chat_id": example.person["chat_id"],
        "chat_type": "p2p",
        "message_type": "text",
        "create_time": header["create_time"],
        "content": json.dumps({"text": MARKER}),
    }
    return json.dumps({"schema": "2.0", "header": header, "event": {"sender": sender, "message": message}})


def signed(body: bytes, key: str, *, lower: bool = False, forged: bool = False) -> dict[str, str]:
    """The provider's headers for a body."""
    timestamp, nonce = str(int(time.time())), "nonce-1"
    signature = "0" * 64 if forged else signing.sign(body, key, timestamp, nonce)
    names = ("X-Lark-Request-Timestamp", "X-Lark-Request-Nonce", "X-Lark-Signature")
    headers = dict(zip(names, (timestamp, nonce, signature), strict=True)) | {"Content-Type": "application/json"}
    return {name.lower(): value for name, value in headers.items()} if lower else headers


def requests(house: House) -> Iterator[tuple[str, int, str, dict[str, Any]]]:
    """Each odd push: its name, the status it gets, its method, and what else makes it up."""
    key = house.example.app["encrypt_key"]
    other = "another-key-of-the-same-shape-00"
    good = signing.encrypted_body(event(house), key)
    bad_token = signing.encrypted_body(event(house, token="wrong-token"), key)
    bad_key = signing.encrypted_body(event(house), other)
    large = b'{"encrypt":"' + b"A" * (BODY_BYTES_MAX + 1 - 14) + b'"}'
    assert len(large) == BODY_BYTES_MAX + 1
    twice = b'{"encrypt":"AAAA","encrypt":' + json.dumps(json.loads(good)["encrypt"]).encode() + b"}"
    deep = b'{"encrypt":' + b"[" * 60_000 + b"]" * 60_000 + b"}"
    packed = gzip.compress(good)
    yield "plaintext", 400, "POST", {"content": event(house).encode(), "headers": signed(event(house).encode(), key)}
    yield "plaintext challenge", 400, "POST", {"content": b'{"type":"url_verification","challenge":"c","token":"t"}'}
    yield "wrong token", 500, "POST", {"content": bad_token, "headers": signed(bad_token, key)}
    yield "wrong key", 500, "POST", {"content": bad_key, "headers": signed(bad_key, other)}
    yield "unsigned event", 500, "POST", {"content": good}
    yield "forged signature", 500, "POST", {"content": good, "headers": signed(good, key, forged=True)}
    lower = signed(good, key, lower=True, forged=True)
    yield "forged signature, lower-case names", 500, "POST", {"content": good, "headers": lower}
    missing = {name: value for name, value in signed(good, key).items() if name != "X-Lark-Request-Nonce"}
    yield "one header missing", 400, "POST", {"content": good, "headers": missing}
    yield "256 KiB + 1", 413, "POST", {"content": large, "headers": signed(large, key)}
    yield "256 KiB + 1, streamed", 413, "POST", {"content": _stream(large), "headers": signed(large, key)}
    yield "duplicate keys", 400, "POST", {"content": twice, "headers": signed(twice, key)}
    yield "deep nesting", 400, "POST", {"content": deep, "headers": signed(deep, key)}
    yield "gzip", 415, "POST", {"content": packed, "headers": {**signed(packed, key), "Content-Encoding": "gzip"}}
    yield "GET", 401, "GET", {"headers": signed(b"", key)}
    yield "PUT", 401, "PUT", {"content": good, "headers": signed(good, key)}


async def _stream(body: bytes) -> Any:
    for start in range(0, len(body), 65_536):
        yield body[start : start + 65_536]


async def test_forged_and_odd_pushes_are_refused(copy_house: Copy) -> None:
    """No forged or odd push is answered 200, writes a row, or brings out a secret, in a body or in the log."""
    async with copy_house() as house:
        example = house.example
        server = await house.serve()
        await house.listen()
        path = example.installation["callback_path"]
        anyone = house.client()
        before = house.counts()
        wrong: list[str] = []
        bodies: list[str] = []
        for name, status, method, request in requests(house):
            answer = await anyone.request(method, path, **request)
            wrong += _wrong(name, status, answer)
            bodies.append(answer.text)
        good = signing.encrypted_body(event(house), example.app["encrypt_key"])
        headers = signed(good, example.app["encrypt_key"])
        for odd in (path + "/", path.replace("/events", "%2Fevents"), path + "/x", path.replace("feishu", "lark")):
            answer = await anyone.post(odd, content=good, headers=headers)
            wrong += _wrong(odd, 401, answer)
            bodies.append(answer.text)
        assert not wrong, "\n".join(wrong)
        assert house.counts() == before, "a refused push writes nothing"
        # The same bytes at the right address are a message: every refusal above had its own reason.
        answer = await anyone.post(path, content=good, headers=headers)
        assert (answer.status_code, answer.json()) == (200, {"msg": "success"})
        assert house.counts()["receipts"] == before["receipts"] + 1
        secrets = [example.app[name] for name in ("app_secret", "encrypt_key", "verification_token")]
        for text in (*bodies, server.text):
            assert not [secret for secret in (*secrets, MARKER) if secret in text]
            assert "Traceback" not in text


def _wrong(name: str, status: int, answer: httpx2.Response) -> list[str]:
    """What is not as it should be with one refusal."""
    if answer.status_code != status or answer.headers["content-type"] != "application/problem+json":
        return [f"{name}: {answer.status_code} {answer.text[:200]}"]
    return []


async def counted(house: House, reason: str) -> float:
    """How many verified events were acknowledged without a row, for a reason."""
    answer = await house.example.api.get("/metrics")
    assert answer.status_code == 200
    found = re.search(rf'^frontdesk_ignored_events_total{{reason="{reason}"}} (\S+)$', answer.text, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def first_status(house: House, **push: Any) -> int:
    """What the first attempt of a push was answered."""
    body = {"app_id": house.example.app["app_id"], "wait": True, "redeliver": False, **push}
    made = await house.example.simulate("POST", "/_sim/push", json=body)
    return int(made["pushes"][0]["attempts"][0]["status"])


@pytest.mark.spec("DESK-46")
async def test_an_unknown_signed_event_is_acknowledged_and_counted(copy_house: Copy) -> None:
    """A validly signed event of a type the desk does not handle, known to the SDK or not, is acknowledged 200 and
    counted; it leaves no row.
    """
    async with copy_house() as house:
        await house.serve()
        await house.listen()
        before, rows = await counted(house, "unsupported_event"), house.counts()
        for event_type in ("im.chat.updated_v1", "im.message.message_read_v1", "no.such.event_v9"):
            assert await first_status(house, event_type=event_type, event={"x": 1}) == 200
        assert await counted(house, "unsupported_event") == before + 3
        assert house.counts() == rows


async def test_exchanged_key_and_token_are_named(copy_house: Copy) -> None:
    """With encrypt key and verification token exchanged, pushes stay refused and write nothing, and `probe` says
    `credentials_swapped`; put right, the same message is answered.
    """
    async with copy_house() as house:
        example = house.example
        await house.serve()
        await house.listen()
        path = f"{example.workspace}/installations/{example.installation['id']}"
        key, token = example.app["encrypt_key"], example.app["verification_token"]
        await example.call("PATCH", path, json={"encrypt_key": token, "verification_token": key})
        before = house.counts()
        message = await rig.say(example, "What is Frontdesk?", wait=True)
        (push,) = await rig.pushes_of(example, message)
        assert push["attempts"][0]["status"] == 500
        assert house.counts() == before
        probe = await example.call("POST", path + "/probe", json={})
        assert probe == {"token": "ok", "bot_info": "ok", "verification": "credentials_swapped", "provider_code": None}
        assert await first_status(house, event_type="im.chat.updated_v1", event={"x": 1}) == 500
        await example.call("PATCH", path, json={"encrypt_key": key, "verification_token": token})
        await example.simulate("POST", "/_sim/push", json={"message_id": message})
        await house.answered(message)
