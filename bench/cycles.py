"""Whole cycles a second: a signed push becomes a receipt, a turn and a reply that the provider has acknowledged.

    python -m bench.cycles [--people 300] [--messages 4] [--rounds 3] [--engine postgresql]

Each cycle is the full path: callback, claim, turn, two commits of the answer, delivery, one wire request, and its
confirmation. The runner answers at once; the provider is the simulator in a process of its own, the load comes from
here. On PostgreSQL procrastinate runs as many jobs that do nothing, deferred one by one before, on the same server in
the same run, with as many at once (16). Reception's budget of an installation is lifted as in `bench.ingest`; the pace
of five messages a second to one chat is kept, so many people write.

Needs `make setup-bench` for procrastinate; without it that part is left out and said so.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import multiprocessing
import os
import platform
import signal
import socket
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.ingest import (
    ENCRYPT_KEY,
    TOKEN,
    Push,
    drive,
    free_socket,
    lift,
    processor_seconds,
    signed,
    wait_until_answering,
)
from bench.scale import server
from bench.world import make_world

AT_ONCE = 16
SIM_TOKEN = "bench-simulator-token"
SECRET = "bench-app-secret"


class Instant:
    """A runner that answers at once."""

    name = "demo"

    def __init__(self) -> None:
        from frontdesk.desk.conversations.runner import RunnerCapabilities

        self.capabilities = RunnerCapabilities(
            tools=False, proposals=False, progress=False, answer_only=True, keeps_process=False
        )

    async def run(self, request: Any, toolbox: Any, progress: Any, cancel: Any) -> Any:  # noqa: ARG002
        """See `Runner.run`."""
        from frontdesk.desk.conversations.runner import Answer

        return Answer("answered: " + request.text)

    async def replaceable(self, conversation_id: str, within_ms: int = 5_000) -> Any:  # noqa: ARG002
        """See `Runner.replaceable`."""
        from frontdesk.desk.conversations.runner import Replaceability

        return Replaceability.YES

    async def check(self) -> Any:
        """See `Runner.check`."""
        from frontdesk.desk.conversations.runner import RunnerReport

        return RunnerReport(self.name, configured=True, reachable=True, answer_only=True)

    async def close(self, within_ms: int) -> None:
        """See `Runner.close`."""


def serve_simulator(port: int) -> None:
    """The stand-in, in memory."""
    from frontdesk.simulator.config import SimulatorConfig
    from frontdesk.simulator.server import run

    sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - for as long as the process lives
    run(SimulatorConfig(token=SIM_TOKEN, port=port, redeliver=False))


def serve_frontdesk(data: str, sock: socket.socket) -> None:
    """The production application with its worker and the instant runner."""
    from frontdesk.app.serving import run, settle_memory, web_server
    from frontdesk.app.settings import load_settings
    from frontdesk.app.telemetry import configure_logging
    from frontdesk.app.wiring import Outside, Process
    from frontdesk.kernel import limits

    lift(limits)
    settings = load_settings(Path(data))
    configure_logging("warning")

    async def main() -> None:
        outside = Outside(runners={"demo": Instant()})
        process = Process(settings, Path(data), with_worker=True, outside=outside, port=sock.getsockname()[1])
        await process.start()
        settle_memory()
        web = web_server(process, settings)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: setattr(web, "should_exit", True))
        await web.serve(sockets=[sock])
        await process.stop()

    run(main())


def control(port: int, path: str, body: dict[str, Any] | None = None) -> Any:
    """One control request to the stand-in."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/_sim/{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {SIM_TOKEN}", "Content-Type": "application/json"},
        method="GET" if body is None else "POST",
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def event(app: dict[str, Any], person: dict[str, Any], message_id: str, target: str) -> dict[str, Any]:
    """The push of one message."""
    now = str(int(time.time() * 1000))
    return {
        "schema": "2.0",
        "header": {
            "event_id": f"evt-{message_id}", "event_type": "im.message.receive_v1", "create_time": now, "token": TOKEN,
            "app_id": app["app_id"], "tenant_key": app["tenant_key"],
        },
        "event": {
            "sender": {
                "sender_id": {"open_id": person["open_id"]}, "sender_type": "user", "tenant_key": app["tenant_key"],
            },
            "message": {
                "message_id": message_id, "root_id": target, "parent_id": target, "create_time": now,
                "chat_id": person["chat_id"], "chat_type": "p2p", "message_type": "text",
                "content": json.dumps({"text": f"question {message_id}"}), "mentions": [],
            },
        },
    }  # fmt: skip


def prepare(port: int, data: Path, people: int, messages: int) -> tuple[str, list[Push]]:
    """People and their messages at the stand-in, their bindings and grants here: (callback path, signed pushes)."""
    app = control(
        port, "apps", {"name": "bench", "app_secret": SECRET, "encrypt_key": ENCRYPT_KEY, "verification_token": TOKEN}
    )
    persons = [control(port, "people", {"name": f"p{n}", "app_id": app["app_id"]}) for n in range(people)]
    path, targets = make_world(
        data, app["app_id"], app["tenant_key"], encrypt_key=ENCRYPT_KEY, token=TOKEN, people=people, secret=SECRET,
        chats=[(person["open_id"], person["chat_id"]) for person in persons],
    )  # fmt: skip
    pushes: list[Push] = []
    for number in range(people * messages):
        person = persons[number % people]
        sent = control(port, "send", {"app_id": app["app_id"], "person": person["open_id"], "text": "hello"})
        pushes.append(signed(event(app, person, sent["message_id"], targets[number % people]), number))
    return path, pushes


@contextlib.contextmanager
def child(target: Any, *arguments: Any) -> Iterator[Any]:
    """A process for as long as it is needed."""
    process = multiprocessing.Process(target=target, args=arguments)
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        process.join(40)


def one_round(engine: str, people: int, messages: int) -> tuple[float, float | None]:
    """(cycles a second, procrastinate's jobs a second)."""
    with tempfile.TemporaryDirectory(prefix="frontdesk-cycles-") as folder, server(engine) as env:
        with free_socket() as probe:
            sim_port = probe.getsockname()[1]
        os.environ.update(
            {
                **env,
                "FRONTDESK_FEISHU_DOMAIN": f"http://127.0.0.1:{sim_port}",
                "FRONTDESK_WORKER_RECEIPTS": str(AT_ONCE),
            }
        )
        with child(serve_simulator, sim_port), free_socket() as sock:
            wait_until_answering(sim_port)
            path, pushes = prepare(sim_port, Path(folder), people, messages)
            port = sock.getsockname()[1]
            with child(serve_frontdesk, folder, sock) as process:
                wait_until_answering(port)
                before, started = processor_seconds(process.pid), time.perf_counter()
                asyncio.run(drive(port, path, pushes, AT_ONCE, 600))
                wait_for(sim_port, len(pushes), started)
                took = time.perf_counter() - started
                cost = (processor_seconds(process.pid) - before) / len(pushes) * 1e3
        jobs = asyncio.run(procrastinate_jobs(env["FRONTDESK_DATABASE_URL"], len(pushes))) if env else None
        for name in (*env, "FRONTDESK_FEISHU_DOMAIN", "FRONTDESK_WORKER_RECEIPTS"):
            del os.environ[name]
    shown = f"procrastinate {jobs:6.0f} jobs/s" if jobs else ""
    print(
        f"  {engine:10s} {len(pushes) / took:6.0f} cycles/s   {cost:5.2f} ms of processor a cycle   {shown}", flush=True
    )
    return len(pushes) / took, jobs


def wait_for(port: int, count: int, started: float) -> None:
    """Until the stand-in has accepted that many replies."""
    while time.perf_counter() - started < 600:
        seen = control(port, "requests?kind=reply&limit=1").get("counts", {})
        if seen.get("reply", 0) >= count:
            return
        time.sleep(0.1)
    raise SystemExit("not every message was answered: no figure")


async def procrastinate_jobs(url: str, count: int) -> float | None:
    """No-op jobs a second at the same concurrency on the same server; deferred before the clock starts."""
    if importlib.util.find_spec("procrastinate") is None:
        print("  procrastinate is not installed: left out (make setup-bench)")
        return None
    import procrastinate

    connector = procrastinate.PsycopgConnector(conninfo=url.replace("+psycopg", ""), max_size=AT_ONCE + 4)
    app = procrastinate.App(connector=connector)

    @app.task(name="nothing")
    async def nothing() -> None:
        """Do nothing."""

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for _ in range(count):
            await nothing.defer_async()
        started = time.perf_counter()
        await app.run_worker_async(concurrency=AT_ONCE, wait=False, listen_notify=False, install_signal_handlers=False)
        return count / (time.perf_counter() - started)


def main() -> None:
    """Rounds on each engine, and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, default=300)
    parser.add_argument("--messages", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", choices=("sqlite", "postgresql"))
    options = parser.parse_args()
    multiprocessing.set_start_method("spawn")
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}; {AT_ONCE} at once")
    for engine in [options.engine] if options.engine else ["sqlite", "postgresql"]:
        rounds = [one_round(engine, options.people, options.messages) for _ in range(options.rounds)]
        ratios = [ours / theirs for ours, theirs in rounds if theirs]
        line = f"{engine}: median {statistics.median(ours for ours, _ in rounds):.0f} cycles/s"
        print(line + (f", {statistics.median(ratios):.2f} of procrastinate's no-op jobs" if ratios else ""))


if __name__ == "__main__":
    main()
