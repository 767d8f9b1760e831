"""Bytes that are no HTTP, or nearly, at the socket of a real server process: it answers or hangs up, and lives."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.e2e.rig import DEFECTS, House
from tests.fuzz.profile import bounded

HOST = b"Host: localhost\r\n"
CALLBACK = b"/api/v1/channels/feishu/installations/ins_1/events"
WHOLE = [
    b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /api/v1/me HTTP/1.1\r\n" + HOST + b"Authorization: Bearer fdt_x\r\n\r\n",
    b"POST /api/v1/session HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"POST " + CALLBACK + b" HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
]
STRANGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,  # a TLS hello
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /healthz\r\n",
    b"GET /healthz HTTP/9.9\r\n\r\n",
    b"GET /healthz HTTP/1.1\n\n",
    b"get /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    b"CONNECT localhost:22 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET http://evil.example/api/v1/me HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET //healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /healthz%00 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /\xff\xfe\x80 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /api/v1/../../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /healthz HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    b"GET /healthz HTTP/1.1\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n" + HOST + b"X\x00Y: a\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n" + HOST + b"X: \x01\x7f\xff\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n" + HOST + b"No colon here\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n" + HOST + b": empty\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n" + HOST + b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    b"POST " + CALLBACK + b" HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999\r\n\r\n",
    b"POST " + CALLBACK + b" HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
    b"POST " + CALLBACK + b" HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    b"POST " + CALLBACK + b" HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST " + CALLBACK + b" HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n",
    b"POST " + CALLBACK + b" HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    b"POST " + CALLBACK + b" HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n2;x=\x00\r\n{}\r\n0\r\n\r\n",
]
# Two readings of where one request ends: taken the other way, the rest would be a request of its own.
INNER = b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
TWO_WAYS = {
    "length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INNER,
    "chunks and length": b"Transfer-Encoding: chunked\r\nContent-Length: 60\r\n\r\n0\r\n\r\n" + INNER,
    "two lengths": b"Content-Length: 0\r\nContent-Length: 60\r\n\r\n" + INNER,
    "a list of lengths": b"Content-Length: 0, 60\r\n\r\n" + INNER,
    "an unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + INNER,
    "a coding behind a tab": b"Transfer-Encoding:\tchunked, identity\r\n\r\n0\r\n\r\n" + INNER,
    "a space before the colon": b"Transfer-Encoding : chunked\r\nContent-Length: 60\r\n\r\n0\r\n\r\n" + INNER,
}
ANSWERS = re.compile(rb"HTTP/1\.1 (\d{3}) ")  # a body need not end its line
BEARABLE = {b"200", b"400", b"401", b"403", b"404", b"405", b"413", b"415", b"422", b"429", b"431"}


class Port:
    """The server's socket."""

    def __init__(self, house: House) -> None:
        self.house = house

    def say(self, data: bytes, *, last: bool = True) -> bytes:
        """Send, say (where it is the last) that no more comes, and read until the server hangs up."""
        with socket.create_connection(("127.0.0.1", self.house.port), timeout=60) as connection:
            with contextlib.suppress(OSError):  # it may have hung up before all was said
                connection.sendall(data)
                if last:
                    connection.shutdown(socket.SHUT_WR)
            seen = b""
            with contextlib.suppress(ConnectionError):
                while piece := connection.recv(65_536):
                    seen += piece
        return seen


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    """One server process for the module; afterwards it still lives, answers, and has logged no defect."""
    house = House("sqlite", tmp_path_factory.mktemp("wire") / "data", "")

    @contextlib.asynccontextmanager
    async def served() -> AsyncIterator[None]:
        await house.init()
        server = await house.serve()
        try:
            yield
            assert server.running
            assert not DEFECTS.findall(server.text), server.text[-3_000:]
            assert await server.terminate() == 0
        finally:
            await house.close()

    with asyncio.Runner() as loop:
        serving = served()
        loop.run(serving.__aenter__())
        made = Port(house)
        yield made
        assert b"200" in ANSWERS.findall(made.say(WHOLE[0]))
        loop.run(serving.__aexit__(None, None, None))


@st.composite
def bent(draw: st.DrawFn) -> bytes:
    """Requests with something done to their bytes, one or two on a connection."""
    data = b"".join(draw(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=2)))
    for _ in range(draw(st.integers(1, 3))):
        here = draw(st.integers(0, max(0, len(data) - 1)))
        there = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["flip", "cut", "insert", "drop", "repeat", "newline", "header"]))
        if kind == "flip" and data:
            data = data[:here] + bytes([data[here] ^ (1 << (there % 8))]) + data[here + 1 :]
        elif kind == "cut":
            data = data[:here]
        elif kind == "insert":
            data = data[:here] + draw(st.binary(max_size=60)) + data[here:]
        elif kind == "drop":
            data = data[: min(here, there)] + data[max(here, there) :]
        elif kind == "repeat":
            data = data[: max(here, there)] + data[min(here, there) :]
        elif kind == "newline":
            data = data.replace(b"\r\n", draw(st.sampled_from([b"\n", b"\r", b"\r\r\n", b"\n\r"])), 1 + there % 3)
        else:
            name = draw(st.sampled_from([b"Content-Length", b"Transfer-Encoding", b"Host", b"Connection", b"X-A"]))
            value = draw(st.sampled_from([b"0", b"chunked", b"localhost", b"close", b"a" * 70_000, b"\xe4", b""]))
            data = data.replace(HOST, HOST + name + b": " + value + b"\r\n", 1)
    return data


def judge(port: Port, data: bytes, *, last: bool = True) -> list[bytes]:
    seen = port.say(data, last=last)
    statuses = ANSWERS.findall(seen)
    assert not seen or seen.startswith(b"HTTP/1.1 "), seen[:200]
    assert set(statuses) <= BEARABLE, (statuses, data[:300])
    assert b"Traceback" not in seen
    return statuses


@given(data=bent())
@bounded(150)
def test_bent_requests_end_in_an_answer_or_a_closed_connection(data: bytes, port: Port) -> None:
    """Flipped, cut, spliced and doubled requests are answered by a refusal, or not at all; nothing waits for ever."""
    judge(port, data)


@given(data=st.binary(max_size=2_000))
@example(data=b"")
@example(data=b"\r\n" * 500)
@example(data=b"\x00" * 2_000)
@example(data=b"A" * 200_000)
@bounded(30)
def test_any_bytes_at_all_do_no_harm(data: bytes, port: Port) -> None:
    """Whatever else may come in at the socket is refused or dropped."""
    judge(port, data)


@pytest.mark.parametrize("data", STRANGE, ids=range(len(STRANGE)))
def test_strange_requests_are_refused_or_dropped(data: bytes, port: Port) -> None:
    """Other protocols, other versions, odd addresses, headers and chunks: nothing raises, and nothing private comes."""
    statuses = judge(port, data)
    assert len(statuses) <= 1


@pytest.mark.parametrize("name", TWO_WAYS)
def test_a_request_that_ends_in_two_places_does_not_hide_another(name: str, port: Port) -> None:
    """Where length and chunks disagree, the request is refused and the connection closed: what follows is not run."""
    head = b"POST /api/v1/session HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
    statuses = judge(port, head + TWO_WAYS[name], last=False)
    assert b"200" not in statuses, "the hidden request was answered"


def test_it_serves_as_before(port: Port) -> None:
    """After all of that a plain request is answered, on a new connection and on a kept one."""
    assert ANSWERS.findall(port.say(WHOLE[0])) == [b"200"]
    assert ANSWERS.findall(port.say(WHOLE[0] * 2 + INNER, last=False)) == [b"200"] * 3
