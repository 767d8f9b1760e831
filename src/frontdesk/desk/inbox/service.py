"""What operators may read of receipts: no content, sender or chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select

from frontdesk.desk.grants import ReceiptFacts
from frontdesk.desk.inbox import store
from frontdesk.desk.inbox.machine import DEAD, ENDED
from frontdesk.desk.inbox.model import Receipt, receipt_of
from frontdesk.desk.inbox.tables import RECEIPTS
from frontdesk.identity import record_event, require
from frontdesk.identity.model import Actor, Right
from frontdesk.kernel.errors import Problem
from frontdesk.storage.dead_letters import mark, narrowed
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


def list_dead(
    tx: Tx,
    workspace_id: str,
    *,
    code: str | None,
    installation_id: str | None,
    born_before: int | None,
    acknowledged: bool,
    limit: int,
    after: tuple[int, str] | None,
) -> tuple[list[Receipt], tuple[int, str] | None]:
    """One page of rejected and permanently failed receipts, newest first. Asks for no right."""
    conditions = narrowed(
        RECEIPTS,
        DEAD,
        workspace_id,
        code=code,
        installation_id=installation_id,
        born_before=born_before,
        acknowledged=acknowledged,
    )
    rows, following = store.list_page(tx, conditions, limit, after)
    return [receipt_of(row) for row in rows], following


def acknowledge(tx: Tx, actor: Actor, workspace_id: str, receipt_id: str, reason: str) -> bool:
    """Mark a dead receipt as seen. False: it was before, and keeps its first reason. Asks for no right.

    Raises `dead_letter_not_found` for an absent, a foreign and a living one, all alike.
    """
    row = store.find(tx, receipt_id, lock=True)
    if row is None or row["workspace"] != workspace_id or row["status"] not in DEAD:
        raise Problem("dead_letter_not_found")
    if mark(tx, RECEIPTS, DEAD, receipt_id, user_id=actor.user_id, reason=reason) is None:
        return False
    record_event(
        tx,
        workspace_id=workspace_id,
        kind="receipt.acknowledged",
        object_kind="receipt",
        object_id=receipt_id,
        reply_grant_id=row["reply_grant"],
        actor_id=actor.user_id,
        code=row["error_code"],
    )
    return True


def census(workspace_id: str | None) -> Select[Any]:
    """Rows by status and code with the earliest arrival of each, as one part of a statement over several rooms."""
    return store.census(workspace_id)


def newest_arrival(tx: Tx) -> int | None:
    """When the newest receipt was made, whoever asks; None where there is none."""
    return store.newest_arrival(tx)


def purgeable(tx: Tx, after: str, before: str, limit: int) -> tuple[list[str], str | None]:
    """Of the next `limit` receipts after an id: those to purge, and where to go on (None: nothing is left)."""
    rows = store.ids_between(tx, after, before, limit)
    found = [row["id"] for row in rows if row["status"] in ENDED and row["purged_at"] is None]
    return found, rows[-1]["id"] if len(rows) == limit else None


def purge(tx: Tx, receipt_ids: Sequence[str]) -> int:
    """Clear text and inbound hash of those that are still ended and not purged; how many rows changed."""
    return store.purge(tx, receipt_ids)
