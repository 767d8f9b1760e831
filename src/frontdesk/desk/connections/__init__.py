"""Connections: chat apps connected to a workspace, and the people who bound their chat account to their user.

Owns the tables installations, binding_challenges, bindings and workers (heartbeats). Declares the port that channels
implement (`channel.py`).

Invariants:
- A workspace holds an app (channel, tenant, app id) once; `revoked` is terminal; each change raises `config_revision`.
- `blocked` and `credential_unavailable` are computed from the secrets at each read by `secrets.usable` and never
stored.
- A binding belongs to one person and one account for good; among active ones an account has one person and a person one
  account of an installation. Each change of `active` raises its revision by exactly one.
- A challenge's clear code exists in one response; it is consumed once, in the transaction that makes the binding and
  keeps the receipt.
- One listener at a time holds an installation's lease (`listening.py`); its state is read from the row alone.
"""

from __future__ import annotations

from frontdesk.desk.connections.binding import command_text, consume_challenge, create_challenge, my_binding, unbind
from frontdesk.desk.connections.health import (
    ProbeTarget,
    get_health,
    health_of,
    installation_readiness,
    installed_of,
    long_connection,
    note_connect_result,
    note_probe,
    probe_target,
    stopped_since,
)
from frontdesk.desk.connections.installing import (
    create_installation,
    get_installation,
    get_owned,
    list_installations,
    revoke_installation,
    update_installation,
)
from frontdesk.desk.connections.listening import (
    ListeningRefused,
    ListeningTarget,
    begin_listening,
    end_listening,
    keep_listening,
    listening_target,
    same_secret,
)
from frontdesk.desk.connections.model import (
    NO_WORKER,
    Binding,
    BindingOutcome,
    Challenge,
    Health,
    Installation,
    InstallationPage,
    InstallationView,
    IssuedChallenge,
    Readiness,
    WorkerSnapshot,
)
from frontdesk.desk.connections.secrets import (
    callback_credentials,
    credentials_of,
    shown_error,
    shown_status,
    unusable_secrets,
    usable,
    view,
)
from frontdesk.desk.connections.store import (
    binding_of,
    find_active_binding_of_sender,
    find_binding,
    find_installation,
    installation_of,
    list_active,
    prepared_binding_of_sender,
    prepared_installation,
)
from frontdesk.desk.connections.workers import (
    beat,
    forget,
    last_seen,
    live_workers,
    process_readiness,
    readiness_of,
    snapshot,
)

__all__ = [
    "NO_WORKER",
    "Binding",
    "BindingOutcome",
    "Challenge",
    "Health",
    "Installation",
    "InstallationPage",
    "InstallationView",
    "IssuedChallenge",
    "ListeningRefused",
    "ListeningTarget",
    "ProbeTarget",
    "Readiness",
    "WorkerSnapshot",
    "beat",
    "begin_listening",
    "binding_of",
    "callback_credentials",
    "command_text",
    "consume_challenge",
    "create_challenge",
    "create_installation",
    "credentials_of",
    "end_listening",
    "find_active_binding_of_sender",
    "find_binding",
    "find_installation",
    "forget",
    "get_health",
    "get_installation",
    "get_owned",
    "health_of",
    "installation_of",
    "installation_readiness",
    "installed_of",
    "keep_listening",
    "last_seen",
    "list_active",
    "list_installations",
    "listening_target",
    "live_workers",
    "long_connection",
    "my_binding",
    "note_connect_result",
    "note_probe",
    "prepared_binding_of_sender",
    "prepared_installation",
    "probe_target",
    "process_readiness",
    "readiness_of",
    "revoke_installation",
    "same_secret",
    "shown_error",
    "shown_status",
    "snapshot",
    "stopped_since",
    "unbind",
    "unusable_secrets",
    "update_installation",
    "usable",
    "view",
]
