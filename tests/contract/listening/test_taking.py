"""Events of the long connection: acknowledged after their commit, taken as the webhook's are."""

from __future__ import annotations

import threading

import pytest

from frontdesk.app.listener import Ending, Patience
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.storage.tx import Tx
from tests.contract.listening.world import QUICK, ListeningWorld, until


async def test_a_message_is_kept_and_then_acknowledged(world: ListeningWorld) -> None:
    async with world.listening() as running:
        said = await world.say("hello", wait=True)
        assert await world.statuses(said) == [200]
        (receipt,) = await world.receipts(said)
        assert (receipt["transport"], receipt["status"], receipt["error_code"]) == (
            "long_connection",
            "rejected",
            "principal_not_bound",
        )
        running.stop.set()
        assert await running.ended() is Ending.ASKED
    assert await world.state() == "stopped"
    assert await world.events() == [("connecting", None), ("connected", None), ("stopped", None)]
