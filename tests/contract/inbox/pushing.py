"""Signed pushes through the real callback, the real SDK's verification and the real reception."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx2

from frontdesk.api.addresses import ClientAddresses
from frontdesk.api.desk.callback import Callback
from frontdesk.api.desk.refused import LastRefused
from frontdesk.api.metrics import Metrics
from frontdesk.app.reception import Reception
from frontdesk.channels.feishu import FeishuChannel
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.channels.signing import body_of, headers_for
from tests.contract.desk_world import APP_ID, SECRETS, TENANT, DeskWorld

T = TypeVar("T")


class Inline:
    """Runs blocking work where it is asked for."""

    async def run(self, fn: Callable[..., T], *arguments: Any) -> T:
        return fn(*arguments)


async def _nowhere(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("the callback handed a push on")


def callback_of(
    desk: DeskWorld,
    channels: Mapping[str, Any],
    metrics: Metrics,
    database: Database | None = None,
    *,
    made: type[Callback] = Callback,
) -> Callback:
    """The callback of these channels, on the desk's database."""
    reception = Reception(
        database or desk.database,
        channels,
        desk.keyring,
        unaddressed_messages=desk.unaddressed,
        failpoints=Failpoints(),
        metrics=metrics,
        clock=desk.clock,
    )
    return made(
        _nowhere,
        reception,
        channels=channels,
        clock=desk.clock,
        threads=Inline(),
        metrics=metrics,
        addresses=ClientAddresses(()),
        last_refused=LastRefused(),
    )


class PatientCallback(Callback):
    """The callback, for which reading the installation may take its time."""

    async def _load(self, channel: Any, installation_id: str) -> Any:
        return await self._ports.load_target(channel.key, installation_id)


class Patient:
    """A database whose writes may take their time: what is tried is not how fast this machine is."""

    def __init__(self, inner: Database) -> None:
        self.inner = inner

    async def read(self, fn: Callable[[Tx], T]) -> T:
        return await self.inner.read(fn)

    async def write(self, fn: Callable[[Tx], T], *, wait_s: float | None = None) -> T:
        return await self.inner.write(fn)


class Provider:
    """The provider's side: what it pushes is answered by the whole reception path, and counted there.

    `patient` lifts the callback's own bounds in real time, for tests that are not about them.
    """

    def __init__(self, desk: DeskWorld, database: Database | None = None, *, patient: bool = False) -> None:
        self.desk = desk
        self.metrics = Metrics()
        used = database or desk.database
        channels = {"feishu": FeishuChannel("https://open.feishu.cn", desk.clock, Inline(), None)}
        self.callback = callback_of(
            desk,
            channels,
            self.metrics,
            Patient(used) if patient else used,  # type: ignore[arg-type]
            made=PatientCallback if patient else Callback,
        )
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.callback), base_url="http://desk.test")

    async def push(self, payload: Any, installation_id: str | None = None, *, at_us: int | None = None) -> int:
        """Sign and push once, now or as if signed at `at_us`; the status of the answer."""
        key = SECRETS["encrypt_key"]
        body = body_of(payload, key)
        at = str((at_us or self.desk.clock.now_us()) // 1_000_000)
        headers = [pair for pair in headers_for(body, key, at) if pair[0] != "host"]
        path = f"/api/v1/channels/feishu/installations/{installation_id or self.desk.installation_id}/events"
        return int((await self.client.post(path, content=body, headers=headers)).status_code)

    def ignored(self, reason: str) -> float:
        """How many events were counted without a row for this reason."""
        return self.metrics.registry.get_sample_value("frontdesk_ignored_events_total", {"reason": reason}) or 0.0


def payload(
    text: str | None = "hello",
    *,
    message_id: str = "om_1",
    sender: dict[str, Any] | None = None,
    header: dict[str, Any] | None = None,
    event: dict[str, Any] | None = None,
    kind: str = "im.message.receive_v1",
    **message: Any,
) -> dict[str, Any]:
    """A message event as the provider writes it. `message`, `sender`, `header` and `event` replace or add fields."""
    content = json.dumps({"text": text}, ensure_ascii=False)
    return {
        "schema": "2.0",
        "header": {
            "event_id": "ev_1",
            "event_type": kind,
            "create_time": "1767225600123",
            "token": SECRETS["verification_token"],
            "app_id": APP_ID,
            "tenant_key": TENANT,
            **(header or {}),
        },
        "event": {
            "sender": {
                "sender_id": {"open_id": "ou_1"},
                "sender_type": "user",
                "tenant_key": TENANT,
                **(sender or {}),
            },
            "message": {
                "message_id": message_id,
                "chat_id": "oc_1",
                "chat_type": "p2p",
                "message_type": "text",
                "create_time": "1767225600000",
                "content": content,
                **message,
            },
            **(event or {}),
        },
    }
