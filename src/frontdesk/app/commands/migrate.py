"""`frontdesk migrate`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from frontdesk.app import migrating
from frontdesk.app.commands.options import data_option, folder, plain_failures, settings_of
from frontdesk.app.serving import StartRefused
from frontdesk.app.settings import database_url
from frontdesk.storage.opening import is_postgres, normal_postgres_url, sqlite_path
from frontdesk.storage.postgres import postgres_engine
from frontdesk.storage.sqlite import sqlite_engine


@click.group()
def migrate() -> None:
    """Where the database stands, and how to bring it to this release."""


@contextmanager
def _engine(data: str | None) -> Iterator[Engine]:
    """The database's engine. Raises `StartRefused` where there is none or it does not answer."""
    path = folder(data)
    url = database_url(settings_of(path), path)
    if not is_postgres(url) and not sqlite_path(url).is_file():
        raise StartRefused("there is no database yet; run `frontdesk init` first")
    engine = postgres_engine(normal_postgres_url(url)) if is_postgres(url) else sqlite_engine(sqlite_path(url))
    try:
        yield engine
    except DBAPIError:
        raise StartRefused("the database does not answer; check `database_url` and that its server runs") from None
    finally:
        engine.dispose()


@migrate.command("status")
@data_option
@plain_failures
def status(data: str | None) -> None:
    """Say the database's revision and this release's."""
    with _engine(data) as engine:
        stands = migrating.current_revision(engine) or "empty"
    click.echo(f"database: {stands}; this release: {migrating.head_revision()}")


@migrate.command("up")
@data_option
@plain_failures
def up(data: str | None) -> None:
    """Upgrade to this release in one transaction; interrupted, it leaves the database where it was."""
    with _engine(data) as engine:
        current = migrating.current_revision(engine)
        if current is not None and not migrating.knows(current):
            raise StartRefused("the database is of a newer release than this program; start that release")
        migrating.upgrade(engine)
        click.echo(f"database is at {migrating.current_revision(engine)}")


@migrate.command("down")
@click.argument("revision")
@click.option(
    "--drop-desk-tables",
    is_flag=True,
    help="Let the desk's tables go, with every receipt and delivery in them, which is its audit.",
)
@data_option
@plain_failures
def down(revision: str, drop_desk_tables: bool, data: str | None) -> None:
    """Take the database back to REVISION (`base`: an empty one) in one transaction.

    Refused, changing nothing, where it would drop tables of the desk while a worker was seen within 30 seconds or a
    grant is active; otherwise that needs --drop-desk-tables. Secrets stay the ciphertext they are; nothing is sent.
    """
    if revision != "base" and not migrating.knows(revision):
        raise StartRefused("this release knows no such revision; `frontdesk migrate status` names the present one")
    with _engine(data) as engine:
        current = migrating.current_revision(engine)
        if current is not None and not migrating.knows(current):
            raise StartRefused("the database is of a newer release than this program; use that release to go back")
        if not migrating.is_before(revision, current):
            raise StartRefused(f"the database is at {current or 'no revision'}, which is not after {revision}")
        try:
            migrating.downgrade(engine, revision, drop_desk=drop_desk_tables)
        except migrating.DowngradeRefused as refused:
            raise StartRefused(str(refused)) from None
        click.echo(f"database is at {migrating.current_revision(engine) or 'base'}")
