"""A desk with people, a chat app and grants in it, built by the product's own verbs, on both engines.

    desk = await open_desk(database, clock)      # owner, workspace `home`, project `first`, one installation
    seat = await desk.seat()                     # bound, with a conversation, an active grant and a sent activation
    await desk.push(desk.message("hello", seat)) # t0, as the callback's write does it
    await desk.work()                            # t1..t4 for everything due
    await desk.send()                            # t5..t9 for everything due

`desk.channel` and `desk.runner` are fakes behind the real ports; everything between them is the product.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from frontdesk.app.schema import METADATA
from frontdesk.channels.feishu.normalise import request_hash
from frontdesk.desk import connections, conversations, grants, inbox, outbox, runs
from frontdesk.desk.connections.channel import (
    ChannelLimits,
    Complete,
    ConnectFailed,
    Credentials,
    History,
    HistoryItem,
    Inbound,
    InboundMessage,
    Installed,
    OutboundFile,
    OutboundMessage,
    Outcome,
    ProbeReport,
    RawPush,
    Recall,
    Refused,
    Sent,
    Session,
    Verdict,
    Verified,
)
from frontdesk.desk.grants import CreateGrant, CreateRaced, GrantView
from frontdesk.desk.inbox import Parts, ReceiptWorker, Received
from frontdesk.desk.outbox import Delivery
from frontdesk.desk.sending import DeliveryWorker
from frontdesk.identity.model import Actor
from frontdesk.identity.projects import create_workflow
from frontdesk.kernel.clock import HOUR, SECOND, ManualClock
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.kernel.secretbox import KeyRing, new_key
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.conversations.world import FakeRunner, Gate
from tests.contract.world import World, first_world

__all__ = ["DeskWorld", "FakeChannel", "FakeRunner", "Gate", "Seat", "open_desk"]

T = TypeVar("T")

TABLES: Mapping[str, sa.Table] = METADATA.tables
SECRETS = {
    "app_secret": "planted-app-secret",
    "encrypt_key": "planted-encrypt-key",
    "verification_token": "planted-verification-token",
}
APP_ID = "cli_1"
TENANT = "t-1"
LEASE_US = 30 * SECOND


class FakeChannel:
    """The port, asking nobody. It records each wire request; `outcomes` and `connects` say what happens next.

    `outcomes`: what the coming sends bring (an exception is raised), `Sent` with a fresh id once it is empty.
    `connects`: failures of the coming connects (None: this one succeeds). `on_send`, `on_connect`: awaited from inside.
    """

    key = "feishu"
    prefix = "feishu"
    limits = ChannelLimits(text_bytes_max=150_000, file_bytes_max=30_000_000, chat_per_second=5)

    def __init__(self) -> None:
        self.sent: list[OutboundMessage] = []
        self.connected: list[Installed] = []
        self.uploaded: list[OutboundFile] = []
        self.closed = 0
        self.outcomes: deque[Outcome | Exception] = deque()
        self.connects: deque[ConnectFailed | Exception | None] = deque()
        self.uploads: deque[ConnectFailed | str] = deque()
        self.on_send: Callable[[OutboundMessage], Awaitable[None]] | None = None
        self.on_connect: Callable[[Installed], Awaitable[None]] | None = None
        self.items: list[HistoryItem] = []
        self._numbers = itertools.count(1)

    def secrets_needed(self, inbound: str) -> tuple[str, ...]:
        return ("app_secret",) if inbound == "long_connection" else tuple(SECRETS)

    def unfit(self, name: str, value: str | None) -> str | None:
        return None

    def precheck(self, push: RawPush) -> Refused | None:
        return None

    def verify(self, push: RawPush, credentials: Credentials) -> Verdict:
        return Verified(())

    def verifies_swapped(self, push: RawPush, credentials: Credentials) -> bool:
        return False

    def text_body_bytes(self, text: str) -> int:
        return len(self.text_content(text).encode())

    def text_content(self, text: str) -> str:
        return json.dumps({"text": text}, ensure_ascii=False)

    def same_text(self, content: str, text: str) -> bool:
        return content == self.text_content(text)

    async def connect(self, installed: Installed) -> Session:
        self.connected.append(installed)
        if self.on_connect is not None:
            await self.on_connect(installed)
        failure = self.connects.popleft() if self.connects else None
        if failure is not None:
            raise failure
        return object()

    async def upload(self, session: Session, file: OutboundFile) -> str | None:
        self.uploaded.append(file)
        result = self.uploads.popleft() if self.uploads else f"file_{len(self.uploaded)}"
        if isinstance(result, ConnectFailed):
            raise result
        return result

    async def send(self, session: Session, message: OutboundMessage) -> Outcome:
        self.sent.append(message)
        if self.on_send is not None:
            await self.on_send(message)
        outcome = self.outcomes.popleft() if self.outcomes else Sent(f"om_bot_{next(self._numbers)}", 1)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def probe(self, installed: Installed) -> ProbeReport:
        return ProbeReport("ok", "ok", bot_open_id="ou_bot")

    async def history(self, session: Session, chat_id: str, since_ms: int, until_ms: int) -> History:
        return Complete(tuple(self.items), None)

    async def close(self, session: Session) -> None:
        self.closed += 1


@dataclasses.dataclass(frozen=True, slots=True)
class Seat:
    """One person at one chat: everything a reply of theirs rests on. `activation` is our message they may answer."""

    actor: Actor
    installation_id: str
    binding_id: str
    sender: str
    chat: str
    conversation_id: str
    grant_id: str
    activation: str


@dataclasses.dataclass
class DeskWorld:
    """One database with a desk in it. `write` and `read` run any verb: `await desk.write(verb, actor, …)`."""

    people: World
    clock: ManualClock
    channel: FakeChannel = dataclasses.field(default_factory=FakeChannel)
    runner: FakeRunner = dataclasses.field(default_factory=FakeRunner)
    keyring: KeyRing = dataclasses.field(default_factory=lambda: KeyRing(new_key()))
    unaddressed: str = "only_grant"
    failure_notices: bool = True
    oversize_answer: str = "file"
    reply_ready: bool = True
    installation_id: str = ""
    apps: dict[str, str] = dataclasses.field(default_factory=dict)
    _numbers: itertools.count[int] = dataclasses.field(default_factory=lambda: itertools.count(1))

    @property
    def database(self) -> Database:
        return self.people.database

    @property
    def owner(self) -> Actor:
        return self.people.owner

    @property
    def home(self) -> str:
        return self.people.workspace_id

    @property
    def project(self) -> str:
        return self.people.project_id

    @property
    def channels(self) -> dict[str, Any]:
        return {self.channel.key: self.channel}

    @property
    def keys(self) -> dict[str, Any]:
        """What verbs on grants and installations are handed besides their command."""
        return {"keyring": self.keyring, "channels": self.channels}

    @property
    def parts(self) -> Parts:
        return Parts(
            channels=self.channels,
            keyring=self.keyring,
            runners={self.runner.name: self.runner},
            default_runner=self.runner.name,
            briefer=conversations.fixed_briefing(()),
            failure_notices=self.failure_notices,
            oversize_answer=self.oversize_answer,
            public_url="http://desk.test",
        )

    def number(self) -> int:
        """A number that this world has not given yet."""
        return next(self._numbers)

    # ------------------------------------------------------------------------------------------ transactions and rows

    async def write(self, verb: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return await self.database.write(lambda tx: verb(tx, *arguments, **named))

    async def read(self, verb: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return await self.database.read(lambda tx: verb(tx, *arguments, **named))

    async def rows(self, table: str, **equal: Any) -> list[dict[str, Any]]:
        """Rows of a table in the order they were made, with these column values."""
        found = TABLES[table]
        statement = sa.select(found).where(*(found.c[name] == value for name, value in equal.items()))
        order = [found.c[name] for name in ("created_at", "sequence", "id") if name in found.c]
        rows = await self.database.read(lambda tx: tx.rows(statement.order_by(*order)))
        return [dict(row) for row in rows]

    async def row(self, table: str, row_id: str) -> dict[str, Any]:
        (row,) = await self.rows(table, id=row_id)
        return row

    async def count(self, table: str, **equal: Any) -> int:
        return len(await self.rows(table, **equal))

    async def counts(self) -> dict[str, int]:
        """Rows of every table that reception, granting or working could write."""
        return {name: await self.count(name) for name in TABLES if name not in ("workers", "chat_pacing")}

    async def force(self, table: str, row_id: str, **values: Any) -> None:
        """Set columns behind the product's back: only for what no verb can bring about."""
        found = TABLES[table]
        await self.database.write(lambda tx: tx.execute(sa.update(found).where(found.c.id == row_id).values(**values)))

    # ------------------------------------------------------------------------------------------ places and people

    async def install(self, name: str = "Bot", **changes: Any) -> str:
        """A further installation; returns its id."""
        values: dict[str, Any] = {
            "workspace_id": self.home,
            "channel": self.channel.key,
            "name": name,
            "app_id": APP_ID,
            "tenant_key": TENANT,
            "secrets": SECRETS,
        }
        made = await self.write(connections.create_installation, self.owner, **{**values, **self.keys, **changes})
        self.apps[made.id] = made.app_id
        return made.id

    async def enable(self, enabled: bool, installation_id: str | None = None) -> None:
        await self.write(
            connections.update_installation,
            self.owner,
            workspace_id=self.home,
            installation_id=installation_id or self.installation_id,
            changes={"enabled": enabled},
            **self.keys,
        )

    async def revoke_installation(self, installation_id: str | None = None) -> None:
        await self.write(
            connections.revoke_installation,
            self.owner,
            workspace_id=self.home,
            installation_id=installation_id or self.installation_id,
            forget_secrets=False,
            **self.keys,
        )

    async def bind(
        self,
        actor: Actor | None = None,
        *,
        sender: str = "ou_1",
        chat: str = "oc_1",
        installation_id: str | None = None,
    ) -> str:
        """A challenge, and the bind message as reception takes it; returns the binding's id."""
        where = installation_id or self.installation_id
        code = await self.challenge(actor, where)
        received = await self.push(
            self.message(f"/bind {code}", sender=sender, chat=chat, app_id=self.apps[where]), where
        )
        assert received.outcome == "completed", received
        return str((await self.row("receipts", str(received.receipt_id)))["binding"])

    async def challenge(self, actor: Actor | None = None, installation_id: str | None = None) -> str:
        """A fresh binding code."""
        issued = await self.write(
            connections.create_challenge,
            actor or self.owner,
            workspace_id=self.home,
            installation_id=installation_id or self.installation_id,
            **self.keys,
        )
        return issued.command_text.split(" ")[1]

    async def unbind(self, binding_id: str) -> None:
        await self.write(connections.unbind, self.owner, workspace_id=self.home, binding_id=binding_id)

    async def workflow(self, name: str = "reports", project_id: str | None = None) -> str:
        made = await self.write(create_workflow, self.owner, self.home, project_id or self.project, name=name)
        return made.id

    async def run(self, workflow_id: str, project_id: str | None = None, actor: Actor | None = None) -> str:
        started = await self.write(
            runs.start_run,
            actor or self.owner,
            self.home,
            project_id or self.project,
            workflow_id,
            request_id=f"run-{self.number()}",
            input_data={},
        )
        return started.run.id

    async def converse(self, actor: Actor | None = None, title: str = "Quarter", **context: str) -> str:
        """A conversation in `first` (or as the context says); returns its id."""
        made = await self.write(
            conversations.create_conversation,
            actor or self.owner,
            self.home,
            title=title,
            context=context or {"project_id": self.project},
            find_run=runs.find_run_scope,
        )
        return made.id

    async def close(self, conversation_id: str, actor: Actor | None = None) -> None:
        await self.write(conversations.close_conversation, actor or self.owner, self.home, conversation_id)

    # ------------------------------------------------------------------------------------------ grants

    def order(self, binding_id: str, conversation_id: str, **changes: Any) -> CreateGrant:
        """A create command."""
        values: dict[str, Any] = {
            "workspace_id": self.home,
            "project_id": self.project,
            "request_id": f"request-{self.number()}",
            "installation_id": self.installation_id,
            "binding_id": binding_id,
            "conversation_id": conversation_id,
        }
        return CreateGrant(**{**values, **changes})

    async def create(
        self,
        order: CreateGrant,
        actor: Actor | None = None,
        *,
        database: Database | None = None,
        ready: bool | None = None,
    ) -> GrantView:
        """The two transactions of `desk.grants.create`, as its handler runs them."""
        person, where = actor or self.owner, database or self.database
        is_ready = self.reply_ready if ready is None else ready
        try:
            return await where.write(lambda tx: grants.create(tx, person, order, reply_ready=is_ready, **self.keys))
        except CreateRaced:
            return await where.write(lambda tx: grants.resolve_race(tx, person, order, **self.keys))

    async def view(self, grant_id: str, actor: Actor | None = None) -> GrantView:
        return await self.read(grants.get, actor or self.owner, self.home, self.project, grant_id, **self.keys)

    async def revoke(self, grant_id: str, actor: Actor | None = None) -> GrantView:
        return await self.write(grants.revoke, actor or self.owner, self.home, self.project, grant_id, **self.keys)

    async def activate(self, grant_id: str, message_id: str | None = None) -> str:
        """Mark the grant's activation sent, by claim, begin and confirm; returns the provider's message id."""
        name = message_id or f"om_act_{self.number()}"

        await self.write(confirm_activation, grant_id, name)
        return name

    async def seat(
        self,
        actor: Actor | None = None,
        *,
        sender: str = "ou_1",
        chat: str = "oc_1",
        installation_id: str | None = None,
        binding_id: str | None = None,
        conversation_id: str | None = None,
        title: str = "Quarter",
        **changes: Any,
    ) -> Seat:
        """Binding, conversation, grant and sent activation of one person; what is given is taken as it is."""
        person = actor or self.owner
        where = installation_id or self.installation_id
        binding = binding_id or await self.bind(person, sender=sender, chat=chat, installation_id=where)
        conversation = conversation_id or await self.converse(person, title)
        order = self.order(binding, conversation, installation_id=where, **changes)
        view = await self.create(order, person)
        activation = await self.activate(view.grant.id)
        return Seat(person, where, binding, sender, chat, conversation, view.grant.id, activation)

    # ------------------------------------------------------------------------------------------ reception

    def message(
        self,
        text: str | None,
        seat: Seat | None = None,
        *,
        sender: str | None = None,
        chat: str | None = None,
        message_id: str | None = None,
        event_id: str | None = None,
        parent: str | None = None,
        root: str | None = None,
        reply: bool = True,
        **changes: Any,
    ) -> InboundMessage:
        """A verified message as the channel hands it over; with a seat, its person's answer to the activation."""
        if seat is not None:
            sender, chat = sender or seat.sender, chat or seat.chat
            changes = {"app_id": self.apps[seat.installation_id], **changes}
            parent = parent or (seat.activation if reply else None)
        name = message_id or f"om_in_{self.number()}"
        now_ms = self.clock.now_us() // 1000
        values: dict[str, Any] = {
            "app_id": APP_ID,
            "tenant_key": TENANT,
            "event_id": event_id or f"ev_{self.number()}",
            "message_id": name,
            "sender_id": sender or "ou_1",
            "sender_type": "user",
            "chat_id": chat or "oc_1",
            "chat_type": "p2p",
            "message_type": "text",
            "text": text,
            "parent_id": parent,
            "root_id": root,
            "created_at_ms": now_ms,
            "signed_at_ms": now_ms,
            **changes,
        }
        if "request_hash" not in values:
            values["request_hash"] = request_hash(
                values["app_id"],
                values["tenant_key"],
                values["sender_id"],
                {
                    "chat_id": values["chat_id"],
                    "chat_type": values["chat_type"],
                    "message_id": name,
                    "message_type": values["message_type"],
                    "content": json.dumps({"text": text}, ensure_ascii=False),
                    "parent_id": parent,
                    "root_id": root,
                    "create_time": str(values["created_at_ms"]),
                },
            )
        return InboundMessage(**values)

    def recall(self, message_id: str) -> Recall:
        return Recall(APP_ID, TENANT, message_id)

    async def push(
        self, event: Inbound, installation_id: str | None = None, *, database: Database | None = None
    ) -> Received:
        """t0, in a transaction of its own. Raises `ReceiptConflict` where the push must not be acknowledged."""
        where = installation_id or self.installation_id
        return await (database or self.database).write(
            lambda tx: inbox.receive(tx, where, event, transport="webhook", unaddressed_messages=self.unaddressed)
        )

    async def receipt(self, received: Received) -> dict[str, Any]:
        """The row behind a push."""
        return await self.row("receipts", str(received.receipt_id))

    async def ask(self, text: str, seat: Seat, **named: Any) -> dict[str, Any]:
        """Push an answer to the activation and read its receipt."""
        return await self.receipt(await self.push(self.message(text, seat, **named), seat.installation_id))

    # ------------------------------------------------------------------------------------------ working and sending

    def receipt_worker(
        self, *, owner: str | None = None, database: Database | None = None, **named: Any
    ) -> ReceiptWorker:
        values: dict[str, Any] = {
            "owner": owner or f"worker-{self.number()}",
            "lease_us": LEASE_US,
            "capacity": 8,
            "failpoints": Failpoints(),
            **named,
        }
        return ReceiptWorker(database or self.database, self.parts, **values)

    def delivery_worker(
        self, *, owner: str | None = None, database: Database | None = None, **named: Any
    ) -> DeliveryWorker:
        values: dict[str, Any] = {
            "clock": self.clock,
            "owner": owner or f"sender-{self.number()}",
            "lease_us": LEASE_US,
            "age_max_us": 4 * HOUR,
            "failpoints": Failpoints(),
            **named,
        }
        return DeliveryWorker(database or self.database, self.parts, **values)

    async def work(self) -> int:
        """Work on receipts until nothing is due; how many were claimed."""
        total = 0
        while True:
            worker = self.receipt_worker()
            started = await worker.step()
            await worker.stop(60)
            total += started
            if not started:
                return total

    async def send(self) -> int:
        """Send until nothing is due; the clock moves a second each time, so that no chat has to wait for its slot."""
        total = 0
        while True:
            self.clock.advance(SECOND)
            worker = self.delivery_worker()
            started = await worker.step()
            await worker.stop(60)
            total += started
            if not started:
                return total

    async def delivery_of(self, receipt_id: str) -> Delivery | None:
        return await self.read(outbox.find_of_receipt, receipt_id)

    async def everything(self) -> str:
        """Every value of every row of every table as one text, for scans."""

        def scan(tx: Tx) -> list[Sequence[Any]]:
            return [tuple(row) for table in TABLES.values() for row in tx.execute(sa.select(table)).all()]

        return repr(await self.database.read(scan))


async def open_desk(database: Database, clock: ManualClock, **named: Any) -> DeskWorld:
    """A desk after a first start, with one installation."""
    desk = DeskWorld(await first_world(database), clock, **named)
    desk.installation_id = await desk.install()
    return desk


def confirm_activation(tx: Tx, grant_id: str, message_id: str) -> None:
    """A grant's activation as sent: claimed, begun, confirmed with the provider's id."""
    delivery = outbox.find_activation(tx, grant_id)
    assert delivery is not None
    claimed = outbox.claim(tx, delivery, "setup", LEASE_US)
    assert claimed is not None
    sending = outbox.begin(tx, claimed, LEASE_US)
    assert sending is not None
    assert outbox.confirm(tx, sending, message_id, 1) is not None


async def together(*works: Awaitable[T]) -> list[T | BaseException]:
    """Await all at once; exceptions are outcomes."""
    return list(await asyncio.gather(*works, return_exceptions=True))
