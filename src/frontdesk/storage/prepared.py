"""Statements compiled once for each engine and run on the driver itself: for the reception path alone.

SQLAlchemy's own execution costs several times what SQLite needs for a primary-key read. A `Prepared` keeps the same
Core expression, compiled by the same dialect, and skips the layers in between; it offers plain column values only
(texts, integers, booleans) and takes no IN list. Measured in `bench/ingest.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Boolean, ClauseElement, Table, bindparam
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
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
        compiled = self.compiled(tx)
        return [compiled.row(values) for values in _execute(tx, compiled.sql, compiled.bound(parameters)).fetchall()]

    def find(self, tx: Tx, parameters: Mapping[str, Any]) -> dict[str, Any] | None:
        """The first row, or None."""
        compiled = self.compiled(tx)
        values = _execute(tx, compiled.sql, compiled.bound(parameters)).fetchone()
        return None if values is None else compiled.row(values)

    def changed(self, tx: Tx, parameters: Mapping[str, Any]) -> int:
        """Rows touched by a write."""
        compiled = self.compiled(tx)
        return int(_execute(tx, compiled.sql, compiled.bound(parameters)).rowcount)

    def compiled(self, tx: Tx) -> _Compiled:
        """The statement for this engine; compiled once."""
        dialect = tx.conn.dialect
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            given = self._statement
            statement = given if isinstance(given, ClauseElement) else given(dialect.name)
            compiled = self._compiled[dialect.name] = _Compiled(statement, dialect)
        return compiled


def _execute(tx: Tx, sql: str, bound: Any) -> Any:
    """Run on the driver; what it raises becomes what SQLAlchemy would raise, so that one place judges every error."""
    try:
        return tx.driver.execute(sql, bound)
    except tx.conn.dialect.loaded_dbapi.Error as error:
        dialect = tx.conn.dialect
        lost = dialect.is_disconnect(error, tx.conn.connection.dbapi_connection, None)
        raised = DBAPIError.instance(
            sql,
            None,
            error,
            dialect.loaded_dbapi.Error,
            hide_parameters=True,
            connection_invalidated=lost,
            dialect=dialect,
        )
        if lost:
            tx.conn.invalidate()
        raise raised from None


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
        self.names = tuple(column.name for column in columns)
        self.width = len(self.names)
        self._booleans = tuple(
            name for name, column in zip(self.names, columns, strict=True) if isinstance(column.type, Boolean)
        )

    @property
    def positional(self) -> bool:
        """True where the driver takes a sequence."""
        return self._order is not None

    @property
    def has_constants(self) -> bool:
        """True where the statement binds values of its own."""
        return bool(self._fixed)

    def bound(self, parameters: Mapping[str, Any]) -> Any:
        """The driver's parameters; a name that is missing is a KeyError."""
        if self._fixed:
            parameters = {**self._fixed, **parameters}
        return parameters if self._order is None else [parameters[name] for name in self._order]

    def row(self, values: Sequence[Any]) -> dict[str, Any]:
        """One row by column name; SQLite's 0 and 1 become booleans."""
        found = dict(zip(self.names, values))  # noqa: B905 - one select, as many values as names
        for name in self._booleans:
            if found[name] is not None:
                found[name] = bool(found[name])
        return found


class Bundle:
    """Several prepared single-row selects of different rooms, read in one statement.

    For the reception path: on PostgreSQL it saves round trips, on SQLite hand-overs of the interpreter between threads.
    Each part stays its room's own statement; a part's first column must not be nullable, because it tells a row from
    none. All parts see one snapshot: a part that must see what another part's lock waited for does not belong in here.
    """

    def __init__(self, *parts: Prepared) -> None:
        self._parts = parts
        self._made: dict[str, tuple[str, tuple[_Compiled, ...]]] = {}

    def read(self, tx: Tx, parameters: Mapping[str, Any]) -> list[dict[str, Any] | None]:
        """One row or None for each part, in order. Parts share parameter names, so a name means one thing."""
        made = self._made.get(tx.conn.dialect.name)
        if made is None:
            made = self._made[tx.conn.dialect.name] = self._make(tx)
        sql, parts = made
        if parts[0].positional:
            bound: Any = [value for part in parts for value in part.bound(parameters)]
        else:
            bound = dict(parameters)
        values = _execute(tx, sql, bound).fetchone()
        rows: list[dict[str, Any] | None] = []
        start = 0
        for part in parts:
            end = start + part.width
            rows.append(None if values[start] is None else part.row(values[start:end]))
            start = end
        return rows

    def _make(self, tx: Tx) -> tuple[str, tuple[_Compiled, ...]]:
        compiled = tuple(part.compiled(tx) for part in self._parts)
        if any(part.has_constants for part in compiled) and not compiled[0].positional:
            raise ValueError("a bundled select names all of its parameters")
        columns = ", ".join(f'p{number}."{name}"' for number, part in enumerate(compiled) for name in part.names)
        joins = " ".join(f"LEFT JOIN ({part.sql}) AS p{number} ON 1 = 1" for number, part in enumerate(compiled))
        return f"SELECT {columns} FROM (SELECT 1 AS one) AS base {joins}", compiled  # noqa: S608 - our own compiled SQL


def insert_unless_known(table: Table, columns: Sequence[str], key: Sequence[str]) -> Prepared:
    """INSERT … ON CONFLICT (key) DO NOTHING over all of `columns`: `changed` is 0 where the key is taken.

    Any other constraint still raises; no savepoint is needed, since a taken key is no error.
    """

    def statement(engine: str) -> ClauseElement:
        make = postgresql.insert if engine == "postgresql" else sqlite.insert
        values: dict[str, Any] = {name: bindparam(name) for name in columns}
        return make(table).values(values).on_conflict_do_nothing(index_elements=list(key))

    return Prepared(statement)
