"""Running a process's API under uvicorn with its worker beside it, until a signal or the end of stdin."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import structlog
import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from frontdesk.app.settings import Settings
from frontdesk.app.wiring import Process
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.limits import REQUEST_HEAD_BYTES_MAX, REQUEST_HEAD_WAIT_US

log = structlog.get_logger("frontdesk.app")

GRACEFUL_S = 5


class StartRefused(Exception):
    """The process cannot start; the text says why and what to do."""


class Server(uvicorn.Server):
    """uvicorn without its own signal handling: ours ends the worker first and then exits 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the handlers alone."""
        yield


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol with a bound on what is kept of a request beside its body: line, headers, trailers, and time.

    Without it any stranger fills the memory, or holds connections with half a request, before the gate sees anything.
    Exact to one read of the socket. Does not bound the time of a body: routes that take one bound it themselves.
    """

    head_wait_s = REQUEST_HEAD_WAIT_US / SECOND
    _beside_body = 0
    _head_due: float | None = None
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A new connection has to come to the end of a first head in time."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._head_due = None
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        """The head is here; what follows has its own bounds."""
        self._head_due = None
        super().on_headers_complete()

    def _await_head(self) -> None:
        # One timer serves a connection's requests, moved on only when it fires: most heads are here at once.
        self._head_due = self.loop.time() + self.head_wait_s
        if self._head_timer is None:
            self._head_timer = self.loop.call_at(self._head_due, self._head_is_due)

    def _head_is_due(self) -> None:
        self._head_timer = None
        if self._head_due is None or self.transport.is_closing():
            return
        if self.loop.time() < self._head_due:
            self._head_timer = self.loop.call_at(self._head_due, self._head_is_due)
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Count, and end the connection past the bound."""
        self._beside_body += len(data)
        super().data_received(data)
        if self._beside_body > REQUEST_HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response("Request head too large.")

    def on_message_begin(self) -> None:
        """The next request of this connection."""
        self._beside_body = 0
        self._await_head()
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """What belongs to the body is the routes' to bound."""
        self._beside_body -= len(body)
        super().on_body(body)


def settle_memory() -> None:
    """Tell the collector that what is loaded by now stays, and to look at the rest less often. Call once, after start.

    Without it each full collection walks every module, model and route again, which a busy callback pays for. Bounded
    all the same: cycles are still collected, only after 20 000 new containers instead of 700. See `gc.freeze`.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


def listening_socket(host: str, port: int) -> socket.socket:
    """Bind before anything else, so that a taken port is one clear sentence. Raises `StartRefused`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio leaves Nagle's algorithm on for a socket whose protocol is 0.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host.strip("[]"), port))
    except OSError:
        sock.close()
        raise StartRefused(
            f"port {port} on {host} cannot be taken: stop what uses it, or set `port` (0 takes a free one)"
        ) from None
    sock.listen(2048)
    sock.set_inheritable(True)
    return sock


class StopSignal:
    """Set by SIGTERM, SIGINT or, where asked for, the end of stdin (so also when the parent was killed)."""

    def __init__(self, *, exit_with_stdin: bool) -> None:
        self._event = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._event.set)
        if exit_with_stdin:
            thread = threading.Thread(target=self._watch, args=(loop,), name="stdin", daemon=True)
            thread.start()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(OSError, ValueError):
            while os.read(sys.stdin.fileno(), 4096):
                pass
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._event.set)

    async def wait(self) -> None:
        """Return once the process is to end."""
        await self._event.wait()


def web_server(process: Process, settings: Settings) -> Server:
    """The one way a process's API is served, in production as in the bench."""
    return Server(
        uvicorn.Config(
            process.api,
            http=BoundedHttp,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=GRACEFUL_S,
            ssl_certfile=settings.tls_cert or None,
            ssl_keyfile=settings.tls_key or None,
            ws="none",
        )
    )


async def serve(
    process: Process, settings: Settings, sock: socket.socket, *, exit_with_stdin: bool, ready: Callable[[], None]
) -> None:
    """Start → recover → serve, finally stop, whichever of them raises. While work ends, callbacks are answered."""
    stop = StopSignal(exit_with_stdin=exit_with_stdin)
    server = web_server(process, settings)
    try:
        await process.start()
        settle_memory()
        web = asyncio.get_running_loop().create_task(server.serve(sockets=[sock]), name="web")
        asked = asyncio.get_running_loop().create_task(stop.wait(), name="stop")
        while not server.started and not web.done():  # noqa: ASYNC110 - uvicorn offers a flag and no event
            await asyncio.sleep(0.01)
        if not web.done():
            ready()
        await asyncio.wait({web, asked}, return_when=asyncio.FIRST_COMPLETED)
        if process.worker is not None:
            await process.worker.stop()
        server.should_exit = True
        await web
        asked.cancel()
    finally:
        await process.stop()
        sock.close()


async def work(process: Process, *, exit_with_stdin: bool, ready: Callable[[], None]) -> None:
    """A worker without a web surface: start → recover → serve, finally stop."""
    stop = StopSignal(exit_with_stdin=exit_with_stdin)
    try:
        await process.start()
        settle_memory()
        ready()
        await stop.wait()
    finally:
        await process.stop()


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop; the one event loop of the process."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)
