"""`frontdesk user` and `frontdesk token`: administration on the machine itself."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TypeVar

import click

from frontdesk.app.commands.options import data_option, fail, folder, plain_failures, settings_of
from frontdesk.app.installing import open_migrated
from frontdesk.identity import local_actor, set_password
from frontdesk.identity.oidc import add_person
from frontdesk.identity.passwords import hash_password
from frontdesk.identity.tokens import create_token
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.kernel.limits import PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN
from frontdesk.storage.tx import Tx

T = TypeVar("T")


def _write(data: str | None, fn: Callable[[Tx], T]) -> T:
    path = folder(data)
    database = open_migrated(settings_of(path), path, may_upgrade=False)

    async def run() -> T:
        try:
            return await database.write(fn)
        finally:
            await database.close()

    try:
        return asyncio.run(run())
    except Problem as problem:
        fail(problem.entry.en)


@click.group()
def user() -> None:
    """People of this installation."""


@user.command("password")
@click.argument("name")
@data_option
@plain_failures
def password(name: str, data: str | None) -> None:
    """Set a new password for NAME, read from standard input (one line)."""
    if sys.stdin.isatty():
        clear = click.prompt("New password", hide_input=True, confirmation_prompt=True)
    else:
        clear = sys.stdin.readline().rstrip("\r\n")
    if not PASSWORD_CHARS_MIN <= len(clear) <= PASSWORD_CHARS_MAX:
        fail(f"the password needs {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters")
    hashed = hash_password(clear, SystemEntropy())
    _write(data, lambda tx: set_password(tx, name, hashed))
    click.echo(f"Password of {name} is set; its sessions have ended.")


@user.command("oidc")
@click.argument("subject")
@click.option("--name", "display_name", required=True, help="Name to show.")
@click.option("--email", help="Address; members can be added by it.")
@data_option
@plain_failures
def oidc(subject: str, display_name: str, email: str | None, data: str | None) -> None:
    """Let the issuer's SUBJECT (its `sub`) sign in: make their user, before they first come."""
    issuer = settings_of(folder(data)).oidc_issuer
    if not issuer:
        fail("oidc_issuer is not set")
    who, made = _write(data, lambda tx: add_person(tx, issuer, subject, display_name=display_name, email=email))
    if not made:
        fail(f"{who.id} is this person already{', and disabled' if who.disabled else ''}; nothing was changed")
    click.echo(f"{who.id} may sign in; add them to a workspace with `frontdesk identity members add`.")


@click.group()
def token() -> None:
    """Access tokens, made on the machine itself."""


@token.command("create")
@click.option("--user", "name", required=True, help="User name.")
@click.option("--name", "label", default="command line", show_default=True, help="What the token is for.")
@click.option("--days", type=click.IntRange(1, 90), default=30, show_default=True, help="Life of the token.")
@click.option("--platform-admin", is_flag=True, help="With administrator power, where the user has it.")
@data_option
@plain_failures
def create(name: str, label: str, days: int, platform_admin: bool, data: str | None) -> None:
    """Print a new access token for a user, once."""
    made = _write(
        data,
        lambda tx: create_token(
            tx,
            local_actor(tx, name),
            name=label,
            expires_in_seconds=days * 86_400,
            platform_admin=platform_admin,
        ),
    )
    click.echo(made.token)
