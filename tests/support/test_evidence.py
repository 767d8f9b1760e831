"""The report of a run's evidence: what is seen of a test, and what the report makes of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.http.conftest import build_site
from tests.support import evidence
from tests.support.evidence import LEVELS, Case, Recorder, level_of, listed, product_command, render
from tests.support.spec_report import collect

DOUBLE, REAL, PROCESS, CLIENT = LEVELS


async def test_what_a_test_used_is_seen_and_not_declared(tmp_path: Path, product_client: Callable[[str], None]) -> None:
    """A connection, a request to the product's application and a process of it are each noted when they happen."""
    seen = evidence._facts
    seen.clear()  # whatever a thread of an earlier test still does
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'one.db'}")
    assert seen == set()
    with engine.connect():
        pass
    engine.dispose()
    assert seen == {"database:sqlite"}
    assert level_of(list(seen)) == 0, "a database alone is not a database and HTTP"
    site = build_site()
    async with site.client(token=None) as client:
        assert seen == {"database:sqlite"}
        await client.get("/healthz")
    site.services.threads.close()  # type: ignore[attr-defined]
    assert seen == {"database:sqlite", "http:answered"}
    assert LEVELS[level_of(list(seen))] == REAL
    run([sys.executable, "-c", ""])
    assert LEVELS[level_of(list(seen))] == REAL
    run([sys.executable, "-m", "frontdesk", "keys", "new"])
    assert LEVELS[level_of(list(seen))] == PROCESS
    product_client("Some Client 1.2")
    assert LEVELS[level_of(list(seen))] == CLIENT


def run(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["/x/.venv/bin/frontdesk", "serve", "--data", "d"], "serve"),
        (["python", "-m", "frontdesk", "work"], "work"),
        (["python", "-m", "frontdesk.app.main", "up"], "up"),
        (["/x/frontdesk", "simulator", "--port", "0"], None),
        (["python", "-m", "pytest", "tests"], None),
        (["git", "log", "frontdesk"], None),
        (["/x/frontdesk"], None),
    ],
)
def test_a_process_counts_where_it_is_the_products(words: list[str], command: str | None) -> None:
    """The stand-in for the chat provider, Python and git are no process of the product."""
    assert product_command(words) == command


def case(test: str, parameters: str = "", outcome: str = "passed", *facts: str) -> Case:
    return Case(f"tests/test_x.py::{test}", parameters, outcome, facts)


@pytest.mark.spec("DESK-255")
def test_the_report_lists_each_guarantee_at_its_level_and_what_is_missing() -> None:
    """Per guarantee its tests, each case at the level the run recorded, the whole at the lowest; the rest is named.

    A failed, skipped or absent test is no evidence, a case speaks for itself alone, and no figure stands for anything.
    """
    both = ("database:sqlite", "http:answered")
    cases = [
        case("plain"),
        case("mixed", "sqlite", "passed", *both),
        case("mixed", "postgresql", "passed", "database:postgresql"),
        case("served", "", "passed", *both, "process:serve"),
        case("driven", "", "passed", *both, "process:serve", "client:Some_1"),
        case("broken", "admin", "passed", *both),
        case("broken", "viewer", "failed", *both),
        case("skipped", "", "skipped"),
    ]
    marks = {
        "A-1": ["plain"],
        "A-2": ["mixed"],
        "A-3": ["served", "driven"],
        "A-4": ["broken", "served"],
        "A-5": ["skipped"],
        "A-6": ["served", "elsewhere"],
    }
    marked = {(spec, f"tests/test_x.py::{test}") for spec, tests in marks.items() for test in tests}
    page = render([f"A-{number}" for number in range(1, 8)], marked, cases, ["Arguments: `-k x`."])
    blocks = dict(part.split("** ", 1) for part in page.split("## Guarantees\n\n- **")[1].split("- **"))
    assert blocks["A-1"] == f"— {DOUBLE}\n  - tests/test_x.py::plain: {DOUBLE}\n"
    assert blocks["A-2"].startswith(f"— {DOUBLE}\n")
    assert f"tests/test_x.py::mixed [sqlite]: {REAL}\n" in blocks["A-2"]
    assert f"tests/test_x.py::mixed [postgresql]: {DOUBLE}\n" in blocks["A-2"]
    assert blocks["A-3"].startswith(f"— {PROCESS}\n")
    assert f"driven: {CLIENT}" in blocks["A-3"]
    assert blocks["A-4"].startswith("— a test failed: no evidence\n")
    assert "[viewer]: no evidence, failed" in blocks["A-4"]
    assert blocks["A-5"].startswith("— not run: no evidence\n")
    assert blocks["A-6"].startswith(f"— {PROCESS} (in part: a test of it was not run)\n")
    missing, rest = page.split("## Without a test\n\n")[1].split("\n\n## Not run\n\n")
    assert missing == "A-7"
    assert rest == "- A-5: tests/test_x.py::skipped\n- A-6: tests/test_x.py::elsewhere\n"
    assert "nothing in this run reached" not in page
    assert "nothing in this run reached the level *real product client*" in render(["A-1"], marked, cases, [])
    assert not any(figure in page for figure in ("8 tests", "7 guarantees", "%"))


def test_a_runs_reports_become_the_page(tmp_path: Path) -> None:
    """Reports as pytest and xdist hand them over: a failure in any phase stands, and the selection is told."""

    class Config:
        invocation_params = type("Given", (), {"args": ("-k", "x")})

        def getoption(self, _name: str) -> str:
            return str(tmp_path / "deep" / "evidence.md")

    recorder = Recorder(Config())  # type: ignore[arg-type]

    def report(test: str, when: Any, outcome: Any, facts: str | None) -> None:
        properties = [] if facts is None else [(evidence.PROPERTY, facts)]
        recorder.pytest_runtest_logreport(
            pytest.TestReport(test, (test, 1, test), {}, outcome, None, when, user_properties=properties)
        )

    for name, phases in {
        "tests/a.py::fine[sqlite]": [("setup", "passed"), ("call", "passed"), ("teardown", "passed")],
        "tests/a.py::torn": [("setup", "passed"), ("call", "passed"), ("teardown", "failed")],
        "tests/a.py::unset": [("setup", "failed"), ("teardown", "passed")],
        "tests/a.py::skipped": [("setup", "skipped"), ("teardown", "passed")],
    }.items():
        for when, outcome in phases:
            report(name, when, outcome, None if when == "setup" else "database:sqlite http:answered")
    seen = {one.test.rpartition(":")[2]: one.outcome for one in recorder.cases.values()}
    assert seen == {"fine": "passed", "torn": "failed", "unset": "failed", "skipped": "skipped"}
    recorder.pytest_deselected([object()] * 3)  # type: ignore[list-item]
    recorder.pytest_sessionfinish(None, 1)  # type: ignore[arg-type]
    page = (tmp_path / "deep" / "evidence.md").read_text()
    assert "Arguments: `-k x`. Exit status 1." in page
    assert "Left out by selection: 3." in page
    assert "Loaded: frontdesk " in page


def test_every_mark_names_a_guarantee_that_stands() -> None:
    """No test stands for a retired or invented number; the list holds each number once and in order."""
    known = listed()
    assert len(known) == len(set(known))
    prefixes = {each.rpartition("-")[0] for each in known}
    tests = Path(__file__).parent.parent
    for claim in collect(tests):
        assert claim.spec.rpartition("-")[0] not in prefixes or claim.spec in known, claim
