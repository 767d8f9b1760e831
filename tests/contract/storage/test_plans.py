"""Finding work and listing read by an index in its order: their cost does not grow with what is finished or waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from frontdesk.app.schema import METADATA
from frontdesk.desk.inbox import store as receipts
from frontdesk.desk.outbox import store as deliveries
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx

R, D = METADATA.tables["receipts"].c, METADATA.tables["deliveries"].c

READS: dict[str, tuple[Callable[[Tx], Any], set[str]]] = {
    "receipts that are due": (lambda tx: receipts.heads(tx, 100), {"ix_receipts_due", "ix_receipts_arrival"}),
    "receipts whose lease lapsed": (
        lambda tx: receipts.lapsed(tx, 100), {"ix_receipts_lapsing uq_receipts_one_in_work"},
    ),
    "a page of receipts": (
        lambda tx: receipts.list_page(tx, [R.workspace == "wsp_1"], 20, None), {"ix_receipts_listed"},
    ),
    "a page of receipts of one status": (
        lambda tx: receipts.list_page(tx, [R.workspace == "wsp_1", R.status == "rejected"], 20, None),
        {"ix_receipts_by_status"},
    ),
    "deliveries that are due": (lambda tx: deliveries.due_ids(tx, 100), {"ix_deliveries_due", "ix_deliveries_chat"}),
    "deliveries whose lease lapsed": (lambda tx: deliveries.lapsed_ids(tx, 100), {"ix_deliveries_lapsing"}),
    "a page of deliveries": (
        lambda tx: deliveries.list_page(tx, [D.workspace == "wsp_1"], 20, None), {"ix_deliveries_listed"},
    ),
    "a page of deliveries of one status": (
        lambda tx: deliveries.list_page(tx, [D.workspace == "wsp_1", D.status == "failed"], 20, None),
        {"ix_deliveries_by_status"},
    ),
}  # fmt: skip


def plan(tx: Tx, read: Callable[[Tx], Any]) -> str:
    """What the engine says it would do for the one statement that `read` makes."""
    made: list[tuple[str, Any]] = []

    def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        made.append((statement, parameters))

    engine = tx.conn.engine
    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        read(tx)
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
    (statement, parameters), *more = made
    assert more == []
    if engine.dialect.name == "sqlite":
        found = tx.conn.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters)
        return "\n".join(row[3] for row in found)
    # The tables of a test are small enough for the planner to read them whole, whatever there is to use.
    tx.conn.exec_driver_sql("SET LOCAL enable_seqscan = off")
    return "\n".join(row[0] for row in tx.conn.exec_driver_sql("EXPLAIN " + statement, parameters))


@pytest.mark.parametrize("name", READS)
async def test_the_read_uses_its_index(database: Database, name: str) -> None:
    """Each by the index made for it (or one that holds as little); no table is read whole."""
    read, indexes = READS[name]
    shown = await database.write(lambda tx: plan(tx, read))
    assert [either for either in indexes if not any(index in shown for index in either.split())] == [], shown
    whole = ("SCAN receipts", "SCAN deliveries", "SCAN earlier", "Seq Scan")
    assert [sign for sign in whole if sign in shown] == [], shown
