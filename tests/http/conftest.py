"""A tiny room of two operations over the real composition: the API without any database behind it."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Literal

import httpx2
import pytest

from frontdesk.api.application import Api, Surroundings, create_api
from frontdesk.api.binding import Call, Handler
from frontdesk.api.services import Policy, Services
from frontdesk.api.threads import ThreadPool
from frontdesk.desk.connections.channel import (
    Challenge,
    ChannelLimits,
    Credentials,
    Ignored,
    Inbound,
    RawPush,
    Refused,
    Verdict,
    Verified,
)
from frontdesk.identity import csrf_token_of
from frontdesk.identity.model import Actor
from frontdesk.kernel.clock import ManualClock
from frontdesk.kernel.errors import DatabaseBusy, Problem
from frontdesk.kernel.oncesecret import token_digest
from frontdesk.kernel.secretbox import CredentialUnavailable, KeyRing
from frontdesk.storage.database import CommitPending
from frontdesk.wire.model import Name, Page, PageQuery, Request, Response
from frontdesk.wire.registry import Operation, W

TOKEN = "fdt_" + "a" * 43
ADMIN_TOKEN = "fdt_" + "b" * 43
SESSION_TOKEN = "fdu_" + "c" * 43
CSRF = csrf_token_of(SESSION_TOKEN)
MARKER = "marker-4711-must-not-show"


class Inner(Request):
    """A nested part."""

    note: Name


class ThingCreate(Request):
    """A body with one of each."""

    name: Name
    count: int = 0
    kind: Literal["a", "b"] = "a"
    inner: Inner | None = None
    payload: dict[str, Any] | None = None


class ThingRead(Response):
    """An answer."""

    name: str
    count: int


CREATE = Operation(
    "test.things.create", "POST", W + "/things", "Make a thing", "workspace.read",
    request=ThingCreate, response=ThingRead, status=201, errors=("name_taken",),
)  # fmt: skip
LIST = Operation(
    "test.things.list", "GET", W + "/things", "List things", "workspace.read", query=PageQuery, response=Page[ThingRead]
)
CLOSE = Operation("test.things.close", "POST", W + "/things/{thing_id}/close", "Close a thing", "workspace.read")
SESSION = Operation(
    "identity.session.create", "POST", "/session", "Log in", "none",
    request=Inner, response=ThingRead, status=201, errors=("login_failed", "rate_limited"), authenticated=False,
)  # fmt: skip


async def create(call: Call) -> ThingRead:
    """Answers, or does what the name says."""
    name = call.body.name
    if name == "taken":
        raise Problem("name_taken")
    if name == "busy":
        raise DatabaseBusy
    if name == "boom":
        raise RuntimeError(MARKER)
    return ThingRead(name=name, count=call.body.count)


async def listing(call: Call) -> Page[ThingRead]:
    """One thing, named for the workspace."""
    return Page[ThingRead](items=[ThingRead(name=call.workspace_id, count=call.query.limit)], next_cursor=None)


async def close(call: Call) -> None:
    """204."""


async def login(call: Call) -> ThingRead:
    """No credentials needed."""
    assert call.actor is None
    return ThingRead(name="in", count=0)


ROUTES: tuple[tuple[Operation, Handler], ...] = ((CREATE, create), (LIST, listing), (CLOSE, close), (SESSION, login))


def actor(*, admin: bool = False) -> Actor:
    """Somebody."""
    return Actor("usr_1", "local:x", "X", "x@example.org", "local", is_platform_admin=admin)


async def authenticate(bearer: str) -> Actor:
    """The tokens above."""
    if bearer == TOKEN:
        return actor()
    if bearer == SESSION_TOKEN:
        return dataclasses.replace(actor(), session_id="ses_1", csrf_digest=token_digest(CSRF))
    if bearer == ADMIN_TOKEN:
        return actor(admin=True)
    raise Problem("unauthenticated")


SECRET = "whsec-test"


class FakeChannel:
    """A channel whose body is `<signature>:<text>`; it counts what it is asked."""

    key = "fake"
    prefix = "fake"
    limits = ChannelLimits(1, 1, 1)

    def __init__(self) -> None:
        self.asked: list[str] = []

    def precheck(self, push: RawPush) -> Refused | None:
        """Needs a colon."""
        self.asked.append("precheck")
        return None if b":" in push.body else Refused("callback_shape_invalid")

    def verify(self, push: RawPush, credentials: Credentials) -> Verdict:
        """The signature must match."""
        self.asked.append("verify")
        signature, _, text = push.body.partition(b":")
        if not hmac.compare_digest(signature.decode("latin-1"), sign(text, credentials.app_secret)):
            return Refused("callback_not_accepted")
        if text == b"boom":
            raise RuntimeError(MARKER)
        if text == b"challenge":
            return Challenge(b'{"challenge":"c"}')
        return Verified((Ignored(text.decode("latin-1")),))


def sign(text: bytes, secret: str = SECRET) -> str:
    """What `FakeChannel` takes."""
    return hashlib.sha256(secret.encode() + text).hexdigest()


def signed(text: bytes = b"hello") -> bytes:
    """A body that verifies."""
    return sign(text).encode() + b":" + text


@dataclasses.dataclass
class FakeTarget:
    """An installation."""

    installation_id: str
    secret: str | None = SECRET
    fresh: bool = True

    def credentials(self) -> Credentials:
        """Its secret, where usable."""
        if self.secret is None:
            raise CredentialUnavailable
        return Credentials(app_secret=self.secret)


class FakePorts:
    """The desk's side, with knobs."""

    def __init__(self) -> None:
        self.targets = {"ins_1": FakeTarget("ins_1"), "ins_2": FakeTarget("ins_2"), "ins_x": FakeTarget("ins_x", None)}
        self.received: list[tuple[str, Sequence[Inbound]]] = []
        self.before_commit: Callable[[], Awaitable[None]] | None = None
        self.wait_s = 2.0
        self.late: list[asyncio.Future[None]] = []

    def known_target(self, channel_key: str, installation_id: str) -> FakeTarget | None:
        """None: every push reads anew."""
        return None

    async def load_target(self, channel_key: str, installation_id: str) -> FakeTarget | None:
        """By id."""
        assert channel_key == "fake"
        return self.targets.get(installation_id)

    async def receive(self, target: FakeTarget, events: Sequence[Inbound]) -> None:
        """Keeps the events, after what the test put before the commit."""
        task = asyncio.ensure_future(self._commit(target, events))
        done, _ = await asyncio.wait((task,), timeout=self.wait_s)
        if not done:
            self.late.append(task)
            raise CommitPending
        task.result()

    async def _commit(self, target: FakeTarget, events: Sequence[Inbound]) -> None:
        if self.before_commit is not None:
            await self.before_commit()
        self.received.append((target.installation_id, events))


@dataclasses.dataclass
class Site:
    """The composed API and its doubles."""

    api: Api
    ports: FakePorts
    channel: FakeChannel
    clock: ManualClock
    services: Services
    surroundings: Surroundings

    def client(self, *, token: str | None = TOKEN, address: str = "127.0.0.1", **options: Any) -> httpx2.AsyncClient:
        """A client in this process."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        transport = httpx2.ASGITransport(app=self.api, client=(address, 4000))
        return httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers, **options)


def build_site(policy: Policy | None = None, **around: Any) -> Site:
    """A site; `around` goes to `Surroundings`."""
    channel, ports, clock = FakeChannel(), FakePorts(), ManualClock()
    services = Services(
        database=None,  # type: ignore[arg-type]
        keyring=KeyRing(""),
        channels={"fake": channel},  # type: ignore[dict-item]
        clock=clock,
        entropy=None,  # type: ignore[arg-type]
        policy=policy or Policy(allowed_hosts=("localhost", "127.0.0.1")),
        threads=ThreadPool("test", 2),
        metrics_token="scrape-" + "m" * 32,
    )
    surroundings = Surroundings(authenticate=authenticate, **around)
    return Site(create_api(services, ROUTES, ports, surroundings), ports, channel, clock, services, surroundings)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A site with defaults."""
    made = build_site()
    yield made
    made.services.threads.close()  # type: ignore[attr-defined]


@pytest.fixture
async def client(site: Site) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with a token."""
    async with site.client() as made:
        yield made


@pytest.fixture
async def stranger(site: Site) -> AsyncIterator[httpx2.AsyncClient]:
    """A client without credentials."""
    async with site.client(token=None) as made:
        yield made


async def settle() -> None:
    """Let what is ready run."""
    for _ in range(5):
        await asyncio.sleep(0)
