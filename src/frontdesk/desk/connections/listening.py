"""Who listens on an installation's long connection: one lease, on the installation's own row.

The lease's owner reads `<state>:<name>`, so that every process sees from the row alone whether a live listener has its
connection, and a change of that is fenced like any other write. The lease's expiry stays when it is given up: it is
since when nobody listens. The row's own `updated_at` is that of its configuration, so listening leaves it alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from frontdesk.desk.connections import store
from frontdesk.desk.connections.channel import Channel, Channels, Installed
from frontdesk.desk.connections.health import installed_of, note_connect_result
from frontdesk.desk.connections.model import CONNECTED, CONNECTING, CONNECTION_CAUSES, STOPPED, Installation
from frontdesk.identity import record_event
from frontdesk.kernel.machine import Lease
from frontdesk.kernel.secretbox import CredentialUnavailable, KeyRing
from frontdesk.storage.tx import Tx

MODE: Final = "long_connection"


class ListeningRefused(Exception):
    """Nobody may listen to this installation now.

    `reason`: `absent`, `webhook` (it does not receive that way), `no_channel`, `revoked`, `credential_unavailable` or
    `busy`; `until` (microseconds) is the expiry of the lease that stands in the way, for `busy` alone.
    """

    def __init__(self, reason: str, until: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.until = until


@dataclass(frozen=True, slots=True)
class ListeningTarget:
    """What a listener connects with, as read when it began."""

    installation: Installation
    channel: Channel
    installed: Installed


def listening_target(tx: Tx, installation_id: str, *, channels: Channels, keyring: KeyRing) -> ListeningTarget:
    """The installation to listen to, disabled ones included: their messages are recorded as refused, as by webhook.

    For a process on this machine: asks for no right. Raises `ListeningRefused`.
    """
    installation = store.find_installation(tx, installation_id)
    if installation is None:
        raise ListeningRefused("absent")
    if installation.inbound != MODE:
        raise ListeningRefused("webhook")
    if installation.status not in store.CHANGEABLE:
        raise ListeningRefused("revoked")
    channel = channels.get(installation.channel)
    if channel is None:
        raise ListeningRefused("no_channel")
    try:
        return ListeningTarget(installation, channel, installed_of(installation, channel, keyring))
    except CredentialUnavailable:
        raise ListeningRefused("credential_unavailable") from None


def begin_listening(tx: Tx, installation_id: str, *, name: str, lease_us: int) -> Lease:
    """Take the installation's one place for a listener, as `name` (1..48 characters, of this process alone).

    Raises `ListeningRefused` while another one's lease is live. A listener that was killed holds its place until its
    lease has passed.
    """
    lease = store.try_take_listening(tx, installation_id, _owner(CONNECTING, name), tx.now + lease_us)
    if lease is None:
        found = store.find_installation(tx, installation_id)
        if found is None:
            raise ListeningRefused("absent")
        if found.status not in store.CHANGEABLE:
            raise ListeningRefused("revoked")
        raise ListeningRefused("busy", found.lease_expires_at)
    _record(tx, installation_id, CONNECTING)
    return lease


def keep_listening(
    tx: Tx, installation_id: str, lease: Lease, *, state: str, lease_us: int, config_revision: int
) -> Lease | None:
    """Renew the lease, with `state` (`connecting` or `connected`) as it is now; the lease to go on with.

    None: it is lost, or the installation was revoked; end, and write nothing more. `connected` also counts as reaching
    the provider (`last_ready_at`), unless the configuration has changed since the listener began.
    """
    owner = _owner(state, lease.owner.partition(":")[2])
    expires_at = tx.now + lease_us
    if not store.renew_listening(tx, installation_id, lease, owner, expires_at):
        return None
    if owner != lease.owner:
        _record(tx, installation_id, state)
    if state == CONNECTED:
        note_connect_result(tx, installation_id, ok=True, config_revision=config_revision)
    return Lease(owner, lease.generation, expires_at)


def end_listening(
    tx: Tx, installation_id: str, lease: Lease, *, code: str | None = None, config_revision: int | None = None
) -> bool:
    """Give the place up, with the cause where it was not wanted; False where it is another's by now.

    A cause that a connect finds (`connect_failed`, `provider_credentials_rejected`) stays on the installation until a
    connect or probe succeeds, unless it was found under an older configuration.
    """
    if not store.release_listening(tx, installation_id, lease):
        return False
    _record(tx, installation_id, STOPPED, code)
    if code in CONNECTION_CAUSES:
        note_connect_result(tx, installation_id, ok=False, code=code, config_revision=config_revision)
    return True


def same_secret(one: Installed, other: Installed) -> bool:
    """Whether a connection opened with one is still trusted under the other."""
    return one.credentials.app_secret == other.credentials.app_secret


def _owner(state: str, name: str) -> str:
    return f"{state}:{name}"


def _record(tx: Tx, installation_id: str, state: str, code: str | None = None) -> None:
    installation: Any = store.find_installation(tx, installation_id)
    record_event(
        tx,
        workspace_id=installation.workspace_id,
        kind="installation.long_connection_changed",
        object_kind="installation",
        object_id=installation_id,
        code=code,
        data={"state": state},
    )
