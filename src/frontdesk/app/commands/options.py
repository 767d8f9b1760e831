"""Options and failures that commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from frontdesk.app import rehearsal
from frontdesk.app.serving import StartRefused
from frontdesk.app.settings import Settings, SettingsError, data_folder, load_settings
from frontdesk.app.wiring import Outside
from frontdesk.kernel.failpoints import Failpoints, parse_failpoints

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


def plain_failures(command: F) -> F:
    """Turn the expected refusals of a start into a sentence instead of a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (StartRefused, SettingsError) as error:
            fail(str(error))

    return run  # type: ignore[return-value]
