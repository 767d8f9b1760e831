"""Many processes on one database at the same moment: every row that was promised is there, and nobody is told busy."""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.contract.desk_world import DeskWorld, Seat
from tests.contract.storage import crowd
from tests.support.engines import Engine
from tests.support.processes import REPOSITORY, run_python


async def let_go(engine: Engine, desk: DeskWorld, seat: Seat, folder: Path, names: Sequence[str]) -> Counter[str]:
    """Run a process a name, all released together; what they saw, added up."""
    out = folder / "crowd"
    out.mkdir()
    words = ["-m", "tests.contract.storage.crowd", engine.url, str(out), seat.installation_id, seat.activation, *names]
    environment = {"PYTHONPATH": str(REPOSITORY)}
    ended = await asyncio.to_thread(lambda: run_python(*words, environment=environment, timeout_s=100))
    assert ended.returncode == 0, ended.stderr[-3_000:]
    total: Counter[str] = Counter()
    for name in names:
        total.update(ast.literal_eval((out / name).read_text(encoding="utf-8")))
    return total


async def test_what_twelve_processes_append_together_is_all_there(
    desk: DeskWorld, seat: Seat, engine: Engine, tmp_path: Path
) -> None:
    """FC-42: twelve processes let go at once append a receipt each: twelve successes, twelve rows on disk, each with
    its own text, in one strict order of arrival.
    """
    names = [f"append-{number}" for number in range(12)]
    assert await let_go(engine, desk, seat, tmp_path, names) == {"accepted": 12}
    rows = await desk.rows("receipts", intent="reply")
    assert sorted(row["content_text"] for row in rows) == sorted(f"from {name}-0" for name in names)
    assert len({row["created_at"] for row in rows}) == 12


@pytest.mark.engine("sqlite")
async def test_web_workers_and_sweepers_on_one_file_never_see_it_busy(
    desk: DeskWorld, seat: Seat, engine: Engine, tmp_path: Path
) -> None:
    """FC-26, FC-27: eight processes on one SQLite file, two that receive, four that read and then claim and two that
    sweep, five rounds each without a pause: not one busy error comes up, nothing is lost, one message is in work. The
    report's 60 seconds are not played, only its way of meeting.
    """
    names = ["web-0", "web-1", *(f"worker-{number}" for number in range(4)), "sweeper-0", "sweeper-1"]
    seen = await let_go(engine, desk, seat, tmp_path, names)
    assert seen["busy"] == 0
    assert seen["accepted"] == 2 * crowd.ROUNDS
    rows = await desk.rows("receipts", intent="reply")
    assert len(rows) == 2 * crowd.ROUNDS
    assert (seen["claimed"], seen["swept"], seen["recovered"]) == (1, 0, 0)
    assert [row["status"] for row in rows].count("processing") == 1
