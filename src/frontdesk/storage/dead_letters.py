"""What the rooms with dead letters share: which rows of a narrowed list, and marking one as seen, once.

For tables with workspace, installation, status, error_code, created_at and the three acknowledged columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, RowMapping, Table, update

from frontdesk.storage.tx import Tx


def narrowed(
    table: Table,
    dead: Sequence[str],
    workspace_id: str,
    *,
    code: str | None,
    installation_id: str | None,
    born_before: int | None,
    acknowledged: bool,
) -> list[ColumnElement[bool]]:
    """The conditions of a list of rows in a state of `dead`; None narrows nothing. `born_before` is in microseconds."""
    column = table.c
    conditions: list[ColumnElement[bool]] = [column.workspace == workspace_id, column.status.in_(dead)]
    conditions.append(column.acknowledged_at.is_not(None) if acknowledged else column.acknowledged_at.is_(None))
    if code is not None:
        conditions.append(column.error_code == code)
    if installation_id is not None:
        conditions.append(column.installation == installation_id)
    if born_before is not None:
        conditions.append(column.created_at <= born_before)
    return conditions


def mark(tx: Tx, table: Table, dead: Sequence[str], row_id: str, *, user_id: str, reason: str) -> RowMapping | None:
    """Mark a dead row as seen; None where it is not dead or was marked before, and keeps its first reason."""
    column = table.c
    statement = (
        update(table)
        .where(column.id == row_id, column.status.in_(dead), column.acknowledged_at.is_(None))
        .values(acknowledged_at=tx.now, acknowledged_by=user_id, acknowledged_reason=reason, updated_at=tx.now)
    )
    return tx.find(statement.returning(table))
