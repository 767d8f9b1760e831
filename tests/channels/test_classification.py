"""What each answer means, swept over real HTTP through the real SDK, and that one act is one wire request."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from frontdesk.channels.feishu import FeishuChannel, codes, outbound, transport
from frontdesk.desk.connections.channel import (
    ConnectFailed,
    NotSent,
    OutboundFile,
    RefusedFinal,
    RefusedRetry,
    Sent,
    Unknown,
)
from frontdesk.kernel.clock import SECOND, SystemClock
from tests.channels.conftest import InlineThreads, installed, message
from tests.channels.provider import Provider, Reply, Request, answer, code, reset, sent

REPLY_PATH = "/open-apis/im/v1/messages/om_1/reply"
CREATE_PATH = "/open-apis/im/v1/messages"
FILE_PATH = "/open-apis/im/v1/files"
FILE = OutboundFile("report.md", "text/markdown", b"x")

# Desk.md 6.6, written out: the table in the code is what is under test.
RETRY_RATE = (99991400, 230020, 11232, 11233)
RETRY_TOKEN = (99991663, 99991664, 99991668, 99991671)
FINAL = {
    "target_revoked": (230011, 231003, 230110),
    "permission_denied": (230002, 230006, 230013, 230027, 99991672),
    "format_error": (230025, 99992402),
}
UNLISTED = (230001, 1, -1, 230012, 99991661, 234006, 500, 2147483647)
FINAL_CASES = [(name, number) for name, numbers in FINAL.items() for number in numbers]


async def send(channel: FeishuChannel, **changes: Any) -> Any:
    return await channel.send(await channel.connect(installed()), message(**changes))


async def upload(channel: FeishuChannel) -> Any:
    """The key, or the failure as (code, final, provider code, wait)."""
    session = await channel.connect(installed())
    try:
        return await channel.upload(session, FILE)
    except ConnectFailed as failure:
        return failure.code, failure.final, failure.provider_code, failure.wait_ms


def expected_of(number: int) -> Any:
    if number in RETRY_RATE:
        return RefusedRetry("rate_limited", None, number)
    if number in RETRY_TOKEN:
        return RefusedRetry("provider_token_rejected", None, number)
    for name, numbers in FINAL.items():
        if number in numbers:
            return RefusedFinal(name, number)
    return Unknown(provider_code=number)


def test_the_table_lists_exactly_the_specified_codes() -> None:
    listed = {row.code for row in codes.MESSAGE_ROWS}
    assert listed == {*RETRY_RATE, *RETRY_TOKEN, *(number for _, number in FINAL_CASES)}
    assert len(codes.MESSAGE_ROWS) == len(listed)
    assert [row.code for row in codes.MESSAGE_ROWS if row.source is codes.Source.SECOND_HAND] == [230110]
    assert all(row.meaning for row in codes.MESSAGE_ROWS + codes.TOKEN_ROWS)


@pytest.mark.parametrize("status", [200, 400, 429, 500])
@pytest.mark.parametrize("number", [*RETRY_RATE, *RETRY_TOKEN, *(number for _, number in FINAL_CASES), *UNLISTED])
@pytest.mark.spec("DESK-341")
async def test_each_code_has_its_one_outcome(
    provider: Provider, channel: FeishuChannel, number: int, status: int
) -> None:
    """Every listed code gives the listed outcome, an unlisted one is unknown, whatever the HTTP status around it."""
    provider.on(REPLY_PATH, code(number, status))
    assert await send(channel) == expected_of(number)
    assert len(provider.wire()) == 1


@pytest.mark.parametrize("number", RETRY_RATE)
async def test_the_providers_waiting_time_is_kept(provider: Provider, channel: FeishuChannel, number: int) -> None:
    """The reset header's seconds, in any letter case, are the wait; what is no number of seconds is no wait."""
    for value, wait_ms in (("3", 3_000), ("0", 0), ("999999999", 86_400_000), ("soon", None), ("-1", None), ("", None)):
        provider.on(REPLY_PATH, code(number, 429, {"X-Ogw-Ratelimit-Reset": value}))
        assert await send(channel) == RefusedRetry("rate_limited", wait_ms, number)


async def test_the_reset_header_means_nothing_elsewhere(provider: Provider, channel: FeishuChannel) -> None:
    provider.on(REPLY_PATH, code(99991663, 400, {"x-ogw-ratelimit-reset": "3"}))
    assert await send(channel) == RefusedRetry("provider_token_rejected", None, 99991663)


def data(**fields: Any) -> bytes:
    return answer({"code": 0, "msg": "success", "data": fields})


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (sent("om_new"), Sent("om_new", 1767225601000)),
        (data(message_id="x" * 255), Sent("x" * 255)),
        (data(message_id="om_new", create_time=5), Sent("om_new")),
        (answer({"code": 0, "data": {"message_id": "om_new"}}, 201), Sent("om_new")),
    ],
)
async def test_success_is_a_code_of_zero_with_a_message_id(
    provider: Provider, channel: FeishuChannel, reply: bytes, outcome: Sent
) -> None:
    provider.on(REPLY_PATH, reply)
    assert await send(channel) == outcome


def cut_off(sock: socket.socket, _request: Request) -> None:
    body = sent()
    sock.sendall(body.replace(b"Content-Length: ", b"Content-Length: 9"))


def cut_off_in_chunks(sock: socket.socket, _request: Request) -> None:
    body = b'{"code":0,"data":{"message_id":"om_x"}}'
    sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(body), body))


def silent_close(_sock: socket.socket, _request: Request) -> None:
    return


NO_JSON = {
    "html 200": answer(None, 200, raw=b"<html>ok</html>"),
    "html 500": answer(None, 500, raw=b"<html>oops</html>"),
    "html 502": answer(None, 502, raw=b"<html>bad gateway</html>"),
    "empty 200": answer(None, 200, raw=b""),
    "empty 204": answer(None, 204, raw=b""),
    "empty 429": answer(None, 429, raw=b""),
    "html 429": answer(None, 429, raw=b"<html>slow down</html>"),
    "empty 500": answer(None, 500, raw=b""),
    "empty 502": answer(None, 502, raw=b""),
    "object without code 200": answer({}),
    "object without code 429": answer({}, 429),
    "object without code 500": answer({"error": "x"}, 500),
    "object without code 502": answer({"error": "x"}, 502),
    "id without code": answer({"data": {"message_id": "om_x"}}),
    "null": answer(None),
    "list": answer([{"code": 0}]),
    "number": answer(0),
    "code as text": answer({"code": "0", "data": {"message_id": "om_x"}}),
    "listed code as text": answer({"code": "230002"}, 400),
    "code as a boolean": answer({"code": False, "data": {"message_id": "om_x"}}),
    "code as a float": answer({"code": 0.0, "data": {"message_id": "om_x"}}),
    "code beyond any": answer({"code": 10**30}),
    "null code": answer({"code": None, "data": {"message_id": "om_x"}}),
    "zero without data": answer({"code": 0}),
    "zero without id": data(chat_id="oc_1"),
    "zero with an empty id": data(message_id=""),
    "zero with a null id": data(message_id=None),
    "zero with a numeric id": data(message_id=7),
    "zero with a long id": data(message_id="x" * 256),
    "zero with a list": answer({"code": 0, "data": [{"message_id": "om_x"}]}),
    "zero with an error status": answer({"code": 0, "data": {"message_id": "om_x"}}, 500),
    "zero with 429": answer({"code": 0, "data": {"message_id": "om_x"}}, 429),
    "half a body": answer(None, 200, raw=sent().partition(b"\r\n\r\n")[2][:-5]),
    "cut off": cut_off,
    "cut off in chunks": cut_off_in_chunks,
    "deep": answer(None, 200, raw=b"[" * 100_000),
    "not UTF-8": answer(None, 200, raw=b'{"code":0,"data":{"message_id":"\xff"}}'),
    "no HTTP": b"hello\r\n\r\n",
    "reset": reset,
    "closed without a word": silent_close,
    "gzip unasked": answer(None, 200, {"Content-Encoding": "gzip"}, raw=b"\x1f\x8b\x08\x00"),
}


@pytest.mark.parametrize("name", NO_JSON)
@pytest.mark.spec("DESK-341", "DESK-310")
async def test_whatever_is_no_listed_proof_is_unknown(provider: Provider, channel: FeishuChannel, name: str) -> None:
    """A missing code, a body that is empty, HTML or cut off, a reset after the request: unknown, and asked once."""
    reply: Reply = NO_JSON[name]
    provider.on(REPLY_PATH, reply)
    outcome = await send(channel)
    assert isinstance(outcome, Unknown)
    assert outcome == Unknown()
    assert len(provider.wire()) == 1
    assert await upload_of(provider, channel, reply) == ("upload_failed", False, None, None)


async def upload_of(provider: Provider, channel: FeishuChannel, reply: Reply) -> Any:
    provider.on(FILE_PATH, reply)
    return await upload(channel)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.spec("DESK-310", "DESK-168")
async def test_a_redirect_is_not_followed(provider: Provider, channel: FeishuChannel, status: int) -> None:
    """A redirect, even with a plausible body, is one request at the provider and an unknown outcome."""
    provider.on(
        REPLY_PATH,
        answer({"code": 0, "data": {"message_id": "om_x"}}, status, {"Location": f"{provider.origin}{CREATE_PATH}"}),
    )
    assert await send(channel) == Unknown()
    assert provider.paths() == ["/open-apis/auth/v3/tenant_access_token/internal", REPLY_PATH]
    provider.on(REPLY_PATH, code(230002, status, {"Location": f"{provider.origin}{CREATE_PATH}"}))
    assert await send(channel) == Unknown()
    assert [request.path for request in provider.wire()] == [REPLY_PATH] * 2


def drip_head(provider: Provider) -> Reply:
    def reply(sock: socket.socket, _request: Request) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 1_000:
            sock.sendall(bytes([byte]))
            if provider.stopped(0.02):
                return

    return reply


def drip_body(provider: Provider) -> Reply:
    def reply(sock: socket.socket, _request: Request) -> None:
        # Without a length: a socket shut at the deadline looks like an orderly end after a complete answer.
        sock.sendall(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
            + json.dumps({"code": 0, "data": {"message_id": "om_x"}}).encode()
        )
        while not provider.stopped(0.02):
            sock.sendall(b" ")

    return reply


def say_nothing(provider: Provider) -> Reply:
    def reply(_sock: socket.socket, _request: Request) -> None:
        provider.stopped(10)

    return reply


@pytest.mark.parametrize("slow", [drip_head, drip_body, say_nothing])
@pytest.mark.spec("DESK-310", "DESK-341")
async def test_an_answer_past_the_overall_bound_is_unknown(
    provider: Provider, channel: FeishuChannel, slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound holds for the whole act: a head or body that keeps dripping is cut off and proves nothing."""
    monkeypatch.setattr(outbound, "SEND_TIMEOUT_US", SECOND // 2)
    provider.on(REPLY_PATH, slow(provider))
    clock = SystemClock()
    began = clock.monotonic_us()
    assert await send(channel) == Unknown()
    assert SECOND * 4 // 10 <= clock.monotonic_us() - began < 5 * SECOND
    assert len(provider.wire()) == 1


def test_the_bound_of_a_send_is_twenty_seconds() -> None:
    assert outbound.SEND_TIMEOUT_US == 20 * SECOND
    assert outbound.CONNECT_TIMEOUT_US == 15 * SECOND


async def test_an_answer_larger_than_we_hold_is_unknown(
    provider: Provider, channel: FeishuChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "ANSWER_BYTES_MAX", 100_000)
    provider.on(REPLY_PATH, answer({"code": 0, "pad": "x" * 200_000, "data": {"message_id": "om_x"}}))
    assert await send(channel) == Unknown()


@pytest.mark.parametrize("number", [*RETRY_RATE, *RETRY_TOKEN, *(number for _, number in FINAL_CASES), *UNLISTED])
async def test_an_uploads_answer_never_leaves_a_doubt(provider: Provider, channel: FeishuChannel, number: int) -> None:
    """Rate and token codes retry, listed refusals of form or permission are final, anything else is tried again."""
    provider.on(FILE_PATH, code(number, 400, {"x-ogw-ratelimit-reset": "2"}))
    if number in RETRY_RATE:
        expected = ("rate_limited", False, number, 2_000)
    elif number in RETRY_TOKEN:
        expected = ("provider_token_rejected", False, number, None)
    elif number in FINAL["format_error"]:
        expected = ("format_error", True, number, None)
    elif number in FINAL["permission_denied"]:
        expected = ("permission_denied", True, number, None)
    else:
        expected = ("upload_failed", False, number, None)
    assert await upload(channel) == expected
    assert len(provider.wire()) == 1


async def test_an_upload_gives_the_key(provider: Provider, channel: FeishuChannel) -> None:
    assert await upload_of(provider, channel, answer({"code": 0, "data": {"file_key": "file_v2_1"}})) == "file_v2_1"
    for odd in ({"file_key": ""}, {"file_key": None}, {"file_key": "x" * 256}, {}, []):
        assert await upload_of(provider, channel, answer({"code": 0, "data": odd})) == (
            "upload_failed",
            False,
            None,
            None,
        )


async def test_nothing_the_provider_wrote_is_kept(provider: Provider, channel: FeishuChannel) -> None:
    for number in (230002, 99991400, 1):
        provider.on(REPLY_PATH, code(number))
        assert "PROVIDER-TEXT-MARKER" not in repr(await send(channel))
    provider.on(FILE_PATH, code(1))
    assert "PROVIDER-TEXT-MARKER" not in repr(await upload(channel))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.spec("DESK-308", "DESK-341")
async def test_a_refused_connection_is_not_sent(provider: Provider, channel: FeishuChannel) -> None:
    """Nobody listens: no request byte left, so nothing was sent."""
    session = await channel.connect(installed())
    gone = FeishuChannel(f"http://127.0.0.1:{free_port()}", SystemClock(), InlineThreads())
    assert await gone.send(session, message()) == NotSent("not_sent_connection")
    with pytest.raises(ConnectFailed) as caught:
        await gone.upload(session, FILE)
    assert (caught.value.code, caught.value.final) == ("connect_failed", False)
    with pytest.raises(ConnectFailed) as caught:
        await gone.connect(installed())
    assert caught.value.code == "connect_failed"


@pytest.mark.spec("DESK-308")
async def test_an_unknown_host_is_not_sent(
    channel: FeishuChannel, monkeypatch: pytest.MonkeyPatch, provider: Provider
) -> None:
    """A name nobody knows: nothing was sent."""

    def unknown(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    session = await channel.connect(installed())
    elsewhere = FeishuChannel("https://nowhere.invalid", SystemClock(), InlineThreads())
    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", unknown)
        assert await elsewhere.send(session, message()) == NotSent("not_sent_connection")
        patch.setattr(socket, "getaddrinfo", lambda *_, **__: [])
        assert await elsewhere.send(session, message()) == NotSent("not_sent_connection")
    assert provider.wire() == []


@pytest.mark.spec("DESK-308")
async def test_one_exception_class_has_two_outcomes(
    provider: Provider, channel: FeishuChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same reset error before a connection stood is "not sent", after the request began it is unknown."""
    session = await channel.connect(installed())
    provider.on(REPLY_PATH, reset)
    assert await channel.send(session, message()) == Unknown()

    def refuse(*_: object) -> Any:
        raise ConnectionResetError

    monkeypatch.setattr(transport.Call, "open_socket", refuse)
    assert await channel.send(session, message()) == NotSent("not_sent_connection")
