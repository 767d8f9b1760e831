"""The gate before every route: which host, who asks, how large, and what every answer carries.

Authentication comes before routing and looks at the raw path, so no decoding, redirect or forgotten route can let
anyone past it: what is not on the allow-list needs credentials, whether it exists or not.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import structlog
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from frontdesk.api import cookies, problems
from frontdesk.api.metrics import Metrics
from frontdesk.identity import csrf_matches, csrf_token_of
from frontdesk.identity.model import Actor
from frontdesk.kernel.clock import SECOND, Clock
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.limits import REQUEST_BODY_BYTES_MAX

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# The allow-list of desk.md 2.4; the callback is taken before the gate, consoles add their login pages.
PUBLIC: Final = frozenset({("GET", b"/"), ("GET", b"/healthz"), ("GET", b"/readyz"), ("POST", b"/api/v1/session")})
PUBLIC_PREFIXES: Final = (("GET", b"/static/"), ("GET", b"/.well-known/oauth-protected-resource/"))

METRICS_PATH: Final = b"/metrics"
CONSOLE_PREFIX: Final = b"/console"
BEARER_CHARS_MAX: Final = 8_192
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_UNROUTED: Final = "api.unrouted"
_PORT: Final = re.compile(r":[0-9]{1,5}\Z", re.ASCII)

_log = structlog.get_logger("frontdesk.api")


class Authenticate(Protocol):
    """Turns a bearer into an actor."""

    async def __call__(self, bearer: str) -> Actor:
        """The actor. Raises `unauthenticated`, `user_unknown`, or `DatabaseBusy`."""
        ...


LoginPage = Callable[[Scope], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class GateRules:
    """What the gate is told once. `public` adds exact (method, raw path) pairs to the allow-list.

    `secure`: browsers reach this server over https alone, so an http origin is a foreign one.
    """

    allowed_hosts: Collection[str]
    secure: bool = False
    metrics_token: str = ""
    public: Collection[tuple[str, bytes]] = ()
    public_prefixes: Collection[tuple[str, bytes]] = ()
    login_page: LoginPage | None = None


class Gate:
    """ASGI middleware; sets `scope["actor"]` (None on public paths) and `scope["scrape"]` for the metrics token.

    With a session's cookie it also sets `scope["csrf_token"]`, which every form of a page carries as `csrf_token`; a
    write by cookie without it goes no further than here, whatever page it is for.
    """

    def __init__(
        self, app: App, authenticate: Authenticate, rules: GateRules, *, clock: Clock, metrics: Metrics
    ) -> None:
        self._app = app
        self._authenticate = authenticate
        self._hosts = frozenset(host.lower().rstrip(".") for host in rules.allowed_hosts)
        self._metrics_token = rules.metrics_token.encode("utf-8")
        self._public = PUBLIC | frozenset(rules.public)
        self._prefixes = (*PUBLIC_PREFIXES, *rules.public_prefixes)
        self._login_page = rules.login_page
        self._secure = rules.secure
        self._clock = clock
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the module."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        exchange = _Exchange(dict(scope), receive, send)
        started_us = self._clock.monotonic_us()
        try:
            await self._serve(exchange)
        except ClientDisconnect:
            exchange.scope["problem_code"] = "client_disconnected"  # nobody is there to answer
        except Exception as error:  # noqa: BLE001 - the last line: nothing unforeseen reaches the server's log
            await self._fail(exchange, error)
        finally:
            self._account(exchange, started_us)

    async def _serve(self, exchange: _Exchange) -> None:
        scope = exchange.scope
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode("utf-8")
        self._check_host(scope)
        scope["actor"] = None
        scope["scrape"] = False
        if not self._is_public(scope, raw_path):
            try:
                await self._identify(exchange, raw_path)
            except Problem as problem:
                page = self._login_page if _is_console(raw_path) and problem.code == "unauthenticated" else None
                if page is None:
                    raise
                await exchange.answer_page(problem, await page(scope))
                return
        _check_body_headers(scope)
        if _hides_a_separator(raw_path):
            raise Problem("route_not_found")
        await self._app(scope, exchange.receive, exchange.send)

    def _check_host(self, scope: Scope) -> None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            raise Problem("host_not_allowed")
        host = hosts[0].decode("latin-1").lower()
        if host in self._hosts or _PORT.sub("", host).rstrip(".") in self._hosts:
            return
        raise Problem("host_not_allowed")

    def _is_public(self, scope: Scope, raw_path: bytes) -> bool:
        method = scope["method"]
        if method == "HEAD" and self._listed("GET", raw_path):
            scope["method"] = "GET"  # ours alone; the server keeps its own scope and sends no body
            return True
        return self._listed(method, raw_path)

    def _listed(self, method: str, raw_path: bytes) -> bool:
        if (method, raw_path) in self._public:
            return True
        return any(method == listed and raw_path.startswith(prefix) for listed, prefix in self._prefixes)

    async def _identify(self, exchange: _Exchange, raw_path: bytes) -> None:
        scope = exchange.scope
        bearer, by_cookie = _credential(scope)
        if raw_path == METRICS_PATH and self._metrics_token and not by_cookie:
            scope["scrape"] = hmac.compare_digest(bearer.encode("utf-8"), self._metrics_token)
            if scope["scrape"]:
                return
        scope["actor"] = await self._authenticate(bearer)
        # For an answer that lasts: who was let in once may not be let in any more.
        scope["reauthenticate"] = partial(self._authenticate, bearer)
        scope["by_cookie"] = by_cookie
        if by_cookie:
            scope["csrf_token"] = csrf_token_of(bearer)
            if scope["method"] not in _SAFE:
                await self._check_write(exchange)

    async def _check_write(self, exchange: _Exchange) -> None:
        """A write by cookie. Raises `origin_not_allowed`, `csrf_token_invalid`; the application reads the form anew."""
        scope = exchange.scope
        if not cookies.same_site(scope, secure=self._secure):
            raise Problem("origin_not_allowed")
        shown = cookies.csrf_header(scope)
        if shown is None and cookies.is_form(scope):
            _check_body_headers(scope)
            shown = cookies.csrf_field(await exchange.body())
        if shown is None or not csrf_matches(scope["actor"], shown):
            raise Problem("csrf_token_invalid")

    async def _fail(self, exchange: _Exchange, error: Exception) -> None:
        problem = problems.from_exception(error)
        if problem.code == "internal_error":
            problems.log_defect(exchange.operation, error)
        exchange.scope["problem_code"] = problem.code
        if not exchange.started:
            await exchange.answer(problem)

    def _account(self, exchange: _Exchange, started_us: int) -> None:
        """One log event and one metric a request: the operation, never the path's ids, query or body."""
        elapsed_us = self._clock.monotonic_us() - started_us
        fields: dict[str, Any] = {"status": exchange.status, "duration_ms": elapsed_us // 1000}
        code = exchange.scope.get("problem_code")
        if code is not None:
            fields["code"] = code
        _log.info(exchange.operation, **fields)
        self._metrics.request(exchange.operation, exchange.status, elapsed_us / SECOND)


class _Exchange:
    """One request and its answer: the body counted on its way in, headers added on the way out."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.started = False
        self.status = 0  # 0: no answer was begun, as the client went away
        self._receive = receive
        self._send = send
        self._size = 0
        self._whole = False
        self._again: Message | None = None
        self._is_head = scope["method"] == "HEAD"

    @property
    def operation(self) -> str:
        """The operation's id, once routed."""
        return str(self.scope.get("operation", _UNROUTED))

    async def receive(self) -> Message:
        """The next part of the body. Raises `body_too_large` where the parts exceed the bound."""
        if self._again is not None:
            message, self._again = self._again, None
            return message
        message = await self._receive()
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._size > REQUEST_BODY_BYTES_MAX:
                raise Problem("body_too_large")
        return message

    async def body(self) -> bytes:
        """The whole body, which the application gets too. Raises `body_too_large`, `ClientDisconnect`."""
        held = bytearray()
        while not self._whole:
            message = await self.receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            held += message.get("body", b"")
        self._again = {"type": "http.request", "body": bytes(held), "more_body": False}
        return bytes(held)

    async def send(self, message: Message) -> None:
        """Pass an answer on, with the headers every answer carries."""
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            message = {**message, "headers": _with_defaults(message.get("headers", ()), self._must_close())}
        elif self._is_head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)

    async def answer(self, problem: Problem) -> None:
        """Answer with a problem."""
        await problems.render(problem)(self.scope, self.receive, self.send)

    async def answer_page(self, problem: Problem, page: Response) -> None:
        """Answer with the problem's status and a page as the body."""
        self.scope["problem_code"] = problem.code
        page.status_code = problems.STATUS[problem.entry.kind]
        page.headers.update(problems.headers_of(problem))
        await page(self.scope, self.receive, self.send)

    def _must_close(self) -> bool:
        """An answer given before the body was read to its end: the rest of it must not be taken for a next request."""
        return self.status >= 400 and not self._whole and _announces_body(self.scope)


def _with_defaults(headers: Any, close: bool) -> list[tuple[bytes, bytes]]:
    listed = list(headers)
    present = {name.lower() for name, _ in listed}
    for name, value in _DEFAULT_HEADERS:
        if name not in present:
            listed.append((name, value))
    if close:
        listed.append((b"connection", b"close"))
    return listed


_DEFAULT_HEADERS: Final = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


def _credential(scope: Scope) -> tuple[str, bool]:
    """The bearer, else the console's cookie. Raises `unauthenticated` for none, a repeated or a malformed one."""
    presented = [value for name, value in scope["headers"] if name == b"authorization"]
    if presented:
        scheme, _, bearer = presented[0].partition(b" ")
        bearer = bearer.strip()
        if len(presented) != 1 or scheme.lower() != b"bearer" or not _is_token(bearer):
            raise Problem("unauthenticated")
        return bearer.decode("ascii"), False
    session = cookies.session_of(scope)
    if session is not None and _is_token(session):
        return session.decode("ascii"), True
    raise Problem("unauthenticated")


def _is_token(text: bytes) -> bool:
    return 0 < len(text) <= BEARER_CHARS_MAX and all(0x21 <= byte <= 0x7E for byte in text)


def _check_body_headers(scope: Scope) -> None:
    """Encoding and declared length, before anything of the body is read."""
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    for name, value in scope["headers"]:
        if name == b"content-encoding" and value.strip().lower() != b"identity":
            raise Problem("encoding_unsupported")
    if len(lengths) > 1 or not all(value.isdigit() for value in lengths):
        raise Problem("body_malformed")
    if lengths and (len(lengths[0]) > 9 or int(lengths[0]) > REQUEST_BODY_BYTES_MAX):
        raise Problem("body_too_large")


def _announces_body(scope: Scope) -> bool:
    return any(
        (name == b"content-length" and value.strip(b"0") != b"") or name == b"transfer-encoding"
        for name, value in scope["headers"]
    )


def _hides_a_separator(raw_path: bytes) -> bool:
    """An encoded slash, backslash or dot would be another path after decoding than the one that was asked for."""
    if b"%" not in raw_path:
        return False
    lowered = raw_path.lower()
    return any(code in lowered for code in (b"%2f", b"%5c", b"%2e", b"%00"))


def _is_console(raw_path: bytes) -> bool:
    return raw_path == CONSOLE_PREFIX or raw_path.startswith(CONSOLE_PREFIX + b"/")
