"""The world of the connections room on each engine."""

from __future__ import annotations

import pytest

from frontdesk.kernel.clock import ManualClock
from frontdesk.storage.database import Database
from tests.contract.connections.world import World


@pytest.fixture
async def world(database: Database, clock: ManualClock) -> World:
    return await World(database, clock).settle()
