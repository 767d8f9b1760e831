"""What operators may read of receipts: no content, sender or chat."""

from __future__ import annotations

from sqlalchemy import ColumnElement

from frontdesk.desk.grants import ReceiptFacts
from frontdesk.desk.inbox import store
from frontdesk.desk.inbox.model import Receipt, receipt_of
from frontdesk.desk.inbox.tables import RECEIPTS
from frontdesk.identity import require
from frontdesk.identity.model import Actor, Right
from frontdesk.kernel.errors import Problem
from frontdesk.storage.tx import Tx


def get(tx: Tx, actor: Actor, workspace_id: str, receipt_id: str) -> Receipt:
    """One receipt. Raises `receipt_not_found` also for another workspace's."""
    require(tx, actor, workspace_id, Right.INBOX_WORK)
    row = store.find(tx, receipt_id)
    if row is None or row["workspace"] != workspace_id:
        raise Problem("receipt_not_found")
    return receipt_of(row)


def list_receipts(
    tx: Tx,
    actor: Actor,
    workspace_id: str,
    *,
    status: str | None,
    code: str | None,
    limit: int,
    after: tuple[int, str] | None,
) -> tuple[list[Receipt], tuple[int, str] | None]:
    """One page, newest first."""
    require(tx, actor, workspace_id, Right.INBOX_WORK)
    column = RECEIPTS.c
    conditions: list[ColumnElement[bool]] = [column.workspace == workspace_id]
    if status is not None:
        conditions.append(column.status == status)
    if code is not None:
        conditions.append(column.error_code == code)
    rows, following = store.list_page(tx, conditions, limit, after)
    return [receipt_of(row) for row in rows], following


def lock_facts(tx: Tx, receipt_id: str) -> ReceiptFacts | None:
    """What authority needs of a receipt, whoever asks; the row stays locked (PostgreSQL), first in the lock order."""
    row = store.find(tx, receipt_id, lock=True)
    return receipt_of(row).facts() if row is not None else None


def count_receipts(tx: Tx) -> tuple[dict[tuple[str, str], int], int | None]:
    """Rows by (status, code or ""), and the arrival of the oldest open one."""
    counts = {(row["status"], row["error_code"] or ""): row["rows"] for row in store.count_by_status(tx)}
    return counts, store.oldest_open(tx)
