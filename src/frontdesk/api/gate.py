"""The gate before every route: which host, who asks, how large, and what every answer carries.

Authentication comes before routing and looks at the raw path, so no decoding, redirect or forgotten route can let
anyone past it: what is not on the allow-list needs credentials, whether it exists or not.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import structlog
from starlette.responses import Response

from frontdesk.api import problems
from frontdesk.api.metrics import Metrics
from frontdesk.identity.model import SESSION_PREFIX, Actor
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
SESSION_COOKIE: Final = "frontdesk_session"
BEARER_CHARS_MAX: Final = 8_192
_COOKIE: Final = SESSION_COOKIE.encode("ascii")
_SESSION: Final = SESSION_PREFIX.encode("ascii")  # a cookie carries a session, never a token
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
    """What the gate is told once. `public` adds exact (method, raw path) pairs to the allow-list."""

    allowed_hosts: Collection[str]
    metrics_token: str = ""
    public: Collection[tuple[str, bytes]] = ()
    public_prefixes: Collection[tuple[str, bytes]] = ()
    login_page: LoginPage | None = None


class Gate:
    """ASGI middleware; sets `scope["actor"]` (None on public paths) and `scope["scrape"]` for the metrics token."""

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
                await self._identify(scope, raw_path)
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

    async def _identify(self, scope: Scope, raw_path: bytes) -> None:
        bearer, by_cookie = _credential(scope)
        if raw_path == METRICS_PATH and self._metrics_token and not by_cookie:
            scope["scrape"] = hmac.compare_digest(bearer.encode("utf-8"), self._metrics_token)
            if scope["scrape"]:
                return
        scope["actor"] = await self._authenticate(bearer)
        scope["by_cookie"] = by_cookie
        if by_cookie and scope["method"] not in _SAFE and not _same_site(scope):
            raise Problem("origin_not_allowed")

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
        self._is_head = scope["method"] == "HEAD"

    @property
    def operation(self) -> str:
        """The operation's id, once routed."""
        return str(self.scope.get("operation", _UNROUTED))

    async def receive(self) -> Message:
        """The next part of the body. Raises `body_too_large` where the parts exceed the bound."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._size > REQUEST_BODY_BYTES_MAX:
                raise Problem("body_too_large")
        return message

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
    for name, value in scope["headers"]:
        if name != b"cookie":
            continue
        for pair in value.split(b";"):
            key, _, text = pair.strip().partition(b"=")
            if key == _COOKIE and text.startswith(_SESSION) and _is_token(text):
                return text.decode("ascii"), True
    raise Problem("unauthenticated")


def _is_token(text: bytes) -> bool:
    return 0 < len(text) <= BEARER_CHARS_MAX and all(0x21 <= byte <= 0x7E for byte in text)


def _same_site(scope: Scope) -> bool:
    """Whether a write names an origin, and that origin is the host it was sent to."""
    origins = [value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"]
    hosts = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
    try:
        return len(origins) == 1 and urlsplit(origins[0]).netloc.lower() == hosts[0]
    except ValueError:  # no address at all, as `http://[`
        return False


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
