"""What the provider knows: apps, people, private chats, messages, pushes, wire requests. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "token", "bot_info", "create", "reply", "upload", "list", "get", "resource", "recall", "edit", "endpoint", "unknown"
]
SEND_KINDS: tuple[Kind, ...] = ("create", "reply")
READ_KINDS: tuple[Kind, ...] = ("list", "get", "resource")

PushState = Literal["held", "waiting", "delivered", "failed", "dropped"]


@dataclass(slots=True)
class App:
    """A self-built app with its bot. ``callback_url`` is empty until set; ``callback_ok`` is the last URL check's."""

    app_id: str
    name: str
    app_secret: str
    encrypt_key: str
    verification_token: str
    tenant_key: str
    bot_open_id: str
    header_case: Literal["canonical", "lower"] = "canonical"
    transport: Literal["auto", "webhook", "ws"] = "auto"
    resign_redeliveries: bool = False
    callback_url: str = ""
    callback_ok: bool = False
    callback_status: int | None = None
    callback_reason: str = ""
    created_ms: int = 0


@dataclass(slots=True)
class Person:
    """A person as one app sees them: the open id differs per app, and so does the private chat with that app's bot."""

    open_id: str
    union_id: str
    app_id: str
    name: str
    chat_id: str
    created_ms: int = 0


@dataclass(slots=True)
class Message:
    """One message of a private chat. ``content`` is the provider's JSON string; a recalled message keeps it, unread."""

    message_id: str
    chat_id: str
    app_id: str
    sender_id: str
    sender_type: Literal["user", "app"]
    message_type: str
    content: str
    created_ms: int
    seq: int
    parent_id: str | None = None
    root_id: str | None = None
    deleted: bool = False
    updated: bool = False
    updated_ms: int | None = None
    uuid: str | None = None
    chat_type: str = "p2p"
    push_id: str | None = None
    answer_dropped: bool = False


@dataclass(slots=True)
class Token:
    """A tenant access token and when it stops working."""

    value: str
    app_id: str
    expires_ms: int


@dataclass(slots=True)
class UuidUse:
    """The first message an app created with a uuid; the same uuid within the hour returns it again."""

    app_id: str
    uuid: str
    message_id: str
    at_ms: int


@dataclass(slots=True)
class StoredFile:
    """An uploaded file's description; its bytes lie beside it in the store."""

    file_key: str
    app_id: str
    file_name: str
    media_type: str
    file_type: str
    size_bytes: int
    sha256: str
    created_ms: int


@dataclass(slots=True)
class WireRequest:
    """One HTTP request at the provider side, recorded as it arrived. Holds sizes and ids, never message text."""

    id: int
    at_ms: int
    kind: Kind
    method: str
    path: str
    query: str
    request_bytes: int
    app_id: str | None = None
    chat_id: str | None = None
    target_id: str | None = None
    uuid: str | None = None
    outcome: str = "arrived"
    accepted: bool = False
    status: int | None = None
    code: int | None = None
    response_bytes: int = 0
    message_id: str | None = None
    file_key: str | None = None
    fault: str | None = None
    duration_ms: int | None = None


@dataclass(slots=True)
class PushOptions:
    """How a push differs from a plain one. ``attempts`` limits the oddities to the first n attempts (0 = all)."""

    bad_signature: bool = False
    unsigned: bool = False
    plaintext: bool = False
    old_timestamp_ms: int = 0
    wrong_tenant: bool = False
    wrong_app: bool = False
    wrong_token: bool = False
    other_type: str | None = None
    lower_headers: bool = False
    fragments: int = 1
    via: Literal["", "webhook", "ws"] = ""
    new_event_id: bool = False
    redeliver: bool = True
    attempts: int = 0


@dataclass(slots=True)
class Attempt:
    """One try to hand a push over. ``status`` is the HTTP status or the long connection's ``code``; None: no answer."""

    number: int
    at_ms: int
    via: Literal["webhook", "ws", "none"]
    event_id: str
    status: int | None = None
    answer: str = ""
    error: str = ""
    duration_ms: int = 0
    timestamp: str = ""


@dataclass(slots=True)
class Push:
    """One event on its way to the app. ``due_ms`` is when the next attempt is due while ``state`` is ``waiting``."""

    push_id: str
    app_id: str
    event_id: str
    event_type: str
    payload: str
    created_ms: int
    chat_id: str | None = None
    message_id: str | None = None
    state: PushState = "waiting"
    due_ms: int | None = None
    fault: str | None = None
    options: PushOptions = field(default_factory=PushOptions)
    attempts: list[Attempt] = field(default_factory=list)
    signed_timestamp: str = ""
    signed_nonce: str = ""
    signed_body: str = ""


@dataclass(slots=True)
class Connection:
    """One long connection, open or closed. Lives in memory only."""

    connection_id: str
    app_id: str
    opened_ms: int
    closed_ms: int | None = None
    pings: int = 0
    last_ping_ms: int | None = None
    events_sent: int = 0
    acknowledgements: list[dict[str, Any]] = field(default_factory=list)
