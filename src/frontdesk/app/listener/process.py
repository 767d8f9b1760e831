"""The listener's life: take the lease, open the line, look after both, end with a reason.

The supervisor looks at the socket and at the last pong. What the provider's client says of itself is not asked: after a
refused reconnect it calls itself ready with nobody receiving.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from frontdesk.api.metrics import Metrics
from frontdesk.api.threads import ThreadPool
from frontdesk.app.listener.endings import CAUSES, Ending
from frontdesk.app.listener.taking import Taking
from frontdesk.app.reception import Reception
from frontdesk.app.settings import Settings, database_url
from frontdesk.app.wiring import Outside
from frontdesk.channels.registry import build_channels, build_lines
from frontdesk.desk import connections
from frontdesk.desk.connections import ListeningRefused, ListeningTarget
from frontdesk.desk.connections.channel import Line, LineLook, OpenLine
from frontdesk.desk.connections.model import CONNECTED, CONNECTING
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.machine import Lease
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.opening import open_database

OPERATION: Final = "desk.listen"

log = structlog.get_logger("frontdesk.listener")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited for what; in production the bounds of `kernel/limits.py`."""

    lease_us: int = limits.LISTENER_LEASE_US
    renew_us: int = limits.LISTENER_RENEW_US
    silence_us: int = limits.LISTENER_SILENCE_US
    look_s: float = limits.LISTENER_LOOK_US / SECOND
    close_s: float = limits.LISTENER_CLOSE_US / SECOND
    commit_wait_s: float = limits.CALLBACK_COMMIT_WAIT_US / SECOND


class Listener:
    """One process's listener. `run` once."""

    def __init__(
        self,
        settings: Settings,
        data: Path,
        installation_id: str,
        *,
        outside: Outside | None = None,
        lines: Mapping[str, OpenLine] | None = None,
        patience: Patience | None = None,
    ) -> None:
        around = outside or Outside()
        self.installation_id = installation_id
        self.database = around.database or open_database(database_url(settings, data), around.clock, around.entropy)
        self.provider_code: int | None = None
        self._clock = around.clock
        self._keyring = KeyRing(settings.credential_keys.get_secret_value())
        self._pool = ThreadPool("listen", 1)
        proxy = settings.outbound_proxy or None
        self._channels = around.channels or build_channels(settings.feishu_domain, proxy, around.clock, self._pool)
        self._lines = lines if lines is not None else build_lines(settings.feishu_domain, proxy, around.clock)
        self._patience = patience or Patience()
        self._name = around.entropy.token_bytes(12).hex()
        self._reception = Reception(
            self.database,
            self._channels,
            self._keyring,
            unaddressed_messages=settings.unaddressed_messages,
            failpoints=around.failpoints,
            metrics=Metrics(),
            clock=around.clock,
            transport="long_connection",
            commit_wait_s=self._patience.commit_wait_s,
        )
        self._ending: Ending | None = None
        self._state = CONNECTING
        self._lease: Lease | None = None
        self._kept_us = 0  # when the renewal that stands was begun, on the monotonic clock
        self._renew_at_us = 0

    async def run(self, stopped: Callable[[], Awaitable[None]], ready: Callable[[], None]) -> Ending:
        """Listen until `stopped` returns or something ends it; why. `ready` is called once, when first connected.

        Raises `ListeningRefused` where it may not begin. Whatever happens, the lease is given up where the database
        answers, and everything opened is closed.
        """
        try:
            target, opener, lease = await self._begin()
            try:
                ending = await self._listen(target, opener, stopped, ready)
            except BaseException:
                await self._release(lease, Ending.DEAF, target)
                raise
            await self._release(lease, ending, target)
            log.info(OPERATION, phase="ended", code=ending.value)
            return ending
        finally:
            await self.database.close()
            self._pool.close()

    # ------------------------------------------------------------------------------------------ the lease

    async def _begin(self) -> tuple[ListeningTarget, OpenLine, Lease]:
        channels, keyring = self._channels, self._keyring

        def read(tx: Any) -> ListeningTarget:
            return connections.listening_target(tx, self.installation_id, channels=channels, keyring=keyring)

        opener = self._lines.get((await self.database.read(read)).installation.channel)
        if opener is None:
            raise ListeningRefused("no_channel")

        def write(tx: Any) -> tuple[ListeningTarget, Lease]:
            lease = connections.begin_listening(
                tx, self.installation_id, name=self._name, lease_us=self._patience.lease_us
            )
            return read(tx), lease

        began_us = self._clock.monotonic_us()
        target, lease = await self.database.write(write)
        self._held(lease, began_us)
        return target, opener, lease

    def _held(self, lease: Lease, began_us: int) -> None:
        self._lease, self._kept_us = lease, began_us
        self._renew_at_us = began_us + self._patience.renew_us

    async def _keep(self, target: ListeningTarget, state: str) -> Ending | None:
        """Renew, saying how the line stands. A database that does not answer is asked again until the lease is over."""
        lease, began_us, patience = self._lease, self._clock.monotonic_us(), self._patience
        assert lease is not None
        if began_us >= self._kept_us + patience.lease_us:
            return Ending.LEASE_LOST
        revision = target.installation.config_revision
        try:
            kept = await self.database.write(
                lambda tx: connections.keep_listening(
                    tx,
                    self.installation_id,
                    lease,
                    state=state,
                    lease_us=patience.lease_us,
                    config_revision=revision,
                )
            )
        except Exception as error:  # noqa: BLE001 - tried again; its text may hold anything
            log.warning(OPERATION, phase="renew", code=type(error).__name__)
            return None
        if kept is None:
            return await self._why_lost()
        self._held(kept, began_us)
        self._state = state
        return None

    async def _why_lost(self) -> Ending:
        with contextlib.suppress(Exception):
            found = await self.database.read(lambda tx: connections.find_installation(tx, self.installation_id))
            if found is not None and found.status == "revoked":
                return Ending.REVOKED
        return Ending.LEASE_LOST

    async def _release(self, lease: Lease, ending: Ending, target: ListeningTarget) -> None:
        held = self._lease or lease
        revision = target.installation.config_revision
        try:
            await self.database.write(
                lambda tx: connections.end_listening(
                    tx, self.installation_id, held, code=CAUSES.get(ending), config_revision=revision
                )
            )
        except Exception as error:  # noqa: BLE001 - the lease then ends by its expiry
            log.warning(OPERATION, phase="release", code=type(error).__name__)

    # ------------------------------------------------------------------------------------------ the line

    async def _listen(
        self,
        target: ListeningTarget,
        opener: OpenLine,
        stopped: Callable[[], Awaitable[None]],
        ready: Callable[[], None],
    ) -> Ending:
        taking = Taking(
            target,
            self._reception,
            database=self.database,
            channels=self._channels,
            keyring=self._keyring,
            clock=self._clock,
            commit_wait_s=self._patience.commit_wait_s,
            end=self._end,
        )
        line = opener(target.installed, taking.accept)
        asked = asyncio.ensure_future(stopped())
        try:
            line.start()
            return await self._supervise(line, target, asked, ready)
        finally:
            asked.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asked
            # Off the loop: the event under way still needs it for its commit.
            await asyncio.get_running_loop().run_in_executor(None, line.stop, self._patience.close_s)

    async def _supervise(
        self, line: Line, target: ListeningTarget, asked: asyncio.Future[None], ready: Callable[[], None]
    ) -> Ending:
        told = False
        while True:
            await asyncio.wait({asked}, timeout=self._patience.look_s)
            if asked.done():
                return Ending.ASKED
            look = line.look()
            ending = self._ending or self._judge(look)
            if ending is not None:
                self.provider_code = look.provider_code
                return ending
            state = CONNECTED if look.standing else CONNECTING
            if state != self._state or self._clock.monotonic_us() >= self._renew_at_us:
                lost = await self._keep(target, state)
                if lost is not None:
                    return lost
            if not told and self._state == CONNECTED:
                told = True
                ready()

    def _judge(self, look: LineLook) -> Ending | None:
        if look.ended == Ending.REJECTED.value:
            return Ending.REJECTED
        if look.ended is not None or not look.receiving:
            broke = self._state == CONNECTED and look.provider_code is None
            return Ending.DEAF if broke else Ending.REFUSED
        return Ending.SILENT if look.quiet_us > self._patience.silence_us else None

    def _end(self, ending: Ending) -> None:
        self._ending = self._ending or ending
