"""The port that channels implement. The desk declares it; `app/` hands a registry of channels in.

No desk code branches on a channel's name: whatever differs between providers is data or a method here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

# ---------------------------------------------------------------------------------------------- inbound, pure


@dataclass(frozen=True, slots=True)
class Credentials:
    """Decrypted secrets of one installation, alive only while one request or attempt runs. Never logged (no repr)."""

    app_secret: str = field(repr=False)
    encrypt_key: str | None = field(default=None, repr=False)
    verification_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RawPush:
    """A push exactly as received. `headers` are (lower-case name, value) pairs in wire order, repeats included."""

    headers: Sequence[tuple[str, str]]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """One provider message, normalised and still untrusted. `text` is None where the shape is not supported.

    `signed_at_ms` is the provider's signing time (None on a channel or path without one). `request_hash` covers what
    two pushes of one message share (check value V8): event ids, event times and headers stay out. `tenant_key` is the
    sender's; `event_tenant_key` is the push's own where that is another one: then it is nobody's. `app_id` and
    `tenant_key` are empty on a channel whose pushes name neither: there, whoever holds the secret is the app.
    """

    app_id: str
    tenant_key: str
    event_id: str
    message_id: str
    sender_id: str
    sender_type: str
    chat_id: str
    chat_type: str
    message_type: str
    text: str | None = field(repr=False)
    parent_id: str | None
    root_id: str | None
    created_at_ms: int
    signed_at_ms: int | None
    request_hash: str
    event_tenant_key: str | None = None

    def within(self, app_id: str, tenant_key: str) -> InboundMessage:
        """The same, with the installation's own labels where the push names none."""
        if self.app_id and self.tenant_key:
            return self
        return replace(self, app_id=self.app_id or app_id, tenant_key=self.tenant_key or tenant_key)


@dataclass(frozen=True, slots=True)
class Recall:
    """The provider says that a message was recalled. Labels as in `InboundMessage`."""

    app_id: str
    tenant_key: str
    message_id: str

    def within(self, app_id: str, tenant_key: str) -> Recall:
        """See `InboundMessage.within`."""
        if self.app_id and self.tenant_key:
            return self
        return replace(self, app_id=self.app_id or app_id, tenant_key=self.tenant_key or tenant_key)


@dataclass(frozen=True, slots=True)
class Ignored:
    """Verified, but nothing the desk keeps: acknowledged and counted under `reason`, no row."""

    reason: str


Inbound = InboundMessage | Recall | Ignored


@dataclass(frozen=True, slots=True)
class Verified:
    """The push is authentic; `events` are its normalised contents."""

    events: Sequence[Inbound]


@dataclass(frozen=True, slots=True)
class Challenge:
    """The push is the provider's URL check; `body` answers it."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """Not authentic (`callback_not_accepted`) or not even shaped like a push (`callback_shape_invalid`)."""

    code: str


Verdict = Verified | Challenge | Refused

# ---------------------------------------------------------------------------------------------- long connection


@dataclass(frozen=True, slots=True)
class LineLook:
    """What a look at a long connection found; nothing in it is the provider client's own opinion of itself.

    `standing`: the socket is open. `receiving`: something reads from it, or is about to after a reconnect.
    `quiet_us`: time since the last pong (before the first: since the start) in which one could have been heard.
    `ended`: the client has given up, with this code and the provider's number where it gave one.
    """

    standing: bool
    receiving: bool
    quiet_us: int
    ended: str | None = None
    provider_code: int | None = None


class Line(Protocol):
    """One installation's long connection, on a thread of its own."""

    def start(self) -> None:
        """Begin to connect; returns at once. Once per line, one line per process."""
        ...

    def look(self) -> LineLook:
        """How it stands now; from any thread, never blocking."""
        ...

    def stop(self, wait_s: float) -> None:
        """Take no more events, let the one under way end, close; returns after `wait_s` at the latest."""
        ...


# Called with each event on the line's own thread; returns after the commit. Whatever it raises means "not accepted":
# the provider is told so and pushes again.
Accept = Callable[[Inbound], None]
OpenLine = Callable[["Installed", Accept], Line]


# ---------------------------------------------------------------------------------------------- outbound


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """What the provider takes: bytes of a text's final request body, bytes of a file, messages a second per chat."""

    text_bytes_max: int
    file_bytes_max: int
    chat_per_second: int


@dataclass(frozen=True, slots=True)
class Installed:
    """What an outbound attempt may know of an installation."""

    installation_id: str
    app_id: str
    tenant_key: str
    target_url: str | None
    credentials: Credentials


@dataclass(frozen=True, slots=True)
class OutboundFile:
    """A file to hand over; bytes come from the snapshot, never from a path or URL."""

    name: str
    media_type: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class OutboundMessage:
    """The immutable snapshot of one delivery. Exactly one of `text` and `upload_key` is set where files are uploaded.

    `file` is given as well for channels that carry the bytes inside the message. `start_before_us` is on the process's
    monotonic clock: a request may only begin before it, else nothing is sent and the outcome is `Unknown`.
    """

    operation_id: str
    provider_uuid: str
    chat_id: str
    reply_to: str | None
    text: str | None = field(repr=False)
    upload_key: str | None = field(default=None, repr=False)
    file: OutboundFile | None = None
    start_before_us: int | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """The provider gave a message id; `created_ms` is its time for it, where told."""

    message_id: str
    created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RefusedFinal:
    """A listed definite refusal: no message was made and none will be. `provider_code` is numeric, for operators."""

    code: str
    provider_code: int | None = None


@dataclass(frozen=True, slots=True)
class RefusedRetry:
    """A listed proof that no message was made; the same uuid may be tried after `wait_ms` (None: back-off)."""

    code: str
    wait_ms: int | None = None
    provider_code: int | None = None


@dataclass(frozen=True, slots=True)
class NotSent:
    """No request byte left this process."""

    code: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Anything else from the moment a request began. Never success, never retried."""

    code: str = "send_result_unknown"
    provider_code: int | None = None


Outcome = Sent | RefusedFinal | RefusedRetry | NotSent | Unknown


class ConnectFailed(Exception):
    """Connect or upload did not come about; nothing was sent.

    `code` is a delivery code, `provider_code` numeric or None, `wait_ms` is the provider's own waiting time where it
    named one; `final` says that another try can't help.
    """

    def __init__(
        self, code: str, *, provider_code: int | None = None, wait_ms: int | None = None, final: bool = False
    ) -> None:
        super().__init__(code)
        self.code = code
        self.provider_code = provider_code
        self.wait_ms = wait_ms
        self.final = final


class Session(Protocol):
    """One connected outbound session of one installation. Opaque to the desk."""


# ---------------------------------------------------------------------------------------------- history


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One message of the provider's own history."""

    message_id: str
    sender_id: str
    sender_type: str
    message_type: str
    created_at_ms: int
    parent_id: str | None
    root_id: str | None
    deleted: bool
    updated: bool
    content: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Complete:
    """Every page answered, no token repeated, no cap hit. `provider_now_ms` is the provider's `Date`, where told."""

    items: Sequence[HistoryItem]
    provider_now_ms: int | None


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The list is partial; it is never handed out."""

    reason: str


History = Complete | Incomplete


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """Result of asking the provider about the app: `ok` or a code, and its numeric code; the bot's id where told."""

    token: str
    bot_info: str
    provider_code: int | None = None
    bot_open_id: str | None = None
    provider_now_ms: int | None = None


class Channel(Protocol):
    """What a provider must supply. `verify` and `normalise` are pure; the coroutines may use the network."""

    key: str  # URL segment and the value of installations.channel
    prefix: str  # of turn request ids, 1..7 characters
    limits: ChannelLimits

    def secrets_needed(self, inbound: str) -> tuple[str, ...]:
        """Names among app_secret, encrypt_key, verification_token that the inbound mode needs to receive."""
        ...

    def unfit(self, name: str, value: str | None) -> str | None:
        """Why `value` cannot be what a person enters under `name`, in words without the value; None: it can.

        `name` is among app_secret, encrypt_key, verification_token and target_url; `value` None stands for not given.
        Pure: no name is looked up and nobody is asked. What is stored already is not judged by it.
        """
        ...

    def precheck(self, push: RawPush) -> Refused | None:
        """Shape checks that need no secret (desk.md 6.2 rows 4 and 5). None: go on to `verify`."""
        ...

    def verify(self, push: RawPush, credentials: Credentials) -> Verdict:
        """Authenticate and normalise (rows 7 and 8). Blocking; runs on a worker thread. Never raises for bad input."""
        ...

    def verifies_swapped(self, push: RawPush, credentials: Credentials) -> bool:
        """True where a refused push verifies with encrypt key and verification token exchanged."""
        ...

    def text_body_bytes(self, text: str) -> int:
        """Size of the final request body that would carry `text`."""
        ...

    def text_content(self, text: str) -> str:
        """The provider's `content` of a text message, as its history will show it."""
        ...

    def same_text(self, content: str, text: str) -> bool:
        """True where a history item's `content` carries exactly `text`."""
        ...

    async def connect(self, installed: Installed) -> Session:
        """Get ready to send: token and whatever else needs the network. Raises `ConnectFailed`. Sends nothing."""
        ...

    async def upload(self, session: Session, file: OutboundFile) -> str | None:
        """Bring the file to the provider once; the key to store, or None where files travel inside the message.

        Raises `ConnectFailed`: an upload never makes a message.
        """
        ...

    async def send(self, session: Session, message: OutboundMessage) -> Outcome:
        """Exactly one wire request. Never raises for anything the provider or the network does."""
        ...

    async def probe(self, installed: Installed) -> ProbeReport:
        """Ask for a token and the bot's identity; sends nothing."""
        ...

    async def history(self, session: Session, chat_id: str, since_ms: int, until_ms: int) -> History:
        """Every message of the chat in the window, ascending, or `Incomplete`."""
        ...

    async def close(self, session: Session) -> None:
        """Release connection and thread; cannot change an outcome."""
        ...


Channels = Mapping[str, Channel]
