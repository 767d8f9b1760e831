"""What the inbox's steps need from outside a transaction, handed in once by the composition root."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frontdesk.desk import connections
from frontdesk.desk.connections.channel import Channel, Channels
from frontdesk.desk.conversations.request import Briefer
from frontdesk.desk.conversations.runner import Runner
from frontdesk.kernel.errors import Defect
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class Parts:
    """Channels, keys, runners and the settings that decide how a receipt ends."""

    channels: Channels
    keyring: KeyRing
    runners: Mapping[str, Runner]
    default_runner: str
    briefer: Briefer
    failure_notices: bool
    oversize_answer: str
    public_url: str

    def find_channel(self, tx: Tx, installation_id: str) -> Channel | None:
        """The channel of an installation; None where the registry does not know it (any more)."""
        installation = connections.find_installation(tx, installation_id)
        if installation is None:
            raise Defect("a receipt names an installation that is not there")
        return self.channels.get(installation.channel)
