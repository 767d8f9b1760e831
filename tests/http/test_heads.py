"""What a request may take beside its body is bounded before any route or gate sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn

from frontdesk.app.serving import BoundedHttp, Server
from frontdesk.kernel.limits import REQUEST_HEAD_BYTES_MAX

LINE = b"POST / HTTP/1.1\r\nHost: localhost\r\n"


async def echo_size(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the size of the body."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server of the product's protocol on a free port."""
    config = uvicorn.Config(echo_size, port=0, http=BoundedHttp, log_config=None, lifespan="off", ws="none")
    server = Server(config)
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(10):
        while not server.started:  # noqa: ASYNC110 - uvicorn offers a flag and no event
            await asyncio.sleep(0)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await task


async def answer_to(port: int, parts: list[bytes]) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(10):
            return await reader.read(200)
    except ConnectionError:
        return b"cut"
    finally:
        writer.close()


async def test_endless_heads_are_cut_off(port: int) -> None:
    """Many headers, one long one, a long address and endless trailers all end the connection; nothing is kept."""
    piece = b"a" * 60_000
    endless = {
        "many headers": [LINE, *[b"X-%d: a\r\n" % number + b"Y: " + piece + b"\r\n" for number in range(20)]],
        "one header": [LINE + b"X: ", *[piece] * 20],
        "address": [b"GET /", *[piece] * 20],
        "trailers": [LINE + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", *[b"X: " + piece + b"\r\n"] * 20],
    }
    for name, parts in endless.items():
        answer = await answer_to(port, parts)
        assert answer == b"cut" or answer.startswith(b"HTTP/1.1 400 ") or not answer, (name, answer)


async def test_bodies_and_common_heads_pass(port: int) -> None:
    """A head below the bound passes, and a body is not counted with it, however it comes."""
    head = LINE + b"X: " + b"a" * (REQUEST_HEAD_BYTES_MAX // 2) + b"\r\n"
    body = b"b" * (8 * REQUEST_HEAD_BYTES_MAX)
    whole = await answer_to(port, [head + b"Content-Length: %d\r\n\r\n" % len(body), body])
    chunk = b"400\r\n" + b"b" * 1024 + b"\r\n"
    parts = [head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 1_000, b"0\r\n\r\n"]
    for answer, size in ((whole, len(body)), (await answer_to(port, parts), 1_024_000)):
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b"\r\n%d\r\n" % size in answer


async def test_half_a_head_does_not_hold_its_connection(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that says nothing or stops inside a head, first or later, is closed; a whole one is answered."""
    monkeypatch.setattr(BoundedHttp, "head_wait_s", 0.2)
    whole = LINE + b"Content-Length: 0\r\n\r\n"
    for parts in ([b""], [LINE], [whole, LINE]):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in parts:
            writer.write(part)
        async with asyncio.timeout(10):
            seen = await reader.read(-1)  # to the end of the connection
        assert seen.count(b"HTTP/1.1 200 OK") == parts.count(whole)
        writer.close()
