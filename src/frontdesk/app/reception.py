"""The desk's side of both ways in: which installation a push is for, and t0 with its failpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from frontdesk.api.desk.callback import TargetChanged
from frontdesk.api.metrics import Metrics
from frontdesk.desk import connections, inbox
from frontdesk.desk.connections.channel import Channel, Channels, Credentials, Ignored, Inbound
from frontdesk.desk.connections.model import Installation
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND, Clock
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.kernel.secretbox import CredentialUnavailable, KeyRing
from frontdesk.storage.database import Database, Gathering
from frontdesk.storage.tx import Tx

TARGET_KEPT_US: Final = 1 * SECOND
TARGETS_KEPT_MAX: Final = 1_024
COMMIT_WAIT_S: Final = limits.CALLBACK_COMMIT_WAIT_US / SECOND


@dataclass(frozen=True, slots=True)
class PushTarget:
    """One installation as read for one push."""

    installation: Installation = field(repr=False)
    channel: Channel = field(repr=False)
    keyring: KeyRing = field(repr=False)
    fresh: bool = True
    decrypted: Credentials | None = field(default=None, repr=False)

    @property
    def installation_id(self) -> str:
        """Its id."""
        return self.installation.id

    def credentials(self) -> Credentials:
        """Every secret the webhook needs. Raises `CredentialUnavailable`; the same function tells health."""
        if self.decrypted is not None:
            return self.decrypted
        return connections.callback_credentials(self.installation, self.channel, self.keyring)


class Reception:
    """Implements `api.desk.callback.CallbackPorts`; its `receive` is the listener's as well, under its `transport`."""

    def __init__(
        self,
        database: Database,
        channels: Channels,
        keyring: KeyRing,
        *,
        unaddressed_messages: str,
        failpoints: Failpoints,
        metrics: Metrics,
        clock: Clock,
        transport: str = "webhook",
        commit_wait_s: float = COMMIT_WAIT_S,
    ) -> None:
        self._database = database
        self._channels = channels
        self._keyring = keyring
        self._unaddressed = unaddressed_messages
        self._failpoints = failpoints
        self._metrics = metrics
        self._clock = clock
        self._transport = transport
        self._commit_wait_s = commit_wait_s
        self._known: dict[str, tuple[int, PushTarget]] = {}

    def known_target(self, channel_key: str, installation_id: str) -> PushTarget | None:
        """A reading of at most a second ago. What was accepted on it is compared with the row in t0 itself."""
        found = self._known.get(installation_id)
        if found is None or self._clock.monotonic_us() - found[0] > TARGET_KEPT_US:
            return None
        target = found[1]
        return target if target.installation.channel == channel_key else None

    async def load_target(self, channel_key: str, installation_id: str) -> PushTarget | None:
        """The installation where it exists on that channel, read anew for each push."""
        installation = await self._database.read(lambda tx: connections.find_installation(tx, installation_id))
        if installation is None or installation.channel != channel_key:
            return None
        target = PushTarget(installation, self._channels[channel_key], self._keyring)
        if len(self._known) >= TARGETS_KEPT_MAX:
            self._known.clear()
        with contextlib.suppress(CredentialUnavailable, Problem):
            kept = replace(target, fresh=False, decrypted=target.credentials())
            self._known[installation_id] = (self._clock.monotonic_us(), kept)
        return target

    async def receive(self, target: PushTarget, events: Sequence[Inbound]) -> None:
        """t0: returns after the commit is durable. Raises where the push must not be acknowledged."""
        app_id, tenant_key = target.installation.app_id, target.installation.tenant_key  # neither ever changes
        kept = [event.within(app_id, tenant_key) for event in events if not isinstance(event, Ignored)]
        for event in events:
            if isinstance(event, Ignored):
                self._metrics.ignored_event(event.reason)
        if not kept:
            return
        self._failpoints.hit("t0.before")

        pushes = [
            inbox.Push(
                target.installation_id,
                event,
                transport=self._transport,
                unaddressed_messages=self._unaddressed,
                verified_with=None if target.fresh else target.installation,
            )
            for event in kept
        ]
        try:
            received = await self._write(pushes)
        except inbox.SecretsChanged:
            raise TargetChanged from None
        self._failpoints.hit("t0.after")
        for each in received:
            if each.outcome == "ignored":
                self._metrics.ignored_event(each.code or "ignored")

    async def _write(self, pushes: Sequence[inbox.Push]) -> Sequence[inbox.Received]:
        if len(pushes) == 1:  # every push of a provider known so far; it may share statements with those beside it
            return [await self._database.write(_RECEIVING.of(pushes[0]), wait_s=self._commit_wait_s)]
        return await self._database.write(
            lambda tx: [_receive(tx, push) for push in pushes], wait_s=self._commit_wait_s
        )


def _receive(tx: Tx, push: inbox.Push) -> inbox.Received:
    return inbox.receive(
        tx,
        push.installation_id,
        push.event,
        transport=push.transport,
        unaddressed_messages=push.unaddressed_messages,
        verified_with=push.verified_with,
    )


_RECEIVING: Final = Gathering(_receive, inbox.receive_together)
