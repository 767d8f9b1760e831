"""Eight worker processes on one SQLite file, claiming with the product's own claim."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import multiprocessing
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from frontdesk.desk.inbox import store
from frontdesk.desk.inbox.machine import RECEIPT
from frontdesk.desk.inbox.tables import RECEIPTS
from frontdesk.kernel.clock import HOUR, SystemClock
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.storage.guarded import Take, lease_of, transition
from frontdesk.storage.sqlite import SqliteDatabase
from frontdesk.storage.tx import Tx
from tests.migration.rows import fill

PROCESSES = 8
EACH = 80  # claims of every process: 1,280 commits in all, while the others do the same
ROWS = PROCESSES + 4


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """What one process went through."""

    name: str
    claims: list[tuple[str, int]]  # receipt and generation, in order
    times: list[int]
    busy: int


def claim_one(tx: Tx, name: str) -> tuple[Any, ...] | None:
    """The product's claim of the first head that is free."""
    for head in store.heads(tx, 20):
        row, _ = store.try_claim(tx, head["id"], Take(name, tx.now + HOUR), {})
        if row is not None:
            return row["id"], lease_of(row), tx.now
    return None


def give_back(tx: Tx, receipt_id: str, lease: Any) -> bool:
    """Due again at once, by its holder's fence."""
    moved = transition(tx, RECEIPTS, RECEIPT, "give_back", receipt_id, lease=lease, values={"not_before": tx.now})
    return moved is not None


def claim_in_a_process(path: str, name: str, start: Any, results: Any) -> None:
    """Claim and give back until every claim is made; whoever finds nothing free has claimed nothing and looks again."""

    async def work() -> Told:
        database = SqliteDatabase(Path(path), SystemClock(), SystemEntropy())
        claims: list[tuple[str, int]] = []
        times: list[int] = []
        busy = 0
        claim = functools.partial(claim_one, name=name)
        while len(claims) < EACH:
            try:
                found = await database.write(claim)
                if found is None:
                    continue
                receipt_id, lease, at = found
                claims.append((receipt_id, lease.generation))
                times.append(at)
                back = functools.partial(give_back, receipt_id=receipt_id, lease=lease)
                assert await database.write(back), "its own claim was taken"
            except DatabaseBusy:
                busy += 1
                if busy > EACH:
                    break
        await database.close()
        return Told(name, claims, times, busy)

    start.wait(120)
    results.put(asyncio.run(work()))


@pytest.mark.spec("DESK-307")
@pytest.mark.timeout(600)
def test_eight_processes_claim_on_one_file_and_none_starves(tmp_path: Path, sqlite_template: Path) -> None:
    """Each of eight processes makes all of its claims while the others make theirs: nobody is told busy, and no
    claim is made twice, since every generation of a receipt has one holder. A number of claims stands for the minute of
    time, and each has begun to claim before the first is done.
    """
    path = tmp_path / "frontdesk.db"
    shutil.copyfile(sqlite_template, path)
    asyncio.run(_due_receipts(path))
    context = multiprocessing.get_context("spawn")
    results, start = context.Queue(), context.Barrier(PROCESSES)
    names = [f"w{number}" for number in range(PROCESSES)]
    processes = [
        context.Process(target=claim_in_a_process, args=(str(path), name, start, results), daemon=True)
        for name in names
    ]
    for process in processes:
        process.start()
    told: list[Told] = [results.get(timeout=300) for _ in processes]
    for process in processes:
        process.join(60)
    assert sorted(each.name for each in told) == names
    assert [each.busy for each in told] == [0] * PROCESSES
    assert [len(each.claims) for each in told] == [EACH] * PROCESSES
    claims = [claim for each in told for claim in each.claims]
    first_end = min(each.times[-1] for each in told)
    assert all(each.times[0] < first_end for each in told), "somebody claimed only once another had ended"
    assert [claim for claim, times in Counter(claims).items() if times > 1] == [], "a generation has two holders"
    # Generations without a gap: no claim was made that its process did not learn of.
    for receipt_id in {receipt_id for receipt_id, _ in claims}:
        generations = sorted(generation for each, generation in claims if each == receipt_id)
        assert generations == list(range(1, len(generations) + 1))


async def _due_receipts(path: Path) -> None:
    database = SqliteDatabase(path, SystemClock(), SystemEntropy())

    def make(tx: Tx) -> None:
        for _ in range(ROWS):
            receipt_id = fill(tx.conn)["receipts"]["id"]
            free = {"status": "received", "lease_owner": None, "lease_generation": 0, "lease_expires_at": None}
            values = {**free, "execution": "work", "not_before": 0}
            tx.execute(sa.update(RECEIPTS).where(RECEIPTS.c.id == receipt_id).values(values))

    await database.write(make)
    await database.close()
