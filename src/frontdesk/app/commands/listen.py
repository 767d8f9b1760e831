"""`frontdesk listen`."""

from __future__ import annotations

import asyncio

import click
from sqlalchemy.exc import SQLAlchemyError

from frontdesk.app import serving
from frontdesk.app.commands.options import data_option, folder, outside_of, plain_failures, settings_of
from frontdesk.app.installing import open_migrated
from frontdesk.app.listener import Ending, Listener
from frontdesk.app.listener.endings import refusal, sentence
from frontdesk.app.serving import StartRefused
from frontdesk.app.telemetry import configure_logging
from frontdesk.channels.feishu import sdk
from frontdesk.desk.connections import ListeningRefused
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.storage.database import Database


@click.command()
@data_option
@click.option("--installation", "installation_id", required=True, help="Id of the connection to listen for (ins_…).")
@click.option("--allow-failpoints", is_flag=True, hidden=True)
@click.option("--exit-with-stdin", is_flag=True, hidden=True)
@plain_failures
def listen(data: str | None, installation_id: str, allow_failpoints: bool, exit_with_stdin: bool) -> None:
    """Receive one connection's messages over the provider's long connection, in place of its webhook.

    Prints one line `frontdesk listener ready` once connected. Ends with code 0 on SIGTERM, and with 1 and a sentence
    when the connection is lost for good: let a service manager start it again. A second one for the same connection
    refuses to start.
    """
    # Before any event loop exists: the SDK binds one at import.
    sdk.load()
    path = folder(data)
    settings = settings_of(path)
    outside = outside_of(allow_failpoints)
    configure_logging(settings.log_level)
    sdk.silence()
    asyncio.run(_close(open_migrated(settings, path, may_upgrade=False)))
    listener_ended: list[tuple[Ending, int | None]] = []

    async def main() -> None:
        listener = Listener(settings, path, installation_id, outside=outside)
        stop = serving.StopSignal(exit_with_stdin=exit_with_stdin)
        ending = await listener.run(stop.wait, lambda: click.echo("frontdesk listener ready"))
        listener_ended.append((ending, listener.provider_code))

    try:
        serving.run(main())
    except ListeningRefused as refused:
        raise StartRefused(refusal(refused)) from None
    except (DatabaseBusy, SQLAlchemyError):
        raise StartRefused("the database does not answer; check `database_url` and that its server runs") from None
    ((ending, provider_code),) = listener_ended
    if ending is not Ending.ASKED:
        raise StartRefused(sentence(ending, provider_code))


async def _close(database: Database) -> None:
    await database.close()
