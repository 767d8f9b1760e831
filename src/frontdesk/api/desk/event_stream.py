"""Server-sent events over one reader's tail: bounded readers, a heartbeat, the right asked for again, a bounded end.

Polling is the same stream that ends at once (`follow=false`): a browser's EventSource, which comes back by itself with
the id of the last event, then polls without a line of code.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Final

from starlette.responses import Response

from frontdesk.api.gate import Receive, Scope, Send
from frontdesk.desk.operations import Tail, TailEvent
from frontdesk.identity.model import Actor
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND, Clock
from frontdesk.kernel.errors import DatabaseBusy, Problem
from frontdesk.storage.database import Database

MEDIA_TYPE: Final = "text/event-stream"
SEND_S: Final = 30.0  # a reader that takes nothing for so long has gone
_START: Final = f"retry: {limits.STREAM_RETRY_MS}\n\n".encode()

Wait = Callable[[float], Awaitable[None]]
Reauthenticate = Callable[[], Awaitable[Actor]]


class EventStreams:
    """The readers of one process."""

    def __init__(self, wait: Wait) -> None:
        """`wait` returns at a hint that there are events, or after its seconds."""
        self.wait = wait
        self._readers: Counter[str] = Counter()
        self._closing = asyncio.Event()

    @property
    def readers(self) -> int:
        """How many there are now."""
        return self._readers.total()

    def admit(self, user_id: str) -> Callable[[], None]:
        """Take a place; the result gives it back. Raises `rate_limited` where there is none, `unavailable` at stop."""
        if self._closing.is_set():
            raise Problem("unavailable")
        mine = self._readers[user_id]
        if self.readers >= limits.STREAM_CLIENTS_MAX or mine >= limits.STREAM_CLIENTS_MAX_PER_USER:
            raise Problem("rate_limited")
        self._readers[user_id] += 1

        def leave() -> None:
            self._readers[user_id] -= 1
            if not self._readers[user_id]:
                del self._readers[user_id]

        return leave

    def close(self) -> None:
        """End every stream soon; the readers come back to the next process with their last id."""
        self._closing.set()

    async def closed(self) -> None:
        """Return once `close` was called."""
        await self._closing.wait()


class Follower:
    """What one reader is told, as bytes of the stream."""

    def __init__(
        self,
        tail: Tail,
        database: Database,
        clock: Clock,
        actor: Actor,
        *,
        reauthenticate: Reauthenticate,
        wait: Wait,
        follow: bool,
    ) -> None:
        self._tail = tail
        self._database = database
        self._clock = clock
        self._actor = actor
        self._reauthenticate = reauthenticate
        self._wait = wait
        self._follow = follow
        self._authenticated_us = clock.monotonic_us()
        self._spoke_us = clock.monotonic_us()
        self._reading: AsyncIterator[list[TailEvent]]

    async def first(self) -> bytes:
        """The first page, before the answer begins, so that a refusal is a problem. Raises as `read_tail`."""
        self._reading = self._tail.read(self._database, lambda: self._actor)
        return _START + _text(await anext(self._reading, []))

    async def rest(self) -> AsyncGenerator[bytes, None]:
        """Everything after it, until the right ends."""
        try:
            async for page in self._reading:
                yield _text(page)
        except (Problem, DatabaseBusy):
            return  # nothing of the rest was said; the reader comes back with the last id it has
        yield self._mark()
        while self._follow:
            await asyncio.sleep(limits.STREAM_READS_APART_US / SECOND)
            await self._wait((limits.STREAM_POLL_US - limits.STREAM_READS_APART_US) / SECOND)
            try:
                await self._check()
                async for page in self._tail.read(self._database, lambda: self._actor):
                    self._spoke_us = self._clock.monotonic_us()
                    yield _text(page)
            except Problem:
                return  # who comes back is told why
            except DatabaseBusy:
                pass  # nothing was read, so nothing is missed
            if self._clock.monotonic_us() - self._spoke_us >= limits.STREAM_HEARTBEAT_US:
                self._spoke_us = self._clock.monotonic_us()
                yield self._mark()

    async def _check(self) -> None:
        """Membership and gate are read with every page; token, session and account at most so long ago."""
        now_us = self._clock.monotonic_us()
        if now_us - self._authenticated_us >= limits.STREAM_RECHECK_US:
            self._actor = await self._reauthenticate()
            self._authenticated_us = now_us

    def _mark(self) -> bytes:
        """A comment that keeps the connection, and the id to go on from although nothing happened."""
        return f": alive\nid: {self._tail.mark}\n\n".encode()


class EventStreamResponse(Response):
    """The stream as an answer. Gives its place back however it ends."""

    media_type = MEDIA_TYPE

    def __init__(self, follower: Follower, first: bytes, streams: EventStreams, leave: Callable[[], None]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._follower = follower
        self._first = first
        self._streams = streams
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """ASGI. Ends when the reader goes, is stuck, or may not read any more, and when the server stops."""
        create = asyncio.get_running_loop().create_task
        tasks = [create(self._speak(send)), create(_gone(receive)), create(self._streams.closed())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            speaking = tasks[0]
            if not speaking.done():
                speaking.cancel()
                await asyncio.wait({speaking})
            if speaking.cancelled() and not tasks[1].done():
                await _bounded(send, {"type": "http.response.body", "body": b"", "more_body": False})
            error = None if speaking.cancelled() else speaking.exception()
            if error is not None and not isinstance(error, OSError | TimeoutError):
                raise error
        finally:
            self._leave()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _speak(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await _bounded(send, start)
        await _bounded(send, _body(self._first))
        async with contextlib.aclosing(self._follower.rest()) as rest:
            async for part in rest:
                await _bounded(send, _body(part))
        await _bounded(send, {"type": "http.response.body", "body": b"", "more_body": False})


def _body(part: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": part, "more_body": True}


async def _bounded(send: Send, message: dict[str, Any]) -> None:
    async with asyncio.timeout(SEND_S):
        await send(message)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _text(page: list[TailEvent]) -> bytes:
    lines = []
    for event in page:
        data = json.dumps({"kind": event.kind, "id": event.id, "status": event.status}, separators=(",", ":"))
        lines.append(f"id: {event.event_id}\ndata: {data}\n\n")
    return "".join(lines).encode()
