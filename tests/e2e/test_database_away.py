"""The database goes away under load: nothing is acknowledged that is not kept, and the same processes go on."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from frontdesk.app.example import Example
from tests.e2e import ledger, rig
from tests.e2e.people import listen, own
from tests.e2e.rig import House, until
from tests.support.postgres import PostgresServer

CHATS = 4


async def status_of(house: House, path: str) -> int:
    """What a GET is answered with."""
    return (await house.example.api.get(path)).status_code


async def pushed(house: House, message: str) -> int | None:
    """Push a message's event once more; what that is answered. None: not within the provider's three seconds."""
    body = {"message_id": message, "wait": True, "redeliver": False}
    made = await house.example.simulate("POST", "/_sim/push", json=body)
    status: int | None = made["pushes"][0]["attempts"][0]["status"]
    return status


async def accepted(house: House, message: str) -> None:
    """Push a message's event until it is acknowledged."""

    async def look() -> bool:
        return await pushed(house, message) == 200

    await until("the push to be accepted", look, 60)


async def refused(chat: Example, house: House, text: str) -> str:
    """A message whose pushes are answered 500, for as long as something is wrong; its id."""
    message = await rig.say(chat, text, None, wait=True)
    (push,) = await rig.pushes_of(chat, message)
    assert push["attempts"][0]["status"] in (500, None), push["attempts"]

    async def look() -> bool:
        status = await pushed(house, message)
        assert status in (500, None)
        return status == 500

    await until("the push to be refused", look, 60)
    return message


@pytest.mark.engine("postgresql")
@pytest.mark.timeout(600)
async def test_postgres_is_killed_under_load(
    own_house: House, own_server: PostgresServer, known: list[dict[str, Any]]
) -> None:
    """PostgreSQL killed while turns run, messages arrive and answers leave: the web process says 500 and 503 and the
    worker waits; both go on by themselves once it is back, finished turns are kept, and every message that was
    acknowledged is answered once.
    """
    async with rig.closing(own_house) as house:
        await house.start_simulator()
        await house.meet(**known[0])
        server = await house.serve()
        chats = [own(house, each) for each in known[:CHATS]]
        for chat in chats:
            await listen(chat, house.address)
        wires = len(await house.wires())
        before = [await rig.say(chat, f"Before {number}?", None) for number in range(3) for chat in chats]
        await until("work to be under way", lambda: house.rows("receipts", status="completed"))
        house.hold()
        running = [await rig.say(chat, "While it is away?", None, wait=True) for chat in chats]
        await until("turns to run", lambda: _held(house) == CHATS, 60)

        await asyncio.to_thread(own_server.stop, signal.SIGKILL)
        lost = await refused(house.example, house, "Is anybody there?")
        workspace = f"/api/v1{house.example.workspace}/deliveries"
        assert await status_of(house, workspace) == 503
        assert await status_of(house, "/healthz") == 200
        assert await status_of(house, "/readyz") == 503
        house.release()  # the turns end now, and for a while nothing can be written
        await asyncio.to_thread(own_server.start)

        async def ready() -> bool:
            return await status_of(house, "/readyz") == 200

        await until("the same process to be ready again", ready, 60)
        assert server.running
        assert await status_of(house, workspace) == 200
        await accepted(house, lost)
        after = [await rig.say(chat, "And now?", None, wait=True) for chat in chats]
        messages = [*before, *running, lost, *after]
        await until("everything to have ended", lambda: ledger.ended(house, messages), 120, 0.5)
        receipts = ledger.receipts_of(house, messages)
        ledger.one_turn_each(house, receipts)
        ledger.cursors_agree(house, [chat.grant_id for chat in chats])
        seen = ledger.ends_are_named(house, receipts)
        assert set(seen) <= {"sent", "send_result_unknown", "agent_execution_indeterminate"}, seen
        for chat, message in zip((chats[0], *chats), (lost, *after), strict=True):
            assert len(await chat.answers_to(message)) == 1
        ledger.never_blindly((await house.wires())[wires:])
        assert await server.terminate(60) == 0


def _held(house: House) -> int:
    return len([row for row in house.rows("turns") if row["status"] == "running"])
