"""What the long connection relies on in the pinned wheel, and what is noted of its client from outside."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from frontdesk.channels.feishu import line_client
from frontdesk.channels.feishu.line import EventUnreadable, FeishuLine
from frontdesk.channels.feishu.line_client import EventNotTaken, Handler, Notes
from frontdesk.desk.connections.channel import Credentials, Inbound, Installed
from frontdesk.kernel.clock import SECOND, ManualClock
from frontdesk.kernel.limits import CALLBACK_BODY_BYTES_MAX
from tests.channels.signing import event

INSTALLED = Installed("ins_1", "cli_1", "t-1", None, Credentials("secret"))


# ---------------------------------------------------------------------------------------------- the wheel


def test_what_is_put_in_place_is_there_to_be_replaced() -> None:
    """Each name is set or overridden by us: renamed in the wheel, it would be so without any effect."""
    found = line_client.module()
    assert {"loop", "_post_endpoint", "_ws_connect_kwargs", "_new_ping_frame"} <= set(vars(found))
    named = set(inspect.signature(found._post_endpoint).parameters)
    assert named == set(inspect.signature(line_client.post_endpoint).parameters)
    assert len(inspect.signature(found._ws_connect_kwargs).parameters) == 2
    for name in ("_receive_message_loop", "_handle_control_frame", "_configure"):
        assert name in vars(found.Client)
        assert vars(line_client.client_class())[name] is not vars(found.Client)[name]
    for name in ("_disconnect", "_write_message", "_connect", "start"):
        assert name in vars(found.Client)


def test_the_client_takes_every_event_from_the_one_method_that_is_ours() -> None:
    source = inspect.getsource(line_client.module().Client)
    assert source.count("self._event_handler.") == 1
    assert "self._event_handler._do_without_validation(pl)" in source


def test_the_client_binds_a_loop_at_import_which_ours_replaces() -> None:
    found = line_client.module()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    before = found.loop
    try:
        notes = Notes(ManualClock())
        client = line_client.build(
            "cli_1",
            "secret",
            domain="https://open.feishu.cn",
            proxy_url=None,
            handler=Handler(lambda _: None, notes),
            notes=notes,
            loop=loop,
        )
        assert client._loop is loop
        assert client._ping_interval == line_client.PING_S
        config = found.ClientConfig({"ReconnectCount": -1, "ReconnectInterval": 120, "PingInterval": 120})
        client._configure(config)
        assert client._ping_interval == line_client.PING_S  # the provider's two minutes would find silence too late
        config.PingInterval = 5
        client._configure(config)
        assert client._ping_interval == 5
    finally:
        found.loop = before
        asyncio.set_event_loop(None)
        loop.close()


def test_the_websocket_library_names_the_address_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    """Why it is among the libraries whose level is kept up."""
    from websockets.client import ClientProtocol
    from websockets.uri import parse_uri

    from frontdesk.app.telemetry import FOREIGN

    with caplog.at_level(logging.DEBUG, "websockets"):
        protocol = ClientProtocol(parse_uri("ws://127.0.0.1/ws?ticket=planted"))
        protocol.send_request(protocol.connect())
    assert "ticket=planted" in caplog.text
    assert "websockets" in FOREIGN


# ---------------------------------------------------------------------------------------------- how it connects


class Redirecting(BaseHTTPRequestHandler):
    """Sends every request elsewhere."""

    def do_POST(self) -> None:
        self.server.seen.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))  # type: ignore[attr-defined]
        self.send_response(307)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_the_app_secret_goes_to_the_named_address_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server = HTTPServer(("127.0.0.1", 0), Redirecting)
    server.seen = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        answer = line_client.post_endpoint(
            f"http://127.0.0.1:{server.server_port}/callback/ws/endpoint",
            headers={"locale": "zh"},
            body={"AppID": "cli_1", "AppSecret": "secret"},
            timeout=10,
            proxy_url=None,
            trust_env_proxy=None,
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert answer.status_code == 307
    ((path, body),) = server.seen  # type: ignore[attr-defined]
    assert (path, json.loads(body)) == ("/callback/ws/endpoint", {"AppID": "cli_1", "AppSecret": "secret"})


def test_the_socket_is_opened_with_our_trust_and_proxy() -> None:
    assert line_client.connect_options("http://127.0.0.1:1", None) == {"proxy": None}
    found = line_client.connect_options("https://open.feishu.cn", "http://proxy:3128")
    assert found["proxy"] == "http://proxy:3128"
    assert found["ssl"].verify_mode is ssl.CERT_REQUIRED
    assert found["ssl"].check_hostname


def test_a_domain_that_must_not_be_used_is_refused() -> None:
    with pytest.raises(ValueError, match="feishu_domain"):
        FeishuLine("http://open.feishu.cn", ManualClock(), None, INSTALLED, lambda _: None)


# ---------------------------------------------------------------------------------------------- what is noted


def test_time_in_which_nothing_can_be_heard_is_no_silence() -> None:
    clock = ManualClock()
    notes = Notes(clock)
    clock.advance(10 * SECOND)
    assert notes.quiet_us() == 10 * SECOND
    notes.busy(True)
    clock.advance(40 * SECOND)
    assert notes.quiet_us() == 10 * SECOND
    notes.busy(False)
    clock.advance(5 * SECOND)
    assert notes.quiet_us() == 15 * SECOND
    notes.pong()
    assert notes.quiet_us() == 0
    clock.advance(3 * SECOND)
    notes.busy(True)
    clock.advance(2 * SECOND)
    notes.busy(False)
    assert notes.quiet_us() == 3 * SECOND


def test_a_receiver_that_hands_over_to_the_next_is_not_missed() -> None:
    notes = Notes(ManualClock())
    assert not notes.dead  # none yet: it is still connecting
    notes.receiver_began()
    notes.receiver_began()
    notes.receiver_ended()
    assert not notes.dead
    notes.receiver_ended()
    assert notes.dead
    notes.receiver_began()
    assert not notes.dead


# ---------------------------------------------------------------------------------------------- taking


def taking(accept: Any) -> tuple[FeishuLine, Handler]:
    line = FeishuLine("http://127.0.0.1:1", ManualClock(), None, INSTALLED, accept)
    return line, Handler(line._take, Notes(ManualClock()))


def test_the_sdk_gets_a_constant_without_a_cause() -> None:
    def fails(_: Inbound) -> None:
        raise ValueError("MARKER")

    _, handler = taking(fails)
    with pytest.raises(EventNotTaken) as raised:
        handler._do_without_validation(json.dumps(event()).encode())
    assert str(raised.value) == str(EventNotTaken())
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_an_event_is_normalised_without_a_signing_time() -> None:
    seen: list[Any] = []
    _, handler = taking(seen.append)
    handler._do_without_validation(json.dumps(event()).encode())
    (message,) = seen
    assert (message.app_id, message.signed_at_ms) == ("cli_1", None)


@pytest.mark.parametrize("payload", [b"", b"\xff", b"{", b" " * (CALLBACK_BODY_BYTES_MAX + 1)])
def test_what_cannot_be_read_is_not_taken(payload: bytes) -> None:
    seen: list[Any] = []
    _, handler = taking(seen.append)
    with pytest.raises(EventNotTaken):
        handler._do_without_validation(payload)
    assert seen == []


def test_once_it_ends_nothing_is_taken_any_more() -> None:
    seen: list[Any] = []
    line, _ = taking(seen.append)
    line.stop(0)
    with pytest.raises(EventUnreadable):
        line._take(json.dumps(event()).encode())
    assert seen == []
    line.start()  # and a line stopped before it started never connects
    line._thread.join(30)
    assert not line.look().receiving
