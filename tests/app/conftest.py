"""Whole processes of the product in this one: a folder made by `init`, a server on a real socket, a real simulator."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog

from frontdesk.app import serving
from frontdesk.app.example import Example, open_example, owner_token
from frontdesk.app.installing import initialise
from frontdesk.app.settings import Settings, load_settings
from frontdesk.app.wiring import Outside, Process
from tests.simulator import harness

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings come from the test alone."""
    import os

    for name in [
        each for each in os.environ if each.startswith("FRONTDESK_") and not each.startswith("FRONTDESK_TEST_")
    ]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, configuration = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**configuration)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def made_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `frontdesk init` makes, once; its owner's password is `PASSWORD`."""
    data = tmp_path_factory.mktemp("made") / "data"
    thread = threading.Thread(target=initialise, args=(data, PASSWORD))  # it runs a loop of its own
    thread.start()
    thread.join()
    assert (data / "frontdesk.db").exists()
    return data


@pytest.fixture
def data(made_folder: Path, tmp_path: Path) -> Path:
    """A copy of that folder for one test."""
    copied = tmp_path / "data"
    shutil.copytree(made_folder, copied)
    copied.chmod(0o700)
    return copied


@pytest.fixture(scope="session")
def simulator() -> Iterator[harness.Sim]:
    """One simulator process for the run of this folder; every test has an app of its own there."""
    with harness.running() as sim:
        yield sim


class Stop:
    """In place of `serving.StopSignal`, whose handlers belong to a process of its own."""

    def __init__(self, *, exit_with_stdin: bool = False) -> None:
        self.asked = asyncio.Event()

    async def wait(self) -> None:
        await self.asked.wait()


@dataclass
class Running:
    """A served process."""

    process: Process
    address: str
    settings: Settings
    data: Path
    clients: list[httpx2.AsyncClient] = field(default_factory=list)

    def client(self, token: str = "") -> httpx2.AsyncClient:
        """Somebody's client, closed with the server."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        made = httpx2.AsyncClient(base_url=self.address, headers=headers, trust_env=False, timeout=30)
        self.clients.append(made)
        return made

    async def example(self, simulator: harness.Sim, name: str) -> Example:
        """Clients of this server and the simulator, and an app of that name; nothing else is made yet."""
        token = await owner_token(self.data)
        example = open_example(self.address, simulator.base, token, harness.TOKEN)
        example.app_name = name
        self.clients += [example.api, example.sim]
        return example


Serve = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Run `serving.serve`, the production way, on a free port until the block ends."""

    @contextlib.asynccontextmanager
    async def run(data: Path, outside: Outside | None = None, **values: str) -> AsyncIterator[Running]:
        settings = load_settings(data, {f"FRONTDESK_{name.upper()}": value for name, value in values.items()})
        sock = serving.listening_socket(settings.bind, 0)
        port = sock.getsockname()[1]
        process = Process(settings, data, with_worker=True, outside=outside, port=port)
        stop, ready = Stop(), asyncio.Event()
        monkeypatch.setattr(serving, "StopSignal", lambda **_: stop)
        task = asyncio.ensure_future(serving.serve(process, settings, sock, exit_with_stdin=False, ready=ready.set))
        waiting = asyncio.ensure_future(ready.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert ready.is_set(), await task
        running = Running(process, f"http://127.0.0.1:{port}", settings, data)
        try:
            yield running
        finally:
            for client in running.clients:
                await client.aclose()
            stop.asked.set()
            await task

    return run


def tables(path: Path) -> dict[str, list[Any]]:
    """Every row of every table, read from outside."""
    import sqlite3

    with contextlib.closing(sqlite3.connect(path)) as connection:
        names = [each[0] for each in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}
