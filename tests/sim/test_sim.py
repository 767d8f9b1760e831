"""The whole server from seeds: see `world.py`. `SEEDS=500` runs more, `SEED=17` that one alone."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable

import pytest

from frontdesk.kernel.clock import ManualClock
from tests.sim.life import Life, LocalClock
from tests.sim.loop import SimLoop, bury
from tests.sim.mutants import MUTANTS, Patch, seeds_until_red
from tests.sim.plan import Doom
from tests.sim.world import run_seed
from tests.support.summary import record_engine

SEEDS = int(os.environ.get("SEEDS") or "144")
CHUNK = 12
ONE = os.environ.get("SEED")
CHUNKS = (
    [range(int(ONE), int(ONE) + 1)] if ONE else [range(at, min(at + CHUNK, SEEDS)) for at in range(0, SEEDS, CHUNK)]
)


@pytest.mark.spec("DESK-272")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
def test_no_interleaving_breaks_a_promise(request: pytest.FixtureRequest, seeds: range) -> None:
    """However callback, worker, recovery, revocation, closing, clock steps and crashes interleave, no operation is sent
    twice without proof, no cursor passes its revision, and nothing begins to be sent after the commit that forbade it.

    On SQLite, where transactions are serial; PostgreSQL's row races are met at barriers by the contract tests.
    """
    record_engine(request.node, "SQLite", sqlite3.sqlite_version)
    happened: Counter[str] = Counter()
    for seed in seeds:
        report = run_seed(seed)
        happened["deaths"] += len(report.deaths)
        happened["answered"] += report.outcomes.get("answered:sent", 0)
        happened["wires"] += report.wires
    if len(seeds) == CHUNK:  # a chunk holds every profile: one in which nothing happened has shown nothing
        assert min(happened["deaths"], happened["answered"], happened["wires"]) > 0, happened


@pytest.mark.parametrize("seed", [1, 5, 6])
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
