"""The routes of reply grants over HTTP, for a person who is already authenticated (that is another room's)."""

from __future__ import annotations

import dataclasses
from typing import Any

import fastapi
import httpx2
from starlette.types import Receive, Scope, Send

from frontdesk.api import problems
from frontdesk.api.binding import bind
from frontdesk.api.desk.grants import ROUTES
from frontdesk.api.services import Policy, Services
from frontdesk.desk.connections.model import NO_WORKER, WorkerSnapshot
from frontdesk.identity.model import Actor
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.storage.database import Database
from tests.contract.desk_world import DeskWorld

ABLE = WorkerSnapshot(True, True, True, True, True)


@dataclasses.dataclass
class Site:
    """A desk's grant routes."""

    desk: DeskWorld
    worker: WorkerSnapshot = ABLE

    def client(self, actor: Actor | None = None, *, database: Database | None = None) -> httpx2.AsyncClient:
        """A client of this person."""
        desk = self.desk
        app = fastapi.FastAPI()
        app.state.services = Services(
            database=database or desk.database,
            keyring=desk.keyring,
            channels=desk.channels,
            clock=desk.clock,
            entropy=SystemEntropy(),
            policy=Policy(reply_enabled=True),
            threads=None,  # type: ignore[arg-type]
            extras={"worker_snapshot": lambda: self.worker},
        )
        problems.install(app)
        for operation, handler in ROUTES:
            bind(app.router, operation, handler)
        person = actor or desk.owner

        async def as_person(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "actor": person}, receive, send)

        return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=as_person), base_url="http://desk.test")

    def path(self, rest: str = "/reply-grants", *, workspace: str | None = None, project: str | None = None) -> str:
        desk = self.desk
        return f"/api/v1/workspaces/{workspace or desk.home}/projects/{project or desk.project}{rest}"

    async def call(self, method: str, path: str, actor: Actor | None = None, **named: Any) -> tuple[int, Any]:
        """Status and body of one request."""
        async with self.client(actor) as client:
            answer = await client.request(method, path, **named)
        return answer.status_code, answer.json()


__all__ = ["ABLE", "NO_WORKER", "Site"]
