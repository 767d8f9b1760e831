"""The callback: where pushes arrive, in the exact order of desk.md 6.2. The hot path, so a bare ASGI function.

1 path and installation · 2 the client's budget of refused requests · 3 encoding, length, streamed count · 4, 5 shape
· 6 secrets · 7, 8 verification on a thread · 9 the installation's budget of verified pushes · 10 one commit, awaited at
most two seconds and never cancelled · 11 the acknowledgement. A refusal writes nothing and says nothing but its code.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

import structlog

from frontdesk.api import problems
from frontdesk.api.addresses import ClientAddresses
from frontdesk.api.desk.refused import LastRefused
from frontdesk.api.limits import TokenBuckets
from frontdesk.api.metrics import Metrics
from frontdesk.api.threads import Threads
from frontdesk.desk.connections.channel import Challenge, Channel, Channels, Credentials, Inbound, RawPush, Refused
from frontdesk.kernel import limits
from frontdesk.kernel.clock import MINUTE, SECOND, Clock
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.secretbox import CredentialUnavailable
from frontdesk.storage.database import CommitPending

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

OPERATION: Final = "desk.inbox.callback"
PREFIX: Final = b"/api/v1/channels/"
# Compared raw: an encoded slash, a trailing slash or another segment is some other path, and those need credentials.
_PATH: Final = re.compile(rb"/api/v1/channels/([a-z0-9_-]{1,32})/installations/([A-Za-z0-9_-]{1,64})/events")
# Row 1 asks the database as well; together with row 10 (two seconds, the ports' own) the answer stays within three
# seconds.
_TARGET_WAIT_S: Final = 0.8

_log = structlog.get_logger("frontdesk.api")


class Outcome(StrEnum):
    """How a push was answered: the metric's label and the log's phase. `received` is 200 and nothing more."""

    RECEIVED = "received"
    CHALLENGE = "challenge"
    UNKNOWN_INSTALLATION = "unknown_installation"
    CLIENT_LIMITED = "client_limited"
    ENCODING = "encoding_unsupported"
    LENGTH = "length_malformed"
    TOO_LARGE = "too_large"
    SHAPE = "shape_invalid"
    MATERIAL = "verification_material_unavailable"
    NOT_AUTHENTIC = "not_authentic"
    INSTALLATION_LIMITED = "installation_limited"
    COMMIT_FAILED = "commit_failed"
    COMMIT_LATE = "commit_late"
    FAILED = "failed"


class Target(Protocol):
    """The installation a push is for, as read for this push."""

    @property
    def installation_id(self) -> str:
        """Its id."""
        ...

    @property
    def fresh(self) -> bool:
        """True where it was read for this push; False where an earlier reading, a second old at most, is used again."""
        ...

    def credentials(self) -> Credentials:
        """Every secret the webhook needs, decrypted. Raises `CredentialUnavailable` (or the problem of that name)."""
        ...


class TargetChanged(Exception):
    """The installation's secrets are no longer those that this push was verified with; nothing was written."""


class CallbackPorts(Protocol):
    """What the desk supplies."""

    def known_target(self, channel_key: str, installation_id: str) -> Target | None:
        """An earlier reading that may be used again, or None: then `load_target` is asked."""
        ...

    async def load_target(self, channel_key: str, installation_id: str) -> Target | None:
        """The installation where it exists on that channel, else None, read anew. Decrypts nothing."""
        ...

    async def receive(self, target: Any, events: Sequence[Inbound]) -> None:
        """Commit what verified (t0). Returns after the commit is durable; whatever it raises means: not accepted.

        Raises `CommitPending` after `CALLBACK_COMMIT_WAIT_US`; the commit then goes on. Raises `TargetChanged` where
        the target was not fresh and its secrets have changed meanwhile.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Answer:
    outcome: Outcome
    status: int
    start: dict[str, Any]
    body: dict[str, Any]
    # Refusals in rows 1, 3 to 5, 7 and 8 cost the client's address a token.
    costs: bool = False


def _answer(outcome: Outcome, status: int, body: bytes, headers: Sequence[tuple[str, str]], *, costs: bool) -> _Answer:
    listed = [
        *headers,
        ("content-length", str(len(body))),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
    ]
    raw = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in listed]
    start = {"type": "http.response.start", "status": status, "headers": raw}
    return _Answer(outcome, status, start, {"type": "http.response.body", "body": body}, costs)


def _refusal(outcome: Outcome, problem: Problem, *, costs: bool = False, close: bool = False) -> _Answer:
    headers = [("content-type", problems.MEDIA_TYPE), *problems.headers_of(problem).items()]
    if close:  # the body was not read to its end
        headers.append(("connection", "close"))
    return _answer(outcome, problems.STATUS[problem.entry.kind], problems.encoded(problem), headers, costs=costs)


def _limited(outcome: Outcome, wait_s: int, *, close: bool = False) -> _Answer:
    return _refusal(outcome, Problem("rate_limited", retry_after_s=wait_s), close=close)


_JSON: Final = (("content-type", "application/json"),)
_RECEIVED: Final = _answer(Outcome.RECEIVED, 200, b'{"msg":"success"}', _JSON, costs=False)
_UNKNOWN: Final = _refusal(Outcome.UNKNOWN_INSTALLATION, Problem("installation_not_found"), costs=True, close=True)
_ENCODING: Final = _refusal(Outcome.ENCODING, Problem("encoding_unsupported"), costs=True, close=True)
_LENGTH: Final = _refusal(Outcome.LENGTH, Problem("body_malformed"), costs=True, close=True)
_TOO_LARGE: Final = _refusal(Outcome.TOO_LARGE, Problem("body_too_large"), costs=True, close=True)
_SHAPE: Final = _refusal(Outcome.SHAPE, Problem("callback_shape_invalid"), costs=True)
_MATERIAL: Final = _refusal(Outcome.MATERIAL, Problem("verification_material_unavailable"))
_NOT_AUTHENTIC: Final = _refusal(Outcome.NOT_AUTHENTIC, Problem("callback_not_accepted"), costs=True)
_COMMIT_FAILED: Final = _refusal(Outcome.COMMIT_FAILED, Problem("callback_not_accepted"))
_COMMIT_LATE: Final = _refusal(Outcome.COMMIT_LATE, Problem("callback_not_accepted"))
_FAILED: Final = _refusal(Outcome.FAILED, Problem("callback_not_accepted"), close=True)


class Callback:
    """ASGI middleware: takes `POST` on the exact callback path of a known channel, hands everything else to `app`."""

    def __init__(
        self,
        app: Callable[[Scope, Receive, Send], Awaitable[None]],
        ports: CallbackPorts,
        *,
        channels: Channels,
        clock: Clock,
        threads: Threads,
        metrics: Metrics,
        addresses: ClientAddresses,
        last_refused: LastRefused,
    ) -> None:
        self._app = app
        self._ports = ports
        self._channels = channels
        self._clock = clock
        self._threads = threads
        self._addresses = addresses
        self._last_refused = last_refused
        self._count = {outcome: metrics.callback(outcome) for outcome in Outcome}
        per_minute = limits.REFUSED_REQUESTS_PER_MINUTE
        self._clients = TokenBuckets(clock, interval_us=MINUTE // per_minute, burst=per_minute)
        self._installations = TokenBuckets(
            clock, interval_us=SECOND // limits.CALLBACK_RATE_PER_SECOND, burst=limits.CALLBACK_BURST
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the module."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode("utf-8")
        if not raw_path.startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        match = _PATH.fullmatch(raw_path) if scope["method"] == "POST" else None
        channel = self._channels.get(match[1].decode("ascii")) if match is not None else None
        if match is None or channel is None:
            await self._near_miss(scope, receive, send)
            return
        await self._answer(scope, receive, send, channel, match[2].decode("ascii"))

    async def _near_miss(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Some other path below the channels: as any path it needs credentials, and without them costs the client."""

        async def watched(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                self._clients.spend(self._addresses.of(scope))
            await send(message)

        await self._app(scope, receive, watched)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, channel: Channel, installation_id: str) -> None:
        started_us = self._clock.monotonic_us()
        client = self._addresses.of(scope)
        try:
            answer = await self._decide(scope, receive, channel, installation_id, client)
        except Exception as error:  # noqa: BLE001 - whatever broke, the provider learns a constant and pushes again
            problems.log_defect(OPERATION, error)
            answer = _FAILED
        if answer is None:
            return  # the client went away while sending
        if answer.costs:
            self._clients.spend(client)
        self._count[answer.outcome]()
        await send(answer.start)
        await send(answer.body)
        # Thousands of received pushes a second would drown the log; they are counted, and refusals are what people
        # look for.
        if answer.status == 200:
            return
        duration_ms = (self._clock.monotonic_us() - started_us) // 1000
        _log.info(OPERATION, status=answer.status, phase=str(answer.outcome), duration_ms=duration_ms)

    async def _decide(
        self, scope: Scope, receive: Receive, channel: Channel, installation_id: str, client: str
    ) -> _Answer | None:
        target = self._ports.known_target(channel.key, installation_id) or await self._load(channel, installation_id)
        if target is None:
            return _UNKNOWN
        if wait_s := self._clients.wait_s(client):
            return _limited(Outcome.CLIENT_LIMITED, wait_s, close=True)
        body = await _read(scope, receive)
        if not isinstance(body, bytes):
            return body
        push = RawPush([(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]], body)
        if channel.precheck(push) is not None:
            return _SHAPE
        answer = await self._judge(target, channel, push)
        if target.fresh or answer.status == 200 or answer.outcome is Outcome.COMMIT_LATE:
            return answer
        # What was refused on an earlier reading is judged once more on the present one.
        fresh = await self._load(channel, installation_id)
        return _UNKNOWN if fresh is None else await self._judge(fresh, channel, push)

    async def _load(self, channel: Channel, installation_id: str) -> Target | None:
        async with asyncio.timeout(_TARGET_WAIT_S):
            return await self._ports.load_target(channel.key, installation_id)

    async def _judge(self, target: Target, channel: Channel, push: RawPush) -> _Answer:
        """Rows 6 to 11 with one reading of the installation."""
        try:
            credentials = target.credentials()
        except CredentialUnavailable:
            return _MATERIAL
        except Problem as problem:
            if problem.code != "credential_unavailable":
                raise
            return _MATERIAL
        verdict = await self._threads.run(channel.verify, push, credentials)
        if isinstance(verdict, Refused):
            if target.fresh:
                self._last_refused.keep(target.installation_id, push)
            return _SHAPE if verdict.code == "callback_shape_invalid" else _NOT_AUTHENTIC
        if wait_s := self._installations.take(target.installation_id):
            return _limited(Outcome.INSTALLATION_LIMITED, wait_s)
        if isinstance(verdict, Challenge):
            return _answer(Outcome.CHALLENGE, 200, verdict.body, _JSON, costs=False)
        return await self._receive(target, verdict.events)

    async def _receive(self, target: Target, events: Sequence[Inbound]) -> _Answer:
        """Row 10. A commit whose time is up is not cancelled: it goes on, and the next push finds it."""
        try:
            await self._ports.receive(target, events)
        except CommitPending:
            return _COMMIT_LATE
        except TargetChanged:
            return _COMMIT_FAILED
        except Exception as error:  # noqa: BLE001 - whatever broke, nothing was acknowledged and nothing of it is told
            where = f"{type(error).__name__} {problems.where(error)}"
            _log.warning(OPERATION, code="callback_not_accepted", phase=where)
            return _COMMIT_FAILED
        return _RECEIVED


async def _read(scope: Scope, receive: Receive) -> bytes | _Answer | None:
    """Row 3: the body, counted while it streams and never held beyond its bound. None: the client went away."""
    refusal = _refused_by_headers(scope["headers"])
    if refusal is not None:
        return refusal
    message = await receive()
    if message["type"] != "http.request":
        return None
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        return body if len(body) <= limits.CALLBACK_BODY_BYTES_MAX else _TOO_LARGE
    chunks, size = [body], len(body)
    while size <= limits.CALLBACK_BODY_BYTES_MAX:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunk = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks) if size <= limits.CALLBACK_BODY_BYTES_MAX else _TOO_LARGE
    return _TOO_LARGE


def _refused_by_headers(headers: Sequence[tuple[bytes, bytes]]) -> _Answer | None:
    """Encoding first, then length; nothing of the body is read for either."""
    length: bytes | None = None
    malformed = False
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() != b"identity":
            return _ENCODING
        if name == b"content-length":
            malformed = malformed or length is not None or not value.isdigit()
            length = value
    if malformed:
        return _LENGTH
    if length is not None and (len(length) > 9 or int(length) > limits.CALLBACK_BODY_BYTES_MAX):
        return _TOO_LARGE
    return None
