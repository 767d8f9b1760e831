"""Houses for end-to-end tests: a new one, or a copy of one that was prepared by the product's own operations."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import rig
from tests.e2e.rig import House, Prepared
from tests.support.engines import RUN_VARIABLE, Engine, database_name
from tests.support.postgres import PostgresServer, SharedPostgres

Copy = Callable[..., AbstractAsyncContextManager[House]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real processes take their time: the limit of a single test is wider here."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture
def new_house(engine: Engine, tmp_path: Path) -> House:
    """An empty place: no data folder yet, an empty database."""
    return House(engine.kind, tmp_path / "data", engine.url)


@pytest.fixture
def prepared(engine: Engine, request: pytest.FixtureRequest) -> Prepared:
    """The run's prepared house on this engine; whichever worker asks first makes it, in a process of its own."""
    run = Path(os.environ[RUN_VARIABLE])
    data = run / f"e2e-{engine.kind}"
    name = f"e2e_{run.name.replace('-', '_').lower()}" if engine.kind == "postgresql" else ""
    with _locked(run / f"e2e-{engine.kind}.lock"):
        if not (data / "examples.json").exists():
            url = ""
            if name:
                shared: SharedPostgres = request.getfixturevalue("postgres")
                shared.drop_database(name)
                url = shared.create_database(name)
            shutil.rmtree(data, ignore_errors=True)
            with ThreadPoolExecutor(1) as thread:  # the test's own loop lives in this one
                thread.submit(lambda: asyncio.run(rig.prepare(House(engine.kind, data, url)))).result()
    return Prepared(engine.kind, data, name)


@pytest.fixture
def copy_house(prepared: Prepared, request: pytest.FixtureRequest, tmp_path: Path) -> Copy:
    """Opens copies of the prepared house, each with a data folder and database of its own.

    `copy_house(n)` is the house of app n with a simulator of its own; with `simulator=` it uses a running one. The
    server is not started.
    """

    made = itertools.count()

    @contextlib.asynccontextmanager
    async def copied(number: int = 0, *, simulator: str = "") -> AsyncIterator[House]:
        data = tmp_path / f"house-{next(made):02}-app-{number:02}"
        shutil.copytree(prepared.data, data)
        url = ""
        shared: SharedPostgres | None = None
        if prepared.database:
            shared = request.getfixturevalue("postgres")
            name = database_name("e2e")
            url = await asyncio.to_thread(lambda: shared.create_database(name, template=prepared.database))
        house = House(prepared.engine, data, url)
        house.simulator = simulator
        try:
            async with rig.closing(house):
                if not simulator:
                    await house.start_simulator()
                await house.meet(**prepared.known(number))
                yield house
        finally:
            if shared is not None:
                await asyncio.to_thread(shared.drop_database, name)

    return copied


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A PostgreSQL of this test alone, with fsync on, to be stopped and killed."""
    with PostgresServer(durable=True) as server:
        yield server


@pytest.fixture
async def own_house(prepared: Prepared, own_server: PostgresServer, postgres: SharedPostgres, tmp_path: Path) -> House:
    """A copy of the prepared house on `own_server`. Simulator and server are not started; see `rig.closing`."""
    data = tmp_path / "house"
    shutil.copytree(prepared.data, data)
    source = postgres.url(prepared.database)
    url = await asyncio.to_thread(own_server.copy_database, source, "frontdesk")
    return House(prepared.engine, data, url)


@pytest.fixture
def known(prepared: Prepared) -> list[dict[str, Any]]:
    """What was prepared with each of the apps."""
    return [prepared.known(number) for number in range(rig.APPS)]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
