"""The loops of one worker process: receipts, deliveries, recovery and the worker's own heartbeat row."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from frontdesk.app.waking import WakeHub
from frontdesk.desk import connections, conversations, grants, inbox, outbox
from frontdesk.desk.connections.model import WorkerSnapshot
from frontdesk.desk.inbox import Parts, ReceiptWorker
from frontdesk.desk.operations import Retention
from frontdesk.desk.sending import DeliveryWorker
from frontdesk.kernel import limits
from frontdesk.kernel.clock import DAY, SECOND, Clock
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.storage.database import CommitUnknown, Database

STEP_S: Final = 12.0  # longer than a transaction may wait for a busy database

log = structlog.get_logger("frontdesk.worker")


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What `start` is told; the worker reads no environment."""

    owner: str
    reply_enabled: bool
    artifact_enabled: bool
    lease_us: int
    shutdown_grace_us: int
    worker_receipts: int
    delivery_age_max_us: int
    version: str
    retention_us: int = 30 * DAY


@dataclass(frozen=True, slots=True)
class Watch:
    """What is counted as it happens, after its commit. `lost` and `retried` are told receipt or delivery."""

    lost: Callable[[str], None] = lambda _thing: None
    retried: Callable[[str], None] = lambda _thing: None
    wire: Callable[[str, str], None] = lambda _channel, _outcome: None
    paced: Callable[[str], None] = lambda _channel: None
    purged: Callable[[str, int], None] = lambda _thing, _rows: None


class Worker:
    """Order: `start`, `recover`, serve, finally `stop`. Both ends are idempotent and safe after a partial start."""

    def __init__(
        self,
        database: Database,
        parts: Parts,
        options: WorkerOptions,
        *,
        clock: Clock,
        hub: WakeHub,
        failpoints: Failpoints,
        watch: Watch | None = None,
    ) -> None:
        seen = self._watch = watch or Watch()
        self._database = database
        self._parts = parts
        self._options = options
        self._clock = clock
        self._hub = hub
        self._started_at = 0
        self._started = False
        self._stopping = False
        self._loops: list[asyncio.Task[None]] = []
        self._topics: tuple[str, ...] = ()
        self._receipts = ReceiptWorker(
            database,
            parts,
            owner=options.owner,
            lease_us=options.lease_us,
            capacity=options.worker_receipts,
            failpoints=failpoints,
            on_lost=lambda: seen.lost("receipt"),
            on_retry=lambda: seen.retried("receipt"),
            on_room=lambda: hub.wake(["receipts"]),
        )
        self._deliveries = DeliveryWorker(
            database,
            parts,
            clock=clock,
            owner=options.owner,
            lease_us=options.lease_us,
            age_max_us=options.delivery_age_max_us,
            failpoints=failpoints,
            on_lost=lambda: seen.lost("delivery"),
            on_retry=lambda: seen.retried("delivery"),
            on_wire=seen.wire,
            on_pace=seen.paced,
            on_room=lambda: hub.wake(["deliveries"]),
        )
        self._retention = Retention(database, options.retention_us)

    @property
    def receipts(self) -> ReceiptWorker:
        """The half that works on receipts."""
        return self._receipts

    @property
    def deliveries(self) -> DeliveryWorker:
        """The half that sends."""
        return self._deliveries

    def snapshot(self) -> WorkerSnapshot:
        """What this process can do at this moment; false from the begin of stop and after a crash of a loop."""
        alive = self._started and not self._stopping and all(not task.done() for task in self._loops)
        enabled = self._options.reply_enabled
        return WorkerSnapshot(
            configured=enabled,
            started=alive,
            accepting_claims=alive and enabled,
            outbound_started=alive and enabled,
            artifact_configured=self._options.artifact_enabled,
        )

    async def start(self) -> None:
        """Begin the loops. With `reply_enabled` off nothing starts and nothing is ever claimed."""
        if self._started or self._stopping or not self._options.reply_enabled:
            return
        self._started_at = self._clock.now_us()
        self._started = True
        try:
            await self._beat()
        except BaseException:
            self._started = False
            raise

    def serve(self) -> None:
        """Start the loops; called after `recover`."""
        if not self._started or self._loops or self._stopping:
            return
        create = asyncio.get_running_loop().create_task
        loops: dict[str, tuple[Callable[[], Awaitable[int]], int]] = {
            "receipts": (self._receipts.step, limits.POLL_INTERVAL_US),
            "deliveries": (self._deliveries.step, limits.POLL_INTERVAL_US),
            "recovery": (self._recover_step, limits.RECOVERY_INTERVAL_US),
            "lapsing": (self.settle_lapsed, limits.POLL_INTERVAL_US),
            "beat": (self._beat, limits.WORKER_BEAT_US),
            "retention": (self._retain, limits.RETENTION_INTERVAL_US),
        }
        self._topics = tuple(loops)
        self._loops = [
            create(self._forever(topic, step, pause_us / SECOND), name=f"{topic} loop")
            for topic, (step, pause_us) in loops.items()
        ]

    async def recover(self, limit: int = limits.RECOVER_LIMIT_MAX) -> int:
        """Settle what a dead process left behind, up to `limit` (1..1000) of each kind; how many rows changed."""
        if not 1 <= limit <= limits.RECOVER_LIMIT_MAX:
            raise ValueError("limit must be 1..1000")
        return await self.settle_lapsed(limit) + await self._sweep(limit)

    async def settle_lapsed(self, limit: int = limits.SCAN_PAGE) -> int:
        """Expired leases of deliveries, receipts with a turn, and console turns."""
        options = self._options
        changed = await self._database.write(lambda tx: outbox.settle_lapsed(tx, limit))
        changed += await self._database.write(
            lambda tx: inbox.recover(tx, options.owner, options.lease_us, limit, self._parts)
        )
        changed += await self._database.write(lambda tx: conversations.interrupt_abandoned(tx, limit))
        return changed

    async def _recover_step(self) -> int:
        return await self._sweep(limits.SCAN_PAGE)

    async def _sweep(self, limit: int) -> int:
        changed = await self._database.write(lambda tx: grants.expire_due(tx, limit))
        age = self._options.delivery_age_max_us
        changed += len(await self._database.write(lambda tx: outbox.expire_aged(tx, age, limit)))
        return changed

    async def _retain(self) -> int:
        """One page of retention; 0 at the end of a pass, which is when the loop rests."""
        purged = await self._retention.step()
        if purged is None:
            return 1
        if purged.rows:
            self._watch.purged("receipt", purged.receipts)
            self._watch.purged("delivery", purged.deliveries)
            log.info("worker.purged", operation="worker.retention")
        return 0

    async def _beat(self) -> int:
        snapshot = self.snapshot()
        options = self._options

        def write(tx: object) -> None:
            connections.beat(
                tx,  # type: ignore[arg-type]
                options.owner,
                started_at=self._started_at,
                accepting=snapshot.accepting_claims,
                outbound_started=snapshot.outbound_started,
                artifact_configured=options.artifact_enabled,
                version=options.version,
            )

        await self._database.write(write)
        return 0

    async def _forever(self, topic: str, step: Callable[[], Awaitable[int]], pause_s: float) -> None:
        while not self._stopping:
            try:
                if await step():
                    continue
            except (DatabaseBusy, CommitUnknown):
                log.warning("worker.database_busy", operation=f"worker.{topic}")
            except Exception as error:  # noqa: BLE001 - one bad step must not end the loop; polling stays correct
                _log_failed(topic, error)
            await self._hub.wait(topic, pause_s)

    async def _end_loops(self) -> None:
        """Let each loop end its present step: a claim cut off half-way would leave rows that nobody works on."""
        if not self._loops:
            return
        self._hub.wake(list(self._topics))
        _, late = await asyncio.wait(self._loops, timeout=STEP_S)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def stop(self) -> None:
        """Claim nothing more, let work end within the grace, then cancel turns (tF) and cut off sends; idempotent."""
        if self._stopping:
            return
        self._stopping = True
        if not self._started:
            return
        with contextlib.suppress(Exception):  # other processes read `accepting` at once, not 30 s later
            await self._beat()
        await self._end_loops()
        grace_s = self._options.shutdown_grace_us / SECOND
        await asyncio.gather(self._receipts.stop(grace_s), self._deliveries.stop(grace_s))
        with contextlib.suppress(Exception):
            await self._database.write(lambda tx: connections.forget(tx, self._options.owner))


def _log_failed(topic: str, error: Exception) -> None:
    # The type alone: an exception's text may hold what a person or a model wrote.
    log.error("worker.step_failed", operation=f"worker.{topic}", code=type(error).__name__)
