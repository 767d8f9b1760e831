"""A pytest plugin that says which database engines a run really used.

A test's engine is recorded as a user property when its database is opened, so the line counts tests that ran on that
engine and not tests that were meant to. User properties travel with xdist's reports.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

PROPERTY = "engine"


def record_engine(node: pytest.Item, name: str, version: str) -> None:
    """Note that this test runs on this engine, by the version the engine itself reports."""
    entry = (PROPERTY, f"{name} {version}")
    if entry not in node.user_properties:
        node.user_properties.append(entry)


def count_engines(reports: list[pytest.TestReport]) -> Counter[str]:
    """Tests per engine; a skipped test ran on none."""
    return Counter(
        value
        for report in reports
        if report.when == "call" and report.outcome != "skipped"
        for name, value in report.user_properties
        if name == PROPERTY
    )


class EngineSummary:
    """Collects reports in the process that prints the summary."""

    def __init__(self) -> None:
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.reports.append(report)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        engines = count_engines(self.reports)
        terminalreporter.section("database engines", sep="-")
        if not engines:
            terminalreporter.write_line("none: no test opened a database")
            return
        parts = [f"{engine}: {count} test{'s' if count != 1 else ''}" for engine, count in sorted(engines.items())]
        terminalreporter.write_line("; ".join(parts))


def pytest_configure(config: pytest.Config) -> None:
    """Register the collector (in xdist workers it would have nobody to print for)."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(EngineSummary(), "frontdesk-engine-summary")
