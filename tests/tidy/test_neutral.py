"""The desk is neutral: it knows channels by their port, never by name."""

from __future__ import annotations

import ast
from pathlib import Path

from frontdesk.app.schema import METADATA
from frontdesk.channels.registry import build_channels
from frontdesk.kernel.clock import ManualClock
from tests.tidy.test_tidy import PACKAGE, Module, modules

CHANNELS = build_channels("https://open.feishu.cn", None, ManualClock(), None)  # type: ignore[arg-type]
NAMES = {*CHANNELS, "lark"}
PREFIXES = {channel.prefix for channel in CHANNELS.values()}


def docstrings(tree: ast.Module) -> set[int]:
    """Constants that are documentation: a text that stands as a statement of its own."""
    return {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def named(module: Module) -> list[str]:
    """Where a module's code spells a channel's name: in a text, a name, an attribute, an argument or an import."""
    found: set[str] = set()
    documentation = docstrings(module.tree)
    for node in ast.walk(module.tree):
        words: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            words = [node.value]
        elif isinstance(node, ast.Name):
            words = [node.id]
        elif isinstance(node, ast.Attribute):
            words = [node.attr]
        elif isinstance(node, ast.arg):
            words = [node.arg]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            words = [node.name]
        elif isinstance(node, ast.Import):
            words = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            words = [node.module or "", *(alias.name for alias in node.names)]
        found |= {
            f"{module.name}:{getattr(node, 'lineno', 0)} {word!r}"
            for word in words
            for name in NAMES
            if name in word.lower() or (word in PREFIXES and isinstance(node, ast.Constant))
        }
    return sorted(found)


def test_no_module_of_the_desk_names_a_channel() -> None:
    """Neither by import nor by text: what differs between channels is data or a method of the port."""
    desk = [module for module in modules() if module.name.startswith("desk/")]
    assert len(desk) > 50
    assert not [use for module in desk for use in named(module)]


def test_the_search_sees_names_texts_and_imports() -> None:
    text = (
        '"""Feishu in words is no branch."""\nfrom frontdesk.channels.feishu import codes\n'
        'def f(channel):\n    return channel == "loopback" or is_lark(channel)\n'
    )
    module = Module(PACKAGE / "desk" / "x.py", text, ast.parse(text))
    assert sorted(use.split()[1] for use in named(module)) == ["'frontdesk.channels.feishu'", "'is_lark'", "'loopback'"]


def test_no_check_of_the_schema_names_a_channel() -> None:
    """Which channels there are is the registry's to say: a CHECK would need a migration for each."""
    checks = [
        str(constraint.sqltext)
        for table in METADATA.tables.values()
        for constraint in table.constraints
        if hasattr(constraint, "sqltext")
    ]
    assert checks
    versions = Path(PACKAGE / "app" / "migrations" / "versions").glob("v*.py")
    texts = checks + [line for path in versions for line in path.read_text().splitlines() if "CheckConstraint" in line]
    assert not [text for text in texts for key in CHANNELS if f"'{key}'" in text]
