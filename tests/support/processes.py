"""Real processes for tests, started under the network guard and ended for certain."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
GUARD_DIRECTORY = Path(__file__).resolve().parent / "guarded"
STOP_SECONDS = 10.0


def guarded_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without its FRONTDESK_ settings, with the guard first on PYTHONPATH, then `extra`.

    A child started with -I, -E or -S would ignore PYTHONPATH, so tests never use those.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FRONTDESK_") or name.startswith("FRONTDESK_TEST_")
    }
    environment.update(extra or {})
    paths = [str(GUARD_DIRECTORY)]
    if before := environment.get("PYTHONPATH"):
        paths.append(before)
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment.setdefault("PYTHONUNBUFFERED", "1")
    return environment


def run_python(
    *arguments: str, environment: Mapping[str, str] | None = None, timeout_s: float = 30.0
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with the arguments under the guard and wait for it."""
    return subprocess.run(
        [sys.executable, *arguments],
        env=guarded_environment(environment),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@contextlib.contextmanager
def spawned(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    log: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process under the guard, its output in `log`; at the end it is asked to stop, then killed.

    It leads its own process group, and what it started ends with it.
    """
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("ab")) if log is not None else subprocess.DEVNULL
        process = subprocess.Popen(
            list(arguments),
            env=guarded_environment(environment),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> int:
    """Stop a process that leads its group and return its exit status."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, 9)
    return process.wait(STOP_SECONDS)
