"""How soon a server is ready, what it holds and uses while nothing happens, and how soon a message is worked on.

    python -m bench.start [--seconds 10] [--messages 200]

*Ready* is from the start of `frontdesk serve` (web and worker, an initialised data folder) to its ready line; *memory*
is the resident set a second later; *idle* the processor time over `--seconds` without a request. *Start* is from the
commit of a receipt to the call of its runner, one message at a time, woken by the hint after the commit. SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.cycles import Instant
from bench.ingest import percentile, processor_seconds
from bench.world import make_world
from frontdesk.app.settings import load_settings
from frontdesk.app.wiring import Outside, Process
from frontdesk.desk import inbox
from frontdesk.desk.connections.channel import InboundMessage
from frontdesk.storage.tx import Tx


def resident_mib(pid: int) -> float:
    """The resident set of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def serve_once(folder: str, seconds: float) -> tuple[float, float, float]:
    """(seconds to ready, MiB, processor share while idle)."""
    command = [str(Path(sys.executable).with_name("frontdesk")), "serve", "--data", folder]
    started = time.perf_counter()
    environment = {**os.environ, "FRONTDESK_PORT": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        for line in server.stdout:
            if "ready" in line:
                break
        ready = time.perf_counter() - started
        time.sleep(1)
        memory, before = resident_mib(server.pid), processor_seconds(server.pid)
        time.sleep(seconds)
        idle = (processor_seconds(server.pid) - before) / seconds
        server.terminate()
        server.wait(40)
    return ready, memory, idle


class Noting(Instant):
    """Notes when it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: asyncio.Queue[float] = asyncio.Queue()

    async def run(self, request: Any, toolbox: Any, progress: Any, cancel: Any) -> Any:
        """See `Runner.run`."""
        self.asked.put_nowait(time.perf_counter())
        return await super().run(request, toolbox, progress, cancel)


async def start_latencies(folder: str, path: str, targets: list[str], messages: int) -> list[float]:
    """Seconds from a receipt's commit to its runner's call."""
    installation = path.split("/")[-2]
    runner = Noting()
    process = Process(
        load_settings(Path(folder)), Path(folder), with_worker=True, outside=Outside(runners={"demo": runner})
    )
    await process.start()
    latencies: list[float] = []
    for number in range(messages):
        person = number % len(targets)
        message = InboundMessage(
            app_id="cli_bench", tenant_key="tenant", event_id=f"e{number}", message_id=f"om_{number}",
            sender_id=f"ou_{person}", sender_type="user", chat_id=f"oc_{person}", chat_type="p2p", message_type="text",
            text="hello", parent_id=targets[person], root_id=None, created_at_ms=0, signed_at_ms=None,
            request_hash=f"{number:064x}",
        )  # fmt: skip

        def receive(tx: Tx, message: InboundMessage = message) -> None:
            received = inbox.receive(tx, installation, message, transport="webhook")
            assert received.outcome == "accepted", received

        await process.database.write(receive)
        committed = time.perf_counter()
        latencies.append(await asyncio.wait_for(runner.asked.get(), 30) - committed)
    await process.stop()
    return latencies


def main() -> None:
    """Three starts, and the latencies of one run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--messages", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="frontdesk-start-") as folder:
        path, targets = make_world(Path(folder), "cli_bench", "tenant", encrypt_key="k", token="t", people=40)
        seen = [serve_once(folder, options.seconds) for _ in range(3)]
        ready, memory, idle = (statistics.median(values) for values in zip(*seen, strict=True))
        print(f"serve: ready in {ready:.2f} s, {memory:.0f} MiB, {idle * 100:.1f} % of a core while idle (median of 3)")
        # Deliveries have nowhere to go: the provider's address is a port on which nothing listens.
        os.environ["FRONTDESK_FEISHU_DOMAIN"] = "http://127.0.0.1:9"
        latencies = asyncio.run(start_latencies(folder, path, targets, options.messages))
        p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
        print(f"from commit to the runner's call: p50 {p50:.1f} ms, p99 {p99:.1f} ms ({len(latencies)} messages)")


if __name__ == "__main__":
    main()
