"""The composition root: builds one process's parts from settings and hands each what it needs. No globals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frontdesk import __version__
from frontdesk.api.application import Api, Surroundings, create_api
from frontdesk.api.authentication import OidcBearers
from frontdesk.api.desk.event_stream import EventStreams
from frontdesk.api.metrics import DeskSnapshot, Metrics
from frontdesk.api.services import Policy, Services
from frontdesk.api.threads import BatchThread, ThreadPool, Threads
from frontdesk.app.migrating import current_revision, head_revision
from frontdesk.app.reception import Reception
from frontdesk.app.routes import ROUTES
from frontdesk.app.settings import Settings, database_url, public_url
from frontdesk.app.waking import WakeHub
from frontdesk.app.worker import Watch, Worker, WorkerOptions
from frontdesk.channels.registry import build_channels
from frontdesk.channels.transport import tls_context
from frontdesk.desk.connections.channel import Channels
from frontdesk.desk.conversations.request import fixed_briefing
from frontdesk.desk.conversations.runner import Runner
from frontdesk.desk.conversations.sender import ConversationSender
from frontdesk.desk.inbox import Parts
from frontdesk.desk.operations import read_numbers
from frontdesk.identity.events import EVENTS_TOPIC
from frontdesk.identity.throttle import LoginThrottle
from frontdesk.kernel.clock import DAY, SECOND, Clock, SystemClock
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.kernel.ids import Entropy, SystemEntropy
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.runners.demo import DemoRunner
from frontdesk.runners.demo.notes import load_notes
from frontdesk.storage.database import Database
from frontdesk.storage.opening import open_database

if TYPE_CHECKING:
    from frontdesk.identity.oidc.issuer import Issuer


@dataclass(slots=True)
class Outside:
    """What a test or the simulation harness replaces: time, randomness, threads, database, channels, runners."""

    clock: Clock = field(default_factory=SystemClock)
    entropy: Entropy = field(default_factory=SystemEntropy)
    failpoints: Failpoints = field(default_factory=Failpoints)
    threads: Threads | None = None
    database: Database | None = None
    channels: Channels | None = None
    runners: Mapping[str, Runner] | None = None
    wrap_runner: Callable[[Runner], Runner] = lambda runner: runner


class Process:
    """One server process: API, and a worker where one is wanted. Start, recover, serve, finally stop."""

    def __init__(
        self,
        settings: Settings,
        data: Path,
        *,
        with_worker: bool,
        outside: Outside | None = None,
        port: int | None = None,
    ) -> None:
        around = outside or Outside()
        self.settings = settings
        self.hub = WakeHub()
        self.metrics = Metrics()
        self._pools: list[ThreadPool | BatchThread] = []
        self.clock = around.clock
        self.database = around.database or open_database(
            database_url(settings, data),
            around.clock,
            around.entropy,
            wake=self.hub.wake,
            on_group=self.metrics.group_commit,
        )
        self.keyring = KeyRing(settings.credential_keys.get_secret_value())
        threads = around.threads or self._pool("work", 8)
        self.streams = EventStreams(lambda seconds: self.hub.wait(EVENTS_TOPIC, seconds))
        self.channels = around.channels or build_channels(
            feishu_domain=settings.feishu_domain,
            outbound_proxy=settings.outbound_proxy or None,
            clock=around.clock,
            threads=around.threads or self._pool("send", 12),
            loopback_targets=settings.loopback_targets,
        )
        self.parts = self._parts(around, public_url(settings, port))
        self.worker = self._worker(around) if with_worker else None
        self.services = self._services(around, threads, public_url(settings, port))
        self.sender = ConversationSender(
            self.database,
            self.parts.runners,
            self.parts.briefer,
            owner=f"web-{around.entropy.token_bytes(8).hex()}",
            lease_us=settings.lease,
            default_runner=settings.runner,
        )
        self.services.extras["conversation_sender"] = self.sender
        self.issuer = self._issuer(around, threads)
        self.api = self._api(around)

    def _issuer(self, around: Outside, threads: Threads) -> Issuer | None:
        if not self.settings.oidc_issuer:
            return None
        from frontdesk.identity.oidc.fetch import Fetcher
        from frontdesk.identity.oidc.issuer import Issuer

        return Issuer(self.settings.oidc_issuer, clock=around.clock, threads=threads, fetch=Fetcher(tls_context))

    def _oidc(self) -> OidcBearers | None:
        """Who decides bearers of the issuer; without an audience to expect nobody does, and they are refused."""
        if self.issuer is None or not self.settings.oidc_audience:
            return None
        audience, provision = self.settings.oidc_audience, self.settings.oidc_provision
        return OidcBearers(self.database, self.issuer, audience, provision=provision)

    def _pool(self, name: str, size: int) -> ThreadPool:
        pool = ThreadPool(name, size)
        self._pools.append(pool)
        return pool

    def _verifier(self) -> BatchThread:
        thread = BatchThread("verify")
        self._pools.append(thread)
        return thread

    def _parts(self, around: Outside, base_url: str) -> Parts:
        settings = self.settings
        runners = around.runners if around.runners is not None else {"demo": DemoRunner()}
        return Parts(
            channels=self.channels,
            keyring=self.keyring,
            runners={name: around.wrap_runner(runner) for name, runner in runners.items()},
            default_runner=settings.runner,
            briefer=fixed_briefing(load_notes()),
            failure_notices=settings.failure_notices,
            oversize_answer=settings.oversize_answer,
            public_url=base_url,
        )

    def _worker(self, around: Outside) -> Worker:
        settings = self.settings
        options = WorkerOptions(
            owner=f"worker-{around.entropy.token_bytes(12).hex()}",
            reply_enabled=settings.reply_enabled,
            artifact_enabled=settings.artifact_enabled,
            lease_us=settings.lease,
            shutdown_grace_us=settings.shutdown_grace,
            worker_receipts=settings.worker_receipts,
            delivery_age_max_us=settings.delivery_age_max,
            version=__version__,
            retention_us=settings.retention_days * DAY,
        )
        return Worker(
            self.database,
            self.parts,
            options,
            clock=around.clock,
            hub=self.hub,
            failpoints=around.failpoints,
            watch=Watch(
                lost=self.metrics.lease_loss,
                retried=self.metrics.retry,
                wire=self.metrics.wire_request,
                paced=self.metrics.pacing_wait,
                purged=self.metrics.purged,
            ),
        )

    def _services(self, around: Outside, threads: Threads, base_url: str) -> Services:
        settings = self.settings
        policy = Policy(
            reply_enabled=settings.reply_enabled,
            artifact_enabled=settings.artifact_enabled,
            failure_notices=settings.failure_notices,
            unaddressed_messages=settings.unaddressed_messages,
            oversize_answer=settings.oversize_answer,
            lease_us=settings.lease,
            delivery_age_max_us=settings.delivery_age_max,
            shutdown_grace_us=settings.shutdown_grace,
            worker_receipts=settings.worker_receipts,
            default_runner=settings.runner,
            public_url=base_url,
            allowed_hosts=tuple(settings.allowed_hosts),
            trusted_proxies=tuple(settings.behind_proxy),
            secure_cookies=bool(settings.tls_cert or settings.behind_proxy),
        )
        extras: dict[str, Any] = {"login_throttle": LoginThrottle(around.clock), "event_streams": self.streams}
        if self.worker is not None:
            extras["worker_snapshot"] = self.worker.snapshot
        return Services(
            database=self.database,
            keyring=self.keyring,
            channels=self.channels,
            clock=around.clock,
            entropy=around.entropy,
            policy=policy,
            threads=threads,
            bootstrap_token=settings.bootstrap_token.get_secret_value(),
            metrics_token=settings.metrics_token.get_secret_value(),
            extras=extras,
        )

    def _api(self, around: Outside) -> Api:
        reception = Reception(
            self.database,
            self.channels,
            self.keyring,
            unaddressed_messages=self.settings.unaddressed_messages,
            failpoints=around.failpoints,
            metrics=self.metrics,
            clock=self.clock,
        )
        surroundings = Surroundings(
            metrics=self.metrics,
            readiness={"database": self._database_answers, "migrations": self._at_head, "worker": self._worker_accepts},
            snapshot=self._snapshot,
            callback_threads=around.threads or self._verifier(),
            oidc=self._oidc(),
        )
        return create_api(self.services, ROUTES, reception, surroundings)

    async def _database_answers(self) -> bool:
        return await self.database.read(lambda tx: tx.now > 0)

    async def _at_head(self) -> bool:
        return await self.services.threads.run(current_revision, self.database.engine()) == head_revision()

    async def _worker_accepts(self) -> bool:
        if self.worker is None or not self.settings.reply_enabled:
            return True
        return self.worker.snapshot().accepting_claims

    async def _snapshot(self) -> DeskSnapshot:
        numbers = await self.database.read(read_numbers)
        return DeskSnapshot(
            receipts=numbers.receipts,
            deliveries=numbers.deliveries,
            oldest_open_receipt_s=(numbers.oldest_open_receipt_us or 0) / SECOND,
            oldest_pending_delivery_s=(numbers.oldest_pending_delivery_us or 0) / SECOND,
            unsettled_indeterminate=numbers.unsettled_indeterminate,
            live_workers=numbers.live_workers,
        )

    async def start(self) -> None:
        """Start → recover → serve. Whatever raises on the way, `stop` is still to be called."""
        self.hub.bind()
        if self.worker is not None:
            await self.worker.start()
            if self.settings.reply_enabled:
                await self.worker.recover()
            self.worker.serve()

    async def stop(self) -> None:
        """Let work end, then release everything, whatever of it raises. Safe after a partial start, and twice."""
        async with AsyncExitStack() as ending:  # from the last line up
            ending.callback(self._close_pools)
            ending.push_async_callback(self.database.close)
            ending.push_async_callback(self.sender.stop, self.settings.shutdown_grace / SECOND)
            if self.issuer is not None:
                ending.push_async_callback(self.issuer.close)
            if self.worker is not None:
                ending.push_async_callback(self.worker.stop)

    def _close_pools(self) -> None:
        for pool in self._pools:
            pool.close()
        self._pools.clear()
