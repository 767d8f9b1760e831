"""What the driver raises inside a prepared statement is judged like any other database error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from frontdesk.app.schema import METADATA
from frontdesk.storage.database import Database
from frontdesk.storage.prepared import InsertUnlessKnown, Prepared
from frontdesk.storage.tx import Tx, for_update
from tests.migration.rows import row

WORKSPACES = METADATA.tables["workspaces"]
LOCK = Prepared(for_update(sa.select(WORKSPACES.c.id).where(WORKSPACES.c.id == sa.bindparam("id"))))


@pytest.mark.engine("postgresql")
async def test_a_deadlock_between_prepared_statements_is_retried(
    database: Database, open_session: Callable[[], Database]
) -> None:
    """Two transactions lock two rows in opposite order: the database ends one, which runs again and commits."""

    def make(tx: Tx) -> list[str]:
        rows = [row(WORKSPACES, {}) for _ in range(2)]
        for values in rows:
            tx.execute(sa.insert(WORKSPACES).values(values))
        return [values["id"] for values in rows]

    first, second = await database.write(make)
    meeting = threading.Barrier(2, timeout=20)
    tries: list[str] = []

    def lock(order: tuple[str, str]) -> Callable[[Tx], bool]:
        met: list[bool] = []

        def work(tx: Tx) -> bool:
            tries.append(order[0])
            LOCK.find(tx, {"id": order[0]})
            if not met:  # only the first try meets the other one; the second try runs alone
                met.append(True)
                meeting.wait()
            return LOCK.find(tx, {"id": order[1]}) is not None

        return work

    other = open_session()
    done = await asyncio.gather(database.write(lock((first, second))), other.write(lock((second, first))))
    assert done == [True, True]
    assert len(tries) >= 3  # the one that was ended may come first again, and be ended again


async def test_a_rule_that_is_not_the_named_key_still_raises(database: Database) -> None:
    """ON CONFLICT speaks of one key alone: another broken rule is an integrity error, as without preparing."""
    values = {**row(WORKSPACES, {}), "slug": None}
    insert = InsertUnlessKnown(WORKSPACES, tuple(values), ("slug",))
    with pytest.raises(IntegrityError):
        await database.write(lambda tx: insert.ids(tx, [values]))
