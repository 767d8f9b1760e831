"""A desk whose one chat is a web hook: the real channel, the real callback, a peer on plain sockets."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import httpx2

from frontdesk.api.metrics import Metrics
from frontdesk.channels.loopback import DEFAULT_TARGETS, LoopbackChannel
from frontdesk.kernel.clock import SECOND, ManualClock
from frontdesk.storage.database import Database
from tests.channels import hooks
from tests.channels.provider import Provider
from tests.contract.desk_world import DeskWorld, Seat
from tests.contract.inbox.pushing import Inline, callback_of
from tests.contract.world import first_world

LABELS = {"app_id": "app-label", "tenant_key": "tenant-label"}


@dataclass
class HookDesk:
    """The desk and its peer. `peer.requests` are the wire requests, in order."""

    desk: DeskWorld
    peer: Provider
    clock: ManualClock
    metrics: Metrics = field(default_factory=Metrics)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        callback = callback_of(self.desk, self.desk.channels, self.metrics)
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=callback), base_url="http://desk.test")

    @property
    def url(self) -> str:
        """Where the peer takes messages."""
        return hooks.hook(self.peer)

    @property
    def path(self) -> str:
        """Where it pushes to."""
        return f"/api/v1/channels/loopback/installations/{self.desk.installation_id}/events"

    async def raw(self, headers: list[tuple[str, str]], body: bytes) -> httpx2.Response:
        """Post a push as it is."""
        return await self.client.post(self.path, content=body, headers=[pair for pair in headers if pair[0] != "host"])

    async def push(self, fields: dict[str, Any], **named: Any) -> int:
        """Sign a push now and post it; the status of the answer."""
        body = hooks.body_of(fields)
        at = named.pop("at", None) or str(self.clock.now_us() // SECOND)
        return (await self.raw(hooks.headers(body, at=at, **named), body)).status_code

    async def say(self, text: str, parent: str | None = None, **changes: Any) -> dict[str, Any]:
        """A message of the person, accepted; its receipt."""
        fields = hooks.message(
            id=f"in_{next(self._numbers)}",
            text=text,
            parent=parent,
            created_at_ms=self.clock.now_us() // 1000,
            **changes,
        )
        assert await self.push(fields) == 200
        (receipt,) = await self.desk.rows("receipts", provider_message_id=fields["id"])
        return receipt

    async def seat(self) -> Seat:
        """The owner, bound by a push of theirs and authorised; the activation waits to be sent."""
        desk = self.desk
        bound = await self.say(f"/bind {await desk.challenge()}")
        assert (bound["status"], bound["error_code"]) == ("completed", None)
        conversation = await desk.converse()
        view = await desk.create(desk.order(bound["binding"], conversation))
        return Seat(
            desk.owner, desk.installation_id, bound["binding"], "person-1", "chat-1", conversation, view.grant.id, ""
        )

    def listing(self, *targets: str) -> None:
        """From now on these targets are listed, as after a restart with another setting."""
        self.desk.channel = LoopbackChannel(targets, self.clock, Inline())  # type: ignore[assignment]


async def open_hooks(database: Database, clock: ManualClock, peer: Provider) -> HookDesk:
    """A desk after a first start with one loopback installation whose target is `peer`."""
    channel: Any = LoopbackChannel(DEFAULT_TARGETS, clock, Inline())
    desk = DeskWorld(await first_world(database), clock, channel=channel)
    made = HookDesk(desk, peer, clock)
    desk.installation_id = await desk.install(secrets={"app_secret": hooks.SECRET}, target_url=made.url, **LABELS)
    return made
