"""Statements compiled once for each engine and run on the driver itself: for the path of a message.

SQLAlchemy's own execution costs several times what SQLite needs for a primary-key read. A `Prepared` keeps the same
Core expression, compiled by the same dialect, and skips the layers in between; it offers texts, integers, bytes,
booleans and JSON columns only, binds plain values and takes no IN list. Measured in `bench/`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import JSON, Boolean, ClauseElement, Table, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler

from frontdesk.storage.tx import Tx, for_share, for_update

# Questions asked in one statement: each number of them is a statement of its own, which the drivers keep prepared. On
# PostgreSQL that saves round trips; SQLite has none, and there a compound costs more than its parts (`bench.ingest`).
TOGETHER_MAX: Final = {"postgresql": 16, "sqlite": 1}
_NAMED: Final = re.compile(r"%\((\w+)\)s")


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


class ById:
    """A table's row by its id, in the three ways of reading one. Immutable; safe to share between threads."""

    def __init__(self, table: Table) -> None:
        statement = select(table).where(table.c.id == bindparam("row_id"))
        self.plain, self.held, self.locked = (
            Prepared(each) for each in (statement, for_share(statement), for_update(statement))
        )

    def find(self, tx: Tx, row_id: str, *, share: bool = False, lock: bool = False) -> dict[str, Any] | None:
        """The row or None. On PostgreSQL `share` lets a racing change be seen or wait, `lock` keeps others out."""
        prepared = self.locked if lock else self.held if share else self.plain
        return prepared.find(tx, {"row_id": row_id})


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
        typed = list(zip(self.names, columns, strict=True))
        self._booleans = tuple(name for name, column in typed if isinstance(column.type, Boolean))
        # PostgreSQL's driver reads JSON itself; on SQLite it is text.
        spelled = dialect.name == "sqlite"
        self._documents = tuple(name for name, column in typed if spelled and isinstance(column.type, JSON))

    @property
    def positional(self) -> bool:
        """True where the driver takes a sequence."""
        return self._order is not None

    def bound(self, parameters: Mapping[str, Any]) -> Any:
        """The driver's parameters; a name that is missing is a KeyError."""
        if self._fixed:
            parameters = {**self._fixed, **parameters}
        return parameters if self._order is None else [parameters[name] for name in self._order]

    def row(self, values: Sequence[Any]) -> dict[str, Any]:
        """One row by column name; SQLite's 0 and 1 become booleans, its JSON texts what they spell."""
        found = dict(zip(self.names, values))  # noqa: B905 - one select, as many values as names
        for name in self._booleans:
            if found[name] is not None:
                found[name] = bool(found[name])
        for name in self._documents:
            if found[name] is not None:
                found[name] = json.loads(found[name])
        return found


class Bundle:
    """Several prepared single-row selects of different rooms, read in one statement.

    For the reception path: on PostgreSQL it saves round trips, on SQLite hand-overs of the interpreter between threads.
    Each part stays its room's own statement; a part's first column must not be nullable, because it tells a row from
    none. All parts see one snapshot: a part that must see what another part's lock waited for does not belong in here.
    """

    def __init__(self, *parts: Prepared) -> None:
        self._parts = parts
        self._made: dict[tuple[str, int], tuple[str, tuple[_Compiled, ...]]] = {}

    def read(self, tx: Tx, parameters: Mapping[str, Any]) -> list[dict[str, Any] | None]:
        """One row or None for each part, in order. Parts share parameter names, so a name means one thing."""
        return self.read_each(tx, (parameters,))[0]

    def read_each(self, tx: Tx, asked: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any] | None]]:
        """`read` for each of `asked`, in as few statements as may be. Locks are taken in the order of `asked`."""
        found: list[list[dict[str, Any] | None]] = []
        step = TOGETHER_MAX[tx.conn.dialect.name]
        for start in range(0, len(asked), step):
            found += self._read_some(tx, asked[start : start + step])
        return found

    def _read_some(self, tx: Tx, asked: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any] | None]]:
        made = self._made.get((tx.conn.dialect.name, len(asked)))
        if made is None:
            made = self._made[tx.conn.dialect.name, len(asked)] = self._make(tx, len(asked))
        sql, parts = made
        if parts[0].positional:
            bound: Any = [value for each in asked for part in parts for value in part.bound(each)]
        else:
            bound = {
                f"{name}_{place}_{number}": value
                for number, each in enumerate(asked)
                for place, part in enumerate(parts)
                for name, value in part.bound(each).items()
            }
        found: list[list[dict[str, Any] | None]] = [[] for _ in asked]
        for values in _execute(tx, sql, bound).fetchall():
            start = 1
            rows = found[values[0]]
            for part in parts:
                end = start + part.width
                rows.append(None if values[start] is None else part.row(values[start:end]))
                start = end
        return found

    def _make(self, tx: Tx, count: int) -> tuple[str, tuple[_Compiled, ...]]:
        compiled = tuple(part.compiled(tx) for part in self._parts)
        columns = ", ".join(f'p{place}."{name}"' for place, part in enumerate(compiled) for name in part.names)
        arms: list[str] = []
        for number in range(count):
            # Each question's parameters are its own: `?` by place, `%(name)s` by part and question behind the name.
            selects = (_NAMED.sub(rf"%(\1_{place}_{number})s", part.sql) for place, part in enumerate(compiled))
            joins = " ".join(f"LEFT JOIN ({sql}) AS p{place} ON 1 = 1" for place, sql in enumerate(selects))
            arms.append(f"SELECT {number} AS n, {columns} FROM (SELECT 1 AS one) AS base {joins}")  # noqa: S608 - ours
        return " UNION ALL ".join(arms), compiled


class InsertUnlessKnown:
    """INSERT … ON CONFLICT (key) DO NOTHING: a taken key is no error, any other constraint raises. No savepoint."""

    def __init__(self, table: Table, columns: Sequence[str], key: Sequence[str]) -> None:
        """`columns` are given for every row; `key` names the unique columns that decide whether a row is known."""
        self._table, self._columns, self._key = table, tuple(columns), tuple(key)
        self._made: dict[int, Prepared] = {}

    def ids(self, tx: Tx, rows: Sequence[Mapping[str, Any]]) -> set[str]:
        """Insert what is not known yet; the `id`s of the rows that were. Rows of one call have different keys."""
        inserted: set[str] = set()
        step = TOGETHER_MAX[tx.conn.dialect.name]
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            compiled = self._statement(len(some)).compiled(tx)
            values = {f"{name}_{n}": row[name] for n, row in enumerate(some) for name in self._columns}
            result = _execute(tx, compiled.sql, compiled.bound(values))
            if len(some) > 1:
                inserted.update(found[0] for found in result.fetchall())
            elif result.rowcount == 1:
                inserted.add(some[0]["id"])
        return inserted

    def _statement(self, count: int) -> Prepared:
        made = self._made.get(count)
        if made is None:
            made = self._made[count] = Prepared(lambda engine: self._build(engine, count))
        return made

    def _build(self, engine: str, count: int) -> ClauseElement:
        make = postgresql.insert if engine == "postgresql" else sqlite.insert
        rows: list[dict[str, Any]] = [
            {name: bindparam(f"{name}_{number}") for name in self._columns} for number in range(count)
        ]
        statement = make(self._table).values(rows if count > 1 else rows[0])
        statement = statement.on_conflict_do_nothing(index_elements=list(self._key))
        # Of one row the count tells: RETURNING would make SQLite keep a journal of the statement.
        return statement.returning(self._table.c.id) if count > 1 else statement
