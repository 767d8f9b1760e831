"""Real processes on a real database, spoken to over real HTTP, and a stand-in provider that counts what reaches it.

A `House` is one data folder (and, on PostgreSQL, one database) with its simulator and its server processes. Everything
in it was made by the product's own commands and API; rows are only ever read here, for counting.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from psycopg.rows import dict_row

from frontdesk.app.example import Example, open_example, owner_token
from frontdesk.app.settings import load_settings
from tests.support import secrecy
from tests.support.processes import guarded_environment

LEASE = "26s"  # the shortest that desk.md 8.3 allows
LAPSE_S = 60.0  # waiting for a lease to lapse and its row to be judged, on a busy machine
WAIT_S = 30.0
READY_S = 60.0
POLL_S = 0.1
SLOW_POLL_S = 0.4
# Starting Python is what costs; two at a time is what a small machine has room for.
STARTS_AT_ONCE = 2
DEFECTS = re.compile(r"Traceback|worker\.step_failed|inbox\.defect|sending\.defect|sending\.raised|inbox\.begin_failed")

_starts: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}


def _start_slot() -> asyncio.Semaphore:
    loop = asyncio.get_running_loop()
    if loop not in _starts:
        _starts.clear()
        _starts[loop] = asyncio.Semaphore(STARTS_AT_ONCE)
    return _starts[loop]


async def until(
    what: str, check: Callable[[], Any | Awaitable[Any]], wait_s: float = WAIT_S, poll_s: float = POLL_S
) -> Any:
    """Poll until `check` gives something; fails with `what` and the last look where it never does."""
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        found = check()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"waited {wait_s:.0f} s in vain for {what}")
        await asyncio.sleep(poll_s)


def free_port() -> int:
    """A port for this process alone, until it ends: below the range that outgoing connections take theirs from, and
    reserved against other test processes by an abstract socket of its number.
    """
    for _ in range(200):
        port = random.randint(20_000, 32_000)
        mark = socket.socket(socket.AF_UNIX)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                mark.bind(f"\0frontdesk-e2e-{port}")
                probe.bind(("127.0.0.1", port))
            except OSError:
                mark.close()
                continue
        mark.detach()  # held until this process ends
        return port
    raise AssertionError("no free port")


class Program:
    """One child process with its output in a file."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log
        self.address = ""

    @property
    def text(self) -> str:
        """All it has printed so far, both streams."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    async def ready(self, pattern: str) -> str:
        """Wait for the line that says it serves; its address."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.text, re.MULTILINE)
            assert found or self.running, f"{self.name} ended with {self.process.returncode}:\n{self.text[-2000:]}"
            return found

        found = await until(f"{self.name} to be ready", look, READY_S, 0.02)
        self.address = found[1] if found.groups() else ""
        return self.address

    async def ended(self, wait_s: float = WAIT_S) -> int:
        """Wait for its own end; the exit status."""
        await until(f"{self.name} to end", lambda: not self.running, wait_s, 0.02)
        return int(self.process.returncode)

    async def terminate(self, wait_s: float = WAIT_S) -> int:
        """SIGTERM, then its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return await self.ended(wait_s)

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(10)

    def clear(self) -> None:
        """End it and whatever it started, for certain. A number whose process was waited for is no longer its own."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)


def start(
    name: str,
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    directory: Path | None = None,
    stdin: bytes | None = None,
) -> Program:
    """Start `frontdesk <words>` under the network guard; its output goes to a log of its own in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{len(list(folder.iterdir())):03}-{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "frontdesk", *words],
            env=guarded_environment(environment),
            cwd=directory,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    if stdin is not None:
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
    return Program(name, process, log)


async def run(
    name: str, words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None, **more: Any
) -> Program:
    """Run `frontdesk <words>` to its end."""
    async with _start_slot():
        program = start(name, words, folder, environment, **more)
        try:
            await program.ended(90)
        finally:
            program.clear()
    return program


@dataclass
class House:
    """One data folder, its database, its processes."""

    engine: str
    data: Path
    database_url: str
    port: int = field(default_factory=free_port)
    environment: dict[str, str] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)
    clients: list[httpx2.AsyncClient] = field(default_factory=list)
    simulator: str = ""
    server: Program | None = None
    example: Example = None  # type: ignore[assignment]

    # ------------------------------------------------------------------------------------------ processes

    @property
    def logs(self) -> Path:
        return self.data / "logs"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def stage(self) -> Path:
        """The folder that steers runner and clock of this house's servers (`app/rehearsal.py`)."""
        folder = self.data / "stage"
        folder.mkdir(exist_ok=True)
        return folder

    def settings(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of this house's processes."""
        values = {"FRONTDESK_LEASE": LEASE, "FRONTDESK_TEST_STAGE": str(self.stage)}
        if self.engine == "postgresql":
            values["FRONTDESK_DATABASE_URL"] = self.database_url
        if self.simulator:
            values["FRONTDESK_FEISHU_DOMAIN"] = self.simulator
        return values | self.environment | dict(more or {})

    async def init(self) -> Program:
        """`frontdesk init`; the password is in its output."""
        environment = {"FRONTDESK_DATABASE_URL": self.database_url} if self.engine == "postgresql" else {}
        # The log lies outside the folder that the command has to make.
        made = await run(
            "init", ["init", "--data", str(self.data)], self.data.with_name(self.data.name + "-init"), environment
        )
        assert made.process.returncode == 0, made.text
        return made

    async def start_simulator(self, *words: str) -> str:
        """`frontdesk simulator` on this data folder, its world kept in a file."""
        given = [
            "simulator",
            "--data",
            str(self.data),
            "--port",
            "0",
            "--state",
            str(self.data / "simulator.db"),
            *words,
        ]
        async with _start_slot():
            program = start("simulator", given, self.logs)
            self.programs.append(program)
            self.simulator = await program.ready(r"^simulator ready (\S+)$")
        return self.simulator

    async def serve(
        self, *words: str, failpoint: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Program:
        """`frontdesk serve` on this house's port; `failpoint` is where it will kill itself."""
        more = dict(environment or {})
        if failpoint is not None:
            more["FRONTDESK_FAILPOINTS"] = f"{failpoint}=kill"
        given = ["serve", "--data", str(self.data), "--port", str(self.port), "--allow-failpoints", *words]
        async with _start_slot():
            program = start("serve", given, self.logs, self.settings(more))
            self.programs.append(program)
            await program.ready(r"^frontdesk ready (\S+)$")
        self.server = program
        return program

    async def work(self, environment: Mapping[str, str] | None = None) -> Program:
        """`frontdesk work`: a worker without web surface."""
        async with _start_slot():
            program = start(
                "work", ["work", "--data", str(self.data), "--allow-failpoints"], self.logs, self.settings(environment)
            )
            self.programs.append(program)
            await program.ready(r"^frontdesk worker ready$")
        return program

    async def listener(
        self, installation_id: str, *, failpoint: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Program:
        """`frontdesk listen` for one connection, connected; `failpoint` is where it will kill itself."""
        program = await self.start_listener(installation_id, failpoint=failpoint, environment=environment)
        await program.ready(r"^frontdesk listener ready$")
        return program

    async def start_listener(
        self, installation_id: str, *, failpoint: str | None = None, environment: Mapping[str, str] | None = None
    ) -> Program:
        """The same, not waited for."""
        more = dict(environment or {})
        if failpoint is not None:
            more["FRONTDESK_FAILPOINTS"] = f"{failpoint}=kill"
        given = ["listen", "--data", str(self.data), "--installation", installation_id, "--allow-failpoints"]
        async with _start_slot():
            program = start("listen", given, self.logs, self.settings(more))
            self.programs.append(program)
        return program

    async def meet(self, **known: Any) -> Example:
        """Clients for server and simulator with the owner's token; `known` is what was made before."""
        token = await self._token()
        example = open_example(self.address, self.simulator, token, self.simulator_token)
        self.clients += [example.api, example.sim]
        for name, value in known.items():
            setattr(example, name, value)
        self.example = example
        return example

    async def _token(self) -> str:
        path = self.data / "owner.token"
        if path.exists():
            return path.read_text(encoding="ascii").strip()
        if self.engine == "sqlite":
            return await owner_token(self.data)
        os.environ["FRONTDESK_DATABASE_URL"] = self.database_url
        try:
            return await owner_token(self.data)
        finally:
            del os.environ["FRONTDESK_DATABASE_URL"]

    @property
    def simulator_token(self) -> str:
        return load_settings(self.data, {}).simulator_token.get_secret_value()

    def client(self, token: str = "") -> httpx2.AsyncClient:
        """An API client of somebody else."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        client = httpx2.AsyncClient(base_url=self.address, headers=headers, timeout=30, trust_env=False)
        self.clients.append(client)
        return client

    async def listen(self) -> None:
        """Tell the simulator where this house's app is to be pushed, with the provider's URL check."""
        await self.example.push_to(self.address + self.example.installation["callback_path"])

    async def close(self, *, check: bool = True) -> None:
        """End every process; then nothing in their logs may be a defect."""
        for client in self.clients:
            await client.aclose()
        for program in self.programs:
            program.clear()
        if check:
            for program in self.programs:
                found = DEFECTS.findall(program.text)
                assert not found, f"{program.log.name}: {found}\n{program.text[-3000:]}"
                told = secrecy.leaks(program.text) if program.name in ("serve", "work") else []
                assert not told, f"{program.log.name} tells {told}"

    # ------------------------------------------------------------------------------------------ looking

    def rows(self, table: str, **where: Any) -> list[dict[str, Any]]:
        """Rows of one table, oldest first; read, never written."""
        condition = " AND ".join(f"{name} = ?" for name in where) or "1 = 1"
        statement = f'SELECT * FROM "{table}" WHERE {condition} ORDER BY created_at'
        return self.query(statement, *where.values())

    def query(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """A SELECT on this house's database."""
        if self.engine == "postgresql":
            url = self.database_url.replace("postgresql+psycopg", "postgresql")
            with psycopg.connect(url, row_factory=dict_row, connect_timeout=10) as connection:
                return connection.execute(statement.replace("?", "%s"), values).fetchall()  # type: ignore[arg-type]
        with contextlib.closing(sqlite3.connect(self.data / "frontdesk.db", timeout=20)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(statement, values)]

    def receipt(self, message: str) -> dict[str, Any]:
        """The one receipt of a message."""
        (found,) = self.rows("receipts", provider_message_id=message)
        return found

    def delivery(self, message: str) -> dict[str, Any]:
        """The one delivery of a message."""
        (found,) = self.rows("deliveries", receipt=self.receipt(message)["id"])
        return found

    def delivery_is(self, message: str, status: str) -> bool:
        """Whether the message has led to its one delivery, and that has this status."""
        receipts = self.rows("receipts", provider_message_id=message)
        found = self.rows("deliveries", receipt=receipts[0]["id"]) if receipts else []
        assert len(receipts) <= 1
        assert len(found) <= 1
        return bool(found) and found[0]["status"] == status

    async def answered(self, *messages: str) -> None:
        """Wait until each message has its one answer in the chat, and our own note that it was sent."""
        for message in messages:
            await until("an answer to be sent", lambda message=message: self.delivery_is(message, "sent"))
            assert len(await self.example.answers_to(message)) == 1

    def counts(self) -> dict[str, int]:
        """How many rows each table has; what lives by the second is left out."""
        if self.engine == "postgresql":
            named = self.query("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'")
        else:
            named = self.query("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        tables = sorted(row["name"] for row in named if row["name"] not in {"alembic_version", "workers"})
        assert "receipts" in tables
        return {table: self.query(f'SELECT count(*) AS n FROM "{table}"')[0]["n"] for table in tables}

    def asked(self) -> list[dict[str, Any]]:
        """Every call of the runner, with the history it was given."""
        path = self.stage / "asked"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def hold(self) -> None:
        """Let turns wait in the runner."""
        self.order("hold")

    def release(self) -> None:
        """Let them go on."""
        self.order("")

    def fail(self, code: str) -> None:
        """Let turns fail with a runner's code."""
        self.order(f"fail {code}")

    def order(self, text: str) -> None:
        """Write the runner's order; see `app/rehearsal.py`."""
        draft = self.stage / "runner.new"
        draft.write_text(text)
        draft.replace(self.stage / "runner")

    def step_pulse(self, seconds: int) -> None:
        """Set the processes' monotonic clock so far ahead of the machine's: as if that long had passed."""
        draft = self.stage / "pulse.new"
        draft.write_text(str(seconds * 1_000_000))
        draft.replace(self.stage / "pulse")

    async def step_clock(self, seconds: int) -> None:
        """Set the time of day of this house so far ahead of the machine's: the processes' and the database's.

        On PostgreSQL a session takes the stepped clock up when it connects: call it once, with 0, before a server
        starts.
        """
        draft = self.stage / "clock.new"
        draft.write_text(str(seconds * 1_000_000))
        draft.replace(self.stage / "clock")
        if self.engine == "postgresql":
            await asyncio.to_thread(self._step_database_clock, seconds)

    def _step_database_clock(self, seconds: int) -> None:
        url = self.database_url.replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(
                "CREATE OR REPLACE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
                f"$$ SELECT pg_catalog.clock_timestamp() + interval '{seconds:d} seconds' $$"
            )
            connection.execute(
                "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', "
                "current_database()); END $$"
            )

    async def held(self, count: int = 1) -> None:
        """Wait until so many turns are in the runner."""
        await until(f"{count} turns in the runner", lambda: len(self.asked()) >= count)

    async def wires(self) -> list[dict[str, Any]]:
        """What this house's app asked the provider for: every request that can make a message appear."""
        return await wires_of(self.example)


async def wires_of(example: Example) -> list[dict[str, Any]]:
    """The wire requests of one app, oldest first."""
    seen = await example.simulate("GET", "/_sim/requests", params={"app_id": example.app["app_id"], "limit": 10_000})
    return [row for row in seen["items"] if row["kind"] in {"create", "reply"}]


def once_each(wires: list[dict[str, Any]]) -> None:
    """No operation asked twice: its uuid is its own, and every wire request has one."""
    uuids = [row["uuid"] for row in wires]
    assert all(uuids), wires
    assert len(uuids) == len(set(uuids)), f"an operation was sent twice: {uuids}"


async def chat(example: Example) -> list[dict[str, Any]]:
    """All messages of the app's chats, oldest first."""
    query = {"app_id": example.app["app_id"], "limit": 10_000}
    return list((await example.simulate("GET", "/_sim/messages", params=query))["items"])


async def newest_of_bot(example: Example) -> str:
    """The bot's newest message in the chat."""
    return str([item for item in await chat(example) if item["sender_type"] == "app"][-1]["message_id"])


async def say(example: Example, text: str, reply_to: str | None = "newest_bot", **more: Any) -> str:
    """A message of the example's person; its message id. `wait=True` returns after the first push was answered."""
    secrecy.note(text, example.person["open_id"])
    body = {"app_id": example.app["app_id"], "person": example.person["open_id"], "text": text, **more}
    if reply_to is not None:
        body["reply_to"] = reply_to
    return str((await example.simulate("POST", "/_sim/send", json=body))["message_id"])


async def pushes_of(example: Example, message_id: str) -> list[dict[str, Any]]:
    """The pushes of one message with every attempt and its answer."""
    return list((await example.simulate("GET", "/_sim/pushes", params={"message_id": message_id}))["items"])


# ---------------------------------------------------------------------------------------------- prepared houses

APPS = 26
PREPARE_TRIES = 3
_KEPT = (
    "app_name",
    "title",
    "workspace_id",
    "project_id",
    "app",
    "person",
    "installation",
    "conversation_id",
    "grant_id",
)


@dataclass(frozen=True)
class Prepared:
    """A stopped house in which the owner has bound and authorised one private chat with each of several apps."""

    engine: str
    data: Path
    database: str  # name of the PostgreSQL database, "" on SQLite

    def known(self, number: int) -> dict[str, Any]:
        """What was made for one of the apps."""
        kept: list[dict[str, Any]] = json.loads((self.data / "examples.json").read_text())
        return kept[number]


async def prepare(house: House) -> None:
    """Fill a new house by its own commands, API and chat; stop it cleanly."""
    try:
        await house.init()
        await house.start_simulator()
        server = await house.serve()
        examples: list[Example] = []
        gate = asyncio.Semaphore(4)

        async def make(number: int) -> None:
            # What is there already is used again: a machine too busy for one step's patience gets another try.
            async with gate:
                for _ in range(PREPARE_TRIES - 1):
                    with contextlib.suppress(Exception):
                        await examples[number].prepare()
                        return
                await examples[number].prepare()

        for number in range(APPS):
            example = await house.meet(app_name=f"App {number:02}", title=f"Conversation {number:02}")
            examples.append(example)
        await asyncio.gather(*(make(number) for number in range(APPS)))
        kept = [{name: getattr(example, name) for name in _KEPT} for example in examples]
        assert await server.terminate() == 0
        (house.data / "examples.json").write_text(json.dumps(kept))
    finally:
        await house.close()
    shutil.rmtree(house.logs)


@contextlib.asynccontextmanager
async def closing(house: House) -> AsyncIterator[House]:
    """The house, ended afterwards; its logs are judged where the test itself went well."""
    try:
        yield house
    except BaseException:
        await house.close(check=False)
        raise
    await house.close()
