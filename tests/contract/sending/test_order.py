"""Answers of one chat leave in the order in which they were given; chats do not wait for each other."""

from __future__ import annotations

import asyncio

from frontdesk.desk.connections.channel import Installed
from tests.contract.desk_world import DeskWorld, Seat


async def test_the_later_answer_of_a_chat_waits_while_the_earlier_one_is_under_way(desk: DeskWorld, seat: Seat) -> None:
    """While the first delivery connects the second is not claimed; another chat's is."""
    other = await desk.seat(await desk.people.person("bob", "operator"), sender="ou_2", chat="oc_2")
    asked = []
    for text in ("first", "second"):
        asked.append(await desk.ask(text, seat))
        await desk.work()
        desk.clock.advance(1)
    elsewhere = await desk.ask("elsewhere", other)
    await desk.work()
    gate, connecting = asyncio.Event(), asyncio.Event()
    seen: list[str] = []

    async def hold(installed: Installed) -> None:
        seen.append(installed.installation_id)
        if len(seen) == 2:
            connecting.set()
        await gate.wait()

    desk.channel.on_connect = hold
    worker = desk.delivery_worker()
    assert await worker.step() == 2
    async with asyncio.timeout(10):
        await connecting.wait()
    states = {row["receipt"]: row["status"] for row in await desk.rows("deliveries") if row["receipt"] is not None}
    assert [states[receipt["id"]] for receipt in (*asked, elsewhere)] == ["connecting", "pending", "connecting"]
    assert await worker.step() == 0
    gate.set()
    await worker.stop(30)
    await desk.send()
    order = [message.reply_to for message in desk.channel.sent if message.chat_id == seat.chat]
    assert order == [receipt["provider_message_id"] for receipt in asked]
