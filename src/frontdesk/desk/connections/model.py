"""Connections as values: what is stored of them and what is computed from it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

INBOUND_MODES: Final = ("webhook", "long_connection")
COMMAND_LANGUAGES: Final = ("zh", "en")
BINDING_WORDS: Final = {"zh": "绑定", "en": "/bind"}

# Causes that a connect or probe finds and that the next successful one disproves. `credential_unavailable` is no
# member: it is computed from the secrets at each read and never stored.
CONNECT_FAILED: Final = "connect_failed"
CREDENTIALS_REJECTED: Final = "provider_credentials_rejected"
CREDENTIAL_UNAVAILABLE: Final = "credential_unavailable"
CONNECTION_CAUSES: Final = (CONNECT_FAILED, CREDENTIALS_REJECTED)

# How an installation's long connection stands: with a live listener's lease the first two, else the third.
CONNECTING: Final = "connecting"
CONNECTED: Final = "connected"
STOPPED: Final = "stopped"


@dataclass(frozen=True, slots=True)
class Installation:
    """A chat app connected to a workspace, as stored. Ciphertexts are left out of its repr."""

    id: str
    workspace_id: str
    channel: str
    name: str
    app_id: str
    tenant_key: str
    inbound: str
    app_secret_ct: str | None = field(repr=False)
    encrypt_key_ct: str | None = field(repr=False)
    verification_token_ct: str | None = field(repr=False)
    target_url: str | None
    command_language: str
    provider_zone: str | None
    late_answers_enabled: bool
    status: str  # active | disabled | revoked; `blocked` is computed, see `secrets.shown_status`
    config_revision: int
    bot_open_id: str | None
    lease_owner: str | None
    lease_generation: int
    lease_expires_at: int | None
    last_ready_at: int | None
    last_error_code: str | None
    last_error_at: int | None
    revoked_at: int | None
    revoked_by: str | None
    created_at: int
    updated_at: int

    @property
    def active(self) -> bool:
        """True where it is neither disabled nor revoked; says nothing about its secrets."""
        return self.status == "active"


@dataclass(frozen=True, slots=True)
class Binding:
    """A person's chat account tied to their user. A row is never reassigned to another person."""

    id: str
    installation_id: str
    user_id: str
    tenant_key: str
    sender_id: str = field(repr=False)
    chat_id: str = field(repr=False)
    active: bool
    revision: int
    revoked_at: int | None
    revoked_by: str | None
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Challenge:
    """A one-time code's row. The clear code is not in it."""

    id: str
    installation_id: str
    user_id: str
    code_digest: str = field(repr=False)
    expires_at: int
    consumed_at: int | None

    def open(self, now: int) -> bool:
        """True while it may still be consumed."""
        return self.consumed_at is None and self.expires_at > now


@dataclass(frozen=True, slots=True)
class IssuedChallenge:
    """What the creating response alone shows: the command to type, with the clear code."""

    id: str
    installation_id: str
    command_text: str = field(repr=False)
    expires_at: int


@dataclass(frozen=True, slots=True)
class BindingOutcome:
    """What became of a binding message: the binding, or the code its rejected receipt keeps."""

    code: str | None
    binding: Binding | None


@dataclass(frozen=True, slots=True)
class InstallationView:
    """An installation as people see it: `blocked` and `credential_unavailable` computed, secrets as booleans alone.

    `last_error_at` says since when the cause stands; it is for the console's sentence.
    """

    id: str
    workspace_id: str
    channel: str
    name: str
    app_id: str
    tenant_key: str
    inbound: str
    status: str  # active | blocked | disabled | revoked
    has_app_secret: bool
    has_encrypt_key: bool
    has_verification_token: bool
    unusable_secrets: tuple[str, ...]
    target_url: str | None
    command_language: str
    provider_zone: str | None
    late_answers_enabled: bool
    config_revision: int
    last_ready_at: int | None
    last_error_code: str | None
    last_error_at: int | None
    revoked_at: int | None
    created_at: int
    updated_at: int

    @property
    def callback_path(self) -> str:
        """Where the provider pushes to."""
        return f"/api/v1/channels/{self.channel}/installations/{self.id}/events"


@dataclass(frozen=True, slots=True)
class InstallationPage:
    """One page of installations and where the next one starts."""

    items: tuple[InstallationView, ...]
    after: tuple[int, str] | None


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """What a worker can do at this moment. `NO_WORKER` where there is none."""

    configured: bool
    started: bool
    accepting_claims: bool
    outbound_started: bool
    artifact_configured: bool


NO_WORKER: Final = WorkerSnapshot(False, False, False, False, False)


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether answers and files can leave: of a process, or of one installation in it."""

    reply_execution: bool
    artifact_delivery: bool


@dataclass(frozen=True, slots=True)
class Health:
    """Four capabilities of one installation, each with its own meaning, and the newest cause that is not cleared.

    `long_connection` is None for an installation that receives by webhook.
    """

    status: str
    callback_ready: bool
    binding_ready: bool
    reply_execution_ready: bool
    artifact_delivery_ready: bool
    long_connection: str | None  # connecting | connected | stopped
    last_ready_at: int | None
    last_error_code: str | None
