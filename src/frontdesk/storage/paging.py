"""Keyset paging of every list: newest first by (created_at, id); one row more than asked tells of a next page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import RowMapping, Select, Table, and_, or_

from frontdesk.storage.tx import Tx


def page(
    tx: Tx, table: Table, statement: Select[Any], limit: int, after: tuple[int, str] | None
) -> tuple[Sequence[RowMapping], tuple[int, str] | None]:
    """Up to `limit` rows after the keyset position, and the position to continue from (None on the last page)."""
    if after is not None:
        created_at, row_id = after
        statement = statement.where(
            or_(table.c.created_at < created_at, and_(table.c.created_at == created_at, table.c.id < row_id))
        )
    rows = tx.rows(statement.order_by(table.c.created_at.desc(), table.c.id.desc()).limit(limit + 1))
    if len(rows) <= limit:
        return rows, None
    last = rows[limit - 1]
    return rows[:limit], (last["created_at"], last["id"])
