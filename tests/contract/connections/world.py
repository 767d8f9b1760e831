"""A small world for the connections room: people, workspaces, a channel that asks nobody, and the routes over HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import fastapi
import httpx2
import sqlalchemy as sa
from starlette.types import Receive, Scope, Send

from frontdesk.api import problems
from frontdesk.api.binding import bind
from frontdesk.api.desk.connections import ROUTES
from frontdesk.api.services import Policy, Services
from frontdesk.app.schema import METADATA
from frontdesk.desk import connections
from frontdesk.desk.connections.channel import (
    ChannelLimits,
    Credentials,
    Installed,
    ProbeReport,
    RawPush,
    Refused,
    Verdict,
)
from frontdesk.desk.connections.model import BindingOutcome, InstallationView
from frontdesk.identity.model import Actor
from frontdesk.kernel.clock import ManualClock
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.kernel.secretbox import KeyRing, new_key
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx

T = TypeVar("T")

USERS = METADATA.tables["users"]
WORKSPACES = METADATA.tables["workspaces"]
MEMBERS = METADATA.tables["workspace_members"]
INSTALLATIONS = METADATA.tables["installations"]
CHALLENGES = METADATA.tables["binding_challenges"]
BINDINGS = METADATA.tables["bindings"]
EVENTS = METADATA.tables["events"]

SECRETS = {
    "app_secret": "planted-app-secret",
    "encrypt_key": "planted-encrypt-key",
    "verification_token": "planted-verification-token",
}


class FakeChannel:
    """A channel as the registry hands it in. It needs three secrets for a webhook and one for a long connection."""

    key = "feishu"
    prefix = "feishu:"
    limits = ChannelLimits(150_000, 30_000_000, 5)

    def __init__(self) -> None:
        self.report = ProbeReport("ok", "ok", bot_open_id="ou_bot")
        self.probed: list[Installed] = []
        self.swaps: list[tuple[RawPush, Credentials]] = []
        self.swapped = False

    def secrets_needed(self, inbound: str) -> tuple[str, ...]:
        return ("app_secret",) if inbound == "long_connection" else tuple(SECRETS)

    def unfit(self, name: str, value: str | None) -> str | None:
        return None

    def precheck(self, push: RawPush) -> Refused | None:
        raise NotImplementedError

    def verify(self, push: RawPush, credentials: Credentials) -> Verdict:
        raise NotImplementedError

    def verifies_swapped(self, push: RawPush, credentials: Credentials) -> bool:
        self.swaps.append((push, credentials))
        return self.swapped

    async def probe(self, installed: Installed) -> ProbeReport:
        self.probed.append(installed)
        return self.report


class Inline:
    """Runs blocking work where it is asked for."""

    async def run(self, fn: Callable[..., T], *arguments: Any) -> T:
        return fn(*arguments)


async def code_of(awaitable: Any) -> str:
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
    channel: FakeChannel = dataclasses.field(default_factory=FakeChannel)
    keyring: KeyRing = dataclasses.field(default_factory=lambda: KeyRing(new_key()))
    extras: dict[str, Any] = dataclasses.field(default_factory=dict)
    policy: Policy = dataclasses.field(default_factory=Policy)
    people: dict[str, Actor] = dataclasses.field(default_factory=dict)
    home: str = ""
    other: str = ""

    # ------------------------------------------------------------------------------------------ people

    async def settle(self) -> World:
        """Workspace `home` with one person of each role, and workspace `other` with an admin of its own."""
        self.home = await self.add_workspace("home")
        self.other = await self.add_workspace("other")
        for role in ("admin", "maintainer", "operator", "viewer"):
            await self.add_person(role, self.home, role)
        await self.add_person("stranger", self.other, "admin")
        return self

    async def add_workspace(self, slug: str) -> str:
        return await self.insert(WORKSPACES, "wsp", name=slug, slug=slug, active=True)

    async def add_person(self, name: str, workspace_id: str, role: str) -> Actor:
        user_id = await self.insert(
            USERS, "usr", subject=f"local:{name}", email=f"{name}@test", display_name=name, is_platform_admin=False
        )
        await self.insert(MEMBERS, "mbr", workspace=workspace_id, user=user_id, role=role)
        self.people[name] = Actor(user_id, f"local:{name}", name, f"{name}@test", "local", False)
        return self.people[name]

    async def insert(self, table: sa.Table, prefix: str, **values: Any) -> str:
        def write(tx: Tx) -> str:
            row_id = tx.new_id(prefix)
            tx.execute(sa.insert(table).values(id=row_id, created_at=tx.now, updated_at=tx.now, **values))
            return row_id

        return await self.database.write(write)

    async def change(self, table: sa.Table, where: Any, **values: Any) -> None:
        await self.database.write(lambda tx: tx.execute(sa.update(table).where(where).values(**values)) and None)

    # ------------------------------------------------------------------------------------------ verbs

    async def write(self, verb: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return await self.database.write(lambda tx: verb(tx, *arguments, **named))

    async def read(self, verb: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return await self.database.read(lambda tx: verb(tx, *arguments, **named))

    @property
    def channels(self) -> dict[str, Any]:
        return {self.channel.key: self.channel}

    @property
    def scope(self) -> dict[str, Any]:
        return {"workspace_id": self.home, "channels": self.channels, "keyring": self.keyring}

    async def install(self, actor: str = "maintainer", **changes: Any) -> InstallationView:
        values: dict[str, Any] = {
            "channel": "feishu",
            "name": "Bot",
            "app_id": "cli_1",
            "tenant_key": "t-1",
            "secrets": SECRETS,
        }
        return await self.write(
            connections.create_installation, self.people[actor], **{**self.scope, **values, **changes}
        )

    async def patch(self, installation_id: str, actor: str = "maintainer", **changes: Any) -> InstallationView:
        return await self.write(
            connections.update_installation,
            self.people[actor],
            installation_id=installation_id,
            changes=changes,
            **self.scope,
        )

    async def revoke(self, installation_id: str, *, forget: bool = False) -> InstallationView:
        return await self.write(
            connections.revoke_installation,
            self.people["maintainer"],
            installation_id=installation_id,
            forget_secrets=forget,
            **self.scope,
        )

    async def code(self, installation_id: str, actor: str) -> str:
        """A fresh binding code of this person."""
        issued = await self.write(
            connections.create_challenge, self.people[actor], installation_id=installation_id, **self.scope
        )
        return issued.command_text.split(" ")[1]

    async def consume(
        self,
        installation_id: str,
        code: str | None,
        sender: str = "ou_1",
        *,
        chat: str | None = None,
        wrong: tuple[int, int] = (0, 0),
        database: Database | None = None,
    ) -> BindingOutcome:
        """What the reception transaction does with a binding message."""

        def receive(tx: Tx) -> BindingOutcome:
            installation = connections.find_installation(tx, installation_id, share=True)
            assert installation is not None
            return connections.consume_challenge(
                tx,
                installation=installation,
                code=code,
                tenant_key="t-1",
                sender_id=sender,
                chat_id=chat or f"oc_{sender}",
                wrong_in_chat=wrong[0],
                wrong_in_installation=wrong[1],
            )

        return await (database or self.database).write(receive)

    async def bind(self, installation_id: str, actor: str, sender: str = "ou_1") -> BindingOutcome:
        return await self.consume(installation_id, await self.code(installation_id, actor), sender)

    async def unbind(self, binding_id: str, actor: str) -> Any:
        return await self.write(connections.unbind, self.people[actor], workspace_id=self.home, binding_id=binding_id)

    # ------------------------------------------------------------------------------------------ rows

    async def rows(self, table: sa.Table, *where: Any) -> list[Mapping[str, Any]]:
        found = await self.database.read(lambda tx: tx.rows(sa.select(table).where(*where).order_by(table.c.id)))
        return [dict(row) for row in found]

    async def row(self, installation_id: str) -> Mapping[str, Any]:
        (row,) = await self.rows(INSTALLATIONS, INSTALLATIONS.c.id == installation_id)
        return row

    # ------------------------------------------------------------------------------------------ HTTP

    def services(self) -> Services:
        return Services(
            database=self.database,
            keyring=self.keyring,
            channels=self.channels,
            clock=self.clock,
            entropy=SystemEntropy(),
            policy=self.policy,
            threads=Inline(),
            extras=self.extras,
        )

    def http(self, name: str) -> httpx2.AsyncClient:
        """A client of the room's routes, already authenticated as this person (the gate is another room's)."""
        app = fastapi.FastAPI()
        app.state.services = self.services()
        problems.install(app)
        for operation, handler in ROUTES:
            bind(app.router, operation, handler)

        async def as_person(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "actor": self.people[name]}, receive, send)

        return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=as_person), base_url="http://desk.test")

    def path(self, installation_id: str = "", rest: str = "", *, workspace: str | None = None) -> str:
        base = f"/api/v1/workspaces/{workspace or self.home}/installations"
        return f"{base}/{installation_id}{rest}" if installation_id else base
