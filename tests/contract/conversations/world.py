"""A small world for conversations and runs: people, projects, a runner that does what a test says, and the routes."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import fastapi
import httpx2
import sqlalchemy as sa
from starlette.types import Receive, Scope, Send

from frontdesk.api import problems
from frontdesk.api.binding import bind
from frontdesk.api.desk import conversations as conversation_routes
from frontdesk.api.desk import runs as run_routes
from frontdesk.api.services import Policy, Services
from frontdesk.app.schema import METADATA
from frontdesk.desk import conversations, runs
from frontdesk.desk.conversations.connector import _AUTHORITY_KEY, ConnectorAccess
from frontdesk.desk.conversations.model import Conversation, Turn
from frontdesk.desk.conversations.runner import (
    Answer,
    Cancel,
    Progress,
    Replaceability,
    Result,
    RunnerCapabilities,
    RunnerReport,
    Toolbox,
    TurnRequest,
)
from frontdesk.identity.model import Actor
from frontdesk.kernel.clock import ManualClock
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx

T = TypeVar("T")

USERS = METADATA.tables["users"]
WORKSPACES = METADATA.tables["workspaces"]
MEMBERS = METADATA.tables["workspace_members"]
PROJECTS = METADATA.tables["projects"]
WORKFLOWS = METADATA.tables["workflows"]
CONVERSATIONS = METADATA.tables["conversations"]
TURNS = METADATA.tables["turns"]
PROPOSALS = METADATA.tables["proposals"]
RUNS = METADATA.tables["runs"]
EVENTS = METADATA.tables["events"]

Behaviour = Callable[[TurnRequest, Cancel], Awaitable[Result]]


class FakeRunner:
    """Counts its calls, keeps its requests and does what `behaviour` says."""

    name = "fake"
    capabilities = RunnerCapabilities(
        tools=False, proposals=True, progress=False, answer_only=True, keeps_process=False
    )

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour
        self.requests: list[TurnRequest] = []

    async def run(self, request: TurnRequest, toolbox: Toolbox, progress: Progress, cancel: Cancel) -> Result:
        self.requests.append(request)
        if self.behaviour is None:
            return Answer(f"answer to {request.text}")
        return await self.behaviour(request, cancel)

    async def replaceable(self, conversation_id: str, within_ms: int = 5_000) -> Replaceability:
        return Replaceability.YES

    async def check(self) -> RunnerReport:
        return RunnerReport(self.name, configured=True, reachable=True, answer_only=True)

    async def close(self, within_ms: int) -> None:
        return None


class Gate:
    """A behaviour that answers when the test opens it, and tells when it was reached."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, request: TurnRequest, cancel: Cancel) -> Result:
        self.reached.set()
        await self.opened.wait()
        return Answer(f"answer to {request.text}")


@dataclasses.dataclass
class FakeCursor:
    """A grant's cursor kept in memory; it may refuse or break."""

    value: int = 0
    refuses: bool = False
    breaks: bool = False

    def advance(self, tx: Tx, *, turn_id: str, revision: int) -> bool:
        if self.breaks:
            raise RuntimeError("the cursor broke")
        if self.refuses or revision != self.value + 1:
            return False
        self.value = revision
        return True


async def code_of(awaitable: Awaitable[Any]) -> str:
    """The code an awaited verb is refused with; `done` where it is not refused."""
    try:
        await awaitable
    except Problem as problem:
        return problem.code
    return "done"


@dataclasses.dataclass
class World:
    """One database with people in it. Verbs run as `await world.write(verb, actor, …)`."""

    database: Database
    clock: ManualClock
    runner: FakeRunner = dataclasses.field(default_factory=FakeRunner)
    people: dict[str, Actor] = dataclasses.field(default_factory=dict)
    extras: dict[str, Any] = dataclasses.field(default_factory=dict)
    senders: list[conversations.ConversationSender] = dataclasses.field(default_factory=list)
    home: str = ""
    other: str = ""
    project: str = ""
    closed_project: str = ""
    workflow: str = ""
    other_workflow: str = ""

    # ------------------------------------------------------------------------------------------ people and places

    async def settle(self) -> World:
        """`home` with `owner`, `mate` (operators), `viewer` and `root` (administrator); `other` with `stranger`."""
        self.home = await self.insert(WORKSPACES, "wsp", name="home", slug="home", active=True)
        self.other = await self.insert(WORKSPACES, "wsp", name="other", slug="other", active=True)
        for name, role in (("owner", "operator"), ("mate", "operator"), ("viewer", "viewer")):
            await self.add_person(name, self.home, role)
        await self.add_person("root", self.home, "admin", platform_admin=True)
        await self.add_person("stranger", self.other, "admin")
        self.project = await self.add_project("first")
        self.closed_project = await self.add_project("inner", access="administrators")
        self.workflow = await self.insert(WORKFLOWS, "wfl", project=self.project, name="reports")
        self.other_workflow = await self.insert(WORKFLOWS, "wfl", project=self.project, name="reviews")
        return self

    async def add_person(self, name: str, workspace_id: str, role: str, *, platform_admin: bool = False) -> Actor:
        user_id = await self.insert(
            USERS,
            "usr",
            subject=f"local:{name}",
            email=f"{name}@test",
            display_name=name,
            is_platform_admin=platform_admin,
        )
        await self.insert(MEMBERS, "mbr", workspace=workspace_id, user=user_id, role=role)
        self.people[name] = Actor(user_id, f"local:{name}", name, f"{name}@test", "local", platform_admin)
        return self.people[name]

    async def add_project(self, slug: str, *, access: str = "members", workspace: str | None = None) -> str:
        return await self.insert(PROJECTS, "prj", workspace=workspace or self.home, name=slug, slug=slug, access=access)

    async def insert(self, table: sa.Table, prefix: str, **values: Any) -> str:
        def write(tx: Tx) -> str:
            row_id = tx.new_id(prefix)
            tx.execute(sa.insert(table).values(id=row_id, created_at=tx.now, updated_at=tx.now, **values))
            return row_id

        return await self.database.write(write)

    async def change(self, table: sa.Table, row_id: str, **values: Any) -> None:
        await self.database.write(
            lambda tx: tx.execute(sa.update(table).where(table.c.id == row_id).values(**values)) and None
        )

    async def rows(self, table: sa.Table, *where: Any) -> list[Mapping[str, Any]]:
        found = await self.database.read(lambda tx: tx.rows(sa.select(table).where(*where).order_by(table.c.id)))
        return [dict(row) for row in found]

    # ------------------------------------------------------------------------------------------ verbs

    async def write(self, verb: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return await self.database.write(lambda tx: verb(tx, *arguments, **named))

    async def read(self, verb: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return await self.database.read(lambda tx: verb(tx, *arguments, **named))

    async def converse(self, actor: str = "owner", **context: Any) -> Conversation:
        return await self.write(
            conversations.create_conversation,
            self.people[actor],
            self.home,
            title="A title",
            context=context,
            find_run=runs.find_run_scope,
        )

    async def get(self, conversation: Conversation, actor: str = "owner") -> Conversation:
        return await self.read(conversations.get_conversation, self.people[actor], self.home, conversation.id)

    async def start_run(self, actor: str = "owner", request_id: str = "r-1", **named: Any) -> runs.Started:
        values: dict[str, Any] = {"input_data": {}, **named}
        workflow = values.pop("workflow", self.workflow)
        project = values.pop("project", self.project)
        return await self.write(
            runs.start_run, self.people[actor], self.home, project, workflow, request_id=request_id, **values
        )

    async def exchange(self, conversation: Conversation, question: str, answer: str = "yes") -> Turn:
        """A completed turn, as the shared core makes it."""

        def write(tx: Tx) -> Turn:
            present = conversations.find_conversation(tx, conversation.id)
            assert present is not None
            begun = conversations.begin_turn(tx, present, tx.new_id("trn"), question, surface="api")
            done = conversations.complete_turn(
                tx,
                begun.turn.id,
                expected_revision=present.revision,
                outcome=conversations.outcome_of(Answer(answer), "fake"),
            )
            assert done is not None
            return done

        return await self.database.write(write)

    async def access(
        self, conversation: Conversation, cursor: FakeCursor | None = None, actor: str = "owner", **changes: Any
    ) -> ConnectorAccess:
        """What the authority module would build for this conversation as it is now."""
        person = self.people[actor]
        values: dict[str, Any] = {
            "receipt_id": "rcp_1",
            "reply_grant_id": "grt_1",
            "conversation_id": conversation.id,
            "user_id": person.user_id,
            "workspace_id": self.home,
            "project_id": conversation.project_id or "",
            "workflow_id": conversation.workflow_id,
            "run_id": conversation.run_id,
            "context": dict(conversation.context),
            "context_hash": conversation.context_hash,
            "expected_revision": conversation.revision,
            "lease_owner": "w",
            "receipt_generation": 1,
            "actor": dataclasses.replace(person, auth_method="connector"),
            "cursor": cursor or FakeCursor(conversation.revision),
        }
        return ConnectorAccess.build(_AUTHORITY_KEY, **{**values, **changes})

    def sender(self, **named: Any) -> conversations.ConversationSender:
        """A sender of this world's runner, stopped after the test."""
        values: dict[str, Any] = {"owner": "process-1", "lease_us": 30_000_000, "default_runner": "fake", **named}
        database = values.pop("database", self.database)
        made = conversations.ConversationSender(
            database, {"fake": self.runner}, conversations.fixed_briefing(()), **values
        )
        self.senders.append(made)
        return made

    # ------------------------------------------------------------------------------------------ HTTP

    def http(self, name: str) -> httpx2.AsyncClient:
        """A client of the routes, already authenticated as this person (authentication is another room's)."""
        app = fastapi.FastAPI()
        app.state.services = Services(
            database=self.database,
            keyring=KeyRing(""),
            channels={},
            clock=self.clock,
            entropy=SystemEntropy(),
            policy=Policy(),
            threads=None,  # type: ignore[arg-type]
            extras=self.extras,
        )
        problems.install(app)
        for operation, handler in (*conversation_routes.ROUTES, *run_routes.ROUTES):
            bind(app.router, operation, handler)

        async def as_person(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "actor": self.people[name]}, receive, send)

        return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=as_person), base_url="http://desk.test")

    def path(self, rest: str, *, workspace: str | None = None) -> str:
        return f"/api/v1/workspaces/{workspace or self.home}{rest}"
