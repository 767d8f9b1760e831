"""A provider that slows everybody down: each message goes out once, under the name it was born with."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from frontdesk.desk import outbox
from frontdesk.desk.connections.channel import ConnectFailed, NotSent, RefusedRetry
from frontdesk.kernel.clock import HOUR, MINUTE, SECOND
from tests.contract.answering.test_leases import several
from tests.contract.desk_world import LEASE_US, DeskWorld, Seat


async def step(desk: DeskWorld, **named: Any) -> int:
    worker = desk.delivery_worker(**named)
    started = await worker.step()
    await worker.stop(60)
    return started


async def test_a_batch_put_off_for_six_minutes_is_sent_once_each(desk: DeskWorld, seat: Seat) -> None:
    """FC-35: 32 deliveries are told to come again in 360 s, longer than any lease: no sweep and no other worker takes
    one before, and then each goes out once more and never again.
    """
    count = 32

    def make(tx: Any) -> None:
        for number in range(count):
            outbox.take_snapshot(
                tx,
                workspace_id=desk.home,
                installation_id=seat.installation_id,
                channel_key="feishu",
                reply_grant_id=seat.grant_id,
                purpose="activation",
                chat_id=f"oc_{number}",
                reply_to=None,
                payload=outbox.text_payload(f"number {number}"),
                dedupe_key=f"test:{number}",
            )

    await desk.database.write(make)
    began = desk.clock.now_us()
    desk.channel.outcomes.extend([RefusedRetry("rate_limited", 360_000)] * count)
    while await step(desk, capacity=count):
        pass
    assert len(desk.channel.sent) == count
    for wait in (LEASE_US, 5 * MINUTE, 360 * SECOND - 1):
        desk.clock.advance(began + wait - desk.clock.now_us())
        assert await desk.write(outbox.settle_lapsed, 100) == 0
        assert await step(desk, capacity=count) == 0
    desk.clock.advance(1)
    while await step(desk, capacity=count):
        pass
    assert set(Counter(message.provider_uuid for message in desk.channel.sent).values()) == {2}
    assert len(desk.channel.sent) == 2 * count
    rows = await desk.rows("deliveries", purpose="activation", status="sent")
    assert len([row for row in rows if row["dedupe_key"].startswith("test:")]) == count
    desk.clock.advance(HOUR)
    assert await desk.send() == 0


async def test_a_later_try_bears_the_name_of_the_first_though_the_conversation_moved_on(
    desk: DeskWorld, seat: Seat
) -> None:
    """FC-34: a refused answer is tried again after the grant's cursor and the clock have moved: the same uuid, the same
    operation, the same bytes; nothing of its name is taken from where things stand now. A command that failed though
    the message went out leaves `indeterminate`, which history settles (see the look-ups in test_snapshots.py).
    """
    receipt = await desk.ask("first", seat)
    await desk.work()
    desk.channel.outcomes.append(RefusedRetry("rate_limited", 5_000))
    desk.clock.advance(SECOND)
    await step(desk)
    born = await desk.delivery_of(receipt["id"])
    cursor = (await desk.row("reply_grants", seat.grant_id))["cursor"]
    await desk.ask("second", seat)
    await desk.work()
    assert (await desk.row("reply_grants", seat.grant_id))["cursor"] == cursor + 1
    await desk.send()
    await desk.send()
    desk.clock.advance(10 * SECOND)
    await desk.send()
    assert born is not None
    first, again = (each for each in desk.channel.sent if each.text == "answer to first")
    (second,) = (each for each in desk.channel.sent if each.text == "answer to second")
    assert dataclasses.replace(again, start_before_us=first.start_before_us) == first
    assert (first.provider_uuid, first.operation_id) == (born.provider_uuid, born.operation_id)
    assert second.provider_uuid != first.provider_uuid


async def test_what_failed_before_its_first_byte_stays_to_be_sent(desk: DeskWorld) -> None:
    """FC-31: a channel that is missing, raises or reaches nobody before a byte has left is no doubt: the delivery
    waits, is never called unknown, and is sent later.
    """
    (seat,) = await several(desk, 1)
    receipt = await desk.ask("hello", seat)
    await desk.work()
    failures: list[Any] = [ConnectFailed("connect_failed"), RuntimeError("adapter missing"), OSError("no route")]
    desk.channel.connects.extend([*failures, None])
    desk.channel.outcomes.append(NotSent("not_sent_connection"))
    for _ in range(len(failures) + 1):
        await step(desk)
        delivery = await desk.delivery_of(receipt["id"])
        assert delivery is not None
        assert delivery.status == "retryable_failed"
        assert delivery.provider_message_id is None
        desk.clock.advance(MINUTE)
    assert len(desk.channel.sent) == 1  # the one try of which the transport proved that nothing left
    await step(desk)
    delivery = await desk.delivery_of(receipt["id"])
    assert delivery is not None
    assert delivery.status == "sent"
