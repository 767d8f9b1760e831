"""Options and failures that commands share."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from sqlalchemy.exc import DBAPIError

from frontdesk.app import migrating, rehearsal
from frontdesk.app.serving import StartRefused
from frontdesk.app.settings import Settings, SettingsError, data_folder, database_url, load_settings
from frontdesk.app.wiring import Outside
from frontdesk.kernel.clock import SystemClock
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.kernel.failpoints import Failpoints, parse_failpoints
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.storage.database import Database
from frontdesk.storage.opening import is_postgres, open_database, sqlite_path

F = TypeVar("F", bound=Callable[..., Any])


def data_option(command: F) -> F:
    """`--data DIR`."""
    return click.option(
        "--data", type=click.Path(file_okay=False), help="Data folder; else FRONTDESK_DATA, else ./frontdesk-data."
    )(command)


def fail(text: str) -> NoReturn:
    """End with one sentence on stderr and exit code 1."""
    click.echo(f"frontdesk: {text}", err=True)
    raise SystemExit(1)


def settings_of(data: Path) -> Settings:
    """The settings of a data folder, or the sentence that says which name is wrong."""
    try:
        return load_settings(data)
    except SettingsError as error:
        fail(str(error))


def folder(option: str | None, *, must_exist: bool = True) -> Path:
    """The data folder. Fails with what to do where there is none."""
    path = data_folder(option)
    if must_exist and not path.is_dir() and not os.environ.get("FRONTDESK_DATABASE_URL"):
        fail(f"there is no data folder {path}; run `frontdesk init` (with the same --data) first")
    return path


def failpoints_of(allowed: bool) -> Failpoints:
    """Failpoints from FRONTDESK_FAILPOINTS; set without `--allow-failpoints` the start is refused."""
    text = os.environ.get("FRONTDESK_FAILPOINTS", "")
    if not text:
        return Failpoints()
    if not allowed:
        fail("FRONTDESK_FAILPOINTS is set; start with --allow-failpoints if that is meant, or unset it")
    try:
        return Failpoints(parse_failpoints(text))
    except ValueError as error:
        fail(f"FRONTDESK_FAILPOINTS: {error}")


def outside_of(allowed: bool) -> Outside:
    """What tests put in the place of the world: failpoints and a stage. Each needs `--allow-failpoints`."""
    outside = Outside(failpoints=failpoints_of(allowed))
    stage = os.environ.get(rehearsal.VARIABLE, "")
    if not stage:
        return outside
    if not allowed:
        fail(f"{rehearsal.VARIABLE} is set; start with --allow-failpoints if that is meant, or unset it")
    try:
        rehearsal.change_limits(Path(stage))
    except ValueError as error:
        fail(f"{rehearsal.VARIABLE}: {error}")
    outside.clock = rehearsal.StagedClock(Path(stage))
    outside.wrap_runner = lambda runner: rehearsal.StagedRunner(runner, Path(stage))
    return outside


@contextlib.asynccontextmanager
async def opened(path: Path, settings: Settings) -> AsyncIterator[Database]:
    """The database of a data folder, at this release's head. Raises `StartRefused` where it is missing or is not."""
    url = database_url(settings, path)
    if not is_postgres(url) and not sqlite_path(url).is_file():
        raise StartRefused("there is no database yet; run `frontdesk init` first")
    database = open_database(url, SystemClock(), SystemEntropy())
    try:
        try:
            current = await asyncio.to_thread(migrating.current_revision, database.engine())
        except DBAPIError:
            raise StartRefused("the database does not answer; check `database_url` and that its server runs") from None
        if current != migrating.head_revision():
            raise StartRefused("the database is not at this release's head; see `frontdesk migrate status`")
        yield database
    except DatabaseBusy:
        raise StartRefused("the database is busy or does not answer; what was done stays, run it again") from None
    finally:
        await database.close()


def plain_failures(command: F) -> F:
    """Turn the expected refusals of a start into a sentence instead of a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (StartRefused, SettingsError) as error:
            fail(str(error))

    return run  # type: ignore[return-value]
