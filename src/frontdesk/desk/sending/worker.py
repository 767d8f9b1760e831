"""The worker's half of deliveries: connect (t6) and the one wire request (t8), between fenced transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog

from frontdesk.desk.connections.channel import (
    Channel,
    ConnectFailed,
    NotSent,
    RefusedFinal,
    RefusedRetry,
    Sent,
    Session,
    Unknown,
)
from frontdesk.desk.inbox.ports import Parts
from frontdesk.desk.outbox import Delivery
from frontdesk.desk.sending import steps
from frontdesk.desk.sending.steps import Attempt, Order
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND, Clock
from frontdesk.kernel.errors import DatabaseBusy, StaleFence
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.storage import patience
from frontdesk.storage.conflict import Clash
from frontdesk.storage.database import CommitUnknown, Database
from frontdesk.storage.patience import write_patiently

log = structlog.get_logger("frontdesk.sending")

_OUTCOMES: Final[dict[type, str]] = {
    Sent: "sent",
    RefusedFinal: "refused",
    RefusedRetry: "retry",
    NotSent: "not_sent",
    Unknown: "unknown",
}


class DeliveryWorker:
    """Sends deliveries until stopped. One instance per process."""

    def __init__(
        self,
        database: Database,
        parts: Parts,
        *,
        clock: Clock,
        owner: str,
        lease_us: int,
        age_max_us: int,
        failpoints: Failpoints,
        capacity: int = limits.WORKER_DELIVERIES,
        on_lost: Callable[[], None] = lambda: None,
        on_retry: Callable[[], None] = lambda: None,
        on_wire: Callable[[str, str], None] = lambda _channel, _outcome: None,
        on_pace: Callable[[str], None] = lambda _channel: None,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._parts = parts
        self._clock = clock
        self._owner = owner
        self._lease_us = lease_us
        self._age_max_us = age_max_us
        self._failpoints = failpoints
        self._capacity = capacity
        self._on_lost = on_lost
        self._on_retry = on_retry
        self._on_wire = on_wire
        self._on_pace = on_pace
        self._on_room = on_room
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting = True

    async def step(self) -> int:
        """Claim what fits and start it; how many were started."""
        room = self._capacity - len(self._tasks)
        if not self._accepting or room <= 0:
            return 0
        order = Order(self._owner, self._lease_us, self._age_max_us, room)
        attempts = await self._database.write(
            lambda tx: steps.claim_due(tx, order, self._parts, lambda: self._failpoints.hit("t5.before"))
        )
        if attempts:
            self._failpoints.hit("t5.after")
        for attempt in attempts:
            if attempt.delivery.attempt_count > 1:
                self._on_retry()
            task = asyncio.get_running_loop().create_task(
                self._deliver(attempt), name=f"delivery {attempt.delivery.id}"
            )
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        return len(attempts)

    def _ended(self, task: asyncio.Task[None]) -> None:
        full = len(self._tasks) == self._capacity
        self._tasks.discard(task)
        if full:  # what was due meanwhile found no room, and nothing else would tell that there is some
            self._on_room()

    async def stop(self, grace_s: float) -> None:
        """Claim nothing more; sends in flight end within the grace, else they are cut off and become unknown."""
        self._accepting = False
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=grace_s)
        for task in list(self._tasks):
            task.cancel()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _deliver(self, attempt: Attempt) -> None:
        channel = self._parts.channels[attempt.channel_key]
        session: Session | None = None
        try:
            self._failpoints.hit("t6.before")
            session, upload_key = await self._connect(channel, attempt)
            if not await self._paced(attempt):
                return
            self._failpoints.hit("t6.after")
            await self._send(channel, session, attempt, upload_key)
        except ConnectFailed as failure:
            await self._connect_failed(attempt, failure)
        except StaleFence:
            self._on_lost()
            log.info("sending.lease_lost", operation="desk.sending", id=attempt.delivery.id)
        except DatabaseBusy:
            log.warning("sending.database_busy", operation="desk.sending", id=attempt.delivery.id)
        except CommitUnknown:
            log.warning("sending.commit_unknown", operation="desk.sending", id=attempt.delivery.id)
        except Exception as error:  # noqa: BLE001 - the top of one delivery's work: its row stays for recovery to judge
            _log_defect("sending.defect", attempt.delivery.id, error)
        finally:
            if session is not None:
                await self._close(channel, session)

    async def _connect(self, channel: Channel, attempt: Attempt) -> tuple[Session, str | None]:
        """t6: token and upload within one bound. Raises `ConnectFailed`: nothing was sent."""
        session: Session | None = None
        delivery = attempt.delivery
        try:
            async with asyncio.timeout(limits.CONNECT_TIMEOUT_US / SECOND):
                session = await channel.connect(attempt.installed)
                key = delivery.upload_key
                file = steps.file_of(delivery)
                if file is not None and key is None:
                    key = await channel.upload(session, file)
            uploaded = key if key != delivery.upload_key else None
            await write_patiently(self._database, lambda tx: steps.note_connected(tx, attempt, uploaded))
        except BaseException as error:
            if session is not None:
                await self._close(channel, session)
            if isinstance(error, Exception) and not isinstance(error, ConnectFailed | StaleFence | DatabaseBusy):
                _log_defect("sending.connect_raised", delivery.id, error)
                raise ConnectFailed("connect_failed") from None
            raise
        return session, key

    async def _paced(self, attempt: Attempt) -> bool:
        """Wait for the chat's slot before `sending`. False: too far away, the attempt was given back."""
        slot = await write_patiently(self._database, lambda tx: (steps.reserve(tx, attempt), tx.now))
        reserved, now = slot
        if not reserved.reserved or reserved.at > now:
            self._on_pace(attempt.channel_key)
        if not reserved.reserved:
            return False
        if reserved.at > now:
            await asyncio.sleep((reserved.at - now) / SECOND)
        return True

    async def _send(self, channel: Channel, session: Session, attempt: Attempt, upload_key: str | None) -> None:
        # The deadline is taken before the commit, on a clock that never steps: the lease then surely covers the
        # request.
        margin_us = self._lease_us - limits.SEND_TIMEOUT_US - limits.CLOSE_TIMEOUT_US
        start_before_us = self._clock.monotonic_us() + margin_us
        self._failpoints.hit("t7.before")
        delivery = await write_patiently(self._database, lambda tx: steps.begin_sending(tx, attempt, self._lease_us))
        if delivery is None:
            return
        self._failpoints.hit("t7.after")
        message = steps.message_of(delivery, upload_key, start_before_us)
        self._failpoints.hit("t8.before")
        try:
            # The channel bounds its request itself; this bound only keeps a channel that does not from holding the
            # place.
            async with asyncio.timeout((limits.SEND_TIMEOUT_US + limits.CLOSE_TIMEOUT_US) / SECOND):
                outcome = await channel.send(session, message)
        except asyncio.CancelledError:
            self._on_wire(attempt.channel_key, _OUTCOMES[Unknown])
            await self._conclude(delivery, Unknown())
            raise
        except Exception as error:  # noqa: BLE001 - from the `sending` commit on nothing but a listed proof leads back
            _log_defect("sending.raised", delivery.id, error)
            outcome = Unknown()
        self._on_wire(attempt.channel_key, _OUTCOMES.get(type(outcome), "unknown"))
        self._failpoints.hit("t8.after")
        await self._conclude(delivery, outcome)

    async def _conclude(self, delivery: Delivery, outcome: Any) -> None:
        self._failpoints.hit("t9.before")
        try:
            status = await self._write_outcome(delivery, outcome)
        except Clash:  # the provider gave an id that another delivery has: it proves nothing of this one
            log.warning("sending.message_id_reused", operation="desk.sending", id=delivery.id)
            status = await self._write_outcome(delivery, Unknown())
        self._failpoints.hit("t9.after")
        log.info("sending.concluded", operation="desk.sending", id=delivery.id, status=status)

    async def _write_outcome(self, delivery: Delivery, outcome: Any) -> str:
        # A second try after a commit nobody knows of is refused by the fence where the first took effect.
        return await write_patiently(
            self._database,
            lambda tx: steps.conclude(tx, delivery, outcome),
            patience_s=patience.END_PATIENCE_S,
            again_if_unknown=True,
        )

    async def _connect_failed(self, attempt: Attempt, failure: ConnectFailed) -> None:
        wait_us = None if failure.wait_ms is None else failure.wait_ms * 1000
        try:
            await write_patiently(
                self._database,
                lambda tx: steps.connect_failed(
                    tx,
                    attempt,
                    failure.code,
                    wait_us=wait_us,
                    provider_code=failure.provider_code,
                    final=failure.final,
                ),
            )
        except StaleFence:
            self._on_lost()
            log.info("sending.lease_lost", operation="desk.sending", id=attempt.delivery.id)
        except DatabaseBusy:
            log.warning("sending.database_busy", operation="desk.sending", id=attempt.delivery.id)

    async def _close(self, channel: Channel, session: Session) -> None:
        """Always runs, bounded, and cannot change what is known of the message."""
        try:
            async with asyncio.timeout(limits.CLOSE_TIMEOUT_US / SECOND):
                await channel.close(session)
        except Exception as error:  # noqa: BLE001 - whatever it is, the outcome stands
            log.warning("sending.close_failed", operation="desk.sending", code=type(error).__name__)


def _log_defect(event: str, delivery_id: str, error: Exception) -> None:
    # The type alone: an exception's text may hold what a provider or a person wrote.
    log.error(event, operation="desk.sending", id=delivery_id, code=type(error).__name__)
