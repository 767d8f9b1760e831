"""Logs: what may stand in a line, whatever a caller hands in."""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from frontdesk.app import telemetry

SOURCE = Path(__file__).resolve().parents[3] / "src" / "frontdesk"
MARKER = "marker-4711"
# desk.md 8.5: operation, public ids, phase, status, code, duration.
LISTED = {"operation", "id", "phase", "status", "code", "duration_ms"}
METHODS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
OF_THE_LINE = {"event", "level", "timestamp"}


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """Gives what was logged so far; logging is as it was afterwards."""
    root, configuration = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    yield lambda: capsys.readouterr().err
    structlog.configure(**configuration)
    root.handlers[:] = handlers
    root.setLevel(level)


def log_calls() -> Iterator[tuple[str, ast.Call, set[str]]]:
    """Every call of a structlog logger in the product, with the names bound to exceptions around it."""
    for path in sorted(SOURCE.rglob("*.py")):
        if "simulator" in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        caught = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
        caught |= {
            argument.arg
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            for argument in node.args.args
            if argument.annotation is not None and "Exception" in ast.unparse(argument.annotation)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            receiver, _, method = called.rpartition(".")
            if called == "log" or (receiver in {"log", "_log"} and method in METHODS):
                yield f"{path.name}:{node.lineno}", node, caught


@pytest.mark.spec("DESK-218")
def test_log_fields_are_the_listed_ones_and_no_exception_is_written_out(lines: Callable[[], str]) -> None:
    """Calls name listed fields alone, take of an exception its type's name at most, and the boundary drops the rest."""
    calls = list(log_calls())
    assert len(calls) > 15
    for where, call, caught in calls:
        assert not ast.unparse(call.func).endswith(".exception"), where
        for keyword in call.keywords:
            if keyword.arg is None:
                continue  # a mapping: the boundary below holds for it
            assert keyword.arg in LISTED, f"{where} {keyword.arg}"
            value = ast.unparse(keyword.value)
            allowed = value
            for name in caught:
                allowed = allowed.replace(f"type({name}).__name__", "").replace(f"where({name})", "")
            names = {node.id for node in ast.walk(ast.parse(value)) if isinstance(node, ast.Name)}
            assert not [name for name in caught & names if name in allowed], f"{where} {value}"
    telemetry.configure_logging("debug")
    hostile = {"text": MARKER, "sender": MARKER, "token": MARKER, "exc_info": ValueError(MARKER), "exception": MARKER}
    structlog.get_logger("x").error("happened", code="c", phase="p", id="rcp_1", **hostile)
    written = lines()
    (line,) = [json.loads(each) for each in written.splitlines()]
    assert set(line) <= LISTED | OF_THE_LINE
    assert MARKER not in written
    assert {"logger", "count", "method"} >= telemetry.FIELDS - LISTED - OF_THE_LINE


def test_a_field_is_cut_at_128_characters(lines: Callable[[], str]) -> None:
    telemetry.configure_logging("info")
    structlog.get_logger("x").info("happened", code="c" * 1000)
    assert len(json.loads(lines())["code"]) == 128


def test_lines_below_the_level_are_not_written(lines: Callable[[], str]) -> None:
    telemetry.configure_logging("warning")
    structlog.get_logger("x").info("quiet")
    structlog.get_logger("x").warning("loud")
    assert [json.loads(each)["event"] for each in lines().splitlines()] == ["loud"]


@pytest.mark.parametrize("name", ["", "Lark", "httpx2", "sqlalchemy.engine", "uvicorn.error", "asyncio", "anything"])
def test_what_other_libraries_log_is_told_by_name_and_place_and_never_in_their_words(
    name: str, lines: Callable[[], str]
) -> None:
    telemetry.configure_logging("debug")
    logger = logging.getLogger(name)
    logger.debug("%s", MARKER)
    logger.info("%s", MARKER)
    try:
        raise ValueError(MARKER)
    except ValueError:
        logger.exception("failed: %s", MARKER, extra={"token": MARKER})
    written = lines()
    assert MARKER not in written
    if logger.propagate:
        (line,) = [json.loads(each) for each in written.splitlines()]
        assert line["event"] == "library.log"
        assert line["status"] == "error"
        assert line["code"].startswith("test_telemetry:")
