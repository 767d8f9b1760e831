"""The way up and down on both engines, and that it ends where the code's own tables are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from frontdesk.app import migrating
from frontdesk.app.schema import METADATA
from frontdesk.kernel.clock import SystemClock
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.storage.opening import open_database
from frontdesk.storage.postgres import postgres_engine
from frontdesk.storage.sqlite import sqlite_engine
from tests.migration.catalogue import catalogue
from tests.migration.rows import contents, fill
from tests.support.engines import Engine


@pytest.fixture
def empty(engine: Engine) -> Iterator[sa.Engine]:
    """An empty database of each engine."""
    made = open_engine(engine)
    yield made
    made.dispose()


def open_engine(engine: Engine) -> sa.Engine:
    return postgres_engine(engine.url) if engine.kind == "postgresql" else sqlite_engine(sqlite_file(engine))


def sqlite_file(engine: Engine) -> Path:
    return Path(engine.url.removeprefix("sqlite:///"))


def script() -> ScriptDirectory:
    return ScriptDirectory.from_config(migrating.alembic_config())


def previous_head() -> str:
    """The revision before the head; `base` while there is one migration."""
    revision = script().get_revision(migrating.head_revision())
    assert revision is not None
    return str(revision.down_revision or "base")


def upgrade_to_previous(engine: sa.Engine) -> None:
    if previous_head() != "base":
        migrating.upgrade(engine, previous_head())


def insert_everywhere(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        fill(connection)


def look(engine: sa.Engine) -> dict[str, list[tuple[object, ...]]]:
    with engine.connect() as connection:
        return contents(connection)


def test_the_history_has_one_base_and_one_head_and_no_branch() -> None:
    assert len(script().get_heads()) == 1
    assert len(script().get_bases()) == 1
    revisions = list(script().walk_revisions())
    assert all(len(each.nextrev) <= 1 for each in revisions)
    assert migrating.knows(migrating.head_revision())
    assert not migrating.knows("9999")


@pytest.mark.spec("DESK-222")
def test_up_and_down_run_and_what_is_migrated_equals_what_is_made_at_once(empty: sa.Engine) -> None:
    """From the release before to the head and back, one head, the same catalogue as `create_all`, rows kept."""
    assert len(script().get_heads()) == 1
    upgrade_to_previous(empty)
    with empty.begin() as connection:
        if empty.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        fill(connection, contents(connection))
    before = look(empty)
    migrating.upgrade(empty)
    assert migrating.current_revision(empty) == migrating.head_revision()
    after = look(empty)
    assert {name: after[name] for name in before} == before
    assert all(after[name] == [] for name in set(after) - set(before)), "a row was back-filled"

    migrated = catalogue(empty)
    assert len(migrated) > 100
    migrating.downgrade(empty, "base", drop_desk=True)
    assert migrating.current_revision(empty) is None
    assert catalogue(empty) == {}
    METADATA.create_all(empty)
    assert catalogue(empty) == migrated
    METADATA.drop_all(empty)
    upgrade_to_previous(empty)
    migrating.upgrade(empty)
    assert catalogue(empty) == migrated


def test_migrating_what_is_at_head_changes_no_row(empty: sa.Engine) -> None:
    migrating.upgrade(empty)
    insert_everywhere(empty)
    rows = look(empty)
    assert all(rows.values())
    migrating.upgrade(empty)
    assert look(empty) == rows


def test_a_migration_that_fails_half_way_leaves_the_database_where_it_was(empty: sa.Engine) -> None:
    with empty.begin() as connection:  # the last table of the migration is there already
        if empty.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql("CREATE TABLE settlements (x INTEGER)")
    before = catalogue(empty)
    with pytest.raises(sa.exc.DBAPIError):
        migrating.upgrade(empty)
    assert catalogue(empty) == before
    assert migrating.current_revision(empty) is None


@pytest.mark.spec("DESK-224")
async def test_tables_with_rows_drop_in_dependency_order_and_foreign_keys_are_on(
    engine: Engine, empty: sa.Engine, recwarn: pytest.WarningsRecorder
) -> None:
    """No cycle among the foreign keys: every table, holding rows, drops without a warning; SQLite enforces them."""
    migrating.upgrade(empty)
    insert_everywhere(empty)
    if engine.kind == "sqlite":
        database = open_database(engine.url, SystemClock(), SystemEntropy())
        pragma = sa.text("PRAGMA foreign_keys")
        assert await database.write(lambda tx: tx.count(pragma)) == 1
        assert await database.read(lambda tx: tx.count(pragma)) == 1
        with pytest.raises(sa.exc.IntegrityError):
            await database.write(lambda tx: tx.execute(sa.delete(METADATA.tables["workspaces"])))
        await database.close()
    ordered = list(reversed(METADATA.sorted_tables))
    with empty.begin() as connection:
        if engine.kind == "sqlite":
            connection.exec_driver_sql("BEGIN")
        for table in ordered:
            assert connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() == 1
            connection.execute(sa.schema.DropTable(table))
    assert catalogue(empty) == {}
    assert not recwarn.list
