"""The loopback channel as the desk sees it. Every act on the network is one `Call` on a worker thread, off the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from frontdesk.channels import transport
from frontdesk.channels.loopback import answers, bodies, signature, verify
from frontdesk.channels.loopback.targets import FORM, Target, Targets, target_of
from frontdesk.channels.transport import Address, Call, Threads
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
    Session,
    Unknown,
    Verdict,
)
from frontdesk.kernel.clock import SECOND, Clock
from frontdesk.kernel.limits import (
    CONNECT_TIMEOUT_US,
    FILE_BYTES_MAX,
    SEND_TIMEOUT_US,
    TEXT_BODY_BYTES_MAX,
    WEBHOOK_ANSWER_BYTES_MAX,
)

_SECRET_FORM: Final = "must read whsec_ and the base64 of 24 to 64 bytes"  # noqa: S105 - a sentence


@dataclass(eq=False, slots=True)
class LoopbackSession:
    """Where one installation's messages go, judged, and the keys that sign them."""

    target: Target
    addresses: Sequence[Address]
    keys: tuple[bytes, ...] = field(repr=False)
    calls: set[Call] = field(default_factory=set)


class LoopbackChannel:
    """Implements `desk.connections.channel.Channel`."""

    key = "loopback"
    prefix = "loop"
    limits = ChannelLimits(text_bytes_max=TEXT_BODY_BYTES_MAX, file_bytes_max=FILE_BYTES_MAX, chat_per_second=5)

    def __init__(self, targets: Sequence[str], clock: Clock, threads: Threads) -> None:
        """Raises ValueError for targets that are none (`Targets.parse`)."""
        self._targets = Targets.parse(targets)
        self._clock = clock
        self._threads = threads

    # ------------------------------------------------------------------------------------------ inbound, pure

    def secrets_needed(self, inbound: str) -> tuple[str, ...]:
        """The app secret; the encrypt key is a second one during a rotation. There is no long connection."""
        return ("app_secret",) if inbound == "webhook" else ()

    def unfit(self, name: str, value: str | None) -> str | None:
        """Secrets have a form here, and a target is needed, well-formed and listed."""
        if name == "target_url":
            return self._unfit_target(value)
        if name == "verification_token":
            return None if value is None else "not used by this channel"
        if value is None:
            return "required" if name == "app_secret" else None
        return None if signature.key_of(value) is not None else _SECRET_FORM

    def precheck(self, push: RawPush) -> Refused | None:
        """See `verify.precheck`."""
        return verify.precheck(push)

    def verify(self, push: RawPush, credentials: Credentials) -> Verdict:
        """See `verify.verify`."""
        return verify.verify(push, credentials, self._clock.now_us())

    def verifies_swapped(self, push: RawPush, credentials: Credentials) -> bool:  # noqa: ARG002 - the port's arguments
        """Never: both secrets verify wherever they stand."""
        return False

    def text_body_bytes(self, text: str) -> int:
        """See `bodies.text_body_bytes`."""
        return bodies.text_body_bytes(text)

    def text_content(self, text: str) -> str:
        """The text itself."""
        return text

    def same_text(self, content: str, text: str) -> bool:
        """Equal texts."""
        return content == text

    # ------------------------------------------------------------------------------------------ outbound

    async def connect(self, installed: Installed) -> LoopbackSession:
        """Judge where it goes. The name is looked up once, here; what it leads to is where the message is sent.

        Raises `ConnectFailed`: `ssrf_blocked` for good where the host or one of its addresses is not listed,
        `connect_failed` where the name is not known, `credential_unavailable` where the secret is none.
        """
        target = target_of(installed.target_url)
        if target is None or not self._targets.admit_host(target.host):
            raise ConnectFailed("ssrf_blocked", final=True)
        keys = signature.keys_of(installed.credentials)
        if signature.key_of(installed.credentials.app_secret) is None:
            raise ConnectFailed("credential_unavailable")
        try:
            addresses = await self._threads.run(transport.resolve, target.host, target.port)
        except (OSError, UnicodeError):
            raise ConnectFailed("connect_failed") from None
        if not all(self._targets.admit_address(str(where[0])) for *_, where in addresses):
            raise ConnectFailed("ssrf_blocked", final=True)
        return LoopbackSession(target, addresses, keys)

    async def upload(self, session: Session, file: OutboundFile) -> None:
        """Files travel inside the message. Raises `ConnectFailed` for one that can't."""
        _held(session)
        if not bodies.file_fits(file):
            raise ConnectFailed("format_error", final=True)

    async def send(self, session: Session, message: OutboundMessage) -> Outcome:
        """Exactly one wire request, begun before `start_before_us` or not at all."""
        held = _held(session)
        body = bodies.outgoing(message)
        if body is None:
            return RefusedFinal("format_error")
        headers = self._headers(held.keys, message.operation_id, body)
        call = self._call(held, SEND_TIMEOUT_US, message.start_before_us)
        await self._run(held, call, lambda: call.exchange("POST", held.target.url, headers, None, body))
        if call.late:
            return Unknown()  # nothing left here, but the lease may be another's by now: recovery judges
        return answers.classify(call.answer, call.connected, self._clock.now_us())

    async def probe(self, installed: Installed) -> ProbeReport:
        """Connect, with TLS as far as the handshake, and let go. There is no token and no bot to ask for."""
        try:
            held = await self.connect(installed)
        except ConnectFailed as failure:
            return ProbeReport(failure.code, failure.code)
        call = self._call(held, CONNECT_TIMEOUT_US, None)
        await self._run(held, call, lambda: call.reach(held.target.url))
        found = "ok" if call.connected else "connect_failed"
        return ProbeReport(found, found)

    async def history(self, session: Session, chat_id: str, since_ms: int, until_ms: int) -> History:  # noqa: ARG002 - the port's arguments
        """There is none to look into."""
        _held(session)
        return Incomplete("not_available")

    async def close(self, session: Session) -> None:
        """Shuts whatever is still under way; calls close their own sockets."""
        for call in tuple(_held(session).calls):
            call.abort()

    # ------------------------------------------------------------------------------------------ inside

    def _unfit_target(self, value: str | None) -> str | None:
        if value is None:
            return "required by this channel"
        target = target_of(value)
        if target is None:
            return FORM
        return None if self._targets.admit_host(target.host) else "its host is not in loopback_targets"

    def _headers(self, keys: tuple[bytes, ...], event_id: str, body: bytes) -> Mapping[str, str]:
        """Signed under every live key, so that the other side may change over at its own time."""
        timestamp = str(self._clock.now_us() // SECOND)
        return {
            "Content-Type": "application/json",
            "User-Agent": "frontdesk",
            verify.ID: event_id,
            verify.TIMESTAMP: timestamp,
            verify.SIGNATURE: " ".join(signature.signature(key, event_id, timestamp, body) for key in keys),
        }

    def _call(self, session: LoopbackSession, bound_us: int, start_before_us: int | None) -> Call:
        # No proxy, not even the configured one: it would look the name up again.
        return Call(
            self._clock,
            bound_us,
            None,
            start_before_us,
            answer_bytes_max=WEBHOOK_ANSWER_BYTES_MAX,
            addresses=session.addresses,
        )

    async def _run(self, session: LoopbackSession, call: Call, request: Callable[[], object]) -> None:
        await transport.run_aside(self._threads, call, session.calls, lambda: call.run(request))


def _held(session: Session) -> LoopbackSession:
    if not isinstance(session, LoopbackSession):
        raise TypeError("the session belongs to another channel")
    return session
