"""`frontdesk init`."""

from __future__ import annotations

import sys

import click

from frontdesk.app.commands.options import data_option, fail, plain_failures
from frontdesk.app.installing import initialise
from frontdesk.app.settings import data_folder
from frontdesk.kernel.limits import PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN


@click.command()
@data_option
@click.option("--password-stdin", is_flag=True, help="Read the owner's password from standard input (one line).")
@plain_failures
def init(data: str | None, password_stdin: bool) -> None:
    """Make the data folder, keys, database and the user `owner`. A database with a user is refused unchanged."""
    password = None
    if password_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
        if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
            fail(f"the password needs {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters")
    made = initialise(data_folder(data), password)
    click.echo(f"Made {made.data}: frontdesk.toml, secrets.env, and the database.")
    click.echo("Switched on in frontdesk.toml: reply_enabled = true, artifact_enabled = true.")
    click.echo(
        f"User `owner` is administrator of workspace `home` ({made.workspace_id}), project `first` ({made.project_id})."
    )
    if made.password is not None:
        click.echo(f"Password of `owner`, shown once: {made.password}")
    click.echo("Next: `frontdesk serve` starts the server; `frontdesk login` gets a token for the other commands.")
