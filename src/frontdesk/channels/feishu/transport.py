"""The one seam in place of the SDK's sync requester: one wire request per call, bounded as a whole, nothing followed.

The SDK's own requester follows redirects (a 307 posts twice), reads proxies and netrc from the environment, never ends
on a dripping answer and keeps sockets open. Here a `Call` is one request: it notes whether a connection stood (with
TLS, whether the handshake ended), a timer shuts its socket at the deadline whatever the reads do, and it can be aborted
from another thread. What it noted, not an exception's class, is what classification goes by.
"""

from __future__ import annotations

import base64
import contextlib
import contextvars
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from urllib.parse import unquote, urlencode, urlsplit

from frontdesk.kernel.clock import SECOND, Clock

# A page of history: fifty messages of 150 kB, escaped twice, with room to spare.
ANSWER_BYTES_MAX: Final = 33_554_432
_READ_BYTES: Final = 65_536


class CallEnded(Exception):
    """The call may not begin or go on: past its deadline, aborted, or used before."""


class AnswerUnusable(Exception):
    """The answer was cut off or larger than we hold."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer. Header names are lower-case; of repeated headers the last counts."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Proxy:
    """The one proxy a deployment may name; credentials stay out of `repr`."""

    host: str
    port: int
    authorization: str | None = field(repr=False)

    @staticmethod
    def parse(url: str) -> Proxy:
        """From `http://[user:password@]host[:port]`; anything else raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.path not in {"", "/"} or parts.query or parts.fragment:
            raise ValueError("outbound_proxy must read http://[user:password@]host[:port]")
        authorization = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"
        return Proxy(parts.hostname, parts.port or 80, authorization)


@dataclass(frozen=True, slots=True)
class _Response:
    """What the SDK's transport reads of a response."""

    status_code: int
    headers: dict[str, str]
    content: bytes


class Call:
    """One wire request: its bound, what was noted of it, its answer.

    `late`: not begun, because whoever asked for it may have lost the right to by then.
    """

    def __init__(self, clock: Clock, bound_us: int, proxy: Proxy | None, start_before_us: int | None = None) -> None:
        self._clock = clock
        self._deadline_us = clock.monotonic_us() + bound_us
        self._start_before_us = start_before_us
        self._proxy = proxy
        self._lock = threading.Lock()
        self._used = False
        self._ended = False
        self._handle: socket.socket | None = None
        self.late = False
        self.connected = False
        self.answer: Answer | None = None

    def run(self, request: Callable[[], object]) -> None:
        """Let the SDK make its request through this call. Never raises; the call's notes say what came of it.

        Whatever the SDK makes of the answer, and whatever it raises on it, is of no interest: we read the raw one.
        """
        token = _current.set(self)
        try:
            with contextlib.suppress(Exception):
                request()
        finally:
            _current.reset(token)

    def abort(self) -> None:
        """End the call from any thread: it does not begin any more, or its socket is shut."""
        with self._lock:
            self._ended = True
            if self._handle is not None:
                with contextlib.suppress(OSError):
                    self._handle.shutdown(socket.SHUT_RDWR)

    def exchange(self, method: str, url: str, headers: Mapping[str, str], parameters: Any, body: Any) -> _Response:
        """Make the request. Raises where no complete answer came."""
        if self._used:
            raise CallEnded("one call is one wire request")
        self._used = True
        self._start()
        timer = threading.Timer(self._left_s(), self.abort)
        timer.name = "frontdesk-feishu-deadline"
        timer.daemon = True
        timer.start()
        connection = _connection(self, url, self._proxy)
        try:
            connection.connect()
            self._stand()
            target = _target(url, parameters, forwarded=self._proxy is not None)
            self.answer = self._ask(connection, method, target, headers, body)
        finally:
            timer.cancel()
            connection.close()
            self._release()
            timer.join()
        return _Response(self.answer.status, dict(self.answer.headers), self.answer.body)

    def open_socket(self, address: tuple[str, int], _timeout: object, _source: object) -> socket.socket:
        """Connect to one of the host's addresses within what is left, sharing it fairly between them."""
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        for index, (family, kind, protocol, _, where) in enumerate(found):
            opened = socket.socket(family, kind, protocol)
            try:
                self._go_on()
                opened.settimeout(self._left_s() / (len(found) - index))
                opened.connect(where)
                opened.settimeout(self._left_s())
                self._hold(opened)
            except OSError:
                opened.close()
                if index == len(found) - 1:
                    raise
            except BaseException:
                opened.close()
                raise
            else:
                return opened
        raise OSError("the host has no address")

    def _ask(
        self, connection: http.client.HTTPConnection, method: str, target: str, headers: Mapping[str, str], body: Any
    ) -> Answer:
        sent = dict(headers) | ({} if body is None or isinstance(body, bytes) else {"Content-Length": str(body.len)})
        if self._proxy is not None and self._proxy.authorization and target.startswith("http:"):
            sent["Proxy-Authorization"] = self._proxy.authorization
        connection.request(method, target, body=body, headers=sent)
        with contextlib.closing(connection.getresponse()) as response:
            content = _read(response)
        with self._lock:
            if self._ended:  # a shut socket reads like an orderly end
                raise CallEnded("the call's time was over")
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, content)

    def _stand(self) -> None:
        # Under the lock: once `abort` returned with `connected` false, no byte can follow.
        with self._lock:
            self._start()
            self.connected = True

    def _start(self) -> None:
        if self._start_before_us is not None and self._clock.monotonic_us() >= self._start_before_us:
            self.late = True
            raise CallEnded("too late to begin")
        self._go_on()

    def _go_on(self) -> None:
        if self._ended or self._clock.monotonic_us() >= self._deadline_us:
            raise CallEnded("the call's time was over")

    def _left_s(self) -> float:
        return max(self._deadline_us - self._clock.monotonic_us(), 1) / SECOND

    def _hold(self, opened: socket.socket) -> None:
        # TLS takes the socket object over; a second descriptor of the same connection can still shut it.
        with self._lock:
            if self._ended:
                raise CallEnded("the call's time was over")
            self._handle = opened.dup()

    def _release(self) -> None:
        with self._lock:
            if self._handle is not None:
                self._handle.close()
                self._handle = None


_current: contextvars.ContextVar[Call | None] = contextvars.ContextVar("frontdesk_feishu_call", default=None)


def requester(_config: object) -> tuple[Callable[..., _Response], dict[str, object]]:
    """What the SDK calls instead of its own `_sync_requester`."""
    return _request, {}


def _request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    params: Any = None,
    data: Any = None,
    timeout: object = None,  # noqa: ARG001 - the SDK's per-read bound; ours holds for the whole call
) -> _Response:
    call = _current.get()
    if call is None:
        raise CallEnded("a request outside of any call")
    return call.exchange(method, url, headers, params, data)


# ---------------------------------------------------------------------------------------------- connections


class _Plain(http.client.HTTPConnection):
    """A connection whose socket belongs to a call."""

    def __init__(self, call: Call, host: str, port: int | None) -> None:
        super().__init__(host, port, blocksize=_READ_BYTES)
        self._create_connection = call.open_socket


class _Secure(http.client.HTTPSConnection):
    """The same under TLS; `connect` returns only after the handshake, certificate check included."""

    def __init__(self, call: Call, host: str, port: int | None) -> None:
        super().__init__(host, port, blocksize=_READ_BYTES, context=tls_context())
        self._create_connection = call.open_socket


def _connection(call: Call, url: str, proxy: Proxy | None) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    kind = _Secure if parts.scheme == "https" else _Plain
    if proxy is None:
        return kind(call, host, port)
    connection = kind(call, proxy.host, proxy.port)
    if parts.scheme == "https":
        authorization = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
        connection.set_tunnel(host, port or 443, authorization)
    return connection


def _target(url: str, parameters: Any, *, forwarded: bool) -> str:
    parts = urlsplit(url)
    query = f"?{urlencode(_pairs(parameters))}" if parameters else ""
    if forwarded and parts.scheme == "http":
        return f"http://{parts.netloc}{parts.path}{query}"
    return f"{parts.path}{query}"


def _pairs(parameters: Any) -> list[tuple[str, str]]:
    pairs: Iterable[tuple[Any, Any]] = parameters.items() if isinstance(parameters, Mapping) else parameters
    return [(str(name), str(value)) for name, value in pairs]


def _read(response: http.client.HTTPResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := response.read(_READ_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > ANSWER_BYTES_MAX:
            raise AnswerUnusable("larger than we hold")
    if response.length:  # what of the announced length did not come
        raise AnswerUnusable("cut off")
    return b"".join(pieces)


@cache
def tls_context() -> ssl.SSLContext:
    """The machine's trust store and, for images without one, certifi's; made once, as it costs 20 ms."""
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
