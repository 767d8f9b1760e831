"""`frontdesk keys`."""

from __future__ import annotations

import click

from frontdesk.kernel.secretbox import new_key


@click.group()
def keys() -> None:
    """Keys that encrypt stored secrets."""


@keys.command("new")
def new() -> None:
    """Print a fresh key. Put it first in FRONTDESK_CREDENTIAL_KEYS (secrets.env); keep the old ones behind it."""
    click.echo(new_key())
