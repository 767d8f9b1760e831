"""Connections on the wire: installations, their health and probe, bindings and the one-time command."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, model_validator

from frontdesk.kernel.limits import SECRET_CHARS_MAX, TARGET_URL_CHARS_MAX
from frontdesk.wire.model import Clean, Instant, Name, Page, PageQuery, Request, Response, Trim
from frontdesk.wire.registry import Operation, W

Secret = Annotated[str, Trim, Clean, Field(min_length=1, max_length=SECRET_CHARS_MAX)]
TargetUrl = Annotated[
    str, Trim, Clean, Field(min_length=1, max_length=TARGET_URL_CHARS_MAX, pattern=r"^https?://[^\s]+$")
]
Zone = Annotated[str, Trim, Field(max_length=64, pattern=r"^[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*$")]
Inbound = Literal["webhook", "long_connection"]
Language = Literal["zh", "en"]
# Channels are checked against the registry by the service: the wire knows none by name.
ChannelKey = Annotated[str, Field(min_length=1, max_length=16, pattern=r"^[a-z][a-z0-9_-]*$")]


def _absent() -> Any:
    """Stands for a key that was not sent; never read, because only sent keys are."""
    return None


class InstallationCreate(Request):
    """A chat app to connect."""

    channel: ChannelKey
    name: Name
    app_id: Name
    tenant_key: Name
    inbound: Inbound = "webhook"
    app_secret: Secret = Field(repr=False)
    encrypt_key: Secret | None = Field(default=None, repr=False)
    verification_token: Secret | None = Field(default=None, repr=False)
    target_url: TargetUrl | None = None
    command_language: Language = "zh"
    provider_zone: Zone | None = None
    late_answers_enabled: StrictBool = False

    def secrets(self) -> dict[str, str]:
        """The secrets that were sent, by name."""
        sent = {
            "app_secret": self.app_secret,
            "encrypt_key": self.encrypt_key,
            "verification_token": self.verification_token,
        }
        return {name: clear for name, clear in sent.items() if clear is not None}


class InstallationUpdate(Request):
    """What to change; a key left out stays as it is, and no key can be null."""

    name: Name = Field(default_factory=_absent)
    app_secret: Secret = Field(default_factory=_absent, repr=False)
    encrypt_key: Secret = Field(default_factory=_absent, repr=False)
    verification_token: Secret = Field(default_factory=_absent, repr=False)
    enabled: StrictBool = Field(default_factory=_absent)
    command_language: Language = Field(default_factory=_absent)
    target_url: TargetUrl = Field(default_factory=_absent)
    provider_zone: Zone = Field(default_factory=_absent)
    late_answers_enabled: StrictBool = Field(default_factory=_absent)

    @model_validator(mode="after")
    def _something(self) -> InstallationUpdate:
        if not self.model_fields_set:
            raise ValueError("nothing to change")
        return self

    def changes(self) -> dict[str, Any]:
        """The keys that were sent, with their values."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class InstallationRevoke(Request):
    """Whether the secrets go as well."""

    forget_secrets: bool = False


class InstallationRead(Response):
    """A connected chat app; secrets are named, never shown."""

    id: str
    channel: str
    name: str
    app_id: str
    tenant_key: str
    inbound: Inbound
    status: Literal["active", "blocked", "disabled", "revoked"]
    has_app_secret: bool
    has_encrypt_key: bool
    has_verification_token: bool
    command_language: Language
    provider_zone: str | None
    late_answers_enabled: bool
    config_revision: int
    callback_path: str
    last_ready_at: Instant | None
    last_error_code: str | None
    created_at: Instant
    updated_at: Instant


class HealthRead(Response):
    """Four capabilities, each with its own meaning; `binding_ready` does not say that you are bound."""

    status: Literal["active", "blocked", "disabled", "revoked"]
    callback_ready: bool
    binding_ready: bool
    reply_execution_ready: bool
    artifact_delivery_ready: bool
    long_connection: Literal["connected", "connecting", "stopped"] | None
    last_ready_at: Instant | None
    last_error_code: str | None


class ProbeRead(Response):
    """Each part is `ok` or a code; `provider_code` is the provider's own number, where it gave one."""

    token: str
    bot_info: str
    verification: str
    provider_code: int | None


class BindingRead(Response):
    """A person's binding; the chat account is not part of it."""

    id: str
    installation_id: str
    user_id: str
    active: bool
    revision: int
    revoked_at: Instant | None
    updated_at: Instant


class MyBinding(Response):
    """Your binding in this installation, or null."""

    binding: BindingRead | None


class ChallengeCreated(Response):
    """The command to send to the bot in a private chat; it is shown this once."""

    id: str
    installation_id: str
    command_text: str
    expires_at: Instant


_LIST = W + "/installations"
_ONE = _LIST + "/{installation_id}"
_ABSENT = "installation_not_found"

OPERATIONS = (
    Operation(
        "desk.connections.list",
        "GET",
        _LIST,
        "List the chat apps connected to a workspace",
        "workspace.read",
        query=PageQuery,
        response=Page[InstallationRead],
    ),
    Operation(
        "desk.connections.get",
        "GET",
        _ONE,
        "Read one connected chat app",
        "workspace.read",
        response=InstallationRead,
        errors=(_ABSENT,),
    ),
    Operation(
        "desk.connections.create",
        "POST",
        _LIST,
        "Connect a chat app",
        "configuration.manage",
        request=InstallationCreate,
        response=InstallationRead,
        status=201,
        errors=("installation_exists", "credential_unavailable"),
    ),
    Operation(
        "desk.connections.update",
        "PATCH",
        _ONE,
        "Change a connection",
        "configuration.manage",
        request=InstallationUpdate,
        response=InstallationRead,
        errors=(_ABSENT, "installation_revoked", "credential_unavailable"),
    ),
    Operation(
        "desk.connections.revoke",
        "DELETE",
        _ONE,
        "Revoke a connection for good",
        "configuration.manage",
        query=InstallationRevoke,
        response=InstallationRead,
        errors=(_ABSENT,),
    ),
    Operation(
        "desk.connections.health",
        "GET",
        _ONE + "/health",
        "Say what a connection can do now",
        "workspace.read",
        response=HealthRead,
        errors=(_ABSENT,),
    ),
    Operation(
        "desk.connections.probe",
        "POST",
        _ONE + "/probe",
        "Ask the provider about the app; sends nothing",
        "configuration.manage",
        response=ProbeRead,
        errors=(_ABSENT, "installation_not_active", "credential_unavailable"),
    ),
    Operation(
        "desk.connections.my_binding",
        "GET",
        _ONE + "/my-binding",
        "Read your own binding",
        "workspace.read",
        response=MyBinding,
        errors=(_ABSENT,),
    ),
    Operation(
        "desk.connections.challenge",
        "POST",
        _ONE + "/binding-challenges",
        "Make a one-time command that binds your chat account",
        "workspace.read, self",
        response=ChallengeCreated,
        status=201,
        errors=(_ABSENT, "installation_not_active", "credential_unavailable"),
    ),
    Operation(
        "desk.connections.unbind",
        "DELETE",
        W + "/bindings/{binding_id}",
        "Revoke a binding",
        "own: workspace.read; another's: configuration.manage",
        response=BindingRead,
        errors=("binding_not_found",),
    ),
)
