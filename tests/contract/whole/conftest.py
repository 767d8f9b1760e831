"""The house on each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from frontdesk.api.desk import callback
from frontdesk.app import reception
from frontdesk.kernel.clock import ManualClock
from tests.contract.conftest import TimedDatabase
from tests.contract.whole.house import BreakableDatabase, House, open_house, patient


@pytest.fixture
def database(open_session: Callable[..., TimedDatabase]) -> BreakableDatabase:
    """The migrated database of this test, whose commits can be made to fail."""
    opened = open_session()
    patient(opened.engine())
    return BreakableDatabase(opened.inner, opened.clock)


@pytest.fixture(autouse=True)
def _no_bound_of_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The callback's two waits are long here: how loaded the machine is must not decide an answer."""
    monkeypatch.setattr(callback, "_TARGET_WAIT_S", 60.0)
    monkeypatch.setattr(reception, "COMMIT_WAIT_S", 60.0)


@pytest.fixture
async def house(database: BreakableDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[House]:
    """One production process over it."""
    async with open_house(database, clock, tmp_path) as made:
        yield made
