"""`python -m tests.mutants [name …]`: take out one guard after the other, and see that its tests notice.

First the tests run against the whole product: a test that fails anyway proves nothing. Ends with 1 where a mutant
survives.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from tests.mutants.catalogue import MUTANTS, Mutant

PYTEST: Final = (
    sys.executable,
    "-m",
    "pytest",
    "-p",
    "tests.mutants.plugin",
    "-n",
    "0",
    "-q",
    "-p",
    "no:cacheprovider",
)
WITHIN_S: Final = 1_800
FAILED_TESTS: Final = 1  # pytest's own exit code; everything else means that the tests did not even run


def run(tests: Sequence[str], engine: str, mutant: str = "") -> tuple[int, str]:
    """The exit code of pytest over these tests on this engine, and what it wrote."""
    environment = {**os.environ, "FRONTDESK_MUTANT": mutant}
    stop = ["-x"] if mutant else []
    try:
        ended = subprocess.run(
            [*PYTEST, "--engine", engine, *stop, *tests],
            env=environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return FAILED_TESTS, "FAILED nothing came to an end in time"
    return ended.returncode, ended.stdout + ended.stderr


def verdict(mutant: Mutant) -> tuple[bool, str]:
    """Whether the tests notice the mutant, and which one did, or what went wrong."""
    code, text = run(mutant.tests, mutant.engine, mutant.name)
    if code == 0:
        return False, "SURVIVES"
    if code != FAILED_TESTS:
        return False, f"pytest ended with {code}: {text[-400:]}"
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    return True, found[1].removeprefix("tests/") if found else "failed"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(names: Sequence[str]) -> int:
    """See the module."""
    chosen = [MUTANTS[name] for name in names] if names else list(MUTANTS.values())
    for engine in sorted({mutant.engine for mutant in chosen}):
        code, text = run(sorted({test for each in chosen if each.engine == engine for test in each.tests}), engine)
        if code != 0:
            say(f"the tests fail on the whole product:\n{text[-4000:]}")
            return 1
    say(f"{'guard':60} {'noticed by'}")
    survivors = []
    for mutant in chosen:
        started = time.perf_counter()
        noticed, told = verdict(mutant)
        say(f"{mutant.guard:60} {told} ({time.perf_counter() - started:.0f} s)")
        if not noticed:
            survivors.append(mutant.name)
    say(
        f"{len(chosen) - len(survivors)} of {len(chosen)} mutants are noticed"
        + (f"; not: {survivors}" if survivors else "")
    )
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
