"""Both engines at once: the same commands go to a SQLite file and to a PostgreSQL database, at one clock."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from frontdesk.app.migrating import head_revision
from frontdesk.kernel.clock import ManualClock
from frontdesk.storage.opening import open_database
from tests.contract.conftest import TimedDatabase, _migrate_postgres, sqlite_template
from tests.property.pair import Loop, Pair, Side
from tests.sim.mirror import WATCHED, FileLog, install_triggers
from tests.support.engines import database_name
from tests.support.postgres import SharedPostgres
from tests.support.summary import record_engine

__all__ = ["sqlite_template"]

_POSTGRES_LOG = """
CREATE TABLE sim_log (seq BIGSERIAL PRIMARY KEY, tbl TEXT, id TEXT, body TEXT);
CREATE FUNCTION sim_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO sim_log (tbl, id, body) VALUES (TG_TABLE_NAME, NEW.id, to_jsonb(NEW)::text); RETURN NULL; END $$;
CREATE FUNCTION sim_gone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO sim_log (tbl, id, body) VALUES (TG_TABLE_NAME, OLD.id, NULL); RETURN NULL; END $$;
"""


class CountingEntropy:
    """Bytes that count upwards: rows of one instant sort as they were made, and both sides agree."""

    def __init__(self) -> None:
        self._ids = 0

    def token_bytes(self, count: int) -> bytes:
        """See `Entropy.token_bytes`."""
        self._ids += 1
        return self._ids.to_bytes(count, "big")


def _log_changes(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(_POSTGRES_LOG)
        for table in WATCHED:
            for events, function in (("INSERT OR UPDATE", "sim_note"), ("DELETE", "sim_gone")):
                connection.exec_driver_sql(
                    f"CREATE TRIGGER {function} AFTER {events} ON {table} FOR EACH ROW EXECUTE FUNCTION {function}()"
                )


class TableLog:
    """The log of a PostgreSQL database."""

    def __init__(self, engine: sa.Engine) -> None:
        self._connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def read(self, since: int) -> list[tuple[int, str, str, str | None]]:
        """What was logged after this number, in the order it was written."""
        statement = sa.text("SELECT seq, tbl, id, body FROM sim_log WHERE seq > :since ORDER BY seq")
        return [tuple(row) for row in self._connection.execute(statement, {"since": since})]  # type: ignore[misc]

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()


@pytest.fixture(scope="module")
def both(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    sqlite_template: Path,
    postgres: SharedPostgres,
) -> Iterator[Pair]:
    """A migrated, empty database of each engine, whose every change of a watched row is logged."""
    clock, loop = ManualClock(), Loop()
    path = tmp_path_factory.mktemp("property") / "frontdesk.db"
    shutil.copyfile(sqlite_template, path)
    install_triggers(path)
    template = postgres.ensure_template(f"frontdesk_{head_revision()}", _migrate_postgres)
    name = database_name(request.node.name)
    url = postgres.create_database(name, template=template)
    sides: list[Side] = []
    for engine, where in (("sqlite", f"sqlite:///{path}"), ("postgresql", url)):
        entropy = CountingEntropy()
        database = loop.run(_opened(where, clock, entropy))
        if engine == "postgresql":
            _log_changes(database.engine())
        log = FileLog(path) if engine == "sqlite" else TableLog(database.engine())
        sides.append(Side(engine, TimedDatabase(database, clock), log))
    yield Pair(clock, loop, sides)
    for side in sides:
        side.log.close()
        loop.run(side.database.close())
    loop.close()
    postgres.drop_database(name)


async def _opened(url: str, clock: ManualClock, entropy: CountingEntropy):  # type: ignore[no-untyped-def]
    return open_database(url, clock, entropy)


@pytest.fixture(autouse=True)
def _counted(request: pytest.FixtureRequest, postgres: SharedPostgres) -> None:
    record_engine(request.node, "SQLite", sqlite3.sqlite_version)
    record_engine(request.node, "PostgreSQL", postgres.version)
