"""Why a listener ends, in words for its log and for the person who reads it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from frontdesk.desk.connections import ListeningRefused
from frontdesk.kernel.clock import to_rfc3339


class Ending(StrEnum):
    """What ended a listener; all but `ASKED` give a non-zero code."""

    ASKED = "asked"
    REJECTED = "provider_credentials_rejected"
    REFUSED = "connect_failed"
    DEAF = "receiver_ended"
    SILENT = "no_pong"
    LEASE_LOST = "lease_lost"
    REVOKED = "installation_revoked"
    SECRET_CHANGED = "secret_changed"  # noqa: S105 - a code


SENTENCES: Final = {
    Ending.ASKED: "asked to stop",
    Ending.REJECTED: "the provider refuses this app's id or secret; correct them, then start again",
    Ending.REFUSED: "the provider refused the long connection, or could not be reached",
    Ending.DEAF: "the long connection broke and nothing receives from it any more",
    Ending.SILENT: "the provider was silent for too long: no answer to any ping",
    Ending.LEASE_LOST: "the listener's lease is lost: it could not be renewed in time, or another listener took it",
    Ending.REVOKED: "the connection was revoked; there is nothing left to listen to",
    Ending.SECRET_CHANGED: "the app secret was changed; start again to connect with the new one",
}

# The cause kept on the installation, where the end was not wanted.
CAUSES: Final = {
    Ending.REJECTED: "provider_credentials_rejected",
    Ending.REFUSED: "connect_failed",
    Ending.DEAF: "connect_failed",
    Ending.SILENT: "connect_failed",
}

_REFUSALS: Final = {
    "absent": "there is no connection with this id",
    "webhook": "this connection receives by webhook; a listener needs one made with `--inbound long_connection`",
    "no_channel": "this connection's channel has no long connection",
    "revoked": "this connection is revoked; there is nothing to listen to",
    "credential_unavailable": "this connection's app secret cannot be read: check credential_keys, or enter it again",
}


def sentence(ending: Ending, provider_code: int | None = None) -> str:
    """One sentence, with the provider's number where it gave one."""
    number = f" (the provider's number {provider_code})" if provider_code is not None else ""
    return f"the listener ended: {SENTENCES[ending]}{number}"


def refusal(refused: ListeningRefused) -> str:
    """Why a listener may not start."""
    if refused.reason == "busy":
        until = f"; it holds its place until {to_rfc3339(refused.until)} unless it renews it" if refused.until else ""
        return f"another listener is running for this connection{until}; stop that one first"
    return _REFUSALS[refused.reason]
