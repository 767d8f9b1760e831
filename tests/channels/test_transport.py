"""The seam: TLS, proxies, deadlines, pauses, cancellation, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from frontdesk.channels.feishu import FeishuChannel, outbound, sdk, transport
from frontdesk.desk.connections.channel import (
    ConnectFailed,
    Incomplete,
    NotSent,
    OutboundFile,
    OutboundMessage,
    RefusedFinal,
    RefusedRetry,
    Sent,
    Unknown,
)
from frontdesk.kernel.clock import MINUTE, SECOND, ManualClock, SystemClock
from tests.channels.certificates import self_signed
from tests.channels.conftest import InlineThreads, PoolThreads, installed, message
from tests.channels.provider import TOKEN_PATH, Provider, Request, answer, code, reset, sent, token

REPLY_PATH = "/open-apis/im/v1/messages/om_1/reply"
FILE_PATH = "/open-apis/im/v1/files"
NOT_SENT = NotSent("not_sent_connection")


# ---------------------------------------------------------------------------------------------- TLS


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server context whose certificate the transport trusts."""
    server, public = self_signed(tmp_path)
    client = ssl.create_default_context(cafile=str(public))
    monkeypatch.setattr(transport, "tls_context", lambda: client)
    return server


async def test_a_send_over_tls_arrives(trusted: ssl.SSLContext) -> None:
    with Provider(tls=trusted) as provider:
        channel = FeishuChannel(provider.origin, SystemClock(), InlineThreads())
        session = await channel.connect(installed())
        assert isinstance(await channel.send(session, message()), Sent)
        provider.on(REPLY_PATH, reset)
        assert await channel.send(session, message()) == Unknown()


@pytest.mark.spec("DESK-308")
@pytest.mark.parametrize("fault", ["untrusted", "other name", "expired", "no tls at all"])
async def test_a_certificate_failure_is_not_sent(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channel: FeishuChannel
) -> None:
    """TCP stood, the certificate did not: no request byte left, so nothing was sent."""
    address, days = ("127.0.0.2" if fault == "other name" else "127.0.0.1"), (-1 if fault == "expired" else 1)
    server, public = self_signed(tmp_path, address, days=days)
    if fault != "untrusted":
        client = ssl.create_default_context(cafile=str(public))
        monkeypatch.setattr(transport, "tls_context", lambda: client)
    session = await channel.connect(installed())
    with Provider(tls=None if fault == "no tls at all" else server) as provider:
        secure = FeishuChannel(f"https://127.0.0.1:{provider.port}", SystemClock(), InlineThreads())
        if fault == "no tls at all":  # such a provider says nothing to a handshake
            monkeypatch.setattr(outbound, "SEND_TIMEOUT_US", SECOND // 2)
        assert await secure.send(session, message()) == NOT_SENT
        assert (provider.accepted, provider.requests) == (1, [])


def test_the_real_trust_store_is_loaded_once() -> None:
    context = transport.tls_context()
    assert context is transport.tls_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert len(context.get_ca_certs()) > 50


# ---------------------------------------------------------------------------------------------- proxies


@pytest.fixture
def environment_trap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Provider]:
    """Every proxy variable points at a trap, and netrc offers a login for this machine."""
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login user password from-netrc\n")
    netrc.chmod(0o600)
    with Provider() as trap:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, trap.origin)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("NETRC", str(netrc))
        monkeypatch.setenv("HOME", str(tmp_path))
        yield trap


@pytest.mark.spec("DESK-315")
async def test_environment_proxies_and_netrc_are_ignored(
    provider: Provider, channel: FeishuChannel, environment_trap: Provider
) -> None:
    """Token, upload, send, list and probe go straight to the provider with our own credentials alone."""
    provider.on(FILE_PATH, answer({"code": 0, "data": {"file_key": "k"}}))
    session = await channel.connect(installed())
    await channel.upload(session, OutboundFile("a", "text/plain", b"x"))
    await channel.send(session, message())
    await channel.history(session, "oc_1", 0, 1)
    await channel.probe(installed())
    assert environment_trap.accepted == 0
    assert len(provider.requests) == 6
    for request in provider.requests:
        expected = None if request.path == TOKEN_PATH else "Bearer t-token"
        assert request.headers.get("authorization") == expected


@pytest.mark.spec("DESK-315")
async def test_the_configured_proxy_is_used(provider: Provider, environment_trap: Provider) -> None:
    """With `outbound_proxy` set, that proxy alone is asked, with its own login."""
    with Provider(default=sent()) as proxy:
        proxy.on(f"{provider.origin}{TOKEN_PATH}", token())
        url = f"http://us%40er:p%3Aw@127.0.0.1:{proxy.port}"
        channel = FeishuChannel(provider.origin, SystemClock(), InlineThreads(), url)
        assert await channel.send(await channel.connect(installed()), message()) == Sent("om_sent", 1767225601000)
        assert [request.target for request in proxy.requests] == [
            f"{provider.origin}{TOKEN_PATH}",
            f"{provider.origin}{REPLY_PATH}",
        ]
        login = f"Basic {base64.b64encode(b'us@er:p:w').decode()}"
        assert {request.headers["proxy-authorization"] for request in proxy.requests} == {login}
        assert "p:w" not in repr(channel._proxy)
    assert (provider.accepted, environment_trap.accepted) == (0, 0)


def tunnel_to(port: int) -> Callable[[socket.socket, Request], None]:
    def reply(sock: socket.socket, _request: Request) -> None:
        with socket.create_connection(("127.0.0.1", port)) as onward:
            sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_pump, args=(onward, sock))
            back.start()
            _pump(sock, onward)
            back.join()

    return reply


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


async def test_tls_goes_through_a_tunnel_and_the_proxy_reads_nothing(trusted: ssl.SSLContext) -> None:
    with Provider(tls=trusted) as provider, Provider() as proxy:
        where = f"127.0.0.1:{provider.port}"
        proxy.on(where, tunnel_to(provider.port))
        channel = FeishuChannel(provider.origin, SystemClock(), InlineThreads(), f"http://u:p@127.0.0.1:{proxy.port}")
        assert isinstance(await channel.send(await channel.connect(installed()), message()), Sent)
        assert [(request.method, request.target) for request in proxy.requests] == [("CONNECT", where)] * 2
        assert all("authorization" not in request.headers for request in proxy.requests)
        assert all("proxy-authorization" in request.headers for request in proxy.requests)
        assert all("proxy-authorization" not in request.headers for request in provider.requests)
        proxy.on(where, answer(None, 407, raw=b""))
        session = await channel.connect(installed())
        assert await channel.send(session, message()) == NOT_SENT


@pytest.mark.parametrize(
    "url", ["https://p:1", "p:1", "http://", "http://p/x", "http://p?x", "socks5://p:1", "http://p:x", "http://p#x"]
)
def test_an_unusable_proxy_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        FeishuChannel("https://open.feishu.cn", SystemClock(), InlineThreads(), url)


# ---------------------------------------------------------------------------------------------- time


class PausedThreads:
    """A pool so busy, or a process so long asleep, that the work begins late."""

    def __init__(self, clock: ManualClock, pause_us: int) -> None:
        self._clock = clock
        self.pause_us = pause_us

    async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        self._clock.advance(self.pause_us)
        return fn(*args)


@pytest.mark.spec("DESK-317")
async def test_a_thread_paused_past_the_fence_sends_nothing(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wire request begins only while the fence covers it: paused before or after connecting, nothing leaves."""
    clock = ManualClock()
    threads = PausedThreads(clock, 0)
    channel = FeishuChannel(provider.origin, clock, threads)
    session = await channel.connect(installed())

    def starting_before(seconds: int) -> OutboundMessage:
        return message(start_before_us=clock.monotonic_us() + seconds * SECOND)

    before = provider.accepted
    threads.pause_us = 20 * SECOND
    assert await channel.send(session, message()) == NOT_SENT
    threads.pause_us = 3 * SECOND
    assert await channel.send(session, starting_before(3)) == Unknown()
    assert provider.accepted == before
    assert isinstance(await channel.send(session, starting_before(4)), Sent)

    threads.pause_us = 0
    original = transport.Call.open_socket

    def slow_connect(call: transport.Call, *arguments: Any) -> socket.socket:
        opened = original(call, *arguments)
        clock.advance(19 * SECOND)
        return opened

    monkeypatch.setattr(transport.Call, "open_socket", slow_connect)
    sent_before = len(provider.wire())
    assert await channel.send(session, starting_before(19)) == Unknown()
    threads.pause_us = 1 * SECOND
    assert await channel.send(session, message()) == NOT_SENT
    assert len(provider.wire()) == sent_before


async def test_a_call_is_one_request_and_outside_of_a_call_there_is_none(provider: Provider) -> None:
    client = sdk.client(provider.origin)

    def ask() -> None:
        client.im.v1.message.create(sdk.create_request("oc_1", "text", "{}", "u"), sdk.with_token("t"))

    with pytest.raises(transport.CallEnded):
        ask()
    call = transport.Call(SystemClock(), SECOND, None)
    failures: list[Exception] = []

    def twice() -> None:
        ask()
        try:
            ask()
        except transport.CallEnded as failure:
            failures.append(failure)

    call.run(twice)
    assert call.answer is not None
    assert len(failures) == 1
    assert len(provider.requests) == 1


async def test_a_second_address_is_tried_within_the_same_time(
    provider: Provider, channel: FeishuChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = taken.getsockname()[1]
    found = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in (closed, provider.port, closed)
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert isinstance(await channel.send(await channel.connect(installed()), message()), Sent)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [found[0], found[2]])
    assert await channel.send(await channel.connect(installed()), message()) == NOT_SENT


# ---------------------------------------------------------------------------------------------- threads


def hold(provider: Provider, entered: threading.Event) -> Callable[[socket.socket, Request], None]:
    def reply(sock: socket.socket, _request: Request) -> None:
        entered.set()
        sock.recv(1)  # returns when the client lets go

    return reply


async def test_a_cancelled_send_gives_its_thread_back_at_once(provider: Provider, pool: PoolThreads) -> None:
    entered = threading.Event()
    provider.on(REPLY_PATH, hold(provider, entered))
    channel = FeishuChannel(provider.origin, SystemClock(), pool)
    session = await channel.connect(installed())
    sending = asyncio.create_task(channel.send(session, message()))
    await asyncio.to_thread(entered.wait, 10)
    began = time.monotonic()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await asyncio.to_thread(pool.executor.shutdown, True)  # returns only when the worker is idle
    assert time.monotonic() - began < 10  # left alone it would wait out its twenty seconds
    assert session.calls == set()


async def test_closing_a_session_ends_what_is_under_way(provider: Provider, pool: PoolThreads) -> None:
    entered = threading.Event()
    provider.on(REPLY_PATH, hold(provider, entered))
    channel = FeishuChannel(provider.origin, SystemClock(), pool)
    session = await channel.connect(installed())
    sending = asyncio.create_task(channel.send(session, message()))
    await asyncio.to_thread(entered.wait, 10)
    began = time.monotonic()
    await channel.close(session)
    assert await sending == Unknown()
    assert time.monotonic() - began < 10
    await channel.close(session)


async def test_without_a_thread_to_be_had_nothing_was_sent(provider: Provider, channel: FeishuChannel) -> None:
    class NoThreads:
        async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
            raise RuntimeError("cannot schedule new futures after shutdown")

    session = await channel.connect(installed())
    channel._threads = NoThreads()
    assert await channel.send(session, message()) == NOT_SENT
    assert provider.wire() == []


async def test_the_event_loop_keeps_turning(provider: Provider, pool: PoolThreads) -> None:
    """Token, send and list wait for a slow provider on their own threads."""
    entered, go_on = threading.Event(), threading.Event()

    def slowly(reply: bytes) -> Callable[[socket.socket, Request], None]:
        def act(sock: socket.socket, _request: Request) -> None:
            entered.set()
            go_on.wait(10)
            sock.sendall(reply)

        return act

    channel = FeishuChannel(provider.origin, SystemClock(), pool)
    page = answer({"code": 0, "data": {"items": [], "has_more": False}})
    for path, reply in ((TOKEN_PATH, token()), (REPLY_PATH, sent()), ("/open-apis/im/v1/messages", page)):
        provider.on(path, slowly(reply))

    async def while_the_loop_turns(act: Any) -> Any:
        entered.clear()
        go_on.clear()
        task = asyncio.create_task(act)
        await asyncio.to_thread(entered.wait, 10)  # comes back only on a loop that turns
        assert not task.done()
        go_on.set()
        return await task

    session = await while_the_loop_turns(channel.connect(installed()))
    await while_the_loop_turns(channel.send(session, message()))
    await while_the_loop_turns(channel.history(session, "oc_1", 0, 1))


def census() -> tuple[int, int, int]:
    gc.collect()
    loops = sum(isinstance(thing, asyncio.AbstractEventLoop) and not thing.is_closed() for thing in gc.get_objects())
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count, no paths
    return threading.active_count(), descriptors, loops


@pytest.mark.spec("DESK-163")
async def test_nothing_is_left_after_any_path_and_after_a_hundred_sends() -> None:
    """Threads, sockets, loops and tasks are as many after 100 sends of every kind as before; no exception is lost."""
    lost: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: lost.append(context))
    pool = PoolThreads(2)
    endings: list[Any] = [sent(), code(230002), code(99991400), answer(None, 500, raw=b"<html>"), reset]
    with Provider() as provider:
        channel = FeishuChannel(provider.origin, SystemClock(), pool)

        async def round_trip() -> list[Any]:
            outcomes = []
            for ending in endings:
                provider.on(REPLY_PATH, ending)
                session = await channel.connect(installed())
                outcomes.append(await channel.send(session, message()))
                await channel.close(session)
            assert isinstance(await channel.history(session, "oc_1", 0, 1), Incomplete)
            with pytest.raises(ConnectFailed):
                await channel.upload(session, OutboundFile("a", "text/plain", b""))
            return outcomes

        for _ in range(2):
            await round_trip()  # the pool's threads and the SDK's client exist from here on
        settled = _settled(provider)
        for _ in range(20):
            outcomes = await round_trip()
            kinds = [Sent, RefusedFinal, RefusedRetry, Unknown, Unknown]
            assert [type(outcome) for outcome in outcomes] == kinds
        assert _settled(provider) == settled
        assert len(provider.wire()) == 22 * 6
    pool.executor.shutdown(wait=True)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    assert lost == []
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("frontdesk-")] == []


def _settled(provider: Provider) -> tuple[int, int, int]:
    for thread in provider._threads[1:]:
        thread.join(10)
    return census()


def test_a_deadline_timer_does_not_outlive_its_call() -> None:
    call = transport.Call(SystemClock(), MINUTE, None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
    with pytest.raises(OSError):
        call.exchange("GET", url, {}, None, None)
    assert "frontdesk-feishu-deadline" not in {thread.name for thread in threading.enumerate()}
