"""A listener in this process, on the real SDK, against a real simulator, over a database of each engine.

Three clocks: the database's (`desk.clock`), the supervisor's (`pulse`), which alone decides about pongs and renewals,
and the provider's. All three move only when told.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from frontdesk.app.listener import Ending, Listener, Patience
from frontdesk.app.settings import Settings
from frontdesk.app.wiring import Outside
from frontdesk.channels.feishu.line import FeishuLine
from frontdesk.channels.registry import build_lines
from frontdesk.desk import connections
from frontdesk.desk.connections.channel import Accept, Installed, Line
from frontdesk.desk.connections.model import Installation
from frontdesk.kernel.clock import ManualClock
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.kernel.secretbox import KeyRing, new_key
from frontdesk.storage.database import Database
from tests.contract.desk_world import DeskWorld
from tests.simulator.harness import Provider, Sim

WAIT_S = 60.0
# Looks are frequent, so that what a test brings about is seen soon; everything else waits as long as a test may.
QUICK = Patience(look_s=0.02, commit_wait_s=WAIT_S)


async def until(what: str, check: Callable[[], Any | Awaitable[Any]]) -> Any:
    """Poll until `check` gives something; fails with `what` where it never does."""
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while True:
        found = check()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(0.02)


@dataclasses.dataclass
class Running:
    """A listener at work."""

    listener: Listener
    stop: asyncio.Event
    ready: asyncio.Event
    task: asyncio.Task[Ending]
    lines: list[Line]

    @property
    def line_is_stopping(self) -> bool:
        """Whether its line was told to stop."""
        (line,) = self.lines
        assert isinstance(line, FeishuLine)
        return line._notes.stopping

    async def connected(self) -> None:
        """Wait until it says so; fails with its end where it ends before."""
        waiting = asyncio.ensure_future(self.ready.wait())
        await asyncio.wait({waiting, self.task}, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        assert self.ready.is_set(), self.task.result() if self.task.done() else "not connected in time"

    async def ended(self) -> Ending:
        """Wait for its end."""
        async with asyncio.timeout(WAIT_S):
            return await asyncio.shield(self.task)


@dataclasses.dataclass
class ListeningWorld:
    """A desk whose installation receives from the simulator's app."""

    desk: DeskWorld
    provider: Provider
    key: str
    installation_id: str
    pulse: ManualClock = dataclasses.field(default_factory=ManualClock)

    @property
    def sim(self) -> Sim:
        return self.provider.sim

    @property
    def app_id(self) -> str:
        return str(self.provider.app["app_id"])

    @contextlib.asynccontextmanager
    async def listening(
        self,
        *,
        patience: Patience = QUICK,
        failpoints: Failpoints | None = None,
        database: Database | None = None,
        connected: bool = True,
    ) -> AsyncIterator[Running]:
        """A listener, connected unless said otherwise, asked to stop at the end."""
        outside = Outside(
            clock=self.pulse,
            failpoints=failpoints or Failpoints(),
            database=Borrowed(database or self.desk.database),
            channels=self.desk.channels,
        )
        settings = Settings(credential_keys=self.key, feishu_domain=self.sim.base)  # type: ignore[arg-type]
        opened: list[Line] = []
        (open_line,) = build_lines(self.sim.base, None, self.pulse).values()

        def keep(installed: Installed, accept: Accept) -> Line:
            opened.append(open_line(installed, accept))
            return opened[-1]

        listener = Listener(
            settings, Path(), self.installation_id, outside=outside, patience=patience, lines={"feishu": keep}
        )
        stop, ready = asyncio.Event(), asyncio.Event()

        async def stopped() -> None:
            await stop.wait()

        running = Running(listener, stop, ready, asyncio.create_task(listener.run(stopped, ready.set)), opened)
        try:
            if connected:
                await running.connected()
            yield running
        finally:
            stop.set()
            await asyncio.wait({running.task}, timeout=WAIT_S)
            assert running.task.done(), "the listener did not stop"
            if running.task.exception() is None:
                running.task.result()

    async def call(self, fn: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """A blocking call of the simulator, off the loop that the listener's commits need."""
        return await asyncio.to_thread(fn, *arguments, **named)

    async def say(self, text: str = "question", **more: Any) -> str:
        """A message of the person; its message id."""
        return str(await self.call(self.provider.say, text, **more))

    async def push(self, **body: Any) -> dict[str, Any]:
        """Push something by hand and wait for the first attempt's end; the push."""
        made = await self.call(self.sim.post, "push", wait=True, **body)
        return dict(await self.call(self.sim.get, f"pushes/{made['push']}"))

    async def attempts(self, message_id: str) -> list[dict[str, Any]]:
        """Every attempt to hand a message over."""
        pushes = await self.call(self.sim.get, "pushes", message_id=message_id)
        return [attempt for push in pushes["items"] for attempt in push["attempts"]]

    async def statuses(self, message_id: str) -> list[int | None]:
        """How each attempt was acknowledged."""
        return [attempt["status"] for attempt in await self.attempts(message_id)]

    async def acknowledged(self, message_id: str, *statuses: int) -> None:
        """Wait until the attempts were acknowledged so."""

        async def as_wanted() -> bool:
            return await self.statuses(message_id) == list(statuses)

        await until(f"acknowledgements {statuses}", as_wanted)

    async def taken(self, message_id: str) -> None:
        """Wait until the message was acknowledged 200, pushed again where an attempt was not."""

        async def done() -> bool:
            statuses = await self.statuses(message_id)
            if statuses and statuses[-1] not in {None, 200}:
                await self.later(15)
            return 200 in statuses

        await until("the message to be taken", done)

    async def later(self, seconds: int) -> None:
        """Move the provider's clock; what became due was attempted by then."""
        await self.call(self.sim.post, "clock", advance_ms=seconds * 1000)

    async def lines(self) -> list[dict[str, Any]]:
        """The app's connections, open and closed."""
        items = (await self.call(self.sim.get, "connections"))["items"]
        return [item for item in items if item["app_id"] == self.app_id]

    async def receipts(self, message_id: str) -> list[dict[str, Any]]:
        return await self.desk.rows("receipts", provider_message_id=message_id)

    async def installation(self) -> Installation:
        found = await self.desk.read(connections.find_installation, self.installation_id)
        assert found is not None
        return found

    async def state(self) -> str | None:
        """What health says of the long connection."""
        found = await self.desk.read(
            connections.get_health,
            self.desk.owner,
            workspace_id=self.desk.home,
            installation_id=self.installation_id,
            reply_enabled=False,
            artifact_enabled=False,
            **self.desk.keys,
        )
        return found.long_connection

    async def events(self) -> list[tuple[str, str | None]]:
        """Each change of the long connection's state with its code, oldest first."""
        rows = await self.desk.rows("events", kind="installation.long_connection_changed")
        return [(row["data"]["state"], row["code"]) for row in rows]


class Borrowed:
    """A database that outlives the listener which closes it."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def close(self) -> None:
        pass


async def open_world(desk: DeskWorld, provider: Provider) -> ListeningWorld:
    """An installation of the simulator's app that receives by long connection, with the app secret alone."""
    key = new_key()
    desk.keyring = KeyRing(key)
    app = provider.app
    installation_id = await desk.install(
        "Listened",
        app_id=app["app_id"],
        tenant_key=app["tenant_key"],
        inbound="long_connection",
        secrets={"app_secret": app["app_secret"]},
    )
    return ListeningWorld(desk, provider, key, installation_id)
