"""The engines a test is given are real, private and gone afterwards."""

from __future__ import annotations

import signal

import psycopg
import pytest
import sqlalchemy as sa

from tests.support.engines import Engine, database_name
from tests.support.postgres import PostgresServer, SharedPostgres


def run_statements(url: str, *statements: str) -> None:
    database = sa.create_engine(url, poolclass=sa.NullPool)
    with database.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    database.dispose()


def read_value(url: str, statement: str) -> object:
    database = sa.create_engine(url, poolclass=sa.NullPool)
    with database.connect() as connection:
        value = connection.execute(sa.text(statement)).scalar_one()
    database.dispose()
    return value


@pytest.mark.parametrize("round_number", [1, 2])
def test_a_test_is_given_an_empty_database(engine: Engine, round_number: int) -> None:
    run_statements(engine.url, "CREATE TABLE thing (id integer)", f"INSERT INTO thing VALUES ({round_number})")
    assert read_value(engine.url, "SELECT sum(id) FROM thing") == round_number
    statement = {"sqlite": "SELECT sqlite_version()", "postgresql": "SHOW server_version"}[engine.kind]
    assert str(read_value(engine.url, statement)).startswith(engine.version)


@pytest.mark.engine("postgresql")
def test_the_mark_restricts_the_engines(engine: Engine) -> None:
    assert engine.kind == "postgresql"


def test_a_template_is_built_once_and_copied(postgres: SharedPostgres) -> None:
    built: list[str] = []

    def build(url: str) -> None:
        built.append(url)
        run_statements(url, "CREATE TABLE thing (id integer)", "INSERT INTO thing VALUES (7)")

    template = database_name("template")
    for _ in range(3):
        name = database_name("copy")
        url = postgres.create_database(name, template=postgres.ensure_template(template, build))
        assert read_value(url, "SELECT id FROM thing") == 7
        run_statements(url, "DELETE FROM thing")
        postgres.drop_database(name)
    assert len(built) == 1


def test_a_template_that_failed_is_built_again(postgres: SharedPostgres) -> None:
    template = database_name("template")

    def fail(url: str) -> None:
        raise LookupError(url)

    with pytest.raises(LookupError):
        postgres.ensure_template(template, fail)
    assert postgres.ensure_template(template, lambda url: run_statements(url, "CREATE TABLE thing (id integer)"))


def test_a_server_of_ones_own_survives_a_crash_on_the_same_address() -> None:
    with PostgresServer(durable=True) as server:
        assert server.address is not None
        url = server.address.url("postgres")
        run_statements(url, "CREATE TABLE thing (id integer)", "INSERT INTO thing VALUES (7)")
        server.stop(signal.SIGKILL)
        with pytest.raises(sa.exc.OperationalError):
            read_value(url, "SELECT 1")
        server.start()
        assert read_value(url, "SELECT id FROM thing") == 7
        assert read_value(url, "SHOW fsync") == "on"
        with psycopg.connect(server.address.url("postgres", driver="postgresql")) as connection:
            assert connection.info.server_version >= 180000
    assert not server.root.exists()
