"""Verified, durable callbacks per second: Frontdesk against a plain handler, in the same run.

    python -m bench.ingest [--seconds 6] [--connections 32] [--rounds 3]

The plain handler is what one writes first: FastAPI, the vendor SDK's dispatcher in strict mode on the thread pool, one
SQLite commit for each push (WAL, synchronous=FULL), 200 afterwards. It runs twice: `plain` as the SDK's own `fastapi`
extra installs it (uvicorn on asyncio with h11), `tuned` with the server parts that Frontdesk uses (uvloop, httptools).
Frontdesk is the production application with its worker off; a push becomes a receipt of a bound person's reply under a
grant. One process each, on loopback; the load comes from a third process over keep-alive connections with pushes signed
beforehand.

Constant overridden here, and only here: the budget of an installation's pushes per second, which exists to slow such a
load down. Messages per minute of a sender and open receipts of a grant keep their bounds: enough people write.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import base64
import functools
import hashlib
import json
import multiprocessing
import os
import platform
import shutil
import signal
import socket
import sqlite3
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from bench.plain import serve_plain

ENCRYPT_KEY = "bench-encrypt-key"
TOKEN = "bench-verification-token"
APP, TENANT = "cli_bench", "tenant-bench"
PEOPLE = 2_000  # a round's pushes stay below 20 open receipts of each person's grant


@dataclass(frozen=True)
class Push:
    """One signed request, ready for the wire but for its path."""

    headers: bytes
    body: bytes


def signed(payload: dict[str, Any], number: int) -> Push:
    """Encrypt and sign as the provider does."""
    key = hashlib.sha256(ENCRYPT_KEY.encode()).digest()
    iv = hashlib.md5(str(number).encode(), usedforsecurity=False).digest()
    padder = padding.PKCS7(128).padder()
    plain = padder.update(json.dumps(payload, ensure_ascii=False).encode()) + padder.finalize()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    cipher = base64.b64encode(iv + encryptor.update(plain) + encryptor.finalize()).decode()
    body = b'{"encrypt":"' + cipher.encode() + b'"}'  # without blanks, as the provider writes it
    timestamp, nonce = str(int(time.time())), f"n{number}"
    signature = hashlib.sha256(f"{timestamp}{nonce}{ENCRYPT_KEY}".encode() + body).hexdigest()
    headers = (
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nX-Lark-Request-Timestamp: {timestamp}\r\n"
        f"X-Lark-Request-Nonce: {nonce}\r\nX-Lark-Signature: {signature}\r\n\r\n"
    ).encode()
    return Push(headers, body)


def message(number: int, person: int, target: str) -> dict[str, Any]:
    """An `im.message.receive_v1` event of about 1 KB."""
    now = str(int(time.time() * 1000))
    return {
        "schema": "2.0",
        "header": {
            "event_id": f"evt-{number}",
            "event_type": "im.message.receive_v1",
            "create_time": now,
            "token": TOKEN,
            "app_id": APP,
            "tenant_key": TENANT,
        },
        "event": {
            "sender": {
                "sender_id": {"open_id": f"ou_{person}", "union_id": f"on_{person}", "user_id": f"u{person}"},
                "sender_type": "user",
                "tenant_key": TENANT,
            },
            "message": {
                "message_id": f"om_{number}",
                "root_id": target,
                "parent_id": target,
                "create_time": now,
                "chat_id": f"oc_{person}",
                "chat_type": "p2p",
                "message_type": "text",
                "content": json.dumps({"text": f"question {number} " + "x" * 200}),
                "mentions": [],
            },
        },
    }


# ------------------------------------------------------------------------------------------------- Frontdesk


def serve_frontdesk(data: str, sock: socket.socket) -> None:
    """The production application, worker off, the installation's budget lifted."""
    from frontdesk.app.serving import run, settle_memory, web_server
    from frontdesk.app.settings import load_settings
    from frontdesk.app.telemetry import configure_logging
    from frontdesk.app.wiring import Process
    from frontdesk.kernel import limits

    lift(limits)
    folder = Path(data)
    settings = load_settings(folder)
    configure_logging("warning")

    async def main() -> None:
        process = Process(settings, folder, with_worker=False, port=sock.getsockname()[1])
        await process.start()
        settle_memory()
        server = web_server(process, settings)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: setattr(server, "should_exit", True))
        await server.serve(sockets=[sock])
        shared = process.database.grouped / max(1, process.database.commits)  # type: ignore[attr-defined]
        print(f"  {shared:.1f} pushes shared a commit on average", flush=True)
        await process.stop()

    run(main())


def lift(limits: Any) -> None:
    """Take the installation's budget away; see the module."""
    limits.CALLBACK_RATE_PER_SECOND = 1_000_000
    limits.CALLBACK_BURST = 1_000_000


@functools.cache
def prepared_folder() -> tuple[Path, str, list[str]]:
    """A data folder with one connection, bound people and grants whose activation is `sent`; made once, copied.

    (folder, callback path, targets).
    """
    from bench.world import make_world

    folder = Path(tempfile.mkdtemp(prefix="frontdesk-bench-world-"))
    atexit.register(shutil.rmtree, folder)
    return folder, *make_world(folder, APP, TENANT, encrypt_key=ENCRYPT_KEY, token=TOKEN, people=PEOPLE)


def make_frontdesk(data: Path) -> tuple[str, list[str]]:
    """A copy of the prepared folder: (callback path, targets)."""
    folder, path, targets = prepared_folder()
    shutil.copytree(folder, data, dirs_exist_ok=True)
    return path, targets


# ------------------------------------------------------------------------------------------------- load


async def drive(
    port: int, path: str, pushes: list[Push], connections: int, seconds: float
) -> tuple[float, list[float]]:
    """Send pushes over keep-alive connections until the time is over: (pushes a second, latencies in seconds)."""
    latencies: list[float] = []
    queue = iter(pushes)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()
    end = time.perf_counter() + seconds
    wrong = 0

    async def one() -> None:
        nonlocal wrong
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for push in queue:
            started = time.perf_counter()
            if started > end:
                break
            writer.write(head + push.headers + push.body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            latencies.append(time.perf_counter() - started)
            wrong += not answer.startswith(b"HTTP/1.1 200")
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    took = time.perf_counter() - began
    if wrong:
        raise SystemExit(f"{wrong} pushes were not acknowledged: no figure")
    return len(latencies) / took, latencies


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the sorted values lie, in milliseconds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000


def free_socket() -> socket.socket:
    """A listening socket on a free loopback port."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    sock.listen(2048)
    return sock


def run_round(number: int, seconds: float, connections: int, which: str) -> tuple[float, float, float]:
    """One fresh server and database; (pushes a second, p50 ms, p99 ms)."""
    with tempfile.TemporaryDirectory(prefix="frontdesk-bench-") as folder:
        sock = free_socket()
        count = int(seconds * 6000)
        if which != "frontdesk":
            path, targets = "/events", ["om_target"] * PEOPLE
            database = str(Path(folder) / "plain.db")
            process = multiprocessing.Process(
                target=serve_plain, args=(database, sock, ENCRYPT_KEY, TOKEN, which == "tuned")
            )
        else:
            path, targets = make_frontdesk(Path(folder))
            process = multiprocessing.Process(target=serve_frontdesk, args=(folder, sock))
        pushes = [signed(message(i, i % PEOPLE, targets[i % PEOPLE]), i) for i in range(count)]
        process.start()
        try:
            wait_until_answering(sock.getsockname()[1])
            asyncio.run(drive(sock.getsockname()[1], path, pushes[:200], connections, 5))
            before = processor_seconds(process.pid)
            rate, latencies = asyncio.run(drive(sock.getsockname()[1], path, pushes[200:], connections, seconds))
            cost_us = (processor_seconds(process.pid) - before) / max(1, len(latencies)) * 1e6
        finally:
            process.terminate()
            process.join(20)
            sock.close()
    p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
    print(
        f"  round {number} {which:10s} {rate:7.0f}/s   p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   "
        f"{cost_us:5.0f} us of processor a push",
        flush=True,
    )
    return rate, p50, p99


def processor_seconds(pid: int | None) -> float:
    """User and system time a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_answering(port: int) -> None:
    """Until the server answers anything."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
                sock.settimeout(1)
                sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                if sock.recv(16):
                    return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the server did not start")


def main() -> None:
    """Print the machine, each round and the median ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    multiprocessing.set_start_method("spawn")
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}, "
        f"SQLite {sqlite3.sqlite_version}; "
        f"{options.connections} connections, {options.seconds:g} s a round, servers in turn"
    )
    seen: dict[str, list[tuple[float, float, float]]] = {"plain": [], "tuned": [], "frontdesk": []}
    for number in range(1, options.rounds + 1):
        for which, rounds in seen.items():
            rounds.append(run_round(number, options.seconds, options.connections, which))
    for which in ("plain", "tuned"):
        pairs = list(zip(seen["frontdesk"], seen[which], strict=True))
        rate = statistics.median(ours[0] / theirs[0] for ours, theirs in pairs)
        tail = statistics.median(ours[2] / theirs[2] for ours, theirs in pairs)
        half = statistics.median(ours[2] / theirs[1] for ours, theirs in pairs)
        print(f"against {which:6s} median ratio {rate:.2f}; p99 {tail:.2f} of its p99, {half:.2f} of its p50")


if __name__ == "__main__":
    main()
