"""`frontdesk migrate`."""

from __future__ import annotations

import click

from frontdesk.app import migrating
from frontdesk.app.commands.options import data_option, folder, plain_failures, settings_of
from frontdesk.app.settings import database_url
from frontdesk.kernel.clock import SystemClock
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.storage.opening import open_database


@click.group()
def migrate() -> None:
    """Where the database stands, and how to bring it to this release."""


@migrate.command("status")
@data_option
@plain_failures
def status(data: str | None) -> None:
    """Say the database's revision and this release's."""
    path = folder(data)
    engine = open_database(database_url(settings_of(path), path), SystemClock(), SystemEntropy()).engine()
    click.echo(f"database: {migrating.current_revision(engine) or 'empty'}; this release: {migrating.head_revision()}")


@migrate.command("up")
@data_option
@plain_failures
def up(data: str | None) -> None:
    """Upgrade to this release in one transaction; interrupted, it leaves the database where it was."""
    path = folder(data)
    engine = open_database(database_url(settings_of(path), path), SystemClock(), SystemEntropy()).engine()
    migrating.upgrade(engine)
    click.echo(f"database is at {migrating.current_revision(engine)}")
