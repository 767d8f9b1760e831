"""Statements compiled once give what the layers in between would; pages are whole, in order and without repeats."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from frontdesk.app.schema import METADATA
from frontdesk.storage.database import Database
from frontdesk.storage.paging import page
from frontdesk.storage.prepared import InsertUnlessKnown, Prepared
from frontdesk.storage.tx import Tx, for_share
from tests.migration.rows import fill, row

BINDINGS = METADATA.tables["bindings"]
WORKSPACES = METADATA.tables["workspaces"]
DELIVERIES = METADATA.tables["deliveries"]


def plain(rows: Any) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in each.items()} for each in rows]


async def test_a_prepared_select_equals_the_same_select_by_the_layers(database: Database) -> None:
    """Texts, integers, nulls and booleans, alone, in lists and with constants in the statement, FOR SHARE or not."""
    active = sa.select(BINDINGS).where(BINDINGS.c.active, BINDINGS.c.chat_id == sa.bindparam("chat"))
    statements = [
        (active, {}),
        (for_share(active), {}),
        (sa.select(BINDINGS.c.active, BINDINGS.c.revoked_at).where(BINDINGS.c.id == sa.bindparam("id")), {"id": "*"}),
        (sa.select(BINDINGS).where(BINDINGS.c.revision >= 1, BINDINGS.c.chat_id == sa.bindparam("chat")).limit(3), {}),
        (
            sa.select(DELIVERIES.c.status, WORKSPACES.c.active.label("open"))
            .join(WORKSPACES, DELIVERIES.c.workspace == WORKSPACES.c.id)
            .where(DELIVERIES.c.status == "pending"),
            {},
        ),
    ]

    def compare(tx: Tx) -> None:
        made = fill(tx.conn)
        for _ in range(3):
            values = row(BINDINGS, made, active=False, chat_id=made["bindings"]["chat_id"], revoked_at=None)
            tx.execute(sa.insert(BINDINGS).values(values))
        for statement, names in statements:
            given = {"chat": made["bindings"]["chat_id"], "id": made["bindings"]["id"]}
            wanted = {name: given[name] for name in given if name in statement.compile().params or name in names}
            expected = plain(tx.rows(statement, wanted))
            assert expected
            prepared = Prepared(statement)
            for _ in range(2):
                got = prepared.rows(tx, wanted)
                assert got == expected
                assert [list(map(type, each.values())) for each in got] == [
                    list(map(type, each.values())) for each in expected
                ]
            assert prepared.find(tx, wanted) == expected[0]
            if wanted:
                nothing = dict.fromkeys(wanted, "nowhere")
                assert prepared.find(tx, nothing) is None
                assert prepared.rows(tx, nothing) == []
                with pytest.raises(KeyError if database.engine_name == "sqlite" else Exception):
                    prepared.rows(tx, {})

    await database.write(compare)


async def test_an_insert_where_the_key_is_known_changes_nothing_and_other_rules_still_bite(database: Database) -> None:
    columns = ("id", "created_at", "updated_at", "name", "slug", "active")
    insert = InsertUnlessKnown(WORKSPACES, columns, ("slug",))

    def values(tx: Tx, **given: Any) -> dict[str, Any]:
        known = {"id": tx.new_id("wsp"), "created_at": tx.now, "updated_at": tx.now, "name": "n", "slug": "s"}
        return {**known, "active": True, **given}

    def twice(tx: Tx) -> tuple[int, int]:
        return len(insert.ids(tx, [values(tx)])), len(insert.ids(tx, [values(tx, name="other")]))

    assert await database.write(twice) == (1, 0)
    rows = await database.read(lambda tx: plain(tx.rows(sa.select(WORKSPACES))))
    assert [(each["name"], each["active"]) for each in rows] == [("n", True)]
    with pytest.raises(IntegrityError):
        await database.write(lambda tx: insert.ids(tx, [values(tx, slug="t", id=rows[0]["id"])]))
    assert await database.read(lambda tx: tx.count(sa.select(sa.func.count()).select_from(WORKSPACES))) == 1


async def test_pages_are_whole_newest_first_and_hold_under_equal_times(database: Database) -> None:
    """Every row once over all pages, by time and then id, also where many share a time and rows come in between."""

    def make(tx: Tx, number: int, at: int) -> None:
        values = row(WORKSPACES, {}, id=f"wsp_{number:032x}", created_at=at, slug=f"s{number}")
        tx.execute(sa.insert(WORKSPACES).values(values))

    await database.write(lambda tx: [make(tx, number, 100 + number // 7) for number in range(25)])
    for limit in (1, 4, 7, 25, 26, 100):
        seen: list[str] = []
        after = None
        while True:
            rows, following = await database.read(
                lambda tx, after=after, limit=limit: page(tx, WORKSPACES, sa.select(WORKSPACES), limit, after)  # type: ignore[misc]
            )
            seen += [each["id"] for each in rows]
            assert 0 < len(rows) <= limit
            if following is None:
                break
            after = following
            newer = 1000 * limit + len(seen)
            await database.write(lambda tx, newer=newer: make(tx, newer, 10_000))  # type: ignore[misc]
        assert seen == sorted(seen, reverse=True)
        mine = [each for each in seen if int(each[4:], 16) < 25]
        assert mine == [f"wsp_{number:032x}" for number in reversed(range(25))]
        await database.write(lambda tx: tx.execute(sa.delete(WORKSPACES).where(WORKSPACES.c.created_at == 10_000)))
