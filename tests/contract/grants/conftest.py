"""The desk on each engine."""

from __future__ import annotations

import pytest

from frontdesk.kernel.clock import ManualClock
from frontdesk.storage.database import Database
from tests.contract.desk_world import DeskWorld, open_desk


@pytest.fixture
async def desk(database: Database, clock: ManualClock) -> DeskWorld:
    return await open_desk(database, clock)
