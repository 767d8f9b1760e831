"""What an engine itself says of a database's schema, in a form that two databases can be compared by."""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa

Catalogue = dict[str, Any]


def catalogue(engine: sa.Engine) -> Catalogue:
    """Columns, keys, checks and indexes of every table but Alembic's own."""
    with engine.connect() as connection:
        return (_sqlite if engine.dialect.name == "sqlite" else _postgres)(connection)


def _sqlite(connection: sa.Connection) -> Catalogue:
    found: Catalogue = {}
    master = connection.exec_driver_sql("SELECT type, name, tbl_name, sql FROM sqlite_master").all()
    for kind, name, table, statement in master:
        if table == "alembic_version" or name.startswith("sqlite_"):
            continue
        if kind == "table":
            found[f"columns {name}"] = connection.exec_driver_sql(f'PRAGMA table_xinfo("{name}")').all()
            found[f"keys {name}"] = sorted(
                tuple(each)[2:] for each in connection.exec_driver_sql(f'PRAGMA foreign_key_list("{name}")')
            )
            found[f"table {name}"] = sorted(_parts(statement))
            found[f"uniques {name}"] = sorted(_sqlite_uniques(connection, name))
        else:
            found[f"{kind} {table}.{name}"] = _flat(statement)
    return found


def _sqlite_uniques(connection: sa.Connection, table: str) -> list[tuple[Any, ...]]:
    listed = connection.exec_driver_sql(f'PRAGMA index_list("{table}")').all()
    return [
        (unique, origin, partial, tuple(each[2] for each in connection.exec_driver_sql(f'PRAGMA index_info("{name}")')))
        for _, name, unique, origin, partial in listed
    ]


def _parts(statement: str) -> list[str]:
    """The columns and constraints of a CREATE TABLE, whatever their order."""
    body = statement[statement.index("(") + 1 : statement.rindex(")")]
    parts, depth, begin = [], 0, 0
    for place, letter in enumerate(body):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(_flat(body[begin:place]))
            begin = place + 1
    return [*parts, _flat(body[begin:])]


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _postgres(connection: sa.Connection) -> Catalogue:
    columns = connection.exec_driver_sql(
        "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attnum,"
        " pg_get_expr(d.adbin, d.adrelid) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        " LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum"
        " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped"
        " AND c.relname <> 'alembic_version'"
    ).all()
    constraints = connection.exec_driver_sql(
        "SELECT conrelid::regclass::text, conname, contype::text, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> 'alembic_version'"
    ).all()
    indexes = connection.exec_driver_sql(
        "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
        " AND tablename <> 'alembic_version'"
    ).all()
    found: Catalogue = {f"column {table}.{name}": tuple(rest) for table, name, *rest in columns}
    found |= {f"constraint {table}.{name}": tuple(rest) for table, name, *rest in constraints}
    return found | {f"index {table}.{name}": text for table, name, text in indexes}
