"""A pytest plugin that records what each test really used, and a report of the evidence that a run gave.

    pytest --evidence build/evidence.md …        write the report of this run

What counts is seen, not declared: a database that was connected to, a request that the product's own application
answered, a process of the product that was started. Levels, from the weakest:

    test double                  nothing of the below, or only a part of the second
    real database and HTTP       a database connection *and* a request answered by the product's application
    separate process             a process of the product was started, or one forked to work on the same database
    real product client          a test named a real client of another maker that it drove (`product_client`)

Facts are those of the test's own setup and call. What a fixture shared with earlier tests did counts for the first
alone, so a test may be listed below its level and never above it. Facts travel as user properties, also from xdist.
"""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing.process
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.spec_report import collect

PROPERTY = "evidence"
REPOSITORY = Path(__file__).resolve().parent.parent.parent
GUARANTEES = Path(__file__).with_name("guarantees.txt")
LEVELS = ("test double", "real database and HTTP", "separate process", "real product client")
# The product's commands that run as a process of their own; the simulator stands for somebody else.
PROCESSES = frozenset({"serve", "work", "listen", "up", "demo", "init", "migrate", "doctor", "user", "token", "keys"})

_facts: set[str] = set()


def note(fact: str) -> None:
    """Something real was used just now."""
    _facts.add(fact)


def level_of(facts: Sequence[str]) -> int:
    """Index into `LEVELS`."""
    kinds = {fact.partition(":")[0] for fact in facts}
    if "client" in kinds:
        return 3
    if "process" in kinds:
        return 2
    return 1 if {"database", "http"} <= kinds else 0


# ---------------------------------------------------------------------------------------------- what is seen


def _watch_databases() -> None:
    @sa.event.listens_for(sa.Engine, "engine_connect")
    def connected(connection: sa.Connection) -> None:
        note(f"database:{connection.dialect.name}")


def _watch_processes() -> None:
    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            words = [str(word) for word in arguments[1]] if not isinstance(arguments[1], str) else []
            command = product_command(words)
            if command is not None:
                note(f"process:{command}")

    sys.addaudithook(audit)
    start = multiprocessing.process.BaseProcess.start

    @functools.wraps(start)
    def started(self: multiprocessing.process.BaseProcess) -> None:
        note("process:forked")
        start(self)

    multiprocessing.process.BaseProcess.start = started  # type: ignore[method-assign]


def product_command(words: Sequence[str]) -> str | None:
    """The product's command in an argument list, where it starts one that counts."""
    for place, word in enumerate(words[:-1]):
        program = Path(word).name == "frontdesk" or (word == "-m" and words[place + 1].split(".")[0] == "frontdesk")
        if program:
            return next((each for each in words[place + 1 :] if each in PROCESSES), None)
    return None


def _watch_requests() -> None:
    import fastapi

    from frontdesk.api.desk.callback import Callback

    for application in (fastapi.FastAPI, Callback):
        application.__call__ = _noting(application.__call__)  # type: ignore[method-assign]


def _noting(call: Callable[..., Any]) -> Callable[..., Any]:
    async def called(self: Any, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            note("http:answered")
        await call(self, scope, receive, send)

    return called


@pytest.fixture
def product_client() -> Callable[[str], None]:
    """Say which real client of another maker, and which version of it, this test drives."""
    return lambda name: note(f"client:{name}")


# ---------------------------------------------------------------------------------------------- hooks


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the report goes."""
    parser.getgroup("frontdesk").addoption("--evidence", metavar="FILE", help="write what this run's evidence is")


def pytest_configure(config: pytest.Config) -> None:
    """Watch in every process; collect where the reports come together."""
    _watch_databases()
    _watch_processes()
    _watch_requests()
    if not hasattr(config, "workerinput") and config.getoption("--evidence"):
        config.pluginmanager.register(Recorder(config), "frontdesk-evidence")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Iterator[None]:
    """A test begins with nothing seen."""
    _facts.clear()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """What was seen by the end of the call goes with its report."""
    try:
        yield
    finally:
        item.user_properties.append((PROPERTY, " ".join(sorted(fact.replace(" ", "_") for fact in _facts))))


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One test, or one case of a parametrized one, as the run recorded it."""

    test: str  # tests/…/test_x.py::test_name
    parameters: str
    outcome: str  # passed | failed | skipped
    facts: tuple[str, ...]


class Recorder:
    """Collects the reports of a run and writes the page at its end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.cases: dict[str, Case] = {}
        self.left_out = 0

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.left_out += len(items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        known = self.cases.get(report.nodeid)
        if report.when == "setup" and report.outcome == "passed":
            return
        if report.when == "teardown" and report.outcome == "passed":
            return
        facts = next((value.split() for name, value in report.user_properties if name == PROPERTY), [])
        outcome = "failed" if known is not None and known.outcome == "failed" else report.outcome
        test, _, rest = report.nodeid.partition("[")
        self.cases[report.nodeid] = Case(test, rest.removesuffix("]"), outcome, tuple(facts))

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        path = Path(self.config.getoption("--evidence"))
        path.parent.mkdir(parents=True, exist_ok=True)
        run = [
            f"Arguments: `{' '.join(self.config.invocation_params.args)}`. Exit status {int(exitstatus)}.",
            f"Loaded: frontdesk {_loaded()}.",
            f"Left out by selection: {self.left_out}.",
        ]
        marked = {(claim.spec, claim.test) for claim in collect(REPOSITORY / "tests")}
        path.write_text(render(listed(), marked, list(self.cases.values()), run), encoding="utf-8")


def _loaded() -> str:
    import frontdesk

    place = Path(frontdesk.__file__).parent
    shown = place.relative_to(REPOSITORY) if place.is_relative_to(REPOSITORY) else place
    return f"{frontdesk.__version__} from {shown}"


# ---------------------------------------------------------------------------------------------- the page


def listed(path: Path = GUARANTEES) -> list[str]:
    """Every guarantee that stands, in order."""
    found: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        prefix, *ranges = line.split()
        for each in ranges:
            first, _, last = each.partition("-")
            found += [f"{prefix}-{number}" for number in range(int(first), int(last or first) + 1)]
    return found


HEADER = """\
# Evidence of one run

Written by the run itself (`pytest --evidence FILE`). It speaks of this run, this build and this machine alone. A
guarantee stands at the lowest level among its tests, because each of them may prove another part of it; a case (an
engine, a role, a route, a state) speaks for itself and for no other. A test that failed or was not run is no evidence.
How many tests there are says nothing.
"""


def render(guarantees: Sequence[str], marked: set[tuple[str, str]], cases: Sequence[Case], run: Sequence[str]) -> str:
    """The report: per guarantee its level and tests, then what has no test and what was not run."""
    by_test: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        by_test[case.test].append(case)
    tests_of: dict[str, list[str]] = defaultdict(list)
    for spec, test in sorted(marked):
        tests_of[spec].append(test)
    lines = [HEADER, *run, "", f"Levels, never merged: {'; '.join(LEVELS)}.", "", "## Guarantees", ""]
    missing: list[str] = []
    not_run: list[str] = []
    for spec in guarantees:
        tests = tests_of.get(spec, [])
        if not tests:
            missing.append(spec)
            continue
        shown, state = _judged(tests, by_test)
        lines += [f"- **{spec}** {state}", *shown]
        not_run += [f"{spec}: {test}" for test in tests if not any(ran(case) for case in by_test.get(test, []))]
    used = [level for level in LEVELS if any(f": {level}" in line for line in lines)]
    unused = [level for level in LEVELS if level not in used]
    lines += ["", "## Without a test", "", ", ".join(missing) or "None.", "", "## Not run", ""]
    lines += [f"- {each}" for each in not_run]
    lines += [f"- nothing in this run reached the level *{level}*" for level in unused]
    return "\n".join(lines) + "\n"


def ran(case: Case) -> bool:
    return case.outcome in ("passed", "failed")


def _judged(tests: Sequence[str], by_test: Mapping[str, list[Case]]) -> tuple[list[str], str]:
    """The lines of one guarantee's tests, and what they come to."""
    shown: list[str] = []
    levels: list[int] = []
    broken = absent = False
    for test in tests:
        found = by_test.get(test, [])
        absent |= not any(ran(case) for case in found)
        for (outcome, level), names in sorted(_grouped(found).items()):
            broken |= outcome == "failed"
            if outcome == "passed":
                levels.append(level)
            said = LEVELS[level] if outcome == "passed" else f"no evidence, {outcome}"
            among = f" [{', '.join(names)}]" if names != [""] else ""
            shown.append(f"  - {test}{among}: {said}")
        if not found:
            shown.append(f"  - {test}: not run")
    if broken:
        return shown, "— a test failed: no evidence"
    if not levels:
        return shown, "— not run: no evidence"
    return shown, f"— {LEVELS[min(levels)]}" + (" (in part: a test of it was not run)" if absent else "")


def _grouped(cases: Sequence[Case]) -> dict[tuple[str, int], list[str]]:
    grouped: dict[tuple[str, int], list[str]] = defaultdict(list)
    for case in cases:
        level = level_of(case.facts) if case.outcome == "passed" else 0
        grouped[case.outcome, level].append(re.sub(r"[^\x20-\x7e]", "?", case.parameters))
    return {key: sorted(names) for key, names in grouped.items()}
