"""Making a data folder and a database: what `frontdesk init` does, once."""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DBAPIError

from frontdesk.app import migrating
from frontdesk.app.serving import StartRefused
from frontdesk.app.settings import Settings, database_url, load_settings
from frontdesk.identity import bootstrap
from frontdesk.identity.passwords import hash_password
from frontdesk.kernel.clock import SystemClock
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.kernel.secretbox import new_key
from frontdesk.storage.database import Database
from frontdesk.storage.opening import is_postgres, open_database, sqlite_path

TOML: Final = """# Frontdesk settings; docs/reference/settings.md lists every name.
# Both capabilities are on because `frontdesk init` wrote them; without this file they are off.
reply_enabled = true
artifact_enabled = true
"""


@dataclass(frozen=True, slots=True)
class Installed:
    """What init made. `password` is None where it was given."""

    data: Path
    password: str | None = field(repr=False)
    workspace_id: str
    project_id: str


def initialise(
    data: Path, password: str | None, *, extra_toml: str = "", force_secrets: dict[str, str] | None = None
) -> Installed:
    """Make folder, settings, secrets, database, owner, workspace, project. Refuses a database with a user unchanged."""
    make_folder(data)
    _write_once(data / "frontdesk.toml", TOML + extra_toml, 0o600)
    _write_once(data / "secrets.env", _secret_lines(force_secrets or {}), 0o600)
    settings = load_settings(data)
    database = open_migrated(settings, data, may_upgrade=True)
    generated = None if password is not None else secrets.token_urlsafe(12)
    hashed = hash_password(password if password is not None else generated or "", SystemEntropy())

    async def first() -> bootstrap.FirstStart:
        try:
            return await database.write(lambda tx: bootstrap.first_start(tx, hashed))
        finally:
            await database.close()

    try:
        made = asyncio.run(first())
    except Problem as problem:
        if problem.code == "database_has_users":
            raise StartRefused("this database already holds a user; nothing was changed") from None
        raise
    return Installed(data, generated, made.workspace_id, made.project_id)


def make_folder(data: Path) -> None:
    """The data folder, closed to others (0700)."""
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        data.chmod(0o700)
    except OSError:
        raise StartRefused(f"the data folder {data} cannot be made; choose another with --data") from None


def _secret_lines(given: dict[str, str]) -> str:
    values = {
        "credential_keys": new_key(),
        "bootstrap_token": secrets.token_urlsafe(36),
        "simulator_token": secrets.token_urlsafe(24),
    } | given
    lines = "".join(f"FRONTDESK_{name.upper()}={value}\n" for name, value in values.items())
    return "# Made by `frontdesk init`. Keep private; without credential_keys no stored secret can be read.\n" + lines


def _write_once(path: Path, text: str, mode: int) -> None:
    """Create a file whole or not at all; one that is there stays as it is."""
    if path.exists():
        return
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def open_migrated(settings: Settings, data: Path, *, may_upgrade: bool) -> Database:
    """Open the database at this release's head. Raises `StartRefused` with what to do where it is not."""
    url = database_url(settings, data)
    if not is_postgres(url):
        path = sqlite_path(url)
        if not may_upgrade and not path.exists():
            raise StartRefused("there is no database yet; run `frontdesk init` first")
        try:
            _touch_private(path)
        except OSError:
            raise StartRefused("the database file cannot be made; check `database_url` and its folder") from None
    try:
        database = open_database(url, SystemClock(), SystemEntropy())
        check_head(database, may_upgrade=may_upgrade)
    except (DBAPIError, OSError):
        raise StartRefused("the database does not answer; check `database_url` and that its server runs") from None
    return database


def check_head(database: Database, *, may_upgrade: bool) -> None:
    """Compare the database's revision with this release's; an empty one is made where `may_upgrade`.

    An older database is never upgraded on the way: `frontdesk migrate up` does that. Raises `StartRefused`.
    """
    current, head = migrating.current_revision(database.engine()), migrating.head_revision()
    if current == head:
        return
    if not may_upgrade or current is not None:
        if current is not None and not migrating.knows(current):
            raise StartRefused("the database is of a newer release than this program; start that release")
        raise StartRefused("the database is older than this program; run `frontdesk migrate up` first")
    migrating.upgrade(database.engine())


def _touch_private(path: Path) -> None:
    if not path.exists():
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
