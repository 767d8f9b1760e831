"""Bounded reads in an index's order: pages of lists, and the first rows over a few states.

Lists are paged by keyset, newest first by (created_at, id); one row more than asked tells of a next page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, FromClause, RowMapping, Select, Table, and_, or_, select, union_all

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


def first_over(parts: Sequence[Select[Any]], order: Sequence[str], limit: BindParameter[Any]) -> Select[Any]:
    """The first rows of several selects, by the columns named in `order`, ascending; as many as `limit` is bound to.

    Each part is read in the order of its own index and stops at the limit. One select with `status IN (…)` would read
    and sort every row of these states, which is all that waits.
    """
    firsts = [part.order_by(*(part.selected_columns[name] for name in order)).limit(limit) for part in parts]
    merged = union_all(*(select(first.subquery()) for first in firsts)).subquery("merged")
    return select(merged).order_by(*(merged.c[name] for name in order)).limit(limit)


def stands_before(earlier: FromClause, later: FromClause) -> ColumnElement[bool]:
    """True where a row of `earlier` comes before the one of `later` by (created_at, id).

    The first comparison says nothing that the others don't; it is the one an index that ends in `created_at` can use.
    """
    e, n = earlier.c, later.c
    return and_(e.created_at <= n.created_at, or_(e.created_at < n.created_at, e.id < n.id))
