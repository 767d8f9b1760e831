"""`frontdesk simulator`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from frontdesk.app.commands.options import data_option, fail, plain_failures
from frontdesk.app.settings import data_folder, load_settings
from frontdesk.simulator.config import SimulatorConfig, SimulatorError
from frontdesk.simulator.server import run


@click.command()
@data_option
@click.option("--port", type=click.IntRange(0, 65535), default=8790, show_default=True, help="0 takes a free one.")
@click.option("--state", type=click.Path(dir_okay=False), help="Keep apps and chats in this file; else in memory.")
@click.option("--manual-clock", is_flag=True, help="Time stands still until the control route moves it.")
@click.option("--exit-with-stdin", is_flag=True, hidden=True)
@plain_failures
def simulator(data: str | None, port: int, state: str | None, manual_clock: bool, exit_with_stdin: bool) -> None:
    """Start the Feishu/Lark stand-in with its chat page. Loopback only; its control routes need the simulator token."""
    token = (
        os.environ.get("FRONTDESK_SIMULATOR_TOKEN")
        or load_settings(data_folder(data)).simulator_token.get_secret_value()
    )
    if not token:
        fail("no simulator token: run `frontdesk init` first, or set FRONTDESK_SIMULATOR_TOKEN (16 characters or more)")
    try:
        run(
            SimulatorConfig(
                token=token,
                port=port,
                state=Path(state) if state else None,
                manual_clock=manual_clock,
                exit_with_stdin=exit_with_stdin,
            )
        )
    except SimulatorError as error:
        fail(str(error))
