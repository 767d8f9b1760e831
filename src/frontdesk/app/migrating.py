"""Running migrations: the head, where a database stands, and up or down in one transaction.

Down is guarded: what drops a table of the desk takes the audit in receipts and deliveries with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text

from frontdesk.app.schema import DESK_TABLES
from frontdesk.kernel import limits
from frontdesk.kernel.clock import Clock, SystemClock

HERE = Path(__file__).parent / "migrations"


def alembic_config(connection: Connection | None = None) -> Config:
    """A configuration without any file; the connection travels as an attribute."""
    config = Config()
    config.set_main_option("script_location", str(HERE))
    config.attributes["connection"] = connection
    return config


def head_revision() -> str:
    """The one head of this release. Raises where the history forked."""
    head = ScriptDirectory.from_config(alembic_config()).get_current_head()
    if head is None:
        raise RuntimeError("no migration found")
    return head


def current_revision(engine: Engine) -> str | None:
    """Where the database stands; None for an empty one."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def knows(revision: str) -> bool:
    """True where this release has a migration of that name."""
    script = ScriptDirectory.from_config(alembic_config())
    return any(each.revision == revision for each in script.walk_revisions())


def is_before(revision: str, current: str | None) -> bool:
    """True where going down from `current` leads to `revision` (`base`: before every migration)."""
    if current is None:
        return False
    below = [each.revision for each in ScriptDirectory.from_config(alembic_config()).iterate_revisions(current, "base")]
    return revision == "base" or revision in below[1:]


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring the database to `revision` in one transaction. An interrupted run leaves it where it was."""
    with _transaction(engine) as connection:
        command.upgrade(alembic_config(connection), revision)


class DowngradeRefused(Exception):
    """Nothing was changed; the text says why and what to do."""


def downgrade(engine: Engine, revision: str, *, drop_desk: bool = False, clock: Clock | None = None) -> None:
    """Take the database back to `revision` in one transaction, and never decrypt, copy or send anything.

    Raises `DowngradeRefused`, changing nothing, where a table of the desk would go while a worker was seen within
    `WORKER_SEEN_US` or a reply or artifact grant is active and unexpired, whatever `drop_desk` says; and where one
    would go without `drop_desk`. On SQLite the time is `clock`'s, on PostgreSQL the server's unless a clock is given.
    Does not stop a program: one that starts afterwards finds a database of an older release.
    """
    with _transaction(engine) as connection:
        before = _desk_tables(connection)
        in_use = _in_use(connection, before, _now(connection, clock))
        command.downgrade(alembic_config(connection), revision)
        dropped = before - _desk_tables(connection)
        if dropped and in_use:
            raise DowngradeRefused(f"{in_use}; nothing was changed")
        if dropped and not drop_desk:
            listed = ", ".join(sorted(dropped))
            raise DowngradeRefused(f"it would drop {listed} with every row; back up, then say --drop-desk-tables")


def _desk_tables(connection: Connection) -> frozenset[str]:
    return DESK_TABLES.intersection(inspect(connection).get_table_names())


def _in_use(connection: Connection, tables: frozenset[str], now: int) -> str | None:
    """Why the desk's tables may not be dropped at all."""
    watched = [name for name in ("workers", "reply_grants", "artifact_grants") if name in tables]
    if connection.dialect.name == "postgresql" and watched:
        # Whoever is about to write one of these rows waits for this transaction, and then finds no table.
        connection.execute(text(f"LOCK TABLE {', '.join(watched)} IN ACCESS EXCLUSIVE MODE"))
    for name in watched:
        found = connection.execute(text(_WHILE[name]), {"now": now, "seen": now - limits.WORKER_SEEN_US}).scalar_one()
        if found:
            return _WHY[name].format(found)
    return None


_WHILE = {
    "workers": "SELECT count(*) FROM workers WHERE last_seen_at > :seen",
    "reply_grants": "SELECT count(*) FROM reply_grants WHERE status = 'active' AND expires_at > :now",
    "artifact_grants": "SELECT count(*) FROM artifact_grants WHERE status = 'active' AND expires_at > :now",
}
_WHY = {
    "workers": "{} worker(s) were seen within 30 s: stop every process and wait half a minute",
    "reply_grants": "{} reply grant(s) are active: revoke them or wait until they expire",
    "artifact_grants": "{} artifact grant(s) are active: revoke them or wait until they expire",
}


def _now(connection: Connection, clock: Clock | None) -> int:
    if clock is None and connection.dialect.name == "postgresql":
        read = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        return int(connection.execute(read).scalar_one())
    return (clock or SystemClock()).now_us()


@contextmanager
def _transaction(engine: Engine) -> Iterator[Connection]:
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection
