"""Whether an installation can receive, bind, answer and hand over; what a connect found; asking the provider."""

from __future__ import annotations

from dataclasses import dataclass

from frontdesk.desk.connections import store
from frontdesk.desk.connections.channel import Channel, Channels, Installed, ProbeReport
from frontdesk.desk.connections.installing import get_owned
from frontdesk.desk.connections.model import (
    CONNECT_FAILED,
    CONNECTED,
    CONNECTING,
    CREDENTIAL_UNAVAILABLE,
    CREDENTIALS_REJECTED,
    STOPPED,
    Health,
    Installation,
    Readiness,
    WorkerSnapshot,
)
from frontdesk.desk.connections.secrets import credentials_of, shown_error, shown_status, usable
from frontdesk.desk.connections.workers import process_readiness
from frontdesk.identity import require
from frontdesk.identity.model import Actor, Right
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.secretbox import CredentialUnavailable, KeyRing
from frontdesk.storage.tx import Tx

OK = "ok"
SWAPPED = "credentials_swapped"


def get_health(
    tx: Tx,
    actor: Actor,
    *,
    workspace_id: str,
    installation_id: str,
    channels: Channels,
    keyring: KeyRing,
    reply_enabled: bool,
    artifact_enabled: bool,
    worker: WorkerSnapshot | None = None,
) -> Health:
    """The four capabilities of one installation (desk.md 8.2). Needs READ. Raises `installation_not_found`.

    `worker` is this process's own; None where it has none, then the workers seen within 30 s count. Says nothing about
    the asking person: `binding_ready` is not "I am bound".
    """
    require(tx, actor, workspace_id, Right.READ)
    installation = get_owned(tx, workspace_id, installation_id)
    process = process_readiness(tx, reply_enabled=reply_enabled, artifact_enabled=artifact_enabled, worker=worker)
    return health_of(installation, channels.get(installation.channel), keyring, process, tx.now)


def health_of(
    installation: Installation, channel: Channel | None, keyring: KeyRing, process: Readiness, now: int
) -> Health:
    """As `get_health`, for an installation that was read already."""
    is_usable = usable(installation, channel, keyring)
    can_act = installation.active and is_usable
    return Health(
        status=shown_status(installation, is_usable),
        callback_ready=is_usable,
        binding_ready=can_act,
        reply_execution_ready=can_act and process.reply_execution,
        artifact_delivery_ready=can_act and process.artifact_delivery,
        long_connection=long_connection(installation, now),
        last_ready_at=installation.last_ready_at,
        last_error_code=shown_error(installation, is_usable),
    )


def installation_readiness(
    installation: Installation, channel: Channel | None, keyring: KeyRing, process: Readiness
) -> Readiness:
    """The process's readiness narrowed to one installation: it must be active with usable secrets (DESK-212)."""
    can_act = installation.active and usable(installation, channel, keyring)
    return Readiness(can_act and process.reply_execution, can_act and process.artifact_delivery)


def long_connection(installation: Installation, now: int) -> str | None:
    """What a live listener says of its connection, `stopped` without one; None where nobody is meant to listen."""
    listening = installation.lease_expires_at is not None and installation.lease_expires_at > now
    if listening:
        return CONNECTING if (installation.lease_owner or "").startswith(f"{CONNECTING}:") else CONNECTED
    return STOPPED if installation.inbound == "long_connection" else None


def stopped_since(installation: Installation, now: int) -> int | None:
    """Since when nobody listens; None while somebody does, and where nobody ever did."""
    ended_at = installation.lease_expires_at
    return ended_at if ended_at is not None and ended_at <= now else None


# ---------------------------------------------------------------------------------------------- what a connect found


def note_connect_result(
    tx: Tx, installation_id: str, *, ok: bool, code: str | None = None, config_revision: int | None = None
) -> None:
    """Keep what a connect or probe found, in the transaction that ends the attempt.

    A failure is kept as `provider_credentials_rejected` or, for any other reason, `connect_failed`, with the time it
    began; failing again the same way writes nothing. A success clears these two causes and sets `last_ready_at`, at
    most once a minute. Status and secrets are left alone, and `credential_unavailable` is not kept: it is computed at
    each read. With `config_revision` a result found under an older configuration is dropped.
    It writes the installation's row: where the same transaction also reads that row FOR SHARE, note first, or two of
    them deadlock on PostgreSQL (one is run again, nothing is lost).
    """
    if ok:
        store.note_reached(tx, installation_id, config_revision)
    elif code != CREDENTIAL_UNAVAILABLE:
        cause = code if code == CREDENTIALS_REJECTED else CONNECT_FAILED
        store.note_cause(tx, installation_id, cause, config_revision)


# ---------------------------------------------------------------------------------------------- probe


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """What a probe may know, read in one transaction and used after it."""

    installed: Installed
    channel: Channel
    config_revision: int


def probe_target(
    tx: Tx, actor: Actor, *, workspace_id: str, installation_id: str, channels: Channels, keyring: KeyRing
) -> ProbeTarget:
    """The installation to ask the provider about. Needs `configuration.manage`.

    Raises `installation_not_found`, `installation_not_active`, and `credential_unavailable` where secrets can't be
    read.
    """
    require(tx, actor, workspace_id, Right.CONFIGURE)
    installation = get_owned(tx, workspace_id, installation_id)
    if not installation.active:
        raise Problem("installation_not_active")
    channel = channels.get(installation.channel)
    if channel is None:
        raise Problem(CREDENTIAL_UNAVAILABLE)
    try:
        installed = installed_of(installation, channel, keyring)
    except CredentialUnavailable:
        raise Problem(CREDENTIAL_UNAVAILABLE) from None
    return ProbeTarget(installed, channel, installation.config_revision)


def installed_of(
    installation: Installation, channel: Channel, keyring: KeyRing, *, needed: tuple[str, ...] | None = None
) -> Installed:
    """What an outbound attempt may know of an installation. Raises `CredentialUnavailable`."""
    return Installed(
        installation_id=installation.id,
        app_id=installation.app_id,
        tenant_key=installation.tenant_key,
        target_url=installation.target_url,
        credentials=credentials_of(installation, channel, keyring, needed=needed),
    )


def note_probe(tx: Tx, target: ProbeTarget, report: ProbeReport) -> None:
    """Keep what a probe found: the token decides whether the provider was reached, the bot's id is remembered."""
    installation_id, revision = target.installed.installation_id, target.config_revision
    note_connect_result(tx, installation_id, ok=report.token == OK, code=report.token, config_revision=revision)
    if report.bot_open_id:
        store.set_bot_open_id(tx, installation_id, report.bot_open_id, revision)
