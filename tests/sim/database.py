"""The product's SQLite database on the simulation's one thread: a transaction happens at an instant of the seed.

Between asking and committing, and between committing and learning of it, virtual time passes and others work; that is
where interleavings come from. A cancelled caller lets its transaction finish, a dead process never begins one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.storage.sqlite import SqliteDatabase
from frontdesk.storage.tx import Tx
from tests.sim.life import Killed, Life

if TYPE_CHECKING:
    from tests.sim.world import World

T = TypeVar("T")


class SimDatabase:
    """Implements `storage.database.Database` for one life over the installation's one file."""

    engine_name = "sqlite"

    def __init__(self, world: World, life: Life, path: Path, entropy: Any) -> None:
        self._world = world
        self._life = life
        self._inner = SqliteDatabase(
            path, life.clock, entropy, wake=self._wake, inline=True, on_commit=self._before_commit
        )
        self.hub_wake: Callable[[list[str]], None] | None = None
        self._queued = 0
        self._closing = False
        self._closed = False

    def engine(self) -> Any:
        """See `Database.engine`."""
        return self._inner.engine()

    async def read(self, fn: Callable[[Tx], T]) -> T:
        """See `Database.read`."""
        return await self._later(lambda: run_now(self._inner.read(fn)), written=False)

    async def write(self, fn: Callable[[Tx], T], *, wait_s: float | None = None) -> T:
        """See `Database.write`."""
        return await self._later(lambda: self._write(fn), written=True)

    async def close(self) -> None:
        """See `Database.close`."""
        self._closing = True
        while self._queued:  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(0.001)
        self.close_now()

    def close_now(self) -> None:
        """Give files back; also what the operating system does for a dead process."""
        if not self._closed:
            self._closed = True
            run_now(self._inner.close())

    async def _later(self, transact: Callable[[], Any], *, written: bool) -> Any:
        self._life.check()
        if self._closing:
            raise DatabaseBusy
        self._queued += 1
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        done.add_done_callback(_consume)
        world = self._world
        wait_s = world.dice.uniform(0.5, 12) if world.chance(world.plan.stall) else world.lag()
        loop.call_later(wait_s, self._transact, transact, done, written)
        return await asyncio.shield(done)

    def _transact(self, transact: Callable[[], Any], done: asyncio.Future[Any], written: bool) -> None:
        world, life = self._world, self._life
        loop = asyncio.get_running_loop()
        self._queued -= 1
        if written and world.chance(world.plan.busy):
            loop.call_later(world.lag(), _settle, done, True, DatabaseBusy())
            return
        failed, value = False, None
        try:
            value = transact()
        except Killed:
            return
        except BaseException as error:  # noqa: BLE001 - handed to whoever asked
            failed, value = True, error
        if life.dead:
            return
        if written:
            world.committed(life)
            if life.doom.commit == "after" and life.commits == life.doom.nth and not world.quiet:
                world.kill(life, "after a commit")
                return
        loop.call_later(world.lag(), _settle, done, failed, value)

    def _write(self, fn: Callable[[Tx], T]) -> T:
        if not self._world.chance(self._world.plan.rerun):
            return run_now(self._inner.write(fn))

        def twice(tx: Tx) -> T:
            # As after a serialization failure: what the first run did is undone, and only the second one counts.
            savepoint = tx.conn.begin_nested()
            try:
                fn(tx)
            finally:
                savepoint.rollback()
            tx.wakes.clear()
            return fn(tx)

        return run_now(self._inner.write(twice))

    def _before_commit(self) -> None:
        life = self._life
        life.commits += 1
        if life.doom.commit == "before" and life.commits == life.doom.nth and not self._world.quiet:
            self._world.kill(life, "before a commit")
        life.check()

    def _wake(self, topics: list[str]) -> None:
        if self.hub_wake is not None and not self._life.dead and not self._world.chance(self._world.plan.lost_wake):
            self.hub_wake(topics)


class InlineThreads:
    """`api.threads.Threads` without threads: the function runs at an instant of the seed."""

    def __init__(self, world: World, life: Life) -> None:
        self._world = world
        self._life = life

    async def run(self, fn: Callable[..., T], *arguments: Any) -> T:
        """See `Threads.run`."""
        await asyncio.sleep(self._world.lag())
        self._life.check()
        return fn(*arguments)


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends (everything of an inline database)."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    work.close()
    raise AssertionError("an inline database suspended")


def _settle(done: asyncio.Future[Any], failed: bool, value: Any) -> None:
    if done.done():
        return
    if failed:
        done.set_exception(value)
    else:
        done.set_result(value)


def _consume(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
