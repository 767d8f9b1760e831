"""One simulated installation: a database file, one to three processes over it, a provider, people, and a seed.

Everything runs on one thread and one virtual clock. `run_seed(seed)` returns what happened, or raises what went wrong.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import dataclasses
import functools
import random
import shutil
import sqlite3
import tempfile
import zlib
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import structlog
from sqlalchemy import Engine

from frontdesk.app import wiring
from frontdesk.app.migrating import upgrade
from frontdesk.app.settings import Settings
from frontdesk.app.wiring import Outside, Process
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND, ManualClock
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.kernel.ids import SeededEntropy
from frontdesk.storage import sqlite
from tests.sim import ending
from tests.sim.database import InlineThreads, SimDatabase
from tests.sim.life import Killed, Life, LocalClock, Violation, through
from tests.sim.loop import SimLoop, bury
from tests.sim.mirror import FileLog, Mirror, install_triggers
from tests.sim.people import People, Person
from tests.sim.plan import Doom, Plan, doom_of, plan_of
from tests.sim.provider import CHANNEL, Provider, SimChannel
from tests.sim.runner import RUNNER, Asked, SimRunner
from tests.sim.watch import Watch

KEY = "O7k2k-0JuIbxKiI0u7RAXVbXiPPCIiAGGsh-6Z9nLyo="
BEAT_US = 60 * SECOND
SETTLE_S_MAX = 3 * 3600.0
# What the product reports when one of its own promises broke; injected faults never lead there.
_make_engine = sqlite.sqlite_engine
DEFECTS = ("inbox.defect", "sending.defect", "worker.step_failed", "inbox.renewal_failed", "inbox.begin_failed")


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What one seed did."""

    seed: int
    profile: str
    digest: str
    lives: int
    deaths: tuple[str, ...]
    commits: int
    wires: int
    virtual_s: float
    outcomes: dict[str, int]
    happened: dict[str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """An installation to begin from: a file in which everybody is bound and has a grant, and what the world knows."""

    path: Path
    at_us: int
    installation: str
    place: Any
    persons: tuple[Person, ...]
    messages: int


class World:
    """See the module."""

    def __init__(self, plan: Plan, path: Path, loop: SimLoop, true: ManualClock) -> None:
        self.plan = plan
        self.happened: Counter[str] = Counter()
        self.sure_connect = plan.sure_connect
        self.true = true
        self.loop = loop
        self.dice = random.Random(f"world {plan.seed}")
        self._lags = random.Random(f"lag {plan.seed}")
        self.path = path
        self.log = FileLog(self.path)
        self.mirror = Mirror(self.log.read)
        self.watch = Watch(self, self.mirror)
        self.provider = Provider(self)
        self.asked = Asked()
        self.people = People(self)
        self.installation = ""
        self.quiet = True  # no faults: before the first start, and again at the end
        self.over = False
        self.notes: deque[str] = deque(maxlen=600)
        self.digest = 0
        self.clocks = [LocalClock(true, offset) for offset in plan.offsets_us]
        self.lives: list[Life | None] = [None] * plan.processes
        self.all_lives: list[Life] = []
        self.deaths: list[str] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self.settings = Settings(
            reply_enabled=True,
            credential_keys=KEY,  # type: ignore[arg-type]
            runner=RUNNER,
            delivery_age_max=f"{plan.delivery_age_us // SECOND}s",  # type: ignore[arg-type]
            shutdown_grace=self.dice.choice(("2s", "25s")),  # type: ignore[arg-type]
        )

    # ------------------------------------------------------------------------------------------ chance and notes

    def chance(self, rate: float) -> bool:
        """True with this probability; never once the world is quiet."""
        return not self.quiet and rate > 0 and self._lags.random() < rate

    def lag(self) -> float:
        """A little virtual time, in seconds."""
        return self._lags.random() ** 3 * self.plan.lag

    def note(self, text: str) -> None:
        """One line of the trace; what two runs of a seed must agree on."""
        line = f"{self.true.monotonic_us() / SECOND:10.4f} {text}"
        self.notes.append(line)
        self.digest = zlib.crc32(line.encode(), self.digest)

    def violation(self, violation: Violation) -> Violation:
        """End the run: raise what this returns."""
        self.loop.fail(violation)
        return violation

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """A task of the world itself, whoever asks for it."""
        task = self.loop.create_task(work, name=name, context=self._own_context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.fail(error)

    def later(self, delay_s: float, callback: Callable[..., object], *arguments: Any) -> None:
        """Call back in the world's own name, whatever life asks for it."""
        self.loop.call_later(delay_s, callback, *arguments, context=self._own_context)

    # ------------------------------------------------------------------------------------------ processes

    def any_life(self) -> Life | None:
        """One of the processes that serve at this moment."""
        serving = [life for life in self.lives if life is not None and life.ready and not life.dead]
        return self.dice.choice(serving) if serving else None

    def kill(self, life: Life, why: str) -> None:
        """A crash: raises `Killed` in whatever code of the life asked for it."""
        if not life.dead:
            self.deaths.append(why)
            self.happened[f"death {why}"] += 1
            self.note(f"{life.name} dies {why}")
            life.end()
        raise Killed

    def committed(self, life: Life) -> None:
        """A transaction of `life` has ended."""
        self.watch.committed(life)

    def _passing(self, life: Life, point: str) -> None:
        life.check()
        life.passed[point] = life.passed.get(point, 0) + 1
        if life.doom.point == point and life.passed[point] == life.doom.nth and not self.quiet:
            self.kill(life, f"at {point}")

    def new_life(self, where: int, doom: Doom) -> Life:
        """A process that was just started."""
        number = len(self.all_lives) + 1
        life = Life(where, number, self.clocks[where], doom, self.loop.create_future())
        entropy = SeededEntropy(self.plan.seed * 1000 + number)
        life.database = SimDatabase(self, life, self.path, entropy)
        outside = Outside(
            clock=life.clock,
            entropy=entropy,
            failpoints=Failpoints(observer=functools.partial(self._passing, life)),
            threads=InlineThreads(self, life),
            database=life.database,
            channels={CHANNEL: SimChannel(self, life)},
            runners={RUNNER: SimRunner(self, life)},
        )
        life.process = Process(self.settings, self.path.parent, with_worker=True, outside=outside)
        life.database.hub_wake = life.process.hub.wake
        life.owner = life.process.worker._options.owner
        self.all_lives.append(life)
        return life

    async def _serve(self, where: int) -> None:
        """One process's place: start, serve, die or stop, start again."""
        point = self.plan.sure_point if where == self.plan.seed % self.plan.processes else None
        while not self.over:
            doom = doom_of(self.plan, self.dice) if not self.quiet else Doom()
            if point is not None and not self.quiet and not self.happened[f"death at {point}"]:
                doom = Doom(point=point)
            life = self.new_life(where, doom)
            self.lives[where] = life
            started = await through(life, life.process.start(), "start")
            if started is None:
                life.ready = True
                self.note(f"{life.name} serves")
                if life.doom.after_s is not None:
                    self.later(life.doom.after_s, self.strike, life)
                await life.gone
            elif not life.dead:
                self.note(f"{life.name} did not start: {type(started).__name__}")
                life.end()
            life.database.close_now()
            if not self.over:
                await asyncio.sleep(self.dice.choice((0.1, 1.0, 5.0, 40.0)) * self.dice.random())

    def strike(self, life: Life) -> None:
        """A crash out of nothing."""
        if not life.dead and not self.quiet:
            with contextlib.suppress(Killed):
                self.kill(life, "of a bolt from the blue")

    async def stop(self, life: Life) -> None:
        """SIGTERM: the orderly end. Nothing of the life may be left over."""
        if life.dead or life.stopping:
            return
        life.stopping = True
        life.ready = False
        self.note(f"{life.name} stops")
        outcome = await through(life, life.process.stop(), "stop")
        if life.dead:
            return
        if isinstance(outcome, BaseException):
            raise self.violation(Violation(f"stop of {life.name} raised {outcome!r}"))
        await asyncio.sleep(0)
        left = [task.get_name() for task in life.tasks if not task.done() and task not in life.asked]
        life.end()
        if left:
            raise self.violation(Violation(f"{life.name} stopped and left {left}"))

    # ------------------------------------------------------------------------------------------ the run

    async def run(self) -> None:
        """From a settled installation to quiescence; for one seed in three, a restart after it that changes nothing."""
        self.quiet = False
        for where in range(self.plan.processes):
            self.spawn(self._serve(where), f"place {where}")
        self.people.go()
        await asyncio.sleep(self.plan.duration_s)
        self.quiet = True
        self.note("quiet")
        ahead = max(clock.offset_us for clock in self.clocks)
        for clock in self.clocks:
            clock.offset_us = ahead
        await self._settle()
        ending.check(self)
        if self.plan.seed % 3 == 0:
            await self._restart()
        self.over = True
        for life in self.lives:
            if life is not None:
                await self.stop(life)

    async def _restart(self) -> None:
        before = len(self.provider.wires), len(self.asked.texts)
        for life in self.lives:
            if life is not None:
                await self.stop(life)
        await asyncio.sleep(30)
        if (len(self.provider.wires), len(self.asked.texts)) != before:
            raise Violation("a restart after the end asked or sent again")

    async def _settle(self) -> None:
        """Until nothing is open any more, in bounded virtual time."""
        until = self.loop.time() + SETTLE_S_MAX
        while self.loop.time() < until:
            await asyncio.sleep(5)
            if not self.provider.outstanding and not self.people.busy and not ending.still_open(self.mirror):
                await asyncio.sleep(25)
                if not ending.still_open(self.mirror):
                    return
        raise Violation(f"no quiescence in {SETTLE_S_MAX} virtual seconds: {ending.still_open(self.mirror)}")

    def resume(self, settled: Settled) -> None:
        """Go on from where the people of `settled` stand."""
        self.mirror.look()
        self.installation = settled.installation
        self.people.move_in(settled.place, settled.persons)
        self.provider.skip(settled.messages)

    def simulate(self, work: Coroutine[Any, Any, None] | None = None) -> None:
        """Run to the end on this world's loop."""
        self._own_context = contextvars.copy_context()
        main = self.loop.create_task(self.run() if work is None else work, name="run")
        try:
            self.loop.run_until_complete(main)
        except RuntimeError as error:
            if self.loop.failure is None:
                raise
            raise self.loop.failure from error
        if self.loop.failure is not None:
            raise self.loop.failure

    def bury(self) -> None:
        """Put away everything that still hangs around."""
        for life in self.all_lives:
            if not life.dead:
                life.dead = True
            bury(life.tasks)
            life.database.close_now()
        bury([*asyncio.all_tasks(self.loop), *self._tasks])
        self.log.close()


@functools.cache
def _template() -> Path:
    """A migrated file with the log's triggers, made once per process."""
    folder = Path(tempfile.mkdtemp(prefix="fdsim-", dir=_fast_folder()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "template.db"
    engine = sqlite.sqlite_engine(path)
    upgrade(engine)
    engine.dispose()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    install_triggers(path)
    return path


@functools.cache
def _engine(path: Path, *, pooled: bool = False) -> Engine:
    """One engine for every life of every seed: what SQLAlchemy compiled once is not compiled again."""
    return _make_engine(path, pooled=pooled)


def _fresh_file(template: Path) -> Path:
    """The installation's file of the next seed, always at one path."""
    path = template.with_name("frontdesk.db")
    for old in path.parent.glob(f"{path.name}*"):
        old.unlink()
    shutil.copyfile(template, path)
    return path


@functools.cache
def settled(persons: int) -> Settled:
    """An installation with so many people, made once per process by the product's own verbs; each seed copies it."""
    plan = Plan(-persons, "settling in", 1, persons, 0.0, 0.0, 10 * SECOND, 60 * SECOND, (0,))
    true = ManualClock()
    path = _fresh_file(_template())
    loop = SimLoop(true, random.Random(f"loop {persons}"))
    with _surroundings(plan, []):
        world = World(plan, path, loop, true)
        try:
            world.simulate(world.people.settle_in())
            people, made = tuple(world.people.persons), world.provider.messages
            result = Settled(
                path.with_name(f"settled-{persons}.db"),
                true.now_us(),
                world.installation,
                world.people.place,
                people,
                made,
            )
        finally:
            world.bury()
            loop.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    shutil.copyfile(path, result.path)
    return result


def _fast_folder() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextlib.contextmanager
def _surroundings(plan: Plan, logs: list[dict[str, Any]]) -> Iterator[None]:
    """Poll less often than in production (virtual time is long), leave the HTTP routes out, keep the log."""
    kept = structlog.get_config()
    structlog.configure(processors=[lambda _, level, event: _keep(logs, level, event)], wrapper_class=None)
    try:
        with (
            mock.patch.object(limits, "POLL_INTERVAL_US", plan.poll_us),
            mock.patch.object(limits, "WORKER_BEAT_US", BEAT_US),
            mock.patch.object(wiring, "ROUTES", ()),
            mock.patch.object(sqlite, "sqlite_engine", _engine),
        ):
            yield
    finally:
        structlog.configure(**kept)


def _keep(logs: list[dict[str, Any]], level: str, event: Any) -> Any:
    logs.append({**event, "log_level": level})
    raise structlog.DropEvent


def run_seed(seed: int) -> Report:
    """Simulate one seed. Raises `Violation` (or whatever broke) with the trace's end as a note."""
    plan = plan_of(seed)
    start = settled(plan.persons)
    true = ManualClock(start.at_us)
    path = _fresh_file(start.path)
    logs: list[dict[str, Any]] = []
    loop = SimLoop(true, random.Random(f"loop {seed}"))
    with _surroundings(plan, logs):
        world = World(plan, path, loop, true)
        try:
            world.resume(start)
            world.simulate()
            defects = [entry for entry in logs if entry["event"] in DEFECTS and entry.get("code") != "Violation"]
            if defects:
                raise Violation(f"the product reports a defect of its own: {defects[:3]}")
        except BaseException as error:
            tail = "\n".join(world.notes)
            error.add_note(f"seed {seed} ({plan})\n{tail}\nreplay: python -m tests.sim --seed {seed} --trace")
            raise
        finally:
            world.bury()
            loop.close()
    return Report(
        seed,
        plan.profile,
        f"{world.digest:08x}",
        len(world.all_lives),
        tuple(world.deaths),
        world.watch.commits,
        len(world.provider.wires),
        true.monotonic_us() / SECOND,
        ending.outcomes(world),
        {name: times for name, times in sorted(world.happened.items()) if times},
    )
