"""Showing an answer: the raw document with `--json`, else a table or a record that a person can read."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

COLUMNS_MAX: Final = 8
_PLAIN_WIDTH: Final = 400  # piped: nothing is folded, so that ids stay whole for grep and cut
_FIRST: Final = ("id", "name", "title", "slug", "username", "status", "code", "role", "kind")


def show(document: Any, *, as_json: bool) -> None:
    """Print an answer's document."""
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
    elif document is None:
        click.echo("Done.")
    elif isinstance(document, dict) and isinstance(document.get("items"), list):
        _page(document)
    elif isinstance(document, dict):
        _console().print(record(document))
    else:
        click.echo(json.dumps(document, ensure_ascii=False))


def show_event(document: Any) -> None:
    """Print one event of a stream, on one line."""
    click.echo(json.dumps(document, ensure_ascii=False))


def _page(document: Mapping[str, Any]) -> None:
    items = document["items"]
    if not items:
        click.echo("Nothing.")
        return
    _console().print(table(items))
    cursor = document.get("next_cursor")
    if cursor:
        click.echo(f"More with --cursor {cursor}", err=True)


def table(items: Sequence[Mapping[str, Any]]) -> Table:
    """Rows with the columns that say something."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    columns = _columns(items)
    for column in columns:
        shown.add_column(column.replace("_", " "), overflow="fold")
    for item in items:
        shown.add_row(*(Text(_cell(item.get(column))) for column in columns))
    return shown


def record(document: Mapping[str, Any], indent: int = 0) -> Table:
    """One object, a line a field."""
    shown = Table(box=None, pad_edge=False, show_header=False)
    shown.add_column(style="bold", no_wrap=True)
    shown.add_column(overflow="fold")
    for key, value in document.items():
        label = "  " * indent + key.replace("_", " ")
        if isinstance(value, dict) and value and indent == 0:
            shown.add_row(label, record(value))
        elif isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            shown.add_row(label, table(value))
        else:
            shown.add_row(label, Text(_cell(value)))
    return shown


def _columns(items: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(key for item in items for key in item))
    telling = [name for name in names if any(item.get(name) not in (None, "", [], {}) for item in items)]
    flat = [name for name in telling if not any(isinstance(item.get(name), dict) for item in items)]
    first = [name for name in _FIRST if name in flat]
    rest = [name for name in flat if name not in first]
    if len(flat) > COLUMNS_MAX:
        # Ids of other things and the later times give way; `--json` has everything.
        rest.sort(key=lambda name: (name.endswith("_id"), name.endswith("_at") and name != "created_at"))
    return (first + rest)[:COLUMNS_MAX]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    # A text from elsewhere must not move the cursor or colour the terminal.
    return "".join(each if each.isprintable() or each == "\n" else "\ufffd" for each in str(value))


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False, markup=False, emoji=False)
