"""`frontdesk retention`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from frontdesk.app.commands.options import data_option, folder, opened, plain_failures, settings_of
from frontdesk.app.settings import Settings
from frontdesk.desk.operations import Purged, Retention
from frontdesk.kernel.clock import DAY


@click.command()
@data_option
@click.option("--days", type=click.IntRange(1, 3650), help="Instead of the setting `retention_days`.")
@click.option("--apply", "applied", is_flag=True, help="Do it.")
@click.option("--json", "as_json", is_flag=True, help="One document.")
@plain_failures
def retention(data: str | None, days: int | None, applied: bool, as_json: bool) -> None:
    """Count the receipts and deliveries whose content is due to go; with --apply clear it now.

    Workers do the same by themselves, once an hour. Rows, codes, ids and the conversations stay; what is still open is
    never touched. Safe while servers run.
    """
    path = folder(data)
    settings = settings_of(path)
    kept_days = days or settings.retention_days
    found = asyncio.run(_run(path, settings, kept_days, applied))
    if as_json:
        document = {"applied": applied, "days": kept_days, "receipts": found.receipts, "deliveries": found.deliveries}
        click.echo(json.dumps(document))
    else:
        verb = "cleared" if applied else "would clear"
        said = f"{found.receipts} receipts and {found.deliveries} deliveries older than {kept_days} days"
        click.echo(f"{verb} the content of {said}")
    if not applied:
        click.echo("Nothing was done; add --apply to do it.", err=True)


async def _run(path: Path, settings: Settings, days: int, applied: bool) -> Purged:
    async with opened(path, settings) as database:
        return await Retention(database, days * DAY, trial=not applied).run()
