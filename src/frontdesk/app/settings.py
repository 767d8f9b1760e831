"""Settings: `frontdesk.toml` in the data folder, `secrets.env` beside it, `FRONTDESK_<NAME>` above both, even empty.

An unknown name anywhere refuses to start. No name here changes a constant of `kernel/limits.py`.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, model_validator

from frontdesk.api.addresses import ClientAddresses
from frontdesk.app.durations import DurationUs
from frontdesk.channels.feishu.outbound import checked_domain
from frontdesk.channels.loopback import DEFAULT_TARGETS, Targets
from frontdesk.channels.transport import Proxy
from frontdesk.identity.oidc import checked_issuer
from frontdesk.kernel import limits
from frontdesk.kernel.clock import HOUR, MINUTE, SECOND
from frontdesk.storage.opening import is_postgres, sqlite_path

PREFIX: Final = "FRONTDESK_"
RESERVED: Final = frozenset(
    {"url", "token", "workspace", "project", "failpoints", "employee_data", "enable_test_cleanup", "data"}
)
SECRET_NAMES: Final = (
    "credential_keys",
    "bootstrap_token",
    "metrics_token",
    "simulator_token",
    "oidc_client_secret",
)
LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")


def _list(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_list)]


class SettingsError(Exception):
    """The settings do not fit; the text says which name and what to do, never a value."""


class Settings(BaseModel):
    """Every setting with its default; the descriptions are the reference page."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    database_url: str = Field(
        default="", description="SQLite file or postgresql://; empty: frontdesk.db in the data folder"
    )
    object_store: str = Field(
        default="", description="Folder or bucket for large bytes; empty: objects/ in the data folder"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The SDK stays at warning"
    )
    bind: str = Field(
        default="127.0.0.1", description="Address to listen on; anything but loopback needs TLS or a proxy"
    )
    port: int = Field(default=8080, ge=0, le=65535, description="0 takes a free one, named by the ready line")
    tls_cert: str = Field(default="", description="Certificate chain file")
    tls_key: str = Field(default="", description="Private key file")
    allowed_hosts: Names = Field(default=LOOPBACK_HOSTS, description="Host names that are served")
    behind_proxy: Names = Field(
        default=(), description="Addresses of proxies that end TLS and whose client address is believed"
    )
    public_url: str = Field(default="", description="Base of links and callback addresses; empty: from bind and port")
    credential_keys: SecretStr = Field(default=SecretStr(""), description="Comma-separated Fernet keys, first encrypts")
    bootstrap_token: SecretStr = Field(
        default=SecretStr(""), description="Bearer of the bootstrap user, 32 characters or more"
    )
    metrics_token: SecretStr = Field(default=SecretStr(""), description="Bearer for /metrics")
    simulator_token: SecretStr = Field(default=SecretStr(""), description="Bearer for the simulator's control routes")
    oidc_issuer: str = Field(
        default="", description="Issuer whose people may sign in: https, or http on a loopback address"
    )
    oidc_audience: str = Field(
        default="", max_length=255, description="What the `aud` of a bearer token must hold; empty: no bearer tokens"
    )
    oidc_client_id: str = Field(
        default="", max_length=255, description="This server's name at the issuer, for the console"
    )
    oidc_client_secret: SecretStr = Field(
        default=SecretStr(""), max_length=limits.SECRET_CHARS_MAX, description="Its secret"
    )
    oidc_provision: bool = Field(
        default=False, description="Make a user, member of nothing, for whoever the issuer vouches for"
    )
    reply_enabled: bool = Field(default=False, description="Answer messages; init writes true")
    artifact_enabled: bool = Field(default=False, description="Hand over files; init writes true")
    failure_notices: bool = Field(default=True, description="Tell the person when a turn failed")
    unaddressed_messages: Literal["only_grant", "refuse"] = Field(
        default="only_grant", description="Messages that reply to nothing"
    )
    oversize_answer: Literal["file", "refuse"] = Field(
        default="file", description="Answers over the provider's text limit"
    )
    lease: DurationUs = Field(default=30 * SECOND, gt=0, le=10 * MINUTE, description="Lease of receipts and deliveries")
    shutdown_grace: DurationUs = Field(
        default=25 * SECOND, ge=0, le=15 * MINUTE, description="Time for running work at stop"
    )
    worker_receipts: int = Field(default=8, ge=1, le=64, description="Receipts worked on at once")
    delivery_age_max: DurationUs = Field(default=4 * HOUR, gt=0, le=168 * HOUR, description="Stale-send limit")
    retention_days: int = Field(default=30, ge=1, le=3650, description="Texts are cleared after this many days")
    feishu_domain: str = Field(
        default="https://open.feishu.cn", description="Provider origin; plain http for loopback only"
    )
    outbound_proxy: str = Field(default="", description="Proxy for the provider; the environment's are ignored")
    loopback_targets: Names = Field(
        default=DEFAULT_TARGETS,
        description="Where the loopback channel may send: host names and, for what they resolve to, addresses or "
        "networks; 64 at most",
    )
    runner: str = Field(default="demo", description="Runner where neither project nor workspace names one")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.lease <= limits.CONNECT_TIMEOUT_US:
            raise ValueError("lease must be longer than connect_timeout (15s)")
        if self.lease <= limits.SEND_TIMEOUT_US + limits.CLOSE_TIMEOUT_US:
            raise ValueError("lease must be longer than send_timeout + close_timeout (25s)")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("tls_cert and tls_key go together")
        if not is_loopback(self.bind) and not self.tls_cert and not self.behind_proxy:
            raise ValueError("bind is not a loopback address: set tls_cert and tls_key, or behind_proxy")
        token = self.bootstrap_token.get_secret_value()
        if token and len(token) < limits.BOOTSTRAP_TOKEN_CHARS_MIN:
            raise ValueError("bootstrap_token needs at least 32 characters")
        self._addresses_fit()
        self._oidc_fits()
        return self

    def _oidc_fits(self) -> None:
        if not self.oidc_issuer:
            named = ("oidc_audience", "oidc_client_id", "oidc_client_secret", "oidc_provision")
            for name in named:
                if getattr(self, name) not in ("", SecretStr(""), False):
                    raise ValueError(f"{name} needs oidc_issuer")
            return
        form = "an https address without query and fragment, or http on a loopback address"
        _fit("oidc_issuer", form, checked_issuer, self.oidc_issuer)
        if not self.oidc_audience and not self.oidc_client_id:
            raise ValueError("oidc_issuer needs oidc_audience, oidc_client_id or both: nobody could sign in")
        if self.oidc_client_secret.get_secret_value() and not self.oidc_client_id:
            raise ValueError("oidc_client_secret needs oidc_client_id")

    def _addresses_fit(self) -> None:
        """What else would stop the start with a traceback. The texts hold no value: a URL may carry a password."""
        origin = "an https origin without a path, or http on a loopback address"
        _fit("feishu_domain", origin, checked_domain, self.feishu_domain)
        if self.outbound_proxy:
            _fit("outbound_proxy", "http://[user:password@]host[:port]", Proxy.parse, self.outbound_proxy)
        targets = "at most 64 host names, addresses or networks (/8 for IPv4, /32 for IPv6 at widest)"
        _fit("loopback_targets", targets, Targets.parse, self.loopback_targets)
        if not is_postgres(self.database_url):
            _fit("database_url", "a SQLite file or postgresql://…", sqlite_path, self.database_url)
        _fit("behind_proxy", "a list of addresses or networks", ClientAddresses, self.behind_proxy)


def _fit(name: str, form: str, read: Callable[[Any], object], value: Any) -> None:
    try:
        read(value)
    except ValueError:
        raise ValueError(f"{name} must be {form}") from None


def is_loopback(host: str) -> bool:
    """True for loopback addresses and the name localhost."""
    name = host.strip("[]")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def data_folder(option: str | None, environment: Mapping[str, str] = os.environ) -> Path:
    """`--data`, else FRONTDESK_DATA, else ./frontdesk-data."""
    return Path(option or environment.get("FRONTDESK_DATA") or "frontdesk-data")


def load_settings(data: Path, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read file, secrets and environment. Raises `SettingsError` naming the setting."""
    values: dict[str, Any] = {}
    values |= _toml(data / "frontdesk.toml")
    values |= _secrets(data / "secrets.env")
    values |= _environment(environment)
    try:
        settings = Settings(**values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        name = ".".join(str(part) for part in first["loc"]) or "settings"
        if first["type"] == "extra_forbidden":
            raise SettingsError(f"unknown setting {name!r}; see docs/reference/settings.md") from None
        reason = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{name}: {reason}") from None
    return settings


def database_url(settings: Settings, data: Path) -> str:
    """The database of these settings."""
    return settings.database_url or str(data / "frontdesk.db")


def public_url(settings: Settings, port: int | None = None) -> str:
    """The base of links; without a setting, from bind and port."""
    if settings.public_url:
        return settings.public_url.rstrip("/")
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://{settings.bind}:{port if port is not None else settings.port}"


def _toml(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeError, tomllib.TOMLDecodeError):
        raise SettingsError(f"{path.name} cannot be read as TOML") from None
    for name in SECRET_NAMES:
        if name in document:
            raise SettingsError(f"{name} belongs in secrets.env or the environment, not in {path.name}")
    return document


def _secrets(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeError):
        raise SettingsError(f"{path.name} cannot be read") from None
    found: dict[str, str] = {}
    for line in lines:
        name, separator, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        key = name.removeprefix(PREFIX).lower()
        if not separator or not name.startswith(PREFIX) or key not in SECRET_NAMES:
            raise SettingsError(f"{path.name} holds a line that is none of its names")
        found[key] = value
    return found


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in environment.items():
        if not name.startswith(PREFIX):
            continue
        key = name.removeprefix(PREFIX).lower()
        if key in RESERVED or key.startswith("test_"):
            continue
        found[key] = value
    return found
