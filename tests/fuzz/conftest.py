"""The served application on either engine, furnished once a process and copied for each test."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from frontdesk.api.desk import callback
from frontdesk.app import reception
from frontdesk.app.migrating import head_revision, upgrade
from frontdesk.storage.postgres import postgres_engine
from frontdesk.storage.sqlite import sqlite_engine
from tests.fuzz.served import Plan, Site, Template, furnish, runner, serve, settle
from tests.support.engines import database_name
from tests.support.postgres import SharedPostgres
from tests.support.summary import record_engine


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, configuration = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**configuration)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """A furnished SQLite file."""
    path = tmp_path_factory.mktemp("fuzz") / "frontdesk.db"
    migrated = sqlite_engine(path)
    upgrade(migrated)
    migrated.dispose()
    with runner() as loop:
        plan = loop.run(furnish(f"sqlite:///{path}"))
    settle(path)
    return Template(path, plan)


@pytest.fixture
def site(
    template: Template, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    """The application on a copy of that file. Its callback has all the time it needs, as this machine may be slow."""
    import sqlite3

    monkeypatch.setattr(callback, "_TARGET_WAIT_S", 60.0)
    monkeypatch.setattr(reception, "COMMIT_WAIT_S", 60.0)
    record_engine(request.node, "SQLite", sqlite3.sqlite_version)
    yield from _served(template.copy(tmp_path), tmp_path, template.plan)


@pytest.fixture(scope="module")
def still_site(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for the module: for requests that are all refused."""
    folder = tmp_path_factory.mktemp("still")
    yield from _served(template.copy(folder), folder, template.plan)


@pytest.fixture
def postgresql_site(postgres: SharedPostgres, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """The application on a furnished PostgreSQL database."""
    record_engine(request.node, "PostgreSQL", postgres.version)

    def migrate(url: str) -> None:
        migrated = postgres_engine(url)
        upgrade(migrated)
        migrated.dispose()

    name = database_name("fuzz")
    url = postgres.create_database(name, template=postgres.ensure_template(f"frontdesk_{head_revision()}", migrate))
    with runner() as loop:
        plan = loop.run(furnish(url))
    yield from _served(url, tmp_path, plan)
    postgres.drop_database(name)


def _served(url: str, data: Path, plan: Plan) -> Iterator[Site]:
    with runner() as loop:
        site = serve(url, data, plan, loop.run)
        yield site
        site.close()
