"""The wake-up after a commit is a hint and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from frontdesk.app.waking import WakeHub
from frontdesk.app.worker import Worker, WorkerOptions
from frontdesk.kernel import limits
from frontdesk.kernel.clock import HOUR, SECOND
from frontdesk.kernel.failpoints import Failpoints
from tests.contract.desk_world import DeskWorld


@pytest.mark.spec("DESK-63")
async def test_work_is_found_without_any_wake_up(desk: DeskWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every wake-up lost a receipt is claimed and its answer sent by the polls alone, each once."""
    monkeypatch.setattr(limits, "POLL_INTERVAL_US", SECOND // 50)
    hub = WakeHub()
    hub.bind()
    options = WorkerOptions("worker-polls", True, False, 30 * SECOND, SECOND, 8, 4 * HOUR, "test")
    # `desk.database` was opened without a wake: what its commits hint at reaches nobody.
    worker = Worker(desk.database, desk.parts, options, clock=desk.clock, hub=hub, failpoints=Failpoints())
    sent = asyncio.Event()

    async def note(message: Any) -> None:
        if len(desk.channel.sent) == 2:
            sent.set()

    desk.channel.on_send = note
    seat = await desk.seat()
    await worker.start()
    worker.serve()
    try:
        rows = [await desk.ask("first", seat), await desk.ask("second", seat)]
        # The chat's second slot is 200 ms away and this clock stands: the sender waits for it on the loop's clock.
        await asyncio.wait_for(sent.wait(), 30)
    finally:
        await worker.stop()
    assert [request.text for request in desk.runner.requests] == ["first", "second"]
    assert [(await desk.row("receipts", row["id"]))["status"] for row in rows] == ["completed"] * 2
    assert [message.reply_to for message in desk.channel.sent] == [row["provider_message_id"] for row in rows]


async def test_the_hint_comes_after_the_commit(desk: DeskWorld, open_session: Any) -> None:
    """Who is woken finds the receipt: the hint is given once it is durable."""
    seat = await desk.seat()
    seen: list[tuple[list[str], int]] = []
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wake(topics: list[str]) -> None:
        engine = desk.database.engine()
        with engine.connect() as connection:
            count = connection.exec_driver_sql("SELECT count(*) FROM receipts WHERE intent = 'reply'").scalar_one()
        seen.append((topics, count))
        loop.call_soon_threadsafe(told.set)

    await desk.push(desk.message("hi", seat), database=open_session(wake=wake))
    await asyncio.wait_for(told.wait(), 10)
    assert [count for topics, count in seen if "receipts" in topics] == [1]


async def test_a_push_before_anything_listens_is_kept(desk: DeskWorld, open_session: Any) -> None:
    """FC-12: a message that is taken before the worker's loop stands, when its hint reaches nobody, is signed for like
    any other; the loop finds it when it begins. Nothing is dropped for want of somebody who is ready.
    """
    hub = WakeHub()
    early = open_session(wake=hub.wake)
    seat = await desk.seat()
    received = await desk.push(desk.message("early", seat), database=early)
    assert (await desk.receipt(received))["status"] == "received"
    hub.bind()
    options = WorkerOptions("worker-late", True, False, 30 * SECOND, SECOND, 8, 4 * HOUR, "test")
    worker = Worker(early, desk.parts, options, clock=desk.clock, hub=hub, failpoints=Failpoints())
    sent = asyncio.Event()

    async def note(message: Any) -> None:
        sent.set()

    desk.channel.on_send = note
    await worker.start()
    worker.serve()
    try:
        await asyncio.wait_for(sent.wait(), 60)
    finally:
        await worker.stop()
    assert [request.text for request in desk.runner.requests] == ["early"]
    assert (await desk.receipt(received))["status"] == "completed"


async def test_a_full_worker_goes_on_as_soon_as_there_is_room(desk: DeskWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for one, and a poll that does not come, receipts of three people are worked on one after the other."""
    monkeypatch.setattr(limits, "POLL_INTERVAL_US", 3_600 * SECOND)
    hub = WakeHub()
    hub.bind()
    options = WorkerOptions("worker-full", True, False, 30 * SECOND, SECOND, 1, 4 * HOUR, "test")
    worker = Worker(desk.database, desk.parts, options, clock=desk.clock, hub=hub, failpoints=Failpoints())
    sent = asyncio.Event()

    async def note(message: Any) -> None:
        if len(desk.channel.sent) == 3:
            sent.set()

    desk.channel.on_send = note
    people = [await desk.people.person(f"person{n}", "operator") for n in range(3)]
    seats = [await desk.seat(person, sender=f"ou_{n}", chat=f"oc_{n}") for n, person in enumerate(people)]
    for number, seat in enumerate(seats):
        await desk.ask(f"question {number}", seat)
    await worker.start()
    worker.serve()
    try:
        await asyncio.wait_for(_woken(hub, sent), 30)
    finally:
        await worker.stop()
    assert sorted(request.text for request in desk.runner.requests) == ["question 0", "question 1", "question 2"]


async def _woken(hub: WakeHub, sent: asyncio.Event) -> None:
    """The database of these tests gives no hints: those of deliveries are given here, the others are the worker's."""
    while not sent.is_set():
        hub.wake(["deliveries"])
        await asyncio.sleep(0.01)
