"""Puts the parts together and runs them: ``create_app`` for an ASGI server, ``run`` for a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Generator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol

from frontdesk.simulator.access import LoopbackHosts
from frontdesk.simulator.answers import Lines
from frontdesk.simulator.clock import SimClock
from frontdesk.simulator.config import SimulatorConfig, SimulatorError
from frontdesk.simulator.faults import FaultList
from frontdesk.simulator.longconn import Hub
from frontdesk.simulator.observer import Observer
from frontdesk.simulator.openapis import OpenApis
from frontdesk.simulator.page import STATIC, ChatPage
from frontdesk.simulator.people import Desk
from frontdesk.simulator.provider import Pipeline
from frontdesk.simulator.pushing import Pusher
from frontdesk.simulator.state import World

STOP_SECONDS = 3


def create_app(config: SimulatorConfig, lines: Lines | None = None) -> Starlette:
    """The simulator as an ASGI app.

    ``lines`` lets faults cut real connections; without it a cut raises in the server.
    """
    lines = lines or Lines()
    clock = SimClock(manual=config.manual_clock, start_ms=config.start_ms)
    world = World(clock, config.state)
    faults = FaultList()
    hub = Hub(world, faults)
    pusher = Pusher(world, faults, hub, config)
    desk = Desk(world, pusher)
    pipeline = Pipeline(world, faults, lines)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        pusher.start()
        yield
        await pusher.stop()
        world.store.close()

    routes: list[BaseRoute] = [
        *OpenApis(world, pipeline).routes(),
        Route("/callback/ws/endpoint", pipeline.endpoint("endpoint", hub.endpoint), methods=["POST"]),
        WebSocketRoute("/ws", hub.socket),
        *Observer(desk, faults, hub, config.token).routes(),
        *ChatPage(desk).routes(),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Starlette(routes=routes, middleware=[Middleware(LoopbackHosts)], lifespan=lifespan)


def run(config: SimulatorConfig) -> None:
    """Serves until SIGTERM, SIGINT or (with ``exit_with_stdin``) the end of stdin, then returns.

    Prints exactly one line on stdout, ``simulator ready http://127.0.0.1:<port>``. Raises :class:`SimulatorError`
    when the address cannot be bound.
    """
    listening = _bind(config)
    lines = Lines()
    server = _Server(
        uvicorn.Config(
            create_app(config, lines),
            http=_cuttable(lines),
            ws="websockets-sansio",
            loop="asyncio",
            log_level="warning",
            access_log=False,
            date_header=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        ),
        ready_line=f"simulator ready {_address(listening)}",
    )
    if config.exit_with_stdin:
        threading.Thread(target=_wait_for_stdin, args=(server,), daemon=True).start()
    asyncio.run(server.serve(sockets=[listening]))


class _Server(uvicorn.Server):
    """Says when it is ready, and ends by returning: uvicorn's own would raise the signal again after a clean stop."""

    def __init__(self, config: uvicorn.Config, ready_line: str) -> None:
        super().__init__(config)
        self._ready_line = ready_line

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            sys.stdout.write(self._ready_line + "\n")
            sys.stdout.flush()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        stops = (signal.SIGINT, signal.SIGTERM)
        before: dict[signal.Signals, Any] = {number: signal.signal(number, self.handle_exit) for number in stops}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _bind(config: SimulatorConfig) -> socket.socket:
    host = "127.0.0.1" if config.host == "localhost" else config.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle off only where the protocol is named; with it on every answer waits 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, config.port))
    except OSError as error:
        listening.close()
        raise SimulatorError(f"the simulator cannot use {host} port {config.port}: {error.strerror}") from None
    listening.listen(1_024)
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _cuttable(lines: Lines) -> type[H11Protocol]:
    """The HTTP protocol class whose connections ``lines`` knows. h11 also keeps header names as they were given."""

    class Cuttable(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            self._line = transport
            lines.opened(transport)
            super().connection_made(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            lines.closed(self._line)
            super().connection_lost(exc)

    return Cuttable


def _wait_for_stdin(server: uvicorn.Server) -> None:
    """Reads stdin to its end: the parent's pipe closes when the parent is gone, however it went."""
    with contextlib.suppress(OSError, ValueError):
        while os.read(sys.stdin.fileno(), 4_096):
            pass
    server.should_exit = True
