"""The real SDK, unmodified, against the simulator: the typed client, and the long connection in its own process."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulator.harness import Provider, Sim, finish
from tests.support.processes import guarded_environment


def model(name: str) -> Any:
    """A request model of the SDK; each lives in a module of its own and none is re-exported."""
    module = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
    return getattr(importlib.import_module(f"lark_channel.api.im.v1.model.{module}"), name)


@pytest.fixture
def unmodified_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's own transport, read from its source again: Frontdesk's channel puts another one in, process-wide."""
    transport = importlib.import_module("lark_channel.core.http.transport")
    spec = importlib.util.spec_from_file_location("lark_channel.core.http.own_transport", transport.__file__)
    assert spec is not None
    assert spec.loader is not None
    own = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    monkeypatch.setattr(transport, "_sync_requester", own._sync_requester)


@pytest.fixture
def client(desk: Provider, unmodified_sdk: None) -> Iterator[Any]:
    """The SDK's client with its own token handling."""
    from lark_channel import Client
    from lark_channel.core.token.manager import TokenManager

    TokenManager.cache.cache.clear()
    yield (
        Client.builder()
        .app_id(desk.app["app_id"])
        .app_secret(desk.app["app_secret"])
        .domain(desk.sim.base)
        .trust_env_proxy(False)
        .timeout(10)
        .build()
    )
    TokenManager.cache.cache.clear()


def create_request(chat: str, uuid: str, msg_type: str = "text", content: str = '{"text":"hi"}') -> Any:
    body = (
        model("CreateMessageRequestBody")
        .builder()
        .receive_id(chat)
        .msg_type(msg_type)
        .content(content)
        .uuid(uuid)
        .build()
    )
    return model("CreateMessageRequest").builder().receive_id_type("chat_id").request_body(body).build()


def reply_request(target: str, uuid: str, msg_type: str = "text", content: str = '{"text":"hi"}') -> Any:
    body = model("ReplyMessageRequestBody").builder().msg_type(msg_type).content(content).uuid(uuid).build()
    return model("ReplyMessageRequest").builder().message_id(target).request_body(body).build()


@pytest.mark.spec("DESK-355")
def test_the_sync_client_completes_token_bot_info_send_reply_list_and_get(
    client: Any, desk: Provider, sim: Sim
) -> None:
    """Token, bot info, create, reply, list and get of the unmodified SDK succeed, one wire request each."""
    from lark_channel.core.enum import AccessTokenType, HttpMethod
    from lark_channel.core.model import BaseRequest

    request = BaseRequest.builder().http_method(HttpMethod.GET).uri("/open-apis/bot/v3/info")
    info = client.request(request.token_types({AccessTokenType.TENANT}).build())
    assert info.success()
    assert json.loads(info.raw.content)["bot"]["open_id"] == desk.app["bot_open_id"]

    created = client.im.v1.message.create(create_request(desk.chat, "u-1"))
    assert created.success()
    assert created.data.message_id.startswith("om_")
    question = desk.say()
    replied = client.im.v1.message.reply(reply_request(question, "u-2"))
    assert replied.data.parent_id == question

    listing = model("ListMessageRequest").builder().container_id_type("chat").container_id(desk.chat).page_size(2)
    page = client.im.v1.message.list(listing.sort_type("ByCreateTimeAsc").build())
    assert [item.message_id for item in page.data.items] == [created.data.message_id, question]
    assert page.data.has_more is True
    rest = client.im.v1.message.list(listing.page_token(page.data.page_token).build())
    assert [item.message_id for item in rest.data.items] == [replied.data.message_id]
    assert rest.data.items[0].sender.sender_type == "app"

    got = client.im.v1.message.get(model("GetMessageRequest").builder().message_id(question).build())
    assert json.loads(got.data.items[0].body.content) == {"text": "question"}
    counts = sim.get("requests")["counts"]
    assert {kind: counts[kind] for kind in ("create", "reply", "list", "get", "bot_info")} == {
        "create": 1,
        "reply": 1,
        "list": 2,
        "get": 1,
        "bot_info": 1,
    }


@pytest.mark.spec("DESK-355")
def test_the_sync_client_uploads_a_file_sends_it_and_reads_it_back(client: Any, desk: Provider, sim: Sim) -> None:
    """A file uploaded by the SDK keeps its UTF-8 name, type and bytes, is sent, and comes back through the resource."""
    data = "# 报告\n".encode() * 100
    form = model("CreateFileRequestBody").builder().file_type("stream").file_name("报告.md")
    uploaded = client.im.v1.file.create(
        model("CreateFileRequest").builder().request_body(form.file(("报告.md", data, "text/markdown")).build()).build()
    )
    assert uploaded.success(), (uploaded.code, uploaded.msg)
    key = uploaded.data.file_key
    (file,) = sim.get("files")["items"]
    assert (file["file_name"], file["media_type"]) == ("报告.md", "text/markdown")
    assert file["sha256"] == hashlib.sha256(data).hexdigest()

    sent = client.im.v1.message.create(create_request(desk.chat, "u-3", "file", json.dumps({"file_key": key})))
    resource = (
        model("GetMessageResourceRequest").builder().message_id(sent.data.message_id).file_key(key).type("file").build()
    )
    assert client.im.v1.message_resource.get(resource).file.read() == data


def test_the_sync_client_sees_refusals_with_code_status_and_headers(client: Any, desk: Provider, sim: Sim) -> None:
    question = desk.say()
    sim.post("recall", message_id=question)
    refused = client.im.v1.message.reply(reply_request(question, "u-4"))
    assert (refused.success(), refused.code, refused.raw.status_code) == (False, 230011, 400)
    sim.faults({"match": {"route": "send"}, "status": 429, "code": 99991400, "headers": {"x-ogw-ratelimit-reset": "3"}})
    limited = client.im.v1.message.create(create_request(desk.chat, "u-5"))
    assert (limited.code, limited.raw.status_code) == (99991400, 429)
    assert limited.raw.headers["x-ogw-ratelimit-reset"] == "3"


@pytest.mark.spec("DESK-355")
async def test_the_async_client_sends_too(client: Any, desk: Provider) -> None:
    """The SDK's async typed call gets the same answer."""
    answer = await client.im.v1.message.acreate(create_request(desk.chat, "u-6"))
    assert answer.success()
    assert answer.data.message_id.startswith("om_")


def test_the_dispatcher_in_strict_mode_accepts_pushes_and_refuses_bent_ones(desk: Provider, sim: Sim) -> None:
    """The SDK's strict verification takes the simulator's pushes as the provider's."""
    from lark_channel import EventDispatcherHandler, SecurityConfig
    from lark_channel.core.model import RawRequest

    from tests.simulator import harness

    seen: list[Any] = []
    security = SecurityConfig(mode="strict")
    dispatcher = (
        EventDispatcherHandler.builder(desk.app["encrypt_key"], desk.app["verification_token"], security=security)
        .register_p2_customized_event("im.message.receive_v1", seen.append)
        .build()
    )

    def dispatch(push: harness.Received) -> tuple[int, bytes]:
        request = RawRequest()
        request.uri, request.headers, request.body = "/callback", push.headers, push.body
        with contextlib.redirect_stdout(io.StringIO()):
            answer = dispatcher.do(request)
        return answer.status_code, answer.content

    with harness.receiver() as receiver:
        receiver.answer = dispatch
        sim.control.put(f"/_sim/apps/{desk.app['app_id']}/callback", json={"url": receiver.url})
        desk.say("hello", wait=True)
        assert len(seen) == 1
        assert json.loads(seen[0].event["message"]["content"]) == {"text": "hello"}
        for knob in ("bad_signature", "unsigned", "wrong_token", "lower_headers"):
            sim.faults({"match": {"route": "push"}, knob: True})
            desk.say(wait=True)
        sim.faults()
        assert len(seen) == 1
        assert [push["attempts"][0]["status"] for push in sim.get("pushes")["items"]] == [200, 500, 500, 500, 500]


# -- the long connection -----------------------------------------------------------------------------------------------

_LISTENER = """
import json, sys, time
from lark_channel import EventDispatcherHandler
from lark_channel.core.enum import LogLevel
from lark_channel.ws.client import Client

def take(event):
    text = json.loads(event.event["message"]["content"])["text"]
    if text.startswith("sleep"):
        time.sleep(1.2)
    print(json.dumps({"text": text, "event_id": event.header.event_id}), flush=True)
    if text == "fail":
        raise RuntimeError("no")

handler = EventDispatcherHandler.builder("", "").register_p2_customized_event("im.message.receive_v1", take).build()
Client(sys.argv[2], sys.argv[3], log_level=LogLevel.CRITICAL, event_handler=handler, domain=sys.argv[1]).start()
"""


@contextlib.contextmanager
def listening(desk: Provider) -> Iterator[subprocess.Popen[str]]:
    """The SDK's own long-connection client in a process of its own: it captures an event loop at import."""
    arguments = [desk.sim.base, desk.app["app_id"], desk.app["app_secret"]]
    process = subprocess.Popen(
        [sys.executable, "-c", _LISTENER, *arguments],
        env=guarded_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        desk.sim.until(lambda: desk.sim.get("connections")["open"] == 1)
        yield process
    finally:
        finish(process)


def heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    while True:
        line = process.stdout.readline()
        assert line, "the listener ended"
        if line.startswith("{"):
            return dict(json.loads(line))


@pytest.mark.spec("DESK-355")
def test_the_long_connection_client_receives_acknowledges_and_is_pushed_again(desk: Provider, sim: Sim) -> None:
    """The SDK's WebSocket client gets whole and fragmented events; code 500 and silence lead to a new push."""
    with listening(desk) as listener:
        sim.until(lambda: sim.get("connections")["items"][-1]["pings"] >= 1)
        desk.say("你好", wait=True)
        assert heard(listener)["text"] == "你好"
        (push,) = sim.get("pushes")["items"]
        assert (push["state"], push["attempts"][0]["via"], push["attempts"][0]["status"]) == ("delivered", "ws", 200)

        sim.faults({"match": {"route": "push"}, "fragments": 3})
        desk.say("in three parts " * 40, wait=True)
        assert heard(listener)["text"].startswith("in three parts")
        sim.faults()

        desk.say("fail", wait=True)
        first = heard(listener)
        push = sim.get("pushes")["items"][-1]
        assert (push["state"], push["attempts"][0]["status"]) == ("waiting", 500)
        sim.post("clock", advance_ms=15_000)
        assert heard(listener) == first

        desk.say("sleep", wait=True)
        push = sim.get("pushes")["items"][-1]
        assert (push["state"], push["attempts"][0]["error"]) == ("waiting", "no answer within 0.7 s")
        assert heard(listener)["text"] == "sleep"

        assert sim.post("connections/close", app_id=desk.app["app_id"])["closed"] == 1
        sim.until(lambda: sim.get("connections")["open"] == 1, 20)  # the client comes back by itself
        assert len(sim.get("connections")["items"]) == 2
    sim.until(lambda: sim.get("connections")["open"] == 0)


def test_the_long_connection_needs_the_secret_and_an_unused_ticket(desk: Provider, sim: Sim) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    def endpoint(secret: str) -> dict[str, Any]:
        body = {"AppID": desk.app["app_id"], "AppSecret": secret}
        return dict(desk.client.post("/callback/ws/endpoint", json=body).json())

    assert endpoint("wrong")["code"] == 10014
    url = endpoint(desk.app["app_secret"])["data"]["URL"]
    with connect(url, proxy=None):
        sim.until(lambda: sim.get("connections")["open"] == 1)
        with pytest.raises(InvalidStatus):
            connect(url, proxy=None)
    sim.until(lambda: sim.get("connections")["open"] == 0)


def test_pongs_can_be_withheld(desk: Provider, sim: Sim) -> None:
    from websockets.sync.client import connect

    from frontdesk.simulator import frames

    ping = frames.encode(frames.Frame(frames.METHOD_CONTROL, 1, headers={"type": "ping"}))
    body = {"AppID": desk.app["app_id"], "AppSecret": desk.app["app_secret"]}
    url = desk.client.post("/callback/ws/endpoint", json=body).json()["data"]["URL"]
    with connect(url, proxy=None) as line:
        line.send(ping)
        answer = line.recv(timeout=5)
        assert isinstance(answer, bytes)
        assert frames.decode(answer).headers["type"] == "pong"
        sim.faults({"match": {"route": "pong"}, "drop_before_accept": True})
        line.send(ping)
        with pytest.raises(TimeoutError):
            line.recv(timeout=0.3)
        assert sim.get("connections")["items"][-1]["pings"] == 2
