"""How long a fenced write is repeated while the database is away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.storage import patience
from frontdesk.storage.database import CommitUnknown, Database
from frontdesk.storage.patience import WRITE_TRIES, write_patiently


class Away:
    """A database that fails so often, then works."""

    def __init__(self, times: int, error: Exception) -> None:
        self.left = times
        self.error = error
        self.tries = 0

    async def write(self, fn: Any) -> Any:
        self.tries += 1
        if self.left:
            self.left -= 1
            raise self.error
        return fn(None)


async def write(away: Away, **how: Any) -> str:
    database: Database = away  # type: ignore[assignment]
    return await write_patiently(database, lambda _: "written", **how)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_S", 0)


async def test_a_short_absence_is_waited_for_and_a_long_one_is_not() -> None:
    """Tried a few times, then given up: nothing was done."""
    assert await write(Away(WRITE_TRIES - 1, DatabaseBusy())) == "written"
    away = Away(WRITE_TRIES, DatabaseBusy())
    with pytest.raises(DatabaseBusy):
        await write(away)
    assert away.tries == WRITE_TRIES


async def test_an_end_is_written_as_long_as_patience_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With patience it is the time that counts, not the number of tries."""
    loop = asyncio.get_running_loop()
    now = [0.0]
    monkeypatch.setattr(loop, "time", lambda: now[0], raising=False)
    away = Away(50, DatabaseBusy())
    assert await write(away, patience_s=20.0) == "written"
    assert away.tries == 51

    class Slow(Away):
        async def write(self, fn: Any) -> Any:
            now[0] += 6.0
            return await super().write(fn)

    slow = Slow(50, DatabaseBusy())
    with pytest.raises(DatabaseBusy):
        await write(slow, patience_s=20.0)
    assert slow.tries == 4


async def test_a_commit_nobody_knows_of_is_repeated_only_where_its_fence_knows() -> None:
    """Once it may have taken effect, only a caller whose fence then refuses it asks again."""
    away = Away(1, CommitUnknown())
    with pytest.raises(CommitUnknown):
        await write(away, patience_s=20.0)
    assert away.tries == 1
    assert await write(Away(1, CommitUnknown()), again_if_unknown=True) == "written"
