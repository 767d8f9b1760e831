"""The Feishu channel as the desk sees it. Every act on the network is one `Call` on a worker thread, off the loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from frontdesk.channels.feishu import bodies, codes, sdk, verify
from frontdesk.channels.feishu.history import Reader, date_ms
from frontdesk.channels.feishu.tokens import Token, TokenCache, TokenKey, token_key
from frontdesk.channels.feishu.transport import Call, Proxy
from frontdesk.desk.connections.channel import (
    ChannelLimits,
    ConnectFailed,
    Credentials,
    History,
    Incomplete,
    Installed,
    OutboundFile,
    OutboundMessage,
    Outcome,
    ProbeReport,
    RawPush,
    Refused,
    RefusedFinal,
    RefusedRetry,
    Session,
    Unknown,
    Verdict,
)
from frontdesk.kernel.clock import Clock
from frontdesk.kernel.limits import (
    CONNECT_TIMEOUT_US,
    FILE_BYTES_MAX,
    HISTORY_PAGE,
    SEND_TIMEOUT_US,
    TEXT_BODY_BYTES_MAX,
)

TOKEN_PATH: Final = "/open-apis/auth/v3/tenant_access_token/internal"  # noqa: S105 - a path
BOT_PATH: Final = "/open-apis/bot/v3/info"
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_TOKEN_CHARS_MAX: Final = 4_096


class Threads(Protocol):
    """Runs blocking work off the event loop. The simulation runs it inline."""

    async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        """`fn(*args)` on a worker thread."""
        ...


@dataclass(eq=False, slots=True)
class FeishuSession:
    """One installation's token and the calls under way with it. Holds no secret."""

    key: TokenKey
    token: str = field(repr=False)
    calls: set[Call] = field(default_factory=set)


def checked_domain(domain: str) -> str:
    """`domain` where it is an https origin, or a plain http one on this machine; ValueError for anything else.

    The app secret goes there, so nothing that could turn it elsewhere is accepted: no path, query, user or white space.
    """
    parts = urlsplit(domain)
    plain = parts.scheme == "http" and (parts.hostname or "") in _LOOPBACK
    if not (parts.scheme == "https" or plain) or not parts.hostname or domain != f"{parts.scheme}://{parts.netloc}":
        raise ValueError("feishu_domain must be an https origin without a path, or http on a loopback address")
    if "@" in parts.netloc or not domain.isascii() or not domain.isprintable() or " " in domain:
        raise ValueError("feishu_domain must be a bare origin")
    if parts.netloc.endswith(":") or parts.port == 0:  # `port` itself raises ValueError for what is no port
        raise ValueError("feishu_domain names no usable port")
    return domain


class FeishuChannel:
    """Implements `desk.connections.channel.Channel`."""

    key = "feishu"
    prefix = "feishu"
    limits = ChannelLimits(text_bytes_max=TEXT_BODY_BYTES_MAX, file_bytes_max=FILE_BYTES_MAX, chat_per_second=5)

    def __init__(self, domain: str, clock: Clock, threads: Threads, outbound_proxy: str | None = None) -> None:
        self._domain = checked_domain(domain)
        self._proxy = Proxy.parse(outbound_proxy) if outbound_proxy else None
        self._clock = clock
        self._threads = threads
        self._tokens = TokenCache(clock)
        self._made: Any = None

    # ------------------------------------------------------------------------------------------ inbound, pure

    def secrets_needed(self, inbound: str) -> tuple[str, ...]:
        """A webhook needs all three; the long connection is trusted for having been opened with the app secret."""
        return ("app_secret",) if inbound == "long_connection" else ("app_secret", "encrypt_key", "verification_token")

    def precheck(self, push: RawPush) -> Refused | None:
        """See `verify.precheck`."""
        return verify.precheck(push)

    def verify(self, push: RawPush, credentials: Credentials) -> Verdict:
        """See `verify.verify`."""
        return verify.verify(push, credentials)

    def verifies_swapped(self, push: RawPush, credentials: Credentials) -> bool:
        """Whether the two secrets were put into each other's field."""
        swapped = Credentials(credentials.app_secret, credentials.verification_token, credentials.encrypt_key)
        return not isinstance(verify.verify(push, swapped), Refused)

    def text_body_bytes(self, text: str) -> int:
        """See `bodies.text_body_bytes`."""
        return bodies.text_body_bytes(text)

    def text_content(self, text: str) -> str:
        """See `bodies.text_content`."""
        return bodies.text_content(text)

    def same_text(self, content: str, text: str) -> bool:
        """See `bodies.same_text`."""
        return bodies.same_text(content, text)

    # ------------------------------------------------------------------------------------------ outbound

    async def connect(self, installed: Installed) -> FeishuSession:
        """A token, kept or asked for."""
        key = self._token_key(installed)
        return FeishuSession(key, await self._tokens.get(key, lambda: self._ask_token(installed)))

    async def upload(self, session: Session, file: OutboundFile) -> str:
        """Bring the file over. Raises `ConnectFailed`."""
        held = _held(session)
        if not bodies.file_fits(file):
            raise ConnectFailed("format_error", final=True)

        def ask(client: Any) -> None:
            client.im.v1.file.create(
                sdk.file_request(file.name, file.content, file.media_type), sdk.with_token(held.token)
            )

        call = await self._call(ask, CONNECT_TIMEOUT_US, held)
        try:
            return codes.classify_upload(call.answer, call.connected)
        except ConnectFailed as failure:
            self._drop_if_rejected(held, failure.code)
            raise

    async def send(self, session: Session, message: OutboundMessage) -> Outcome:
        """Exactly one wire request, begun before `start_before_us` or not at all.

        That is looked at on the worker thread, before connecting and again before the first byte, so that a thread
        paused past it sends nothing.
        """
        held = _held(session)
        made = bodies.outgoing(message)
        if made is None:
            return RefusedFinal("format_error")
        kind, content = made
        call = Call(self._clock, SEND_TIMEOUT_US, self._proxy, message.start_before_us)

        def ask(client: Any) -> None:
            messages, option = client.im.v1.message, sdk.with_token(held.token)
            if message.reply_to is None:
                messages.create(sdk.create_request(message.chat_id, kind, content, message.provider_uuid), option)
            else:
                messages.reply(sdk.reply_request(message.reply_to, kind, content, message.provider_uuid), option)

        with contextlib.suppress(Exception):  # what came of it stands on the call
            await self._run(call, ask, held)
        if call.late:
            return Unknown()  # nothing left here, but the lease may be another's by now: recovery judges
        outcome = codes.classify_send(call.answer, call.connected)
        if isinstance(outcome, RefusedRetry):
            self._drop_if_rejected(held, outcome.code)
        return outcome

    async def probe(self, installed: Installed) -> ProbeReport:
        """Asks for a fresh token, since a kept one proves nothing about the secret, and for the bot."""
        key = self._token_key(installed)
        try:
            token = await self._tokens.renew(key, lambda: self._ask_token(installed))
        except ConnectFailed as failure:
            return ProbeReport(failure.code, failure.code, failure.provider_code)
        held = FeishuSession(key, token.value)
        call = await self._call(
            lambda client: sdk.execute(client.config, "GET", BOT_PATH, None, held.token), CONNECT_TIMEOUT_US, held
        )
        reading = codes.read(call.answer)
        now_ms = date_ms(call.answer.headers) if call.answer is not None else None
        if reading is None or not reading.accepted:
            means = reading.means.value if reading is not None and reading.means is not None else "connect_failed"
            self._drop_if_rejected(held, means)
            return ProbeReport("ok", means, reading.code if reading else None, provider_now_ms=now_ms)
        bot = reading.fields.get("bot")
        open_id = bot.get("open_id") if isinstance(bot, dict) else None
        if not isinstance(open_id, str) or not open_id:
            return ProbeReport("ok", "connect_failed", provider_now_ms=now_ms)
        return ProbeReport("ok", "ok", bot_open_id=open_id, provider_now_ms=now_ms)

    async def history(self, session: Session, chat_id: str, since_ms: int, until_ms: int) -> History:
        """Pages to the end, each page its own bounded call."""
        held = _held(session)
        reader = Reader(chat_id, since_ms, until_ms)
        while True:
            call = await self._page(held, chat_id, (since_ms, until_ms), reader.next_token)
            end = reader.take(call.answer, call.connected)
            if end is not None:
                if isinstance(end, Incomplete):
                    self._drop_if_rejected(held, end.reason)
                return end

    async def close(self, session: Session) -> None:
        """Shuts whatever is still under way; calls close their own sockets."""
        for call in tuple(_held(session).calls):
            call.abort()

    # ------------------------------------------------------------------------------------------ inside

    def _token_key(self, installed: Installed) -> TokenKey:
        return token_key(installed.app_id, self._domain, installed.credentials.app_secret)

    async def _ask_token(self, installed: Installed) -> Token:
        body = {"app_id": installed.app_id, "app_secret": installed.credentials.app_secret}
        call = await self._call(
            lambda client: sdk.execute(client.config, "POST", TOKEN_PATH, body, None), CONNECT_TIMEOUT_US, None
        )
        reading = codes.read_token(call.answer)
        if reading is None:
            raise ConnectFailed("connect_failed")
        if not reading.accepted:
            code = reading.means.value if reading.means is not None else "connect_failed"
            raise ConnectFailed(code, provider_code=reading.code, wait_ms=reading.wait_ms)
        value, expire = reading.fields.get("tenant_access_token"), reading.fields.get("expire")
        if not _is_token(value) or type(expire) is not int or not 0 < expire <= 1_000_000:
            raise ConnectFailed("connect_failed")
        return Token(str(value), expire)

    async def _page(
        self, session: FeishuSession, chat_id: str, window_ms: tuple[int, int], page_token: str | None
    ) -> Call:
        start_s, end_s = window_ms[0] // 1000, -(-window_ms[1] // 1000)  # outwards, to the provider's whole seconds

        def ask(client: Any) -> None:
            request = sdk.list_request(chat_id, start_s, end_s, HISTORY_PAGE, page_token)
            client.im.v1.message.list(request, sdk.with_token(session.token))

        return await self._call(ask, SEND_TIMEOUT_US, session)

    async def _call(self, ask: Callable[[Any], None], bound_us: int, session: FeishuSession | None) -> Call:
        call = Call(self._clock, bound_us, self._proxy)
        await self._run(call, ask, session)
        return call

    async def _run(self, call: Call, ask: Callable[[Any], None], session: FeishuSession | None) -> None:
        if session is not None:
            session.calls.add(call)
        try:
            await self._threads.run(self._work, call, ask)
        except BaseException:
            call.abort()  # cancelled, or no thread to be had: after this no byte can leave
            raise
        finally:
            if session is not None:
                session.calls.discard(call)

    def _work(self, call: Call, ask: Callable[[Any], None]) -> None:
        client = self._client()
        call.run(lambda: ask(client))

    def _client(self) -> Any:
        # Made on the first worker thread that needs it; two at once make two alike, and one stays.
        if self._made is None:
            self._made = sdk.client(self._domain)
        return self._made

    def _drop_if_rejected(self, session: FeishuSession, code: str) -> None:
        if code == codes.Means.TOKEN_REJECTED:
            self._tokens.drop(session.key, session.token)


def _held(session: Session) -> FeishuSession:
    if not isinstance(session, FeishuSession):
        raise TypeError("the session belongs to another channel")
    return session


def _is_token(value: object) -> bool:
    """Fit for a header as it is: a token with a line break in it would be two headers."""
    return isinstance(value, str) and 0 < len(value) <= _TOKEN_CHARS_MAX and value.isascii() and value.isprintable()
