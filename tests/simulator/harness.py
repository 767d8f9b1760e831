"""A simulator in a process of its own, and a receiver for its pushes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2

from tests.support.processes import REPOSITORY, guarded_environment

TOKEN = "simulator-token-for-tests"
START_MS = 1_767_225_600_000

_PROGRAM = """
import json, sys
from pathlib import Path
from frontdesk.simulator import SimulatorConfig
from frontdesk.simulator.server import run
values = json.loads(sys.argv[1])
if values.get("state"):
    values["state"] = Path(values["state"])
run(SimulatorConfig(**values))
"""


def spawn(**values: Any) -> subprocess.Popen[str]:
    """Starts a simulator process; its stdin is a pipe."""
    values = {"token": TOKEN, "port": 0, **values}
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, json.dumps(values)],
        env=guarded_environment({"PYTHONPATH": str(REPOSITORY / "src")}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Ends a process and returns its status and stderr."""
    if process.poll() is None:
        process.terminate()
    try:
        _, errors = process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate(timeout=10)
    return process.returncode, errors


@dataclass
class Sim:
    """A running simulator with the control token at hand."""

    process: subprocess.Popen[str]
    base: str
    control: httpx2.Client
    page: httpx2.Client

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.control.post(f"/_sim/{path}", json=body)
        assert answer.status_code == 200, (answer.status_code, answer.text)
        return dict(answer.json())

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        answer = self.control.get(f"/_sim/{path}", params=query)
        assert answer.status_code == 200, (answer.status_code, answer.text)
        return dict(answer.json())

    def faults(self, *faults: dict[str, Any]) -> None:
        self.post("faults", faults=list(faults))

    def requests(self, kind: str | None = None) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.get("requests")["items"]
        return [row for row in rows if kind in (None, row["kind"])]

    def until(self, check: Callable[[], Any], seconds: float = 10) -> Any:
        """What `check` returns once it is true; for effects that happen in the simulator's own time."""
        deadline = time.monotonic() + seconds
        while True:
            found = check()
            if found or time.monotonic() > deadline:
                assert found, "did not happen in time"
                return found
            time.sleep(0.02)


@contextlib.contextmanager
def running(**values: Any) -> Iterator[Sim]:
    """A simulator, ended afterwards; nothing may have been logged by then."""
    process = spawn(**values)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith("simulator ready http://"):
        _, errors = finish(process)
        raise AssertionError(f"the simulator did not start: {line!r} {errors}")
    base = line.split()[-1]
    with (
        httpx2.Client(
            base_url=base, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False, verify=False, timeout=20
        ) as control,
        httpx2.Client(base_url=base, trust_env=False, verify=False, timeout=20) as page,
    ):
        try:
            yield Sim(process, base, control, page)
        finally:
            _, errors = finish(process)
            process.stdout.close()
    assert errors == "", errors


@dataclass
class Received:
    """One push as it arrived; header names exactly as sent."""

    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Takes pushes and answers what it was told to."""

    url: str
    received: list[Received] = field(default_factory=list)
    answer: Callable[[Received], tuple[int, bytes]] = lambda _: (200, b'{"msg":"success"}')
    wait_seconds: float = 0


@contextlib.contextmanager
def receiver() -> Iterator[Receiver]:
    """A callback address on a free port."""
    state = Receiver("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            push = Received(dict(self.headers.items()), body)
            state.received.append(push)
            if state.wait_seconds:
                time.sleep(state.wait_seconds)
            status, answer = state.answer(push)
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}/callback"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@dataclass
class Provider:
    """The provider's side as an app sees it: plain HTTP with a token."""

    sim: Sim
    app: dict[str, Any]
    person: dict[str, Any]
    client: httpx2.Client

    @property
    def chat(self) -> str:
        return str(self.person["chat_id"])

    def token(self, secret: str | None = None) -> dict[str, Any]:
        body = {"app_id": self.app["app_id"], "app_secret": secret or self.app["app_secret"]}
        answer = self.client.post("/open-apis/auth/v3/tenant_access_token/internal", content=json.dumps(body))
        return dict(answer.json())

    def log_in(self) -> None:
        self.client.headers["Authorization"] = "Bearer " + self.token()["tenant_access_token"]

    def create(self, text: str = "hello", **more: Any) -> httpx2.Response:
        body = {"receive_id": self.chat, "msg_type": "text", "content": json.dumps({"text": text}), **more}
        return self.client.post("/open-apis/im/v1/messages?receive_id_type=chat_id", json=body)

    def reply(self, target: str, text: str = "hello", **more: Any) -> httpx2.Response:
        body = {"msg_type": "text", "content": json.dumps({"text": text}), **more}
        return self.client.post(f"/open-apis/im/v1/messages/{target}/reply", json=body)

    def list(self, **query: Any) -> httpx2.Response:
        query = {"container_id_type": "chat", "container_id": self.chat, **query}
        return self.client.get("/open-apis/im/v1/messages", params=query)

    def fetch(self, message_id: str) -> httpx2.Response:
        return self.client.get(f"/open-apis/im/v1/messages/{message_id}")

    def say(self, text: str = "question", **more: Any) -> str:
        body = {"app_id": self.app["app_id"], "person": self.person["open_id"], "text": text, **more}
        return str(self.sim.post("send", **body)["message_id"])


@contextlib.contextmanager
def provider(sim: Sim, name: str = "Front Desk", person: str = "Ada") -> Iterator[Provider]:
    """An app with one person, logged in."""
    app = sim.post("apps", name=name)
    someone = sim.post("people", name=person, app_id=app["app_id"])
    with httpx2.Client(base_url=sim.base, trust_env=False, verify=False, timeout=20) as client:
        made = Provider(sim, app, someone, client)
        made.log_in()
        yield made
