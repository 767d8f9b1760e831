"""A tiny real HTTP server that records what it was asked, and the command tree over a tiny registry."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import click
import pytest
from click.testing import CliRunner, Result
from pydantic import Field

from frontdesk.cli.commands import attach
from frontdesk.wire.model import Name, Page, PageQuery, Request, RequestId, Response
from frontdesk.wire.registry import Operation, P, W

TOKEN = "fdt_" + "a" * 43


class Login(Request):
    """As identity's."""

    username: Name
    password: str = Field(repr=False)


class ThingCreate(Request):
    """One field of each shape."""

    request_id: RequestId
    name: Name
    count: int = Field(default=1, ge=1, le=9)
    kind: Literal["a", "b"] | None = None
    loud: bool = False
    tags: list[str] = Field(default_factory=list)
    payload: dict[str, Any] | None = None
    app_secret: str | None = None


class ThingQuery(PageQuery):
    """A filter."""

    thing_id: str
    loud: bool = False


class ThingRead(Response):
    """An answer."""

    id: str


class Acknowledge(Request):
    """As operations'."""

    ids: list[str]
    reason: str


OPERATIONS = {
    operation.id: operation
    for operation in (
        Operation("identity.session.create", "POST", "/session", "Log in", "none", request=Login, response=ThingRead,
                  status=201, errors=("login_failed",), authenticated=False),
        Operation("identity.me.get", "GET", "/me", "Read your account", "any", response=ThingRead),
        Operation("desk.grants.create", "POST", P + "/reply-grants", "Authorise replies", "workspace.read",
                  request=ThingCreate, response=ThingRead, status=201, errors=("installation_not_active",), gate=True),
        Operation("desk.connections.list", "GET", W + "/installations", "List connections", "workspace.read",
                  query=PageQuery, response=Page[ThingRead]),
        Operation("desk.connections.my_binding", "GET", W + "/installations/{installation_id}/my-binding",
                  "Your binding", "workspace.read", response=ThingRead),
        Operation("desk.connections.unbind", "DELETE", W + "/bindings/{binding_id}", "Unbind", "workspace.read"),
        Operation("desk.things.list", "GET", W + "/things", "List things", "workspace.read", query=ThingQuery,
                  response=Page[ThingRead]),
        Operation("desk.operations.acknowledge", "POST", W + "/dead-letters/acknowledge", "Mark as seen", "inbox.work",
                  request=Acknowledge, response=ThingRead),
        Operation("desk.operations.stream", "GET", W + "/desk/events", "Watch", "workspace.read"),
        Operation("desk.inbox.callback", "POST", "/channels/{channel}/installations/{id}/events", "Push", "none",
                  authenticated=False, cli=False),
    )
}  # fmt: skip


@dataclasses.dataclass
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any


class Server:
    """Answers from a table; asks are kept in order."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: dict[tuple[str, str], tuple[int, str, bytes]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                parts = urlsplit(self.path)
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.asked.append(
                    Asked(self.command, parts.path, parse_qs(parts.query), headers, json.loads(raw) if raw else None)
                )
                status, kind, body = outer.answers.get((self.command, parts.path), (404, "text/html", b"nothing"))
                self.send_response(status)
                if kind:
                    self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = handle_any  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def answer(self, method: str, path: str, document: Any, status: int = 200) -> None:
        """Answer with a JSON document, or with nothing for None."""
        body = b"" if document is None else json.dumps(document).encode()
        self.answers[method, "/api/v1" + path] = (status, "application/json" if body else "", body)

    def problem(self, method: str, path: str, code: str, status: int, **more: Any) -> None:
        """Answer with a problem."""
        document = {"code": code, "status": status, "detail": f"Sentence of {code}.", "retry": "never", **more}
        self.answers[method, "/api/v1" + path] = (status, "application/problem+json", json.dumps(document).encode())

    def stop(self) -> None:
        """Stop."""
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    """The server, with one workspace and one project."""
    made = Server()
    made.answer("GET", "/me", {"user": {"id": "usr_1"}, "memberships": [{"workspace_id": "wsp_1", "name": "home"}]})
    made.answer("GET", "/workspaces/wsp_1/projects", {"items": [{"id": "prj_1", "slug": "first"}], "next_cursor": None})
    yield made
    made.stop()


class Shell:
    """Runs commands against the server."""

    def __init__(self, server: Server) -> None:
        self.env: dict[str, str | None] = {"FRONTDESK_URL": server.url, "FRONTDESK_TOKEN": TOKEN}
        self.group = click.Group("frontdesk")
        attach(self.group, OPERATIONS)

    def __call__(self, *words: str, stdin: str | None = None, **env: str) -> Result:
        """Run one command line."""
        return CliRunner(env={**self.env, **env}).invoke(self.group, list(words), input=stdin)


@pytest.fixture
def shell(server: Server) -> Shell:
    """A shell with URL and token set."""
    return Shell(server)
