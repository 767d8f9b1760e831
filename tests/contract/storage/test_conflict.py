"""A refused insert leaves the transaction usable, on both engines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from frontdesk.app.schema import METADATA
from frontdesk.storage.conflict import try_insert
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx

WORKSPACES = METADATA.tables["workspaces"]


def values(tx: Tx, slug: str) -> dict[str, object]:
    row_id = tx.new_id("wsp")
    return {"id": row_id, "created_at": tx.now, "updated_at": tx.now, "name": slug, "slug": slug, "active": True}


async def test_the_loser_of_a_conflict_reads_the_winner_and_goes_on(database: Database) -> None:
    def clash(tx: Tx) -> tuple[bool, bool, bool]:
        first = try_insert(tx, WORKSPACES, values(tx, "home"))
        second = try_insert(tx, WORKSPACES, values(tx, "home"))
        assert tx.count(sa.select(sa.func.count()).select_from(WORKSPACES)) == 1
        return first, second, try_insert(tx, WORKSPACES, values(tx, "other"))

    assert await database.write(clash) == (True, False, True)
    rows = await database.read(lambda tx: tx.rows(sa.select(WORKSPACES.c.slug).order_by(WORKSPACES.c.slug)))
    assert [row["slug"] for row in rows] == ["home", "other"]


async def test_a_failure_after_a_refused_insert_rolls_everything_back(database: Database) -> None:
    def fail(tx: Tx) -> None:
        assert try_insert(tx, WORKSPACES, values(tx, "home"))
        assert not try_insert(tx, WORKSPACES, values(tx, "home"))
        raise LookupError

    with pytest.raises(LookupError):
        await database.write(fail)
    count = sa.select(sa.func.count()).select_from(WORKSPACES)
    assert await database.read(lambda tx: tx.count(count)) == 0


async def test_of_two_sessions_one_inserts_and_the_other_reads_its_row(open_session: Callable[[], Database]) -> None:
    sessions = [open_session(), open_session()]
    barrier = threading.Barrier(2)
    met = 0

    def clash(tx: Tx) -> tuple[bool, str]:
        nonlocal met
        if sessions[0].engine_name == "postgresql":  # SQLite's writers are serial: the second cannot even begin
            barrier.wait(10)
            met += 1
        mine = values(tx, "home")
        won = try_insert(tx, WORKSPACES, mine)
        winner = tx.find(sa.select(WORKSPACES.c.id).where(WORKSPACES.c.slug == "home"))
        assert winner is not None
        assert won == (winner["id"] == mine["id"])
        return won, winner["id"]

    (one_won, one_sees), (two_won, two_sees) = await asyncio.gather(*(session.write(clash) for session in sessions))
    assert one_won != two_won
    assert one_sees == two_sees
    assert met == (2 if sessions[0].engine_name == "postgresql" else 0)
