"""Writing where another session may write the same: the loser learns that it lost and reads the winner.

The statement stands behind a savepoint, so that the transaction stays usable on both engines. Which constraint refused
the row is never read from driver text: the caller reads the winner by the unique key it expected to clash on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Insert, Table, Update, insert
from sqlalchemy.exc import IntegrityError

from frontdesk.storage.tx import Tx

Clash = IntegrityError
"""What `Database.write` raises where a constraint refused a statement: the whole transaction is undone."""


def try_insert(tx: Tx, table: Table, values: Mapping[str, Any]) -> bool:
    """Insert one row; False where a constraint refused it and nothing was written.

    After False the caller reads by its unique key in the same transaction: SQLite's writers are serial, on PostgreSQL
    the insert waited for the winner and the next statement sees it. No winner found means that a check or a foreign key
    refused the row: a `Defect` of the caller, who looks at those before. Columns that are not named get their defaults.
    Does not prevent a conflict that no constraint stands for.
    """
    return try_write(tx, insert(table).values(dict(values)))


def try_write(tx: Tx, statement: Insert | Update) -> bool:
    """Run one INSERT or UPDATE; False where a constraint refused it and nothing was written. See `try_insert`."""
    try:
        with tx.conn.begin_nested():
            tx.conn.execute(statement)
    except IntegrityError:
        return False
    return True
