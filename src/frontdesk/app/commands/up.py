"""`frontdesk up`: server, simulator and a ready-made example, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from frontdesk.app.children import Child, start_child
from frontdesk.app.commands.options import data_option, plain_failures
from frontdesk.app.example import Example, open_example, owner_token
from frontdesk.app.installing import initialise
from frontdesk.app.serving import StartRefused
from frontdesk.app.settings import data_folder, load_settings


@click.command()
@data_option
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Of the server.")
@click.option(
    "--simulator-port", type=click.IntRange(0, 65535), default=8790, show_default=True, help="Of the chat page."
)
@plain_failures
def up(data: str | None, port: int, simulator_port: int) -> None:
    """Start everything with a ready-made example: the server, the simulator and a chat you can write in."""
    code = asyncio.run(_up(data_folder(data).resolve(), port, simulator_port))
    raise SystemExit(code)


async def _up(data: Path, port: int, simulator_port: int) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    children: list[Child] = []
    work = asyncio.ensure_future(_run(data, port, simulator_port, children))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await work
            return 0
        return work.result()
    finally:
        stopped.cancel()
        await asyncio.gather(*(child.stop() for child in children))


async def _run(data: Path, port: int, simulator_port: int, children: list[Child]) -> int:
    if not (data / "secrets.env").exists():
        made = await asyncio.to_thread(initialise, data, None)
        click.echo(f"Made {data}. Password of user `owner`, shown once: {made.password}")
    with _waiting("Starting the simulator and the server"):
        example = await start_parts(data, port, simulator_port, children)
    try:
        with _waiting("Making the example: connection, binding, authorisation"):
            await _while_they_live(children, prepare(example, data))
        click.echo(f"Chat page  {example.chat_page}")
        click.echo(f"Server     {example.server}/")
        click.echo("ready")
        await _watch(children)
    finally:
        await example.close()
    return 0


async def start_parts(
    data: Path,
    port: int,
    simulator_port: int,
    children: list[Child],
    environment: dict[str, str] | None = None,
) -> Example:
    """Start the simulator, then the server that is pointed at it; the clients of both."""
    simulator = await start_child(
        "simulator",
        [
            *("simulator", "--data", str(data), "--port", str(simulator_port), "--exit-with-stdin"),
            *("--state", str(data / "simulator.db")),
        ],
        data,
    )
    children.append(simulator)
    server = await start_server(data, port, simulator.address, environment)
    children.append(server)
    token = await owner_token(data)
    secret = load_settings(data).simulator_token.get_secret_value()
    return open_example(server.address, simulator.address, token, secret)


async def start_server(data: Path, port: int, simulator: str, environment: dict[str, str] | None = None) -> Child:
    """Start `frontdesk serve` against a simulator."""
    given = environment or {}
    words = ["serve", "--data", str(data), "--port", str(port), "--exit-with-stdin"]
    if "FRONTDESK_FAILPOINTS" in given:
        words.append("--allow-failpoints")
    settings = {"FRONTDESK_FEISHU_DOMAIN": simulator, "FRONTDESK_SHUTDOWN_GRACE": "15s"}
    return await start_child("serve", words, data, settings | given)


async def prepare(example: Example, data: Path) -> None:
    """Make the example; a token that has ended meanwhile is made anew."""
    if await example.unknown():
        example.api.headers["Authorization"] = f"Bearer {await owner_token(data, renew=True)}"
    await example.prepare()


async def _while_they_live(children: list[Child], work: Coroutine[Any, Any, None]) -> None:
    """Do the work; a child that ends meanwhile is the reason to give, not the call that failed because of it."""
    watch, task = asyncio.ensure_future(_watch(children)), asyncio.ensure_future(work)
    try:
        await asyncio.wait({watch, task}, return_when=asyncio.FIRST_COMPLETED)
        if task.done() and task.exception() is not None:
            await asyncio.wait({watch}, timeout=1)
        await (watch if watch.done() else task)
    finally:
        watch.cancel()
        task.cancel()
        await asyncio.wait({watch, task})


async def _watch(children: list[Child]) -> None:
    """Return never: a child that ends by itself ends `up` with a sentence."""
    ends = {asyncio.ensure_future(child.ended()): child for child in children}
    try:
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        child = ends[done.pop()]
        raise StartRefused(f"{child.name} ended by itself: {child.sentence()}")
    finally:
        for task in ends:
            task.cancel()


@contextlib.contextmanager
def _waiting(text: str):  # type: ignore[no-untyped-def]
    """A spinner on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(text):
        yield
