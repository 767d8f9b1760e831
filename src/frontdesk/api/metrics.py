"""Prometheus metrics of one process, in a registry of its own. Labels never hold ids of people, chats or providers.

Counts of this process are incremented as things happen (`Metrics`); numbers that live in the database (rows by status,
ages, live workers) are read when somebody scrapes (`DeskSnapshot`), so that they are right after a restart too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0)
_COMMITS: Final = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class DeskSnapshot:
    """What the database says about the desk at one moment. Rows are counted by (status, code or "")."""

    receipts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    deliveries: Mapping[tuple[str, str], int] = field(default_factory=dict)
    oldest_open_receipt_s: float = 0.0
    oldest_pending_delivery_s: float = 0.0
    unsettled_indeterminate: int = 0
    live_workers: int = 0


Snapshot = Callable[[], Awaitable[DeskSnapshot]]


class Metrics:
    """Counters that rooms and loops increment."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._callbacks = self._counter("callbacks", "Pushes to callback addresses by outcome.", "outcome")
        self._requests = self._counter("requests", "API requests by operation and status.", "operation", "status")
        self._seconds = Histogram(
            "frontdesk_request_seconds",
            "Time to answer an API request.",
            ("operation",),
            registry=self.registry,
            buckets=_SECONDS,
        )
        self._wire = self._counter("wire_requests", "Requests that can make a message appear.", "channel", "outcome")
        self._leases = self._counter("lease_losses", "Work dropped because its lease was no longer ours.", "thing")
        self._retries = self._counter("retries", "Attempts after the first.", "thing")
        self._pacing = self._counter("pacing_waits", "Sends that waited for their chat's slot.", "channel")
        self._purged = self._counter("purged_rows", "Rows whose content retention cleared.", "thing")
        self._ignored = self._counter("ignored_events", "Verified events the desk keeps no row of.", "reason")
        self._commits = Histogram(
            "frontdesk_group_commit_size",
            "Transactions that shared one commit.",
            registry=self.registry,
            buckets=_COMMITS,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"frontdesk_{name}_total", text, labels, registry=self.registry)

    def callback(self, outcome: str) -> Callable[[], None]:
        """The incrementer of one callback outcome, resolved once: the callback is the hot path."""
        return self._callbacks.labels(outcome).inc

    def request(self, operation: str, status: int, seconds: float) -> None:
        """One API request was answered."""
        self._requests.labels(operation, str(status)).inc()
        self._seconds.labels(operation).observe(seconds)

    def wire_request(self, channel: str, outcome: str) -> None:
        """One wire request left, with its outcome."""
        self._wire.labels(channel, outcome).inc()

    def lease_loss(self, thing: str) -> None:
        """A fence did not match: `thing` is receipt, delivery or listener."""
        self._leases.labels(thing).inc()

    def retry(self, thing: str) -> None:
        """A receipt or delivery is tried again; giving an attempt back is none."""
        self._retries.labels(thing).inc()

    def pacing_wait(self, channel: str) -> None:
        """A send waited for its chat."""
        self._pacing.labels(channel).inc()

    def purged(self, thing: str, rows: int) -> None:
        """Retention cleared the content of so many receipts or deliveries."""
        self._purged.labels(thing).inc(rows)

    def ignored_event(self, reason: str) -> None:
        """A verified event was acknowledged and counted, without a row."""
        self._ignored.labels(reason).inc()

    def group_commit(self, size: int) -> None:
        """One commit carried `size` transactions."""
        self._commits.observe(size)

    async def exposition(self, snapshot: Snapshot | None = None) -> bytes:
        """The text format, with the database's numbers where `snapshot` gives them."""
        text = generate_latest(self.registry)
        if snapshot is None:
            return text
        once = CollectorRegistry(auto_describe=False)
        once.register(_Gauges(await snapshot()))
        return text + generate_latest(once)


class _Gauges(Collector):
    def __init__(self, seen: DeskSnapshot) -> None:
        self._seen = seen

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The snapshot as gauges."""
        seen = self._seen
        yield _rows("receipts", "Receipts by status and code.", seen.receipts)
        yield _rows("deliveries", "Deliveries by status and code.", seen.deliveries)
        yield _one("oldest_open_receipt_seconds", "Age of the oldest open receipt.", seen.oldest_open_receipt_s)
        yield _one("oldest_pending_delivery_seconds", "Age of the oldest delivery.", seen.oldest_pending_delivery_s)
        yield _one(
            "unsettled_indeterminate_deliveries", "Deliveries a person must settle.", seen.unsettled_indeterminate
        )
        yield _one("live_workers", "Workers seen lately.", seen.live_workers)


def _rows(name: str, text: str, counts: Mapping[tuple[str, str], int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"frontdesk_{name}", text, labels=("status", "code"))
    for (status, code), count in sorted(counts.items()):
        family.add_metric((status, code), count)
    return family


def _one(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"frontdesk_{name}", text, value=value)
