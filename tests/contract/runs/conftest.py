"""The world of conversations and runs on each engine."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from frontdesk.kernel.clock import ManualClock
from frontdesk.storage.database import Database
from tests.contract.conversations.world import World


@pytest.fixture
async def world(database: Database, clock: ManualClock) -> AsyncIterator[World]:
    made = await World(database, clock).settle()
    yield made
    for sender in made.senders:
        await sender.stop(0)
