"""Statements compiled once for each engine and run on the driver itself: for the reception path alone.

SQLAlchemy's own execution costs several times what SQLite needs for a primary-key read. A `Prepared` keeps the same
Core
expression, compiled by the same dialect, and skips the layers in between; it offers plain column values only (texts, integers,
booleans), so no statement with a JSON or binary column fits. Measured in `bench/ingest.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Boolean, ClauseElement, Table, bindparam
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.compiler import SQLCompiler

from frontdesk.storage.tx import Tx


class Prepared:
    """One statement with bind parameters. Immutable once built; safe to share between threads."""

    def __init__(self, statement: ClauseElement | Callable[[str], ClauseElement]) -> None:
        """`statement`, or what makes it for an engine's name where the engines differ (ON CONFLICT)."""
        self._statement = statement
        self._compiled: dict[str, _Compiled] = {}

    def rows(self, tx: Tx, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Every row, as plain dictionaries."""
        compiled = self._for(tx)
        return [
            compiled.row(values) for values in tx.driver.execute(compiled.sql, compiled.bound(parameters)).fetchall()
        ]

    def find(self, tx: Tx, parameters: Mapping[str, Any]) -> dict[str, Any] | None:
        """The first row, or None."""
        compiled = self._for(tx)
        values = tx.driver.execute(compiled.sql, compiled.bound(parameters)).fetchone()
        return None if values is None else compiled.row(values)

    def changed(self, tx: Tx, parameters: Mapping[str, Any]) -> int:
        """Rows touched by a write."""
        compiled = self._for(tx)
        return int(tx.driver.execute(compiled.sql, compiled.bound(parameters)).rowcount)

    def _for(self, tx: Tx) -> _Compiled:
        dialect = tx.conn.dialect
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            given = self._statement
            statement = given if isinstance(given, ClauseElement) else given(dialect.name)
            compiled = self._compiled[dialect.name] = _Compiled(statement, dialect)
        return compiled


class _Compiled:
    """SQL text, the order of its parameters, the names of its columns and which of them are booleans."""

    def __init__(self, statement: ClauseElement, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect)
        assert isinstance(compiled, SQLCompiler)
        self.sql = str(compiled)
        self._order: Sequence[str] | None = compiled.positiontup
        self._fixed = {
            name: value for name, value in compiled.construct_params(_check=False).items() if value is not None
        }
        selected = getattr(statement, "selected_columns", None)
        columns = list(selected) if selected is not None else []
        self._names = tuple(column.name for column in columns)
        self._booleans = tuple(
            name for name, column in zip(self._names, columns, strict=True) if isinstance(column.type, Boolean)
        )

    def bound(self, parameters: Mapping[str, Any]) -> Any:
        """The driver's parameters; a name that is missing is a KeyError."""
        if self._fixed:
            parameters = {**self._fixed, **parameters}
        return parameters if self._order is None else [parameters[name] for name in self._order]

    def row(self, values: Sequence[Any]) -> dict[str, Any]:
        """One row by column name; SQLite's 0 and 1 become booleans."""
        found = dict(zip(self._names, values))  # noqa: B905 - one select, as many values as names
        for name in self._booleans:
            if found[name] is not None:
                found[name] = bool(found[name])
        return found


def insert_unless_known(table: Table, columns: Sequence[str], key: Sequence[str]) -> Prepared:
    """INSERT … ON CONFLICT (key) DO NOTHING over all of `columns`: `changed` is 0 where the key is taken.

    Any other constraint still raises; no savepoint is needed, since a taken key is no error.
    """

    def statement(engine: str) -> ClauseElement:
        make = postgresql.insert if engine == "postgresql" else sqlite.insert
        values: dict[str, Any] = {name: bindparam(name) for name in columns}
        return make(table).values(values).on_conflict_do_nothing(index_elements=list(key))

    return Prepared(statement)
