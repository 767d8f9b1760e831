"""Starting and stopping a worker: nothing is claimed any more, nothing is lost, nothing hangs."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from frontdesk.app.waking import WakeHub
from frontdesk.app.worker import Worker, WorkerOptions
from frontdesk.desk.conversations.runner import Answer
from frontdesk.desk.outbox import templates
from frontdesk.kernel.clock import HOUR, SECOND
from frontdesk.kernel.failpoints import Failpoints
from tests.contract.answering.steps import Seen, look
from tests.contract.desk_world import LEASE_US, DeskWorld, Seat

OPTIONS = WorkerOptions(
    owner="worker-under-test",
    reply_enabled=True,
    artifact_enabled=False,
    lease_us=LEASE_US,
    shutdown_grace_us=SECOND // 10,
    worker_receipts=8,
    delivery_age_max_us=4 * HOUR,
    version="0",
)


def worker_of(desk: DeskWorld, **changes: Any) -> Worker:
    hub = WakeHub()
    hub.bind()
    options = dataclasses.replace(OPTIONS, **changes)
    return Worker(desk.database, desk.parts, options, clock=desk.clock, hub=hub, failpoints=Failpoints())


async def test_stop_is_safe_before_start_and_twice(desk: DeskWorld, seat: Seat) -> None:
    worker = worker_of(desk)
    await worker.stop()
    await worker.stop()
    await worker.start()
    worker.serve()
    assert await desk.count("workers") == 0
    assert not worker.snapshot().accepting_claims


async def test_stop_is_safe_after_a_partial_start(desk: DeskWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = worker_of(desk)

    async def broken() -> int:
        raise RuntimeError("no heartbeat row")

    monkeypatch.setattr(worker, "_beat", broken)
    with pytest.raises(RuntimeError):
        await worker.start()
    worker.serve()
    await worker.stop()
    assert not worker.snapshot().started


@pytest.mark.spec("DESK-142")
async def test_stop_ends_its_tasks_and_leaves_everything_as_rows(desk: DeskWorld, seat: Seat) -> None:
    """A turn past the grace ends by tF, a send becomes unknown, the rest waits; twice is once; reception goes on."""
    before = asyncio.all_tasks()
    never_started = worker_of(desk)
    await never_started.stop()
    worker = worker_of(desk)
    await worker.start()
    await worker.recover()
    sent = asyncio.Event()

    async def hang(message: Any) -> None:
        sent.set()
        await asyncio.Event().wait()

    desk.channel.on_send = hang
    first = await desk.ask("is sent when the end comes", seat)
    worker.serve()
    await sent.wait()
    reached = asyncio.Event()

    async def until_cancelled(request: Any, cancel: Any) -> Any:
        reached.set()
        await cancel.wait()
        return Answer("never told")

    desk.runner.behaviour = until_cancelled
    second = await desk.ask("is answered when the end comes", seat)
    worker._hub.wake(["receipts"])
    await reached.wait()
    third = await desk.ask("waits", seat)
    assert worker.snapshot().accepting_claims
    stopping = asyncio.create_task(worker.stop())
    await asyncio.wait({stopping}, timeout=20)
    assert stopping.done()
    await worker.stop()
    assert asyncio.all_tasks() - before == set()
    snapshot = worker.snapshot()
    assert (snapshot.started, snapshot.accepting_claims, snapshot.outbound_started) == (False, False, False)
    assert await desk.count("workers") == 0
    assert await look(desk, seat, first["id"]) == Seen(
        1, 1, ("completed", None), ("completed", None), ("indeterminate", "send_result_unknown")
    )
    assert await look(desk, seat, second["id"]) == Seen(
        1, 1, ("permanent_failed", "runner_cancelled"), ("failed", "runner_cancelled"), ("pending", None)
    )
    assert (await look(desk, seat, third["id"])).receipt == ("received", None)
    fourth = await desk.ask("after the end", seat)  # callbacks keep acknowledging
    assert (fourth["status"], (await desk.row("reply_grants", seat.grant_id))["status"]) == ("received", "active")

    # The next start tells what was cancelled, once, and answers what waited.
    desk.channel.on_send = None
    desk.runner.behaviour = None
    wire = len(desk.channel.sent)
    await desk.work()
    await desk.send()
    texts = [message.text or "" for message in desk.channel.sent[wire:]]
    assert sorted(texts) == [
        "answer to after the end",
        "answer to waits",
        templates.failure_notice("zh", "runner_cancelled"),
    ]


async def test_what_is_claimed_but_not_begun_is_given_back(desk: DeskWorld, seat: Seat) -> None:
    receipt = await desk.ask("hello", seat)
    entered = asyncio.Event()
    go_on = asyncio.Event()

    class Slow:
        """A database that keeps the claim's commit from its caller."""

        engine_name = desk.database.engine_name

        async def read(self, fn: Any) -> Any:
            return await desk.database.read(fn)

        async def write(self, fn: Any) -> Any:
            result = await desk.database.write(fn)
            if not entered.is_set():
                entered.set()
                await go_on.wait()
            return result

    worker = desk.receipt_worker(database=Slow())  # type: ignore[arg-type]
    step = asyncio.create_task(worker.step())
    await entered.wait()
    assert (await desk.row("receipts", receipt["id"]))["status"] == "processing"
    await worker.stop(0)
    go_on.set()
    await step
    await worker.stop(0)
    row = await desk.row("receipts", receipt["id"])
    assert (row["status"], row["attempt_count"], row["lease_owner"]) == ("retryable_failed", 0, None)
    assert row["not_before"] <= desk.clock.now_us()
    assert desk.runner.requests == []
    assert await desk.work() == 1


async def test_a_turn_that_begins_after_the_grace_is_cancelled_at_once(desk: DeskWorld, seat: Seat) -> None:
    receipt = await desk.ask("hello", seat)

    async def until_cancelled(request: Any, cancel: Any) -> Any:
        await cancel.wait()
        return Answer("never")

    desk.runner.behaviour = until_cancelled

    def cut_off(point: str) -> None:
        if point == "t1b.after":
            worker._accepting = False
            worker._cut_off = True

    worker = desk.receipt_worker(failpoints=Failpoints(observer=cut_off))
    await worker.step()
    async with asyncio.timeout(20):
        await worker.stop(60)
    assert (await look(desk, seat, receipt["id"])).receipt == ("permanent_failed", "runner_cancelled")
