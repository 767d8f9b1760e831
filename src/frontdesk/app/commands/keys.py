"""`frontdesk keys`."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Final

import click

from frontdesk.app.commands.options import data_option, fail, folder, opened, plain_failures, settings_of
from frontdesk.app.rotating import Rotated, rotate
from frontdesk.app.settings import Settings
from frontdesk.kernel.secretbox import KeyRing, new_key

_WORDS: Final = {
    "rotated": "re-encrypted",
    "current": "under the first key already",
    "unreadable": "readable by no key",
    "moved": "changed by others meanwhile",
}


@click.group()
def keys() -> None:
    """Keys that encrypt stored secrets."""


@keys.command("new")
def new() -> None:
    """Print a fresh key. Put it first in FRONTDESK_CREDENTIAL_KEYS (secrets.env); keep the old ones behind it."""
    click.echo(new_key())


@keys.command("rotate")
@data_option
@click.option("--json", "as_json", is_flag=True, help="One document with every column.")
@plain_failures
def rotate_keys(data: str | None, as_json: bool) -> None:
    """Re-encrypt every stored secret under the first key, so that the old keys can go.

    Safe while servers run, once they were restarted with the new key first. Interrupted, run it again. Exit 1 where a
    value is readable by no key, or was changed by others each time it was looked at.
    """
    path = folder(data)
    settings = settings_of(path)
    keyring = KeyRing(settings.credential_keys.get_secret_value())
    if not keyring.usable:
        fail("credential_keys (FRONTDESK_CREDENTIAL_KEYS in secrets.env) holds no usable key; nothing was changed")
    found = asyncio.run(_rotate(path, settings, keyring, as_json))
    if as_json:
        click.echo(json.dumps({"columns": [dataclasses.asdict(each) for each in found]}, indent=2))
    if any(each.moved for each in found):
        fail("some values were changed by others meanwhile; run it again")
    if any(each.unreadable for each in found):
        fail("some values are readable by no key; they were left as they are (see `frontdesk doctor`)")


async def _rotate(path: Path, settings: Settings, keyring: KeyRing, as_json: bool) -> list[Rotated]:
    found = []
    async with opened(path, settings) as database:
        async for each in rotate(database, keyring):
            found.append(each)
            if not as_json:
                counts = ", ".join(f"{getattr(each, name)} {words}" for name, words in _WORDS.items())
                click.echo(f"{each.column}: {counts}")
    return found
