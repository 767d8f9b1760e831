"""Choosing an engine from a database URL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from frontdesk.kernel.clock import Clock
from frontdesk.kernel.ids import Entropy
from frontdesk.storage.database import Database, Wake
from frontdesk.storage.postgres import PostgresDatabase
from frontdesk.storage.sqlite import SqliteDatabase


def is_postgres(url: str) -> bool:
    """True for PostgreSQL URLs; everything else must be a SQLite path."""
    return url.startswith(("postgresql://", "postgres://", "postgresql+psycopg://"))


def open_database(
    url: str,
    clock: Clock,
    entropy: Entropy,
    *,
    wake: Wake | None = None,
    on_group: Callable[[int], None] | None = None,
) -> Database:
    """`sqlite:///path`, a bare path, or `postgresql://…`. Raises ValueError for another scheme.

    `on_group` is told how many transactions shared a commit, on the writer's thread (SQLite alone groups them).
    """
    if is_postgres(url):
        return PostgresDatabase(normal_postgres_url(url), clock, entropy, wake=wake)
    return SqliteDatabase(sqlite_path(url), clock, entropy, wake=wake, on_group=on_group)


def normal_postgres_url(url: str) -> str:
    """The URL with the driver we use."""
    return "postgresql+psycopg://" + url.split("://", 1)[1]


def sqlite_path(url: str) -> Path:
    """The file of a SQLite URL or bare path. Raises ValueError for another scheme."""
    if url.startswith("sqlite:///"):
        return Path(url.removeprefix("sqlite:///"))
    if "://" in url:
        raise ValueError("database_url must be a SQLite file or postgresql://")
    return Path(url)
