"""Fixtures that give a test real databases. See `engine`, `empty_postgres` and `postgres`."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import postgres as postgres_support
from tests.support.summary import record_engine

KINDS = ("sqlite", "postgresql")
RUN_VARIABLE = "FRONTDESK_TEST_RUN"
OWNER_VARIABLE = "FRONTDESK_TEST_OWNER"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An empty database for one test."""

    kind: str  # "sqlite" or "postgresql"
    url: str  # what `database_url` takes
    version: str


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options for the engines."""
    group = parser.getgroup("frontdesk")
    group.addoption("--engine", choices=KINDS, help="run engine tests on this engine alone")
    group.addoption("--postgres-durable", action="store_true", help="leave fsync on in the tests' PostgreSQL")


def pytest_configure(config: pytest.Config) -> None:
    """One folder per run, made by the main process; xdist's workers inherit its name."""
    if not hasattr(config, "workerinput"):
        os.environ[RUN_VARIABLE] = tempfile.mkdtemp(prefix="fdrun-")
        os.environ[OWNER_VARIABLE] = str(os.getpid())


def pytest_unconfigure(config: pytest.Config) -> None:
    """The main process stops what the run shared."""
    if not hasattr(config, "workerinput") and (run := os.environ.pop(RUN_VARIABLE, None)):
        postgres_support.release(Path(run))
        shutil.rmtree(run, ignore_errors=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `engine` runs once per engine; @pytest.mark.engine("postgresql") restricts it."""
    if "engine" not in metafunc.fixturenames:
        return
    marker = metafunc.definition.get_closest_marker("engine")
    kinds = marker.args if marker is not None and marker.args else KINDS
    unknown = set(kinds) - set(KINDS)
    assert not unknown, f"unknown engines in the mark: {sorted(unknown)}"
    metafunc.parametrize("engine", kinds, indirect=True, scope="function")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses an engine, so that `-m engine` finds it, and leave out what --engine leaves out."""
    only = config.getoption("--engine")
    kept, dropped = [], []
    for item in items:
        callspec = getattr(item, "callspec", None)
        kind = callspec.params.get("engine") if callspec is not None else None
        if kind in KINDS and item.get_closest_marker("engine") is None:
            item.add_marker(pytest.mark.engine)
        (dropped if only is not None and kind in KINDS and kind != only else kept).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> postgres_support.SharedPostgres:
    """The run's PostgreSQL: `create_database`, `drop_database`, `ensure_template`."""
    return postgres_support.attach(
        Path(os.environ[RUN_VARIABLE]),
        int(os.environ[OWNER_VARIABLE]),
        durable=pytestconfig.getoption("--postgres-durable"),
    )


def database_name(hint: str) -> str:
    """A database name that no other test in the run has, recognisable by its hint."""
    return f"t_{re.sub('[^a-z0-9]+', '_', hint.lower())[:24]}_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def empty_postgres(request: pytest.FixtureRequest, postgres: postgres_support.SharedPostgres) -> Iterator[str]:
    """The SQLAlchemy URL of an empty PostgreSQL database, dropped after the test."""
    name = database_name(request.node.name)
    record_engine(request.node, "PostgreSQL", postgres.version)
    yield postgres.create_database(name)
    postgres.drop_database(name)


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An empty database on each engine in turn."""
    if request.param == "sqlite":
        record_engine(request.node, "SQLite", sqlite3.sqlite_version)
        yield Engine(kind="sqlite", url=f"sqlite:///{tmp_path / 'frontdesk.db'}", version=sqlite3.sqlite_version)
        return
    url = request.getfixturevalue("empty_postgres")
    yield Engine(kind="postgresql", url=url, version=request.getfixturevalue("postgres").version)
