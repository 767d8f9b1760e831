"""The end-to-end and console suites may not help themselves: they use the product from outside."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
SUITES = ("e2e", "console")
# What these suites may import of the product: names, clients, what `frontdesk up` itself uses; nothing that makes rows.
ALLOWED = {
    "frontdesk.app.example",
    "frontdesk.app.settings",
    "frontdesk.kernel.failpoints",
    "frontdesk.simulator",
    "frontdesk.wire.operations",
}
WRITES = re.compile(r"\b(INSERT\s+INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM|TRUNCATE)\b", re.IGNORECASE)


def breaches(text: str) -> list[str]:
    """Where a test module writes rows, or takes something of the product that could."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = []
        for name in names:
            ours = name.startswith(("frontdesk.", "tests.contract", "tests.sim", "tests.http")) or name == "frontdesk"
            if ours and not any(name == each or name.startswith(each + ".") for each in ALLOWED):
                found.append(f"{node.lineno}: imports {name}")
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and WRITES.search(node.value):
            found.append(f"{node.lineno}: writes rows")
    return found


@pytest.mark.spec("DESK-390")
def test_these_suites_make_nothing_by_themselves() -> None:
    """End-to-end and console tests start the product's own commands, get identity by login or token, and make
    everything by its operations: none of them writes a row, builds an actor or imports a room or a helper that does.
    """
    modules = [path for suite in SUITES for path in sorted((TESTS / suite).rglob("*.py")) if path != Path(__file__)]
    assert len([path for path in modules if path.parent.name == "e2e"]) > 5
    found = {path.name: lines for path in modules if (lines := breaches(path.read_text(encoding="utf-8")))}
    assert not found, found


def test_a_breach_is_seen() -> None:
    """The rule above can fail."""
    rows = "connection.execute('insert into receipts values (1)')\nx = 'UPDATE grants SET cursor = 1'\n"
    imports = (
        "from frontdesk.identity import local_actor\nimport frontdesk.storage.x\nfrom tests.contract import world\n"
    )
    assert len(breaches(rows)) == 2
    assert len(breaches(imports)) == 3
    assert breaches("from frontdesk.simulator import signing\nx = 'SELECT 1'\n") == []


@pytest.mark.spec("DESK-158")
def test_nothing_claims_exactly_once() -> None:
    """No test and no document claims exactly-once delivery; where the words stand, they are denied."""
    repository = TESTS.parent
    named = [*repository.glob("*.md"), *(repository / "docs").rglob("*.md"), *TESTS.rglob("*.py")]
    assert repository / "README.md" in named
    lines = [
        f"{path.relative_to(repository)}: {line.strip()}"
        for path in named
        if path != Path(__file__)
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"exactly[- ]once", line, re.IGNORECASE)
    ]
    claims = [line for line in lines if not re.search(r"\b(not|no|never)\b|n't", line, re.IGNORECASE)]
    assert not claims, claims
