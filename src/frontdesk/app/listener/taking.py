"""The callback of a long connection: one event on the line's thread, one commit on the process's loop.

It is step 10 of desk.md 6.2, by the webhook's own code. Returning acknowledges; raising, with nothing but a constant,
means "push it again". A commit whose time is up goes on, and the next push finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from frontdesk.api import problems
from frontdesk.api.desk.callback import TargetChanged
from frontdesk.api.limits import TokenBuckets
from frontdesk.app.listener.endings import Ending
from frontdesk.app.reception import PushTarget, Reception
from frontdesk.desk import connections
from frontdesk.desk.connections import ListeningRefused, ListeningTarget
from frontdesk.desk.connections.channel import Channels, Ignored, Inbound
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND, Clock
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.database import CommitPending, Database

OPERATION: Final = "desk.inbox.listen"
# Beyond the commit's own bound: the loop itself does not answer.
LOOP_WAIT_S: Final = 0.5

log = structlog.get_logger("frontdesk.listener")


class NotAccepted(RuntimeError):
    """The event must not be acknowledged. The text is constant, the cause is cut off."""

    def __init__(self) -> None:
        super().__init__("callback_not_accepted")


class Taking:
    """Takes the events of one listener."""

    def __init__(
        self,
        target: ListeningTarget,
        reception: Reception,
        *,
        database: Database,
        channels: Channels,
        keyring: KeyRing,
        clock: Clock,
        commit_wait_s: float,
        end: Callable[[Ending], None],
    ) -> None:
        self._target = target
        self._reception = reception
        self._database = database
        self._channels = channels
        self._keyring = keyring
        self._wait_s = commit_wait_s + LOOP_WAIT_S
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._budget = TokenBuckets(
            clock, interval_us=SECOND // limits.CALLBACK_RATE_PER_SECOND, burst=limits.CALLBACK_BURST
        )

    def accept(self, event: Inbound) -> None:
        """On the line's thread: returns after the commit, raises `NotAccepted` otherwise."""
        work = self._receive(event)
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop is closed
            work.close()
            raise NotAccepted from None
        try:
            accepted = future.result(self._wait_s)
        except BaseException:  # noqa: BLE001 - the loop does not answer, or the process ends; nothing of it is told
            accepted = False
        if not accepted:
            raise NotAccepted

    async def _receive(self, event: Inbound) -> bool:
        if isinstance(event, Ignored):
            log.info(OPERATION, phase="ignored", code=event.reason)
        if self._budget.take(self._target.installation.id):
            return _refused("installation_limited")
        try:
            await self._commit(event)
        except CommitPending:
            return _refused("commit_late")
        except TargetChanged:
            return _refused("target_changed")
        except Exception as error:  # noqa: BLE001 - whatever broke, nothing is acknowledged and nothing of it is told
            return _refused(f"{type(error).__name__} {problems.where(error)}")
        return True

    async def _commit(self, event: Inbound) -> None:
        try:
            await self._reception.receive(self._push_target(), [event])
        except TargetChanged:
            if not await self._refresh():
                raise
            await self._reception.receive(self._push_target(), [event])

    def _push_target(self) -> PushTarget:
        return PushTarget(self._target.installation, self._target.channel, self._keyring, fresh=False)

    async def _refresh(self) -> bool:
        """Read the installation anew; False where this connection is no longer trusted under what stands there."""
        installation_id, before = self._target.installation.id, self._target

        try:
            now = await self._database.read(
                lambda tx: connections.listening_target(
                    tx, installation_id, channels=self._channels, keyring=self._keyring
                )
            )
        except ListeningRefused as refused:
            self._end(Ending.REVOKED if refused.reason == "revoked" else Ending.SECRET_CHANGED)
            return False
        if not connections.same_secret(before.installed, now.installed):
            self._end(Ending.SECRET_CHANGED)
            return False
        self._target = now
        return True


def _refused(phase: str) -> bool:
    log.warning(OPERATION, code="callback_not_accepted", phase=phase)
    return False
