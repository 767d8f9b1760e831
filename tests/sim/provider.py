"""The chat provider of a simulation: it pushes until acknowledged, takes wire requests, and keeps what both did.

It never merges two requests of one uuid: what reaches it twice is seen twice in the chat.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
from typing import TYPE_CHECKING, Any

from frontdesk.channels.feishu.normalise import request_hash
from frontdesk.desk.connections.channel import (
    ChannelLimits,
    Complete,
    ConnectFailed,
    Credentials,
    History,
    Inbound,
    InboundMessage,
    Installed,
    NotSent,
    OutboundFile,
    OutboundMessage,
    Outcome,
    ProbeReport,
    RawPush,
    Recall,
    Refused,
    RefusedFinal,
    RefusedRetry,
    Sent,
    Session,
    Unknown,
    Verdict,
    Verified,
)
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND
from tests.sim.life import LOST, Life, Violation, through
from tests.sim.plan import CONNECTS, FATES

if TYPE_CHECKING:
    from tests.sim.world import World

APP_ID = "cli_1"
TENANT = "t-1"
CHANNEL = "sim"
SECRETS = {"app_secret": "planted-secret", "encrypt_key": "planted-key", "verification_token": "planted-token"}
FINAL = ("target_revoked", "permission_denied", "format_error")
REPUSH_S = (3.0, 15.0, 60.0, 120.0)


@dataclasses.dataclass(eq=False)
class Wire:
    """One wire request. `ended`: open | sent | refused | retry (proof that no message was made) | unknown."""

    number: int
    operation_id: str
    uuid: str
    content: str
    chat_id: str
    reply_to: str | None
    life: Life
    ended: str = "open"


@dataclasses.dataclass(frozen=True)
class Shown:
    """A message of ours that stands in the chat."""

    message_id: str
    operation_id: str
    chat_id: str
    reply_to: str | None
    text: str


@dataclasses.dataclass(eq=False)
class Push:
    """One event on its way in. `acknowledged`: a 200 was given for it, whether or not the provider learned of it."""

    key: str
    event: Inbound
    acknowledged: bool = False
    attempts: int = 0


class Provider:
    """The provider's side of everything."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wires: list[Wire] = []
        self.by_operation: dict[str, list[Wire]] = {}
        self.attempts: dict[str, list[Wire | None]] = {}  # None: a send of which no byte left
        self.shown: list[Shown] = []
        self.pushes: dict[str, Push] = {}
        self.outstanding = 0
        self._newest: dict[str, int] = {}
        self._sure_fate = world.plan.sure_fate
        self.messages = 0
        self._numbers = itertools.count(1)

    def skip(self, messages: int) -> None:
        """So many numbers were given out before this world began."""
        self._numbers = itertools.count(messages + 1)

    # ------------------------------------------------------------------------------------------ in

    def message(self, sender: str, chat: str, text: str, parent: str | None) -> InboundMessage:
        """A person's new message."""
        self.messages = number = next(self._numbers)
        now_ms = self.world.true.now_us() // 1000
        name = f"om_{number}"
        parts = {
            "chat_id": chat,
            "chat_type": "p2p",
            "message_id": name,
            "message_type": "text",
            "content": json.dumps({"text": text}, ensure_ascii=False),
            "parent_id": parent,
            "root_id": None,
            "create_time": str(now_ms),
        }
        return InboundMessage(
            app_id=APP_ID,
            tenant_key=TENANT,
            event_id=f"ev_{number}",
            message_id=name,
            sender_id=sender,
            sender_type="user",
            chat_id=chat,
            chat_type="p2p",
            message_type="text",
            text=text,
            parent_id=parent,
            root_id=None,
            created_at_ms=now_ms,
            signed_at_ms=now_ms if self.world.plan.signed else None,
            request_hash=request_hash(APP_ID, TENANT, sender, parts),
        )

    def push(self, event: InboundMessage | Recall) -> None:
        """Begin to push an event, once or, as real providers do, more than once."""
        kind = "recall" if isinstance(event, Recall) else "message"
        push = Push(f"{kind}:{event.message_id}", event)
        self.pushes[push.key] = push
        self.world.spawn(self._until_acknowledged(push, first_s=self.world.dice.uniform(0, 3)), f"push {push.key}")
        while self.world.chance(self.world.plan.duplicate):
            self.world.spawn(self._once_more(push), f"again {push.key}")

    async def _until_acknowledged(self, push: Push, first_s: float) -> None:
        self.outstanding += 1
        await asyncio.sleep(first_s)
        while not await self._attempt(push):
            wait_s = REPUSH_S[min(push.attempts, len(REPUSH_S)) - 1] * self.world.dice.uniform(0.7, 1.3)
            await asyncio.sleep(min(wait_s, 5.0) if self.world.quiet else wait_s)
        self.outstanding -= 1

    async def _once_more(self, push: Push) -> None:
        self.outstanding += 1
        await asyncio.sleep(self.world.dice.choice((0.0, 0.5, 5.0, 100.0)) * self.world.dice.random())
        await self._attempt(push)
        self.outstanding -= 1

    async def _attempt(self, push: Push) -> bool:
        """One push to one process. True where the provider learned of a 200."""
        push.attempts += 1
        life = self.world.any_life()
        if life is None:
            return False
        self._count(push)
        event = push.event
        if isinstance(event, InboundMessage) and self.world.chance(0.5):
            event = dataclasses.replace(event, event_id=f"ev_{next(self._numbers)}")
        try:
            async with asyncio.timeout(3.0):
                status = await through(life, _post(life, self.world.installation, event), "push")
        except TimeoutError:
            status = 0  # the process may still commit it
        if status is LOST or status != 200:
            self.world.note(f"push {push.key} to {life.name}: {'lost' if status is LOST else status}")
            return False
        push.acknowledged = True
        self.world.watch.acknowledged(push)
        return not self.world.chance(self.world.plan.lost_ack)

    def _count(self, push: Push) -> None:
        """What is special about this attempt, for the coverage of a run."""
        happened = self.world.happened
        happened["push again"] += push.attempts > 1
        happened["push again after its 200"] += push.acknowledged
        if isinstance(push.event, InboundMessage):
            if push.attempts == 1:
                late_ms = self.world.true.now_us() // 1000 - push.event.created_at_ms
                happened["push late"] += late_ms > 1_000
                happened["push out of order"] += push.event.created_at_ms < self._newest.get(push.event.chat_id, 0)
            newest = max(push.event.created_at_ms, self._newest.get(push.event.chat_id, 0))
            self._newest[push.event.chat_id] = newest

    # ------------------------------------------------------------------------------------------ out

    async def take(self, life: Life, message: OutboundMessage) -> Outcome:
        """One wire request of a process: the moment its first byte leaves."""
        content = message.text if message.text is not None else repr(message.file)
        wire = Wire(
            len(self.wires) + 1,
            message.operation_id,
            message.provider_uuid,
            content,
            message.chat_id,
            message.reply_to,
            life,
        )
        earlier = self.by_operation.setdefault(message.operation_id, [])
        self.world.watch.wire_begins(wire, earlier)
        earlier.append(wire)
        self.attempts.setdefault(message.operation_id, []).append(wire)
        self.wires.append(wire)
        world = self.world
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda future: future.cancelled() or future.exception())
        world.later(
            world.lag() + (world.dice.uniform(1, 26) if world.chance(world.plan.slow) else 0.05),
            self._arrive,
            wire,
            answer,
        )
        try:
            async with asyncio.timeout(limits.SEND_TIMEOUT_US / SECOND):
                return await answer
        except TimeoutError:
            return Unknown()

    def _arrive(self, wire: Wire, answer: asyncio.Future[Outcome]) -> None:
        """What becomes of a request, whoever still waits for its answer."""
        world = self.world
        fate = self.next_fate()
        if fate in ("take", "take_and_drop", "silent"):
            self.shown.append(
                Shown(f"om_bot_{wire.number}", wire.operation_id, wire.chat_id, wire.reply_to, wire.content)
            )
        outcome: Outcome | None = Unknown()
        if fate == "take":
            wire.ended, outcome = "sent", Sent(f"om_bot_{wire.number}", world.true.now_us() // 1000)
        elif fate == "rate":
            wire.ended, outcome = "retry", RefusedRetry("rate_limited", world.dice.choice((None, 500, 30_000)), 230020)
        elif fate == "token":
            wire.ended, outcome = "retry", RefusedRetry("provider_token_rejected", None, 99991663)
        elif fate == "refuse":
            wire.ended, outcome = "refused", RefusedFinal(world.dice.choice(FINAL), 230011)
        else:
            wire.ended = "unknown"
            outcome = None if fate == "silent" else Unknown()
        world.note(f"wire {wire.number} {wire.operation_id[-6:]} {fate}")
        if outcome is None:
            return
        world.later(world.lag(), _answer, answer, outcome, fate == "raise")

    def next_fate(self) -> str:
        """How this wire request ends: the seed's sure fault comes first of all, the others by chance."""
        world = self.world
        fate = world.dice.choice(tuple(name for name in FATES if name != "not_sent"))
        if not world.chance(world.plan.wire):
            fate = "take"
        if self._sure_fate not in (None, "not_sent") and not world.quiet:
            fate, self._sure_fate = self._sure_fate or fate, None
        world.happened[f"fate {fate}"] += 1
        return fate

    def refuses_connection(self) -> bool:
        """Whether no connection stands for this send, so that no byte of it leaves."""
        world = self.world
        refuses = world.chance(world.plan.wire * 0.1)
        if self._sure_fate == "not_sent" and not world.quiet:
            refuses, self._sure_fate = True, None
        world.happened["fate not_sent"] += refuses
        return refuses

    def visible(self, operation_id: str) -> list[Shown]:
        """Our messages of one operation in the chat."""
        return [shown for shown in self.shown if shown.operation_id == operation_id]


def _answer(answer: asyncio.Future[Outcome], outcome: Outcome, raises: bool) -> None:
    if answer.done():
        return
    if raises:
        answer.set_exception(RuntimeError("the channel broke its promise never to raise"))
    else:
        answer.set_result(outcome)


async def _post(life: Life, installation_id: str, event: Inbound) -> int:
    """A push through the process's own ASGI application; the status it was answered with."""
    body = json.dumps({"event": life.process.channels[CHANNEL].hold(event)}).encode()
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/api/v1/channels/{CHANNEL}/installations/{installation_id}/events",
        "headers": [(b"host", b"localhost"), (b"content-length", str(len(body)).encode())],
        "query_string": b"",
        "client": ("127.0.0.1", 1),
    }
    scope["raw_path"] = scope["path"].encode()
    answered: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answered.append(message["status"])

    await life.process.api(scope, receive, send)
    return answered[0]


class SimChannel:
    """The port of one life to the provider. Everything it does takes virtual time and ends with its life."""

    key = CHANNEL
    prefix = "sim"
    limits = ChannelLimits(text_bytes_max=150_000, file_bytes_max=30_000_000, chat_per_second=5)

    def __init__(self, world: World, life: Life) -> None:
        self._world = world
        self._life = life
        self._held: list[Inbound] = []

    def hold(self, event: Inbound) -> int:
        """Put an event where `verify` finds it: signing and encrypting are other tests' affair."""
        self._held.append(event)
        return len(self._held) - 1

    def secrets_needed(self, inbound: str) -> tuple[str, ...]:
        return ("app_secret",) if inbound == "long_connection" else tuple(SECRETS)

    def unfit(self, name: str, value: str | None) -> str | None:
        return None

    def precheck(self, push: RawPush) -> Refused | None:
        return None

    def verify(self, push: RawPush, credentials: Credentials) -> Verdict:
        if credentials.app_secret != SECRETS["app_secret"]:
            raise Violation("a push was verified with the wrong secret")
        return Verified((self._held[json.loads(push.body)["event"]],))

    def verifies_swapped(self, push: RawPush, credentials: Credentials) -> bool:
        return False

    def text_body_bytes(self, text: str) -> int:
        return len(self.text_content(text).encode())

    def text_content(self, text: str) -> str:
        return json.dumps({"text": text}, ensure_ascii=False)

    def same_text(self, content: str, text: str) -> bool:
        return content == self.text_content(text)

    async def connect(self, installed: Installed) -> Session:
        self._life.check()
        world = self._world
        slow = world.chance(world.plan.slow)
        await asyncio.sleep(
            world.dice.uniform(5, 20) if slow else world.dice.choice((0.0, 0.3, 2.0)) * world.lag() * 10
        )
        code = world.dice.choice(CONNECTS) if world.chance(world.plan.connect) else None
        if world.sure_connect is not None and not world.quiet:
            code, world.sure_connect = world.sure_connect, None
        if code is not None:
            world.happened[f"connect {code}"] += 1
            raise ConnectFailed(code, wait_ms=world.dice.choice((None, 1_000)))
        return object()

    async def upload(self, session: Session, file: OutboundFile) -> str | None:
        await asyncio.sleep(self._world.lag())
        return f"file_{file.name}"

    async def send(self, session: Session, message: OutboundMessage) -> Outcome:
        self._life.check()
        world = self._world
        # The thread that is to send may be paused for long; it looks at the clock last of all.
        await asyncio.sleep(world.dice.uniform(3, 9) if world.chance(world.plan.pause) else world.lag())
        if message.start_before_us is not None and self._life.clock.monotonic_us() >= message.start_before_us:
            world.provider.attempts.setdefault(message.operation_id, []).append(None)
            world.happened["send begun too late"] += 1
            return Unknown()
        if world.provider.refuses_connection():
            world.provider.attempts.setdefault(message.operation_id, []).append(None)
            return NotSent("not_sent_connection")
        return await world.provider.take(self._life, message)

    async def probe(self, installed: Installed) -> ProbeReport:
        return ProbeReport("ok", "ok", bot_open_id="ou_bot")

    async def history(self, session: Session, chat_id: str, since_ms: int, until_ms: int) -> History:
        return Complete((), None)

    async def close(self, session: Session) -> None:
        self._life.check()
        world = self._world
        await asyncio.sleep(10.0 if world.chance(world.plan.slow) else world.lag())
        if world.chance(world.plan.connect):
            world.happened["close failed"] += 1
            raise OSError("close failed")
