"""The desk on each engine, with one person at their chat."""

from __future__ import annotations

import pytest

from frontdesk.kernel.clock import ManualClock
from frontdesk.storage.database import Database
from tests.contract.desk_world import DeskWorld, Seat, open_desk


@pytest.fixture
async def desk(database: Database, clock: ManualClock) -> DeskWorld:
    return await open_desk(database, clock)


@pytest.fixture
async def seat(desk: DeskWorld) -> Seat:
    """The owner's: bound, with a conversation, an active grant and a sent activation."""
    return await desk.seat()
