"""The SDK's long-connection client under guard: what it does is left to it, what it hides is noted.

Its traps: its event loop is a module-global bound at import, so one client per process; after a refused reconnect its
receive task is dead while it calls itself ready; it waits two minutes between pings; its endpoint request follows
redirects, with the app secret in the body, and reads proxies from the environment; its log lines carry the socket's
address with its ticket.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from frontdesk.channels.feishu import sdk
from frontdesk.channels.feishu.transport import Call, response_of
from frontdesk.channels.transport import Proxy, tls_context
from frontdesk.kernel.clock import SECOND, Clock, SystemClock
from frontdesk.kernel.limits import CALLBACK_BODY_BYTES_MAX, LISTENER_HANDSHAKE_US, LISTENER_PING_US

PING_S: Final = LISTENER_PING_US // SECOND
HANDSHAKE_S: Final = LISTENER_HANDSHAKE_US / SECOND
FRAGMENTS_MAX: Final = 256


class EventNotTaken(RuntimeError):
    """What the SDK gets to see of any failure: it logs and keeps the text, so the text is constant."""

    def __init__(self) -> None:
        super().__init__("the event was not taken")


class Notes:
    """What is seen of the client from within; written on its thread, read from any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._receivers = 0
        self._pong_us = clock.monotonic_us()
        self._busy_us = 0
        self._busy_since_us: int | None = None
        self.dead = False
        self.failure: BaseException | None = None
        self.stopping = False

    def receiver_began(self) -> None:
        """A task reads from a socket."""
        self._receivers += 1
        self.dead = False

    def receiver_ended(self) -> None:
        """It does not any more; where it was the only one, nobody will read again."""
        self._receivers -= 1
        self.dead = self._receivers == 0

    def pong(self) -> None:
        """The provider answered a ping."""
        with self._lock:
            self._pong_us, self._busy_us = self._clock.monotonic_us(), 0

    def busy(self, begins: bool) -> None:
        """An event is being taken, or no longer: meanwhile the client can hear nothing."""
        now_us = self._clock.monotonic_us()
        with self._lock:
            if begins:
                self._busy_since_us = now_us
            elif self._busy_since_us is not None:
                self._busy_us += now_us - max(self._busy_since_us, self._pong_us)
                self._busy_since_us = None

    def quiet_us(self) -> int:
        """Time since the last pong in which one could have been heard."""
        now_us = self._clock.monotonic_us()
        with self._lock:
            deaf_us = self._busy_us
            if self._busy_since_us is not None:
                deaf_us += now_us - max(self._busy_since_us, self._pong_us)
            return now_us - self._pong_us - deaf_us


class Handler:
    """Stands where the SDK expects its dispatcher, of which the long connection uses this one method."""

    def __init__(self, take: Callable[[bytes], None], notes: Notes) -> None:
        self._take = take
        self._notes = notes

    def _do_without_validation(self, payload: bytes) -> None:
        """Returning acknowledges with `code` 200, raising with 500."""
        self._notes.busy(True)
        try:
            self._take(payload)
        except BaseException:  # noqa: BLE001 - re-raised as a constant
            raise EventNotTaken from None
        finally:
            self._notes.busy(False)


def module() -> Any:
    """The SDK's module, loaded."""
    sdk.load()
    return importlib.import_module("lark_channel.ws.client")


def build(
    app_id: str,
    app_secret: str,
    *,
    domain: str,
    proxy_url: str | None,
    handler: Handler,
    notes: Notes,
    loop: asyncio.AbstractEventLoop,
) -> Any:
    """A client bound to `loop`, which must be the calling thread's own and not be running."""
    found = module()
    from lark_channel import SecurityConfig
    from lark_channel.core.enum import LogLevel

    found.loop = loop
    found._post_endpoint = post_endpoint  # noqa: SLF001 - see there
    found._ws_connect_kwargs = lambda proxy, _environment: connect_options(domain, proxy)  # noqa: SLF001
    sdk.silence()
    client = client_class()(
        app_id,
        app_secret,
        log_level=LogLevel.CRITICAL,
        event_handler=handler,
        domain=domain,
        auto_reconnect=True,
        proxy_url=proxy_url,
        trust_env_proxy=False,
        handshake_timeout=HANDSHAKE_S,
        security=SecurityConfig(
            mode="strict",
            audit_recorder=sdk.NoAudit(),
            max_ws_fragment_parts=FRAGMENTS_MAX,
            max_ws_fragment_bytes=CALLBACK_BODY_BYTES_MAX,
            # One event at a time as it is; so the loop looks at its sockets and timers between two.
            max_concurrent_ws_handlers=1,
        ),
    )
    client._notes = notes  # noqa: SLF001 - our own subclass
    client._ping_interval = PING_S  # noqa: SLF001
    client.on_reconnected = lambda: loop.create_task(ping(client))
    sdk.silence()
    return client


@cache
def client_class() -> Any:
    """The SDK's client with what it hides noted. Made by `type()`, as a class over an untyped base can't be checked."""
    base = module().Client

    async def receive(self: Any, conn: Any) -> None:
        notes: Notes = self._notes
        notes.receiver_began()
        try:
            await base._receive_message_loop(self, conn)  # noqa: SLF001 - the method overridden here
        except Exception as error:  # noqa: BLE001 - the SDK's own task would die of it, unseen
            notes.failure = notes.failure or error
        finally:
            # After a reconnect the next receiver's first step is queued already: it counts before this one is gone.
            asyncio.get_running_loop().call_soon(notes.receiver_ended)

    async def control(self: Any, frame: Any) -> None:
        if any(header.key == "type" and header.value == "pong" for header in frame.headers):
            self._notes.pong()
        await base._handle_control_frame(self, frame)  # noqa: SLF001 - the method overridden here

    def configure(self: Any, conf: Any) -> None:
        base._configure(self, conf)  # noqa: SLF001 - the method overridden here
        self._ping_interval = min(self._ping_interval, PING_S)

    names = {"_receive_message_loop": receive, "_handle_control_frame": control, "_configure": configure}
    return type("WatchedClient", (base,), names)


def refusal_number(error: BaseException | None) -> int | None:
    """The provider's number in what the SDK raised; None for anything it did not take from an answer."""
    found = module()
    if not isinstance(error, (found.ClientException, found.ServerException)):
        return None
    return error.code if type(error.code) is int else None


async def ping(client: Any) -> None:
    """One ping now; a connection that can't take it is found out by its silence."""
    frame = module()._new_ping_frame(int(client._service_id or 0))  # noqa: SLF001 - the SDK has no public one
    with contextlib.suppress(Exception):  # the supervisor looks at pongs, not at pings
        await client._write_message(frame.SerializeToString())  # noqa: SLF001


def post_endpoint(
    url: str,
    *,
    headers: Mapping[str, str],
    body: Mapping[str, str],
    timeout: float | None,  # noqa: ARG001 - per phase; ours holds for the whole request
    proxy_url: str | None,
    trust_env_proxy: bool | None,  # noqa: ARG001 - never
) -> Any:
    """In place of the SDK's function of this name: one bounded request to the configured origin, nothing followed."""
    call = Call(SystemClock(), LISTENER_HANDSHAKE_US, Proxy.parse(proxy_url) if proxy_url else None)
    sent = {**headers, "Content-Type": "application/json; charset=utf-8"}
    return response_of(call.exchange("POST", url, sent, None, json.dumps(dict(body)).encode("utf-8")))


def connect_options(domain: str, proxy_url: str | None) -> dict[str, Any]:
    """What the WebSocket is opened with: our trust store, and no proxy but the configured one.

    With an https origin a plain `ws://` address of its answer can't be opened.
    """
    return {"proxy": proxy_url} | ({"ssl": tls_context()} if domain.startswith("https:") else {})
