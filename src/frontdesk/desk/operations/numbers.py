"""Counts and ages over receipts and deliveries, read at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frontdesk.desk import connections, inbox, outbox
from frontdesk.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class DeskNumbers:
    """Rows by (status, code or ""), ages in microseconds (0 where nothing waits), live workers."""

    receipts: Mapping[tuple[str, str], int]
    deliveries: Mapping[tuple[str, str], int]
    oldest_open_receipt_us: int
    oldest_pending_delivery_us: int
    unsettled_indeterminate: int
    live_workers: int


def read_numbers(tx: Tx) -> DeskNumbers:
    """The whole installation's numbers, for metrics."""
    receipts, oldest_receipt = inbox.count_receipts(tx)
    deliveries, oldest_delivery = outbox.count_deliveries(tx)
    return DeskNumbers(
        receipts=receipts,
        deliveries=deliveries,
        oldest_open_receipt_us=0 if oldest_receipt is None else max(0, tx.now - oldest_receipt),
        oldest_pending_delivery_us=0 if oldest_delivery is None else max(0, tx.now - oldest_delivery),
        unsettled_indeterminate=sum(count for (status, _), count in deliveries.items() if status == "indeterminate"),
        live_workers=connections.live_workers(tx),
    )
