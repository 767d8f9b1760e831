"""Start, recover, serve, finally stop: the order, what happens when one raises, and what readiness says then."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from frontdesk.app import serving
from frontdesk.app.settings import load_settings
from frontdesk.app.wiring import Process
from frontdesk.desk import connections
from frontdesk.desk.connections.model import NO_WORKER, WorkerSnapshot
from frontdesk.kernel.errors import DatabaseBusy
from tests.app.conftest import PASSWORD, Serve, Stop

SOURCE = Path(__file__).resolve().parents[2] / "src" / "frontdesk"
ON = {"FRONTDESK_REPLY_ENABLED": "true", "FRONTDESK_ARTIFACT_ENABLED": "true"}


class Broke(Exception):
    """Planted."""


@contextlib.asynccontextmanager
async def process_of(data: Path, **environment: str) -> AsyncIterator[Process]:
    """A process that nobody serves; stopped at the end."""
    process = Process(load_settings(data, ON | environment), data, with_worker=True)
    try:
        yield process
    finally:
        await process.stop()


def watched(process: Process, order: list[str]) -> None:
    """Note each phase as it begins."""
    worker = process.worker
    assert worker is not None
    for owner, name, label in (
        (worker, "start", "start"),
        (worker, "recover", "recover"),
        (worker, "serve", "serve"),
        (process, "stop", "stop"),
    ):
        inner = getattr(owner, name)

        def outer(*arguments: Any, inner: Any = inner, label: str = label) -> Any:
            order.append(label)
            return inner(*arguments)

        setattr(owner, name, outer)


def breaking(process: Process, phase: str, monkeypatch: pytest.MonkeyPatch, surface: str) -> None:
    """Make one phase raise."""
    worker = process.worker
    assert worker is not None

    async def broken(*_: Any, **__: Any) -> None:
        raise Broke

    if phase in {"start", "recover"}:
        monkeypatch.setattr(worker, phase, broken)
    elif surface == "serve":
        monkeypatch.setattr(serving.Server, "serve", broken)
    else:
        monkeypatch.setattr(Stop, "wait", broken)


async def run(process: Process, surface: str) -> None:
    """The production entry of a surface."""
    if surface == "work":
        await serving.work(process, exit_with_stdin=False, ready=lambda: None)
        return
    sock = serving.listening_socket("127.0.0.1", 0)
    await serving.serve(process, process.settings, sock, exit_with_stdin=False, ready=lambda: None)


@pytest.mark.spec("DESK-214")
@pytest.mark.parametrize("surface", ["serve", "work"])
async def test_the_order_is_start_recover_serve_stop_and_stop_also_runs_when_one_raises(
    surface: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On both surfaces the phases run in order; with start, recover or serving raising, everything is still stopped."""
    monkeypatch.setattr(serving, "StopSignal", Stop)
    process = Process(load_settings(data, ON), data, with_worker=True)
    order: list[str] = []
    watched(process, order)
    whole = asyncio.ensure_future(run(process, surface))
    await asyncio.sleep(0)
    while "serve" not in order:  # noqa: ASYNC110 - the product has no event for it
        await asyncio.sleep(0.01)
    whole.cancel()
    with pytest.raises(asyncio.CancelledError):
        await whole
    assert order == ["start", "recover", "serve", "stop"]

    for phase in ("start", "recover", "serving"):
        process = Process(load_settings(data, ON), data, with_worker=True)
        order = []
        watched(process, order)
        with monkeypatch.context() as patch:
            breaking(process, phase, patch, surface)
            with pytest.raises(Broke):
                await run(process, surface)
        assert order[-1] == "stop", phase
        assert order[:-1] == {"start": [], "recover": ["start"], "serving": ["start", "recover", "serve"]}[phase]
        assert process.worker is not None
        assert not process.worker.snapshot().started
        with pytest.raises((DatabaseBusy, RuntimeError)):
            await process.database.read(lambda tx: tx.now)
        assert not process._pools


async def test_stop_is_safe_before_a_start_after_a_partial_one_and_twice(data: Path) -> None:
    before = Process(load_settings(data, ON), data, with_worker=True)
    await before.stop()
    await before.stop()
    partial = Process(load_settings(data, ON), data, with_worker=True)
    assert partial.worker is not None
    await partial.worker.start()
    await partial.stop()
    await partial.stop()
    with pytest.raises((DatabaseBusy, RuntimeError)):
        await partial.database.read(lambda tx: tx.now)


async def test_an_end_that_raises_does_not_keep_the_rest_from_ending(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(load_settings(data, ON), data, with_worker=True)
    await process.start()
    assert process.worker is not None
    await process.worker.stop()

    async def broken(*_: Any) -> None:
        raise Broke

    monkeypatch.setattr(process.worker, "stop", broken)
    monkeypatch.setattr(process.sender, "stop", broken)
    with pytest.raises(Broke):
        await process.stop()
    assert not process._pools
    with pytest.raises(DatabaseBusy):
        await process.database.write(lambda tx: tx.now)


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_recover_takes_one_to_a_thousand(limit: int, data: Path) -> None:
    async with process_of(data) as process:
        assert process.worker is not None
        with pytest.raises(ValueError):
            await process.worker.recover(limit)
        assert await process.worker.recover(1) == 0
        assert await process.worker.recover(1000) == 0


# ---------------------------------------------------------------------------------------------- readiness


def ready(process: Process) -> tuple[bool, bool]:
    """What the process says of itself."""
    assert process.worker is not None
    found = connections.readiness_of(process.worker.snapshot(), reply_enabled=True, artifact_enabled=True)
    return found.reply_execution, found.artifact_delivery


async def seen_by_others(process: Process) -> bool:
    """What another process reads from the worker rows."""
    found = await process.database.read(
        lambda tx: connections.process_readiness(tx, reply_enabled=True, artifact_enabled=True)
    )
    return found.reply_execution


LOOPS = ("receipts", "deliveries", "recovery", "lapsing", "beat")


@pytest.mark.spec("DESK-210")
async def test_readiness_is_true_from_start_to_the_begin_of_stop_and_not_after_a_crash(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False before start, after a failed one, from the begin of stop, after any loop's crash, and without sending."""
    async with process_of(data) as process:
        worker = process.worker
        assert worker is not None
        assert ready(process) == (False, False)
        assert not await seen_by_others(process)
        await process.start()
        assert ready(process) == (True, True)
        assert await seen_by_others(process)

        held = asyncio.Event()

        async def slow(*_: Any) -> None:
            await held.wait()

        monkeypatch.setattr(worker._receipts, "stop", slow)
        stopping = asyncio.ensure_future(worker.stop())
        await asyncio.sleep(0)
        assert ready(process) == (False, False), "at the begin of stop, not at its end"
        while await seen_by_others(process):  # noqa: ASYNC110 - a row that the product writes
            await asyncio.sleep(0.005)
        assert not stopping.done()
        held.set()
        await stopping

    async with process_of(data) as failed:
        worker = failed.worker
        assert worker is not None

        async def busy(_: Any) -> None:
            raise DatabaseBusy

        with monkeypatch.context() as patch:
            patch.setattr(failed.database, "write", busy)
            with pytest.raises(DatabaseBusy):
                await failed.start()
        assert ready(failed) == (False, False)

    for loop in LOOPS:
        async with process_of(data) as crashed:
            await crashed.start()
            assert crashed.worker is not None
            (task,) = [each for each in crashed.worker._loops if each.get_name() == f"{loop} loop"]
            assert ready(crashed) == (True, True)
            task.cancel()
            await asyncio.wait({task})
            assert ready(crashed) == (False, False), loop

    down = WorkerSnapshot(True, True, True, outbound_started=False, artifact_configured=True)
    assert not connections.readiness_of(down, reply_enabled=True, artifact_enabled=True).reply_execution
    assert not connections.readiness_of(NO_WORKER, reply_enabled=True, artifact_enabled=True).reply_execution


async def test_the_server_says_by_readyz_that_its_worker_crashed(data: Path, serve: Serve) -> None:
    async with serve(data) as running, httpx2.AsyncClient(base_url=running.address, trust_env=False) as client:
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.json()["ready"]) == (200, True)
        assert running.process.worker is not None
        running.process.worker._loops[0].cancel()
        await asyncio.wait({running.process.worker._loops[0]})
        answer = await client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["checks"] == {"database": True, "migrations": True, "worker": False}
        assert (await client.get("/healthz")).status_code == 200


@pytest.mark.spec("DESK-211")
async def test_readiness_asks_flags_and_worker_and_nothing_else(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of tests and CI, the migration and the number of connections change nothing; flags are arguments."""
    for name in ("CI", "GITHUB_ACTIONS", "PYTEST_CURRENT_TEST", "TESTING", "FRONTDESK_REPLY_ENABLED"):
        monkeypatch.setenv(name, "false")
    async with process_of(data) as process:  # flags from the mapping it was given, and no connection exists
        await process.start()
        assert ready(process) == (True, True)
        with contextlib.closing(sqlite3.connect(data / "frontdesk.db")) as connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
            connection.commit()
        assert ready(process) == (True, True)
        assert await seen_by_others(process)
        for reply, artifact, expected in (
            (True, True, (True, True)),
            (True, False, (True, False)),
            (False, True, (False, False)),
            (False, False, (False, False)),
        ):
            assert process.worker is not None
            found = connections.readiness_of(process.worker.snapshot(), reply_enabled=reply, artifact_enabled=artifact)
            assert (found.reply_execution, found.artifact_delivery) == expected
    for path in [SOURCE / "app" / "worker.py", *(SOURCE / "desk").rglob("*.py")]:
        imported = {
            alias.name.partition(".")[0]
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert "os" not in imported, f"{path} could read the environment"
    assert os.environ["CI"] == "false"


async def test_with_the_flags_off_nothing_starts_and_the_server_is_ready(data: Path, serve: Serve) -> None:
    async with (
        serve(data, reply_enabled="false", artifact_enabled="true") as running,
        httpx2.AsyncClient(base_url=running.address, trust_env=False) as client,
    ):
        worker = running.process.worker
        assert worker is not None
        assert not worker._loops
        assert worker.snapshot() == WorkerSnapshot(False, False, False, False, artifact_configured=True)
        assert (await client.get("/readyz")).status_code == 200
        session = await client.post("/api/v1/session", json={"username": "owner", "password": PASSWORD})
        assert session.status_code == 201


# ---------------------------------------------------------------------------------------------- refusing to start


def test_a_taken_port_is_one_sentence() -> None:
    first = serving.listening_socket("127.0.0.1", 0)
    port = first.getsockname()[1]
    with pytest.raises(serving.StartRefused, match=f"port {port} on 127.0.0.1 cannot be taken"):
        serving.listening_socket("127.0.0.1", port)
    first.close()
