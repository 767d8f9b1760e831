"""`frontdesk serve` and `frontdesk work`."""

from __future__ import annotations

import asyncio

import click

from frontdesk.app import serving
from frontdesk.app.commands.options import data_option, folder, outside_of, plain_failures, settings_of
from frontdesk.app.installing import open_migrated
from frontdesk.app.telemetry import configure_logging
from frontdesk.app.wiring import Process


@click.command()
@data_option
@click.option("--port", type=click.IntRange(0, 65535), help="Instead of the setting; 0 takes a free one.")
@click.option("--no-worker", is_flag=True, help="Web alone; `frontdesk work` answers elsewhere.")
@click.option("--allow-failpoints", is_flag=True, hidden=True)
@click.option("--exit-with-stdin", is_flag=True, hidden=True)
@plain_failures
def serve(data: str | None, port: int | None, no_worker: bool, allow_failpoints: bool, exit_with_stdin: bool) -> None:
    """Start the server: web and worker. Prints one line `frontdesk ready <address>` once it serves."""
    path = folder(data)
    settings = settings_of(path)
    outside = outside_of(allow_failpoints)
    configure_logging(settings.log_level)
    asyncio.run(_close(open_migrated(settings, path, may_upgrade=False)))
    sock = serving.listening_socket(settings.bind, settings.port if port is None else port)
    taken = sock.getsockname()[1]
    scheme = "https" if settings.tls_cert else "http"

    async def main() -> None:
        process = Process(settings, path, with_worker=not no_worker, outside=outside, port=taken)
        await serving.serve(
            process,
            settings,
            sock,
            exit_with_stdin=exit_with_stdin,
            ready=lambda: click.echo(f"frontdesk ready {scheme}://{settings.bind}:{taken}"),
        )

    serving.run(main())


@click.command()
@data_option
@click.option("--allow-failpoints", is_flag=True, hidden=True)
@click.option("--exit-with-stdin", is_flag=True, hidden=True)
@plain_failures
def work(data: str | None, allow_failpoints: bool, exit_with_stdin: bool) -> None:
    """Start a worker alone; it answers what the web processes received."""
    path = folder(data)
    settings = settings_of(path)
    outside = outside_of(allow_failpoints)
    configure_logging(settings.log_level)
    asyncio.run(_close(open_migrated(settings, path, may_upgrade=False)))

    async def main() -> None:
        process = Process(settings, path, with_worker=True, outside=outside)
        await serving.work(process, exit_with_stdin=exit_with_stdin, ready=lambda: click.echo("frontdesk worker ready"))

    serving.run(main())


async def _close(database: object) -> None:
    await database.close()  # type: ignore[attr-defined]
