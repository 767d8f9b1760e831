"""Connecting a chat app to a workspace: list, get, create, change, revoke."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frontdesk.desk.connections import store
from frontdesk.desk.connections.channel import Channel, Channels
from frontdesk.desk.connections.model import (
    COMMAND_LANGUAGES,
    INBOUND_MODES,
    Installation,
    InstallationPage,
    InstallationView,
)
from frontdesk.desk.connections.secrets import SECRETS, encrypted, view
from frontdesk.identity import record_event, require
from frontdesk.identity.model import Actor, Right
from frontdesk.kernel.errors import Defect, Problem, invalid
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.tx import Tx

PATCHABLE = frozenset({"name", "command_language", "target_url", "provider_zone", "late_answers_enabled"})


def get_owned(tx: Tx, workspace_id: str, installation_id: str) -> Installation:
    """The installation of this workspace. Raises `installation_not_found` for an absent or foreign one alike."""
    found = store.find_installation(tx, installation_id)
    if found is None or found.workspace_id != workspace_id:
        raise Problem("installation_not_found")
    return found


def list_installations(
    tx: Tx,
    actor: Actor,
    *,
    workspace_id: str,
    channels: Channels,
    keyring: KeyRing,
    limit: int,
    after: tuple[int, str] | None = None,
) -> InstallationPage:
    """A page of the workspace's installations, newest first. Needs READ."""
    require(tx, actor, workspace_id, Right.READ)
    found, following = store.list_installations(tx, workspace_id, limit, after)
    return InstallationPage(tuple(view(item, channels.get(item.channel), keyring) for item in found), following)


def get_installation(
    tx: Tx, actor: Actor, *, workspace_id: str, installation_id: str, channels: Channels, keyring: KeyRing
) -> InstallationView:
    """One installation. Needs READ. Raises `installation_not_found`."""
    require(tx, actor, workspace_id, Right.READ)
    found = get_owned(tx, workspace_id, installation_id)
    return view(found, channels.get(found.channel), keyring)


def create_installation(
    tx: Tx,
    actor: Actor,
    *,
    workspace_id: str,
    channel: str,
    name: str,
    app_id: str,
    tenant_key: str,
    secrets: Mapping[str, str],
    inbound: str = "webhook",
    target_url: str | None = None,
    command_language: str = "zh",
    provider_zone: str | None = None,
    late_answers_enabled: bool = False,
    channels: Channels,
    keyring: KeyRing,
) -> InstallationView:
    """Connect an app, active at once. Needs `configuration.manage`.

    `secrets` are clear, by name among `SECRETS`; the app secret is required. Raises `request_invalid` for a channel or
    an inbound mode this server does not have and for a secret or `target_url` that the channel says can't be one
    (missing, malformed, or of no use there), `credential_unavailable` without a usable key (nothing is written) and
    `installation_exists` where this workspace holds the app already, revoked or not. Does not prevent another
    workspace from connecting the same app, and does not ask the provider whether the secrets are right: that is
    `probe`.
    """
    require(tx, actor, workspace_id, Right.CONFIGURE)
    port = channels.get(channel)
    if port is None:
        raise invalid("channel", "not a channel of this server")
    if inbound not in INBOUND_MODES or not port.secrets_needed(inbound):
        raise invalid("inbound", "not a mode of this channel")
    if command_language not in COMMAND_LANGUAGES:
        raise invalid("command_language", "not a language of this server")
    if "app_secret" not in secrets or not set(secrets) <= set(SECRETS):
        raise invalid("app_secret", "required")
    _check_fit(port, {**dict.fromkeys(SECRETS), **secrets, "target_url": target_url})
    installation_id = tx.new_id("ins")
    inserted = store.try_insert_installation(
        tx,
        {
            "id": installation_id,
            "workspace": workspace_id,
            "channel": channel,
            "name": name,
            "app_id": app_id,
            "tenant_key": tenant_key,
            "inbound": inbound,
            "target_url": target_url,
            "command_language": command_language,
            "provider_zone": provider_zone,
            "late_answers_enabled": late_answers_enabled,
            **encrypted(secrets, keyring),
        },
    )
    if not inserted:
        if store.find_installation_by_app(tx, workspace_id, channel, tenant_key, app_id) is None:
            raise Defect("an installation was refused although no other holds its app")
        raise Problem("installation_exists")
    made = get_owned(tx, workspace_id, installation_id)
    _record(tx, actor, "installation.created", made, {"channel": channel, "inbound": inbound})
    return view(made, port, keyring)


def update_installation(
    tx: Tx,
    actor: Actor,
    *,
    workspace_id: str,
    installation_id: str,
    changes: Mapping[str, Any],
    channels: Channels,
    keyring: KeyRing,
) -> InstallationView:
    """Change name, secrets, `enabled` or another of `PATCHABLE`; what `changes` leaves out stays.

    Needs `configuration.manage`. Each success raises the configuration revision by one, also where the values were the
    same. Raises `installation_not_found`, `installation_revoked`, `credential_unavailable` (a secret is given and no
    key is usable; nothing is written) and `request_invalid` for an empty change, a null, a name that can't be changed,
    or a secret or `target_url` that the channel says can't be one. A send that has begun keeps the secret it began
    with.
    """
    require(tx, actor, workspace_id, Right.CONFIGURE)
    _check_changes(changes)
    found = get_owned(tx, workspace_id, installation_id)
    if found.status not in store.CHANGEABLE:
        raise Problem("installation_revoked")
    port = channels.get(found.channel)
    if port is not None:  # without it nothing is received or sent, whatever is stored
        _check_fit(port, {name: changes[name] for name in (*SECRETS, "target_url") if name in changes})
    values = {name: value for name, value in changes.items() if name in PATCHABLE}
    values |= encrypted({name: changes[name] for name in SECRETS if name in changes}, keyring)
    event = None
    if "enabled" in changes:
        event = "enable" if changes["enabled"] else "disable"
    changed = store.try_change_installation(tx, installation_id, event, values)
    if changed is None:
        raise Problem("installation_revoked")  # rows are never deleted, so it was revoked since it was read
    data: dict[str, str | int] = {"config_revision": changed.config_revision, "changed": " ".join(sorted(changes))}
    _record(tx, actor, "installation.changed", changed, data)
    return view(changed, port, keyring)


def _check_fit(port: Channel, entered: Mapping[str, str | None]) -> None:
    for name, value in entered.items():
        reason = port.unfit(name, value)
        if reason is not None:
            raise invalid(name, reason)


def _check_changes(changes: Mapping[str, Any]) -> None:
    if not changes:
        raise invalid("body", "nothing to change")
    for name, value in changes.items():
        if name not in PATCHABLE and name not in SECRETS and name != "enabled":
            raise invalid(name, "can't be changed")
        if value is None:
            raise invalid(name, "null is not a value here")
    if changes.get("command_language", COMMAND_LANGUAGES[0]) not in COMMAND_LANGUAGES:
        raise invalid("command_language", "not a language of this server")


def revoke_installation(
    tx: Tx,
    actor: Actor,
    *,
    workspace_id: str,
    installation_id: str,
    forget_secrets: bool = False,
    channels: Channels,
    keyring: KeyRing,
) -> InstallationView:
    """End an installation for good; effective before the next send, because sending re-reads it.

    Needs `configuration.manage`. Idempotent. Secrets stay, so that late pushes still verify and are refused by name;
    `forget_secrets` erases them, now or on a later call, and the callback is then 503. Raises
    `installation_not_found`. Does not call back what is on the wire.
    """
    require(tx, actor, workspace_id, Right.CONFIGURE)
    found = get_owned(tx, workspace_id, installation_id)
    ended = store.try_revoke_installation(tx, installation_id, actor.user_id)
    if ended is not None:
        _record(tx, actor, "installation.revoked", ended, {})
    if forget_secrets:
        erased = store.try_erase_secrets(tx, installation_id)
        if erased is not None:
            _record(tx, actor, "installation.secrets_forgotten", erased, {})
    return view(get_owned(tx, workspace_id, installation_id), channels.get(found.channel), keyring)


def _record(tx: Tx, actor: Actor, kind: str, installation: Installation, data: Mapping[str, str | int]) -> None:
    record_event(
        tx,
        workspace_id=installation.workspace_id,
        kind=kind,
        object_kind="installation",
        object_id=installation.id,
        actor_id=actor.user_id,
        data=data,
    )
