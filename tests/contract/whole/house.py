"""The production composition over each engine: real surfaces, real authentication, real verification by the SDK.

    house.api.get("/api/v1/…")                    a client logged in as the owner, through gate and routes
    await house.push(payload("hello"))            the provider's signed push through the production callback
    house.desk                                    the same database, clock, keys and channel for everything else

Doubles stand outside alone: the chat provider's outbound side (`desk.channel`) and the runner.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import sqlalchemy as sa

from frontdesk.app.settings import load_settings
from frontdesk.app.wiring import Outside, Process
from frontdesk.channels.feishu import sdk, verify
from frontdesk.desk import connections
from frontdesk.desk.connections.channel import Credentials, RawPush, Refused, Verdict
from frontdesk.identity.model import Actor, Login
from frontdesk.identity.sessions import create_session
from frontdesk.kernel.clock import ManualClock
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.kernel.secretbox import new_key
from frontdesk.storage.tx import Tx
from tests.channels.signing import body_of, headers_for
from tests.contract.conftest import TimedDatabase
from tests.contract.desk_world import SECRETS, DeskWorld, FakeChannel, FakeRunner, open_desk
from tests.contract.inbox.pushing import Inline
from tests.contract.world import UNUSABLE_HASH

INLINE: Final = Inline()


class Door(FakeChannel):
    """The fake's outbound side behind the real channel's inbound one."""

    def precheck(self, push: RawPush) -> Refused | None:
        return verify.precheck(push)

    def verify(self, push: RawPush, credentials: Credentials) -> Verdict:
        return verify.verify(push, credentials)


@dataclasses.dataclass
class House:
    """One process of the product."""

    desk: DeskWorld
    process: Process
    api: httpx2.AsyncClient

    @property
    def workspace(self) -> str:
        return f"/api/v1/workspaces/{self.desk.home}"

    def installation(self, installation_id: str | None = None, rest: str = "") -> str:
        return f"{self.workspace}/installations/{installation_id or self.desk.installation_id}{rest}"

    async def client(self, actor: Actor | None = None) -> httpx2.AsyncClient:
        """A client with a session of this person's own; without one, a stranger's."""
        headers = {}
        if actor is not None:
            login = Login(actor.user_id, UNUSABLE_HASH, enabled=True)
            made = await self.desk.write(create_session, login, auth_method="local")
            headers = {"Authorization": f"Bearer {made.token}"}
        transport = httpx2.ASGITransport(app=self.process.api)
        return httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)

    async def get(self, path: str, *, as_: Actor | None = None) -> Any:
        """What a GET answers, which must go well."""
        if as_ is None:
            answer = await self.api.get(path)
        else:
            async with await self.client(as_) as client:
                answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def push(
        self,
        payload: Any,
        installation_id: str | None = None,
        *,
        key: str = SECRETS["encrypt_key"],
        at_us: int | None = None,
        body: bytes | None = None,
    ) -> httpx2.Response:
        """Encrypt, sign (now, or as if at `at_us`) and push once; `body` replaces the encrypted payload."""
        content = body_of(payload, key) if body is None else body
        at = str((at_us or self.desk.clock.now_us()) // 1_000_000)
        headers = [pair for pair in headers_for(content, key, at) if pair[0] != "host"]
        return await self.post(content, headers, installation_id)

    async def post(
        self, content: bytes, headers: list[tuple[str, str]], installation_id: str | None = None
    ) -> httpx2.Response:
        """A request to the callback as it is."""
        path = f"/api/v1/channels/feishu/installations/{installation_id or self.desk.installation_id}/events"
        async with await self.client() as provider:
            return await provider.post(path, content=content, headers=headers)

    async def say(
        self,
        text: str,
        *,
        sender: str = "ou_1",
        chat: str = "oc_1",
        installation_id: str | None = None,
        parent: str | None = None,
        message_id: str | None = None,
    ) -> dict[str, Any]:
        """A person's message through the callback, which must acknowledge it; its receipt."""
        where = installation_id or self.desk.installation_id
        name = message_id or f"om_h{self.desk.number()}"
        pushed = self.message(text, name, sender=sender, chat=chat, installation_id=where, parent=parent)
        answer = await self.push(pushed, where)
        assert (answer.status_code, answer.json()) == (200, {"msg": "success"})
        (row,) = await self.desk.rows("receipts", provider_message_id=name, installation=where)
        return row

    def message(
        self,
        text: str,
        message_id: str,
        *,
        sender: str = "ou_1",
        chat: str = "oc_1",
        installation_id: str | None = None,
        parent: str | None = None,
        event_id: str | None = None,
    ) -> dict[str, Any]:
        """A message event as the provider writes it."""
        app_id = self.desk.apps[installation_id or self.desk.installation_id]
        now_ms = str(self.desk.clock.now_us() // 1000)
        return {
            "schema": "2.0",
            "header": {
                "event_id": event_id or f"ev_h{self.desk.number()}",
                "event_type": "im.message.receive_v1",
                "create_time": now_ms,
                "token": SECRETS["verification_token"],
                "app_id": app_id,
                "tenant_key": "t-1",
            },
            "event": {
                "sender": {"sender_id": {"open_id": sender}, "sender_type": "user", "tenant_key": "t-1"},
                "message": {
                    "message_id": message_id,
                    "chat_id": chat,
                    "chat_type": "p2p",
                    "message_type": "text",
                    "create_time": now_ms,
                    "content": json.dumps({"text": text}, ensure_ascii=False),
                    **({"parent_id": parent} if parent else {}),
                },
            },
        }

    async def code(self, actor: Actor | None = None, installation_id: str | None = None) -> str:
        """A fresh binding code of this person, asked for over HTTP."""
        return (await self.command(actor, installation_id)).split(" ")[1]

    async def command(self, actor: Actor | None = None, installation_id: str | None = None) -> str:
        """The whole command a person is shown."""
        async with await self.client(actor or self.desk.owner) as client:
            answer = await client.post(self.installation(installation_id, "/binding-challenges"))
        assert answer.status_code == 201, answer.text
        return str(answer.json()["command_text"])


class Interrupted(Exception):
    """What a test breaks a transaction with."""


@dataclasses.dataclass(frozen=True, slots=True)
class BreakableDatabase(TimedDatabase):
    """Its writes fail before the commit while `broken` holds anything."""

    broken: list[str] = dataclasses.field(default_factory=list)

    async def write(self, fn: Callable[[Tx], Any], *, wait_s: float | None = None) -> Any:
        def run(tx: Tx) -> Any:
            result = fn(tx)
            if self.broken:
                raise Interrupted
            return result

        # No `super()`: a dataclass with slots is made twice, and the first is not this one.
        return await TimedDatabase.write(self, run, wait_s=wait_s)


@contextlib.asynccontextmanager
async def open_house(
    database: TimedDatabase,
    clock: ManualClock,
    folder: Path,
    *,
    threads: Any = INLINE,
    failpoints: Failpoints | None = None,
    **settings: str,
) -> AsyncIterator[House]:
    """The production process over `database`, first start done; its worker's steps are the test's to take.

    `threads` None: the production's own.
    """
    wanted = {"CREDENTIAL_KEYS": new_key(), "REPLY_ENABLED": "true", **settings}
    door, runner = Door(), FakeRunner()
    outside = Outside(
        clock=clock,
        database=database,
        channels={"feishu": door},
        runners={runner.name: runner},
        threads=threads,
        failpoints=failpoints or Failpoints(),
    )
    loaded = load_settings(folder, {f"FRONTDESK_{name}": value for name, value in wanted.items()})
    process = Process(loaded, folder, with_worker=False, outside=outside)
    desk = await open_desk(database, clock, channel=door, runner=runner, keyring=process.keyring)
    house = House(desk, process, httpx2.AsyncClient())
    await beat(desk)
    await house.api.aclose()
    house.api = await house.client(desk.owner)
    yield house
    await house.api.aclose()
    await process.stop()


def patient(engine: sa.Engine) -> sa.Engine:
    """PostgreSQL waits for locks as long as a test holds them; the product's own bound is another test's."""
    if engine.dialect.name == "postgresql":

        @sa.event.listens_for(engine, "connect")
        def connected(connection: Any, _record: Any) -> None:
            connection.execute("SET lock_timeout = '100s'")
            connection.commit()

    return engine


async def beat(desk: DeskWorld) -> None:
    """A worker of another process, alive now."""
    await desk.write(
        connections.beat,
        "worker-elsewhere",
        started_at=1,
        accepting=True,
        outbound_started=True,
        artifact_configured=False,
        version="0",
    )


@contextlib.contextmanager
def counted_sdk(monkeypatch: Any) -> Iterator[list[str]]:
    """Each dispatcher that is made and each request it is asked about, in order."""
    seen: list[str] = []
    capturing, challenging, request = sdk.capturing_dispatcher, sdk.challenge_dispatcher, sdk.raw_request

    def build() -> Any:
        make = capturing()

        def made(*arguments: Any) -> Any:
            seen.append("dispatcher")
            return make(*arguments)

        return made

    def challenge(*arguments: Any) -> Any:
        seen.append("challenge dispatcher")
        return challenging(*arguments)

    def asked(*arguments: Any) -> Any:
        seen.append("asked")
        return request(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(sdk, "capturing_dispatcher", build)
        patch.setattr(sdk, "challenge_dispatcher", challenge)
        patch.setattr(sdk, "raw_request", asked)
        yield seen
