"""The whole server from seeds: see `world.py`. `SEEDS=5000` runs more, `SEED=17` that one alone."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable

import pytest

from frontdesk.kernel.clock import ManualClock
from tests.sim import coverage
from tests.sim.life import Life, LocalClock
from tests.sim.loop import SimLoop, bury
from tests.sim.mutants import MUTANTS, Patch, seeds_until_red
from tests.sim.plan import Doom
from tests.sim.world import run_seed
from tests.support.summary import record_engine

SEEDS = int(os.environ.get("SEEDS") or str(coverage.SEEDS))
CHUNK = 52
ONE = os.environ.get("SEED")
CHUNKS = (
    [range(int(ONE), int(ONE) + 1)] if ONE else [range(at, min(at + CHUNK, SEEDS)) for at in range(0, SEEDS, CHUNK)]
)


def name_of(seeds: range) -> str:
    """A chunk's name."""
    return f"{seeds.start}-{seeds.stop - 1}"


@pytest.fixture(scope="session")
def ledger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> coverage.Ledger:
    """The counters of this run, shared by its workers."""
    shared = hasattr(request.config, "workerinput")
    base = tmp_path_factory.getbasetemp()
    return coverage.Ledger((base.parent if shared else base) / "sim-ledger")


@pytest.mark.spec("DESK-272")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", CHUNKS, ids=name_of)
def test_no_interleaving_breaks_a_promise(
    request: pytest.FixtureRequest, ledger: coverage.Ledger, seeds: range
) -> None:
    """However callback, worker, recovery, revocation, closing, clock steps and crashes interleave, no operation is sent
    twice without proof, no cursor passes its revision, and nothing begins to be sent after the commit that forbade it.

    On SQLite, where transactions are serial; PostgreSQL's row races are met at barriers by the contract tests, and
    `tests/property` draws interleavings on both engines. Whoever ends the run's last chunk sees to it that the seeds
    between them have brought about each failpoint, fault and withdrawal often enough to have shown something.
    """
    record_engine(request.node, "SQLite", sqlite3.sqlite_version)
    happened: Counter[str] = Counter()
    for seed in seeds:
        report = run_seed(seed)
        happened.update(report.happened)
        happened["answered"] += report.outcomes.get("answered:sent", 0)
        if report.profile == "storm":
            assert report.deaths, f"seed {seed} had no crash"
            assert report.happened.get("leap") == 1, f"seed {seed} had no leap"
    if len(seeds) == CHUNK:
        assert happened["answered"] > CHUNK // 2, "seeds in which nothing is answered show nothing"
    ledger.enter(name_of(seeds), happened)
    total = ledger.total(map(name_of, CHUNKS))
    if total is not None and coverage.SEEDS <= SEEDS:
        assert coverage.rare(total) == {}


@pytest.mark.parametrize("seed", [1, 12, 36])  # a storm, crashes alone, people alone
def test_a_seed_replays_to_the_letter(seed: int) -> None:
    first, again = run_seed(seed), run_seed(seed)

    assert first == again


QUICK = [
    mutant
    for mutant in MUTANTS
    if mutant.__name__
    in {
        "receipts_not_unique",
        "takeover_keeps_generation",
        "acknowledged_before_commit",
        "newest_first",
        "cursor_before_revision",
        "unknown_is_retried",
        "running_turn_runs_again",
        "no_authority_at_t7",
    }
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.__name__)
def test_a_broken_product_is_noticed(mutant: Callable[[], Patch]) -> None:
    assert seeds_until_red(mutant, 60) is not None


def test_what_belongs_to_a_dead_life_never_runs_again() -> None:
    clock = ManualClock()
    loop = SimLoop(clock, random.Random(1))
    ran: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(2)
        finally:
            ran.append("cleaned up")

    async def main() -> None:
        life = Life(0, 1, LocalClock(clock, 0), Doom(), loop.create_future())
        task = life.begin(work(), "work")
        await asyncio.sleep(1)
        life.end()
        await asyncio.sleep(5)
        assert not task.done()
        assert ran == []
        bury(life.tasks)

    loop.run_until_complete(main())
    loop.close()
