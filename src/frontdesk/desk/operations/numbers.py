"""Counts and ages over receipts and deliveries, read at one instant: one statement, so one snapshot on both engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import RowMapping, literal, union_all

from frontdesk.desk import connections, inbox, outbox
from frontdesk.identity import require
from frontdesk.identity.model import Actor, Right
from frontdesk.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class DeskNumbers:
    """Rows by (status, code or ""), ages in microseconds (None where nothing waits), live workers."""

    at: int
    receipts: Mapping[tuple[str, str], int]
    deliveries: Mapping[tuple[str, str], int]
    oldest_open_receipt_us: int | None
    oldest_pending_delivery_us: int | None
    unsettled_indeterminate: int
    live_workers: int


def read_numbers(tx: Tx, workspace_id: str | None = None) -> DeskNumbers:
    """The numbers of one workspace, or of the whole installation for metrics. Asks for no right."""
    receipts = inbox.census(workspace_id).add_columns(literal("receipt").label("thing"))
    deliveries = outbox.census(workspace_id).add_columns(literal("delivery").label("thing"))
    rows = tx.rows(union_all(receipts, deliveries))
    of_receipts = [row for row in rows if row["thing"] == "receipt"]
    of_deliveries = [row for row in rows if row["thing"] == "delivery"]
    return DeskNumbers(
        at=tx.now,
        receipts=_counts(of_receipts),
        deliveries=_counts(of_deliveries),
        oldest_open_receipt_us=_age(tx, of_receipts, inbox.OPEN),
        oldest_pending_delivery_us=_age(tx, of_deliveries, outbox.WAITING),
        unsettled_indeterminate=sum(row["rows"] for row in of_deliveries if row["status"] == "indeterminate"),
        live_workers=connections.live_workers(tx),
    )


def overview(tx: Tx, actor: Actor, workspace_id: str) -> DeskNumbers:
    """The numbers of a workspace, for who works its inbox."""
    require(tx, actor, workspace_id, Right.INBOX_WORK)
    return read_numbers(tx, workspace_id)


def _counts(rows: Iterable[RowMapping]) -> dict[tuple[str, str], int]:
    return {(row["status"], row["error_code"] or ""): row["rows"] for row in rows}


def _age(tx: Tx, rows: Iterable[RowMapping], states: Iterable[str]) -> int | None:
    births = [row["oldest"] for row in rows if row["status"] in states]
    return max(0, tx.now - min(births)) if births else None
