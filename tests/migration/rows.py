"""Valid rows for any table of the product, made from its columns, checks and foreign keys; for tests of the schema."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from frontdesk.app.schema import METADATA

_numbers = itertools.count(1)
# What no column's type tells: the rules over two columns.
RULES: dict[str, dict[str, Any]] = {
    "reply_grants": {"status": "active", "active_slot": "*"},
    "artifact_grants": {"status": "active", "active_slot": "*"},
    "turns": {"status": "completed"},
    "receipts": {"status": "received"},
    "events": {"data": {}},
}
SELF_REFERENCES = {("runs", "parent_run")}


def listed_values(table: sa.Table) -> dict[str, list[str]]:
    """The enumerated columns of a table, from its CHECKs."""
    found: dict[str, list[str]] = {}
    for check in table.constraints:
        if isinstance(check, sa.CheckConstraint):
            match = re.fullmatch(r"(?:(\w+) IS NULL OR )?(\w+) IN \((.*)\)", str(check.sqltext))
            if match:
                found[match[2]] = re.findall(r"'([^']*)'", match[3])
    return found


def fresh(column: sa.Column[Any]) -> Any:
    """A value of the column's type that no other row has."""
    number = next(_numbers)
    if isinstance(column.type, sa.Boolean):
        return True
    if isinstance(column.type, sa.Integer):
        return number
    if isinstance(column.type, sa.LargeBinary):
        return f"bytes {number}".encode()
    if isinstance(column.type, sa.JSON):
        return {"n": number}
    return f"{column.name[:8]}-{number}"[: getattr(column.type, "length", None) or 64]


def row(table: sa.Table, made: Mapping[str, Mapping[str, Any]], **given: Any) -> dict[str, Any]:
    """One valid row with fresh values in every column; foreign keys point at the rows in `made` (by table)."""
    listed = listed_values(table)
    values: dict[str, Any] = {}
    for column in table.columns:
        if column.foreign_keys:
            (key,) = column.foreign_keys
            target = key.target_fullname.split(".")[0]
            values[column.name] = None if (table.name, column.name) in SELF_REFERENCES else made[target]["id"]
        elif column.name in listed:
            values[column.name] = listed[column.name][0]
        else:
            values[column.name] = fresh(column)
    for name, value in {**RULES.get(table.name, {}), **given}.items():
        values[name] = fresh(table.c[name]) if value == "*" else value
    return values


def fill(connection: sa.Connection, tables: Mapping[str, Any] = METADATA.tables) -> dict[str, dict[str, Any]]:
    """Insert one row into every table, parents first; the rows by table."""
    made: dict[str, dict[str, Any]] = {}
    for table in METADATA.sorted_tables:
        if table.name in tables:
            made[table.name] = row(table, made)
            connection.execute(sa.insert(table).values(made[table.name]))
    return made


def contents(connection: sa.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table of the product that exists."""
    present = set(sa.inspect(connection).get_table_names())
    return {
        table.name: sorted((tuple(each) for each in connection.execute(sa.select(table))), key=repr)
        for table in METADATA.sorted_tables
        if table.name in present
    }


def checks(kind: type[sa.Constraint]) -> Iterator[tuple[sa.Table, Any]]:
    """Every constraint of a kind in the whole schema."""
    for table in METADATA.sorted_tables:
        for constraint in sorted(table.constraints, key=lambda each: str(each.name)):
            if type(constraint) is kind:
                yield table, constraint
