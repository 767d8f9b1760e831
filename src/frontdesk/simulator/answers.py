"""How an answer goes over the wire, broken answers included: cut, truncated, dripped, without ``Date``.

Header names keep their Title-Case: the SDK's generic sync client looks ``Content-Type`` up case-sensitively.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.types import Receive, Scope, Send

JSON_TYPE = "application/json; charset=utf-8"
STALL_SECONDS_MAX = 120.0


class Lines:
    """The open TCP connections by client address, so that one can be cut without a single byte of answer."""

    def __init__(self) -> None:
        self._transports: dict[tuple[str, int], asyncio.Transport] = {}
        self.real = False  # whether a server that reports its connections is in front

    def opened(self, transport: asyncio.Transport) -> None:
        """Remembers a connection as the server accepts it."""
        self._transports[_peer(transport)] = transport
        self.real = True

    def closed(self, transport: asyncio.Transport) -> None:
        """Forgets a connection."""
        self._transports.pop(_peer(transport), None)

    def find(self, scope: Scope) -> asyncio.Transport | None:
        """The connection a request came over; None when no real server carries it."""
        client = scope.get("client")
        return None if client is None else self._transports.get((client[0], client[1]))


def _peer(transport: asyncio.Transport) -> tuple[str, int]:
    peer = transport.get_extra_info("peername")
    return str(peer[0]), int(peer[1])


@dataclass(slots=True)
class Answer:
    """An answer before it is sent: ``payload`` as JSON, or ``raw`` bytes."""

    status: int = 200
    payload: Any = None
    raw: bytes | None = None
    content_type: str = JSON_TYPE
    headers: dict[str, str] = field(default_factory=dict)
    mode: Literal["whole", "cut", "truncated", "drip", "drip_head", "stall"] = "whole"
    drip_ms: int = 200
    date: str | None = None

    @property
    def code(self) -> int | None:
        """The provider code in the payload."""
        return self.payload.get("code") if isinstance(self.payload, dict) else None

    def body(self) -> bytes:
        """The body's bytes."""
        if self.raw is not None:
            return self.raw
        return json.dumps(self.payload, ensure_ascii=False).encode()


class WireAnswer:
    """Sends an :class:`Answer` as an ASGI response."""

    def __init__(self, answer: Answer, lines: Lines) -> None:
        self._answer = answer
        self._lines = lines

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it; returns when the client has it or is gone."""
        answer = self._answer
        if answer.mode == "stall":
            await _wait_gone(receive, STALL_SECONDS_MAX)
        if answer.mode in ("cut", "stall"):
            await self._cut(scope, receive)
            return
        body = answer.body()
        headers = self._headers(len(body))
        if answer.mode == "drip_head":
            await self._drip_head(scope, receive, headers)
            return
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if answer.mode == "truncated":
            await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
            await self._cut(scope, receive, after_write=True)
        elif answer.mode == "drip":
            gone = asyncio.ensure_future(_wait_gone(receive, STALL_SECONDS_MAX))
            for index in range(len(body)):
                await send({"type": "http.response.body", "body": body[index : index + 1], "more_body": True})
                await asyncio.wait([gone], timeout=answer.drip_ms / 1_000)
                if gone.done():
                    return
            gone.cancel()
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "http.response.body", "body": body})

    def _headers(self, length: int) -> list[tuple[bytes, bytes]]:
        answer = self._answer
        named = {"Content-Type": answer.content_type, "Content-Length": str(length)}
        named["X-Tt-Logid"] = secrets.token_hex(16)
        if answer.date is not None:
            named["Date"] = answer.date
        named.update(answer.headers)
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named.items()]

    async def _cut(self, scope: Scope, receive: Receive, *, after_write: bool = False) -> None:
        transport = self._lines.find(scope)
        if transport is None and not self._lines.real:
            raise ConnectionResetError("the simulator cut the connection")
        if transport is not None and after_write:
            transport.close()  # flushes what was written, then closes
        elif transport is not None:
            transport.abort()
        await _wait_gone(receive, 5)

    async def _drip_head(self, scope: Scope, receive: Receive, headers: list[tuple[bytes, bytes]]) -> None:
        transport = self._lines.find(scope)
        if transport is None:
            await self._cut(scope, receive)
            return
        head = b"HTTP/1.1 200 OK\r\n" + b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        for index in range(len(head)):
            if transport.is_closing():
                return
            transport.write(head[index : index + 1])
            await asyncio.sleep(self._answer.drip_ms / 1_000)
        transport.abort()
        await _wait_gone(receive, 5)


async def _wait_gone(receive: Receive, seconds: float) -> None:
    """Waits until the client is gone, at most ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return
