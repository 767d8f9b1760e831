"""What `frontdesk doctor` looks at on this machine and in this database. Each check is a line; none prints a secret.

A check never raises: what is broken is what it is there to say. What lies outside (server, provider) is
`doctor_outside`.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography.fernet import Fernet
from sqlalchemy import Column, Table, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from frontdesk.app import doctor_outside as outside
from frontdesk.app import migrating
from frontdesk.app.finding import Finding, note, ok, wrong
from frontdesk.app.schema import CIPHERTEXTS
from frontdesk.app.settings import Settings, SettingsError, database_url, load_settings
from frontdesk.desk import connections
from frontdesk.desk.connections.model import Installation
from frontdesk.kernel.clock import SystemClock
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.database import Database
from frontdesk.storage.opening import is_postgres, open_database, sqlite_path
from frontdesk.storage.tx import Tx

SQLITE_MIN: Final = (3, 40)
POSTGRES_MIN: Final = 15
INSTALLATIONS_MAX: Final = 100
PAGE: Final = 500


@dataclass(slots=True)
class Case:
    """What is examined, and what earlier checks found out for later ones."""

    data: Path
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    settings: Settings | None = None
    database: Database | None = None
    at_head: bool = False

    @property
    def keyring(self) -> KeyRing:
        """The keys of the settings; unusable without settings."""
        return KeyRing(self.settings.credential_keys.get_secret_value() if self.settings else "")


async def examine(case: Case) -> AsyncIterator[Finding]:
    """Every finding in turn, as soon as it is known."""
    for name, check in (("settings", _settings), ("data folder", _folder), ("keys", _keys), ("database", _database)):
        for finding in await asyncio.to_thread(_guarded, name, check, case):
            yield finding
    try:
        if case.settings is None:
            yield note("rest", "not looked at: the settings cannot be read")
            return
        async for finding in _rest(case, case.settings):
            yield finding
    finally:
        if case.database is not None:
            await case.database.close()


async def _rest(case: Case, settings: Settings) -> AsyncIterator[Finding]:
    installations: list[Installation] = []
    if case.at_head and case.database is not None:
        try:
            for finding in await case.database.read(lambda tx: _stored_secrets(tx, case.keyring)):
                yield finding
            installations = await case.database.read(lambda tx: connections.list_active(tx, INSTALLATIONS_MAX))
        except (SQLAlchemyError, DatabaseBusy) as error:
            yield wrong("stored secrets", f"reading failed ({type(error).__name__})", "database_url", _RESTORE)
    for finding in _flags(settings):
        yield finding
    async for finding in outside.examine(settings, case.environment, case.keyring, installations):
        yield finding


def _guarded(name: str, check: Any, case: Case) -> list[Finding]:
    try:
        return list(check(case))
    except Exception as error:  # noqa: BLE001 - a check that breaks is a finding; its text could hold a value
        said = f"the check itself failed ({type(error).__name__})"
        return [wrong(name, said, None, "report this, with the line above")]


# ---------------------------------------------------------------------------------------------- settings and files

_RESTORE: Final = "check the file or server, and restore a backup if it is damaged"


def _settings(case: Case) -> list[Finding]:
    try:
        case.settings = load_settings(case.data, case.environment)
    except SettingsError as error:
        name = str(error).split(":", 1)[0].split(" ", 1)[0]
        return [wrong("settings", str(error), name, "correct it in frontdesk.toml, secrets.env or the environment")]
    return [ok("settings", "readable and in bounds")]


def _folder(case: Case) -> list[Finding]:
    data = case.data
    if not data.is_dir():
        if case.environment.get("FRONTDESK_DATABASE_URL"):
            return [note("data folder", "there is none; settings come from the environment")]
        setting = "data (--data or FRONTDESK_DATA)"
        return [wrong("data folder", f"there is no folder {data}", setting, "run `frontdesk init`")]
    open_paths = [path for path in _private_files(data) if stat.S_IMODE(path.stat().st_mode) & 0o077]
    findings = []
    if stat.S_IMODE(data.stat().st_mode) & 0o077:
        findings.append(wrong("data folder", "others may enter it", "data", f"run `chmod 700 {data}`"))
    if not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        findings.append(wrong("data folder", "it cannot be read and written", "data", "run as the user it belongs to"))
    if open_paths:
        names = " ".join(path.name for path in open_paths)
        findings.append(wrong("data files", f"others may read {names}", "data", f"run `chmod 600` on them in {data}"))
    return findings or [ok("data folder", "closed to others (0700), its files too (0600)")]


def _private_files(data: Path) -> list[Path]:
    names = ("frontdesk.toml", "secrets.env", "owner.token", "frontdesk.db", "frontdesk.db-wal", "frontdesk.db-shm")
    return [data / name for name in names if (data / name).is_file()]


def _keys(case: Case) -> list[Finding]:
    if case.settings is None:
        return [note("keys", "not looked at: the settings cannot be read")]
    setting = "credential_keys (FRONTDESK_CREDENTIAL_KEYS in secrets.env)"
    keys = [key.strip() for key in case.settings.credential_keys.get_secret_value().split(",") if key.strip()]
    if not keys:
        advice = "put the key back, or on a new installation add one made by `frontdesk keys new`"
        return [wrong("keys", "no key is set, so no stored secret can be read", setting, advice)]
    malformed = [str(place) for place, key in enumerate(keys, 1) if not _is_key(key)]
    if malformed:
        said = f"malformed, of {len(keys)}: number {', '.join(malformed)}; no key is used while one is"
        return [wrong("keys", said, setting, "put the key back as `frontdesk keys new` printed it")]
    return [ok("keys", f"{len(keys)} present and well formed")]


def _is_key(text: str) -> bool:
    try:
        Fernet(text)
    except (ValueError, TypeError):
        return False
    return True


def _flags(settings: Settings) -> list[Finding]:
    findings = []
    for name, what in (("reply_enabled", "answers"), ("artifact_enabled", "files")):
        if getattr(settings, name):
            findings.append(ok("flags", f"{name} is on"))
        else:
            advice = "set it to true where that is not meant"
            findings.append(note("flags", f"{name} is off: {what} do not leave", name, advice))
    return findings


# ---------------------------------------------------------------------------------------------- database


def _database(case: Case) -> list[Finding]:
    if case.settings is None:
        return [note("database", "not looked at: the settings cannot be read")]
    url = database_url(case.settings, case.data)
    if not is_postgres(url) and not sqlite_path(url).is_file():
        advice = "run `frontdesk init`, or restore a backup"
        return [wrong("database", "there is no database file", "database_url", advice)]
    try:
        case.database = open_database(url, SystemClock(), SystemEntropy())
        version = _version(case.database)
        current = migrating.current_revision(case.database.engine())
    except (SQLAlchemyError, OSError, ValueError) as error:
        return [wrong("database", f"it does not answer ({_kind(error)})", "database_url", _RESTORE)]
    return [version, _migrations(case, current)]


def _kind(error: Exception) -> str:
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return type(original).__name__


def _version(database: Database) -> Finding:
    with database.engine().connect() as connection:
        if database.engine_name == "postgresql":
            number = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one()) // 10_000
            return _judged(f"PostgreSQL {number}", number >= POSTGRES_MIN, f"PostgreSQL {POSTGRES_MIN}")
        text = str(connection.exec_driver_sql("SELECT sqlite_version()").scalar_one())
    numbers = tuple(int(part) for part in text.split(".")[:2])
    return _judged(f"SQLite {text}", numbers >= SQLITE_MIN, "SQLite 3.40")


def _judged(found: str, good: bool, floor: str) -> Finding:
    if good:
        return ok("database", f"{found} answers")
    return wrong("database", f"{found} is too old, {floor} is the floor", "database_url", "use a newer one")


def _migrations(case: Case, current: str | None) -> Finding:
    head = migrating.head_revision()
    case.at_head = current == head
    if case.at_head:
        return ok("migrations", f"at {head}, this release's head")
    if current is not None and not migrating.knows(current):
        advice = "start the newer release (or restore a backup made by this one)"
        return wrong("migrations", f"the database is of a newer release than {head}", "database_url", advice)
    stands = "it is empty" if current is None else f"at {current}"
    said = f"the database is too old: {stands}, this release needs {head}"
    return wrong("migrations", said, "database_url", "run `frontdesk migrate up`")


def _stored_secrets(tx: Tx, keyring: KeyRing) -> list[Finding]:
    """How many values of each ciphertext column no key reads."""
    findings, total = [], 0
    for table, names in CIPHERTEXTS:
        for name in names:
            seen, unread = _unreadable(tx, table, table.c[name], keyring)
            total += seen
            if unread:
                advice = "put the key they were made with back behind the others, or enter these secrets again"
                said = f"{table.name}.{name}: {unread} of {seen} unreadable"
                findings.append(wrong("stored secrets", said, "credential_keys", advice))
    return findings or [ok("stored secrets", f"all {total} are readable")]


def _unreadable(tx: Tx, table: Table, column: Column[Any], keyring: KeyRing) -> tuple[int, int]:
    seen = unread = 0
    last = ""
    while True:
        statement = select(table.c.id, column.label("text")).where(column.is_not(None), table.c.id > last)
        rows = tx.rows(statement.order_by(table.c.id).limit(PAGE))
        for row in rows:
            seen, last = seen + 1, row["id"]
            unread += not keyring.can_read(row["text"])
        if len(rows) < PAGE:
            return seen, unread


def python_version() -> str:
    """For the report's first line."""
    return ".".join(str(part) for part in sys.version_info[:3])
