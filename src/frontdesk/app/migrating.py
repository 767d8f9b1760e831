"""Running migrations: the head, where a database stands, and up or down in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

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


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring the database to `revision` in one transaction. An interrupted run leaves it where it was."""
    _run(engine, lambda config: command.upgrade(config, revision))


def downgrade(engine: Engine, revision: str) -> None:
    """Take the database back to `revision` in one transaction."""
    _run(engine, lambda config: command.downgrade(config, revision))


def _run(engine: Engine, step: Callable[[Config], None]) -> None:
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        step(alembic_config(connection))
