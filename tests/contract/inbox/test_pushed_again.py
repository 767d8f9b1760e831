"""A message that comes again, late, shuffled, in crowds, after restarts: signed for once, run once, answered once."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from frontdesk.desk import inbox
from frontdesk.desk.inbox import Receipt, Received, claiming, store, working
from frontdesk.desk.inbox.claiming import Claim
from frontdesk.kernel import limits
from frontdesk.kernel.clock import MINUTE, SECOND
from frontdesk.storage.tx import Tx
from tests.contract.answering.steps import race_after_reading
from tests.contract.desk_world import LEASE_US, DeskWorld, Gate, Seat
from tests.contract.inbox.pushing import Provider, payload


async def replies(desk: DeskWorld) -> list[dict[str, Any]]:
    return await desk.rows("receipts", intent="reply")


async def answers(desk: DeskWorld) -> list[str | None]:
    """What went out as answers, in order."""
    await desk.send()
    return [message.text for message in desk.channel.sent if message.reply_to is not None]


async def test_the_same_event_after_319_seconds_is_no_second_question(desk: DeskWorld, seat: Seat) -> None:
    """FC-4: one event pushed at 0 and at 319 s, answered meanwhile, leaves one receipt, one turn and one answer."""
    provider = Provider(desk, patient=True)
    message = payload("count me once", parent_id=seat.activation)
    assert await provider.push(message) == 200
    await desk.work()
    assert await answers(desk) == ["answer to count me once"]
    desk.clock.advance(319 * SECOND)
    assert await provider.push(message) == 200
    await desk.work()
    assert await answers(desk) == ["answer to count me once"]
    assert len(await replies(desk)) == len(await desk.rows("turns")) == 1


async def test_the_acknowledgement_waits_for_no_work_and_what_looks_like_a_command_is_known_too(
    desk: DeskWorld, seat: Seat
) -> None:
    """FC-5: `/heartbeat test` is acknowledged while its runner still works, and pushed again at 5 min 01 s it is known,
    during the work and after it: no text is exempt from the one key.
    """
    provider = Provider(desk, patient=True)
    desk.runner.behaviour = gate = Gate()
    message = payload("/heartbeat test", parent_id=seat.activation)
    assert await provider.push(message) == 200
    worker = desk.receipt_worker(lease_us=60 * MINUTE)
    assert await worker.step() == 1
    await asyncio.wait_for(gate.reached.wait(), 30)
    desk.clock.advance(301 * SECOND)
    assert await provider.push(message) == 200  # the runner is still at it, and nobody waited for it
    assert [row["status"] for row in await replies(desk)] == ["processing"]
    gate.opened.set()
    await worker.stop(60)
    desk.clock.advance(301 * SECOND)
    assert await provider.push(message) == 200
    await desk.work()
    assert [request.text for request in desk.runner.requests] == ["/heartbeat test"]
    assert await answers(desk) == ["answer to /heartbeat test"]


async def test_a_second_message_behind_a_slow_one_is_answered_once_though_retried(desk: DeskWorld, seat: Seat) -> None:
    """FC-6: message 2 comes 22 s into turn 1 and is pushed twice more; it waits, runs once, and is answered once."""
    provider = Provider(desk, patient=True)
    desk.runner.behaviour = gate = Gate()
    assert await provider.push(payload("one", message_id="om_1", parent_id=seat.activation)) == 200
    worker = desk.receipt_worker(lease_us=60 * MINUTE)
    assert await worker.step() == 1
    await asyncio.wait_for(gate.reached.wait(), 30)
    for wait in (22, 15, 300):
        desk.clock.advance(wait * SECOND)
        assert await provider.push(payload("two", message_id="om_2", parent_id=seat.activation)) == 200
        assert await desk.receipt_worker().step() == 0
    gate.opened.set()
    await worker.stop(60)
    await desk.work()
    assert [request.text for request in desk.runner.requests] == ["one", "two"]
    assert await answers(desk) == ["answer to one", "answer to two"]


async def test_a_busy_minute_delivered_twice_and_shuffled_is_fifteen_messages(desk: DeskWorld, seat: Seat) -> None:
    """FC-7: 15 events in a minute, each pushed twice in any order: 15 receipts, 15 turns, 15 answers."""
    provider = Provider(desk, patient=True)
    dice = random.Random(7)
    pushes = [number for number in range(15) for _ in range(2)]
    dice.shuffle(pushes)
    for turn, number in enumerate(pushes):
        text = f"message {number}"
        push = payload(text, message_id=f"om_{number}", parent_id=seat.activation, header={"event_id": f"ev_{turn}"})
        assert await provider.push(push) == 200
        desk.clock.advance(2 * SECOND)
    await desk.work()
    assert len(await replies(desk)) == 15
    assert sorted(request.text for request in desk.runner.requests) == sorted(f"message {n}" for n in range(15))
    assert len(await answers(desk)) == 15


async def test_fifty_pushes_of_one_message_at_once_are_one_row(desk: DeskWorld, seat: Seat, open_session: Any) -> None:
    """FC-8: 50 concurrent pushes of one message at five processes are answered 200 and leave one row."""
    message = payload("crowd", parent_id=seat.activation)
    processes = [Provider(desk, open_session(), patient=True) for _ in range(5)]
    for process in processes:  # imports and sessions stand before the clock of the callback runs
        assert await process.push(payload("warm", message_id="om_g", chat_type="group")) == 200
    statuses = await asyncio.gather(*(process.push(message) for process in processes for _ in range(10)))
    assert statuses == [200] * 50
    assert len(await replies(desk)) == 1


async def test_two_who_both_looked_before_either_wrote_leave_one_row(
    desk: DeskWorld, seat: Seat, open_session: Any
) -> None:
    """FC-9: held at a barrier between look and insert, the second finds the first's row by the key and changes nothing.
    On SQLite writers are serial; there the second looks after the first.
    """
    message = desk.message("once", seat)

    def look(tx: Tx, _: int) -> bool:
        return store.find_by_message(tx, desk.installation_id, message.message_id) is not None

    blind = 0

    def write(tx: Tx, _: int, known: bool) -> Received:
        nonlocal blind
        blind += not known
        return inbox.receive(tx, desk.installation_id, message, transport="webhook")

    found = await race_after_reading([open_session(), open_session()], look, write)
    assert blind >= (2 if desk.database.engine_name == "postgresql" else 1)
    assert sorted(each.outcome for each in found) == ["accepted", "known"]
    assert len({each.receipt_id for each in found}) == len(await replies(desk)) == 1


async def test_after_a_restart_only_what_was_not_done_is_done(desk: DeskWorld, seat: Seat, open_session: Any) -> None:
    """FC-11: of a backlog of five three are answered when the process ends; a new one, to which the provider pushes all
    five again, runs the other two. There is no offset to lose here: each message's own row says what became of it.
    """
    messages = [payload(f"m{n}", message_id=f"om_{n}", parent_id=seat.activation) for n in range(5)]
    provider = Provider(desk, patient=True)
    for message in messages:
        assert await provider.push(message) == 200
        desk.clock.advance(1)
    for _ in range(3):
        worker = desk.receipt_worker(capacity=1)
        assert await worker.step() == 1
        await worker.stop(60)
    assert [request.text for request in desk.runner.requests] == ["m0", "m1", "m2"]
    restarted = Provider(desk, open_session(), patient=True)
    for message in messages:
        assert await restarted.push(message) == 200
    await desk.work()
    assert [request.text for request in desk.runner.requests] == [f"m{n}" for n in range(5)]
    assert len(await replies(desk)) == 5


async def test_attempts_numbered_anew_by_the_provider_are_the_same_message(desk: DeskWorld, seat: Seat) -> None:
    """FC-14: delivered four times as attempts 0, 1, 0, 1, by webhook and by long connection, with an event id of its
    own each time, one message is one receipt: only installation and message id count.
    """
    for attempt, transport in ((0, "webhook"), (1, "long_connection"), (0, "long_connection"), (1, "webhook")):
        desk.clock.advance(20 * SECOND)
        event = desk.message("hi", seat, message_id="om_1", event_id=f"ev_{transport}_{attempt}", created_at_ms=1)

        def receive(tx: Tx, event: Any = event, transport: str = transport) -> Received:
            return inbox.receive(tx, desk.installation_id, event, transport=transport)

        await desk.database.write(receive)
    await desk.work()
    assert len(await replies(desk)) == len(desk.runner.requests) == 1


async def test_an_acknowledgement_lost_on_the_way_leads_to_no_second_answer(desk: DeskWorld, seat: Seat) -> None:
    """FC-15: something between the provider and us answers 502 after 15 s though we took the message; it comes again
    under another event id and with the same message id, and is answered once.
    """
    provider = Provider(desk, patient=True)
    assert await provider.push(payload("hello", parent_id=seat.activation, header={"event_id": "ev_1"})) == 200
    desk.clock.advance(15 * SECOND)
    await desk.work()
    assert await provider.push(payload("hello", parent_id=seat.activation, header={"event_id": "ev_2"})) == 200
    await desk.work()
    assert await answers(desk) == ["answer to hello"]


async def test_what_was_given_up_keeps_its_text_and_a_push_of_the_same_id_is_not_swallowed(
    desk: DeskWorld, seat: Seat
) -> None:
    """FC-33: a message that failed at every attempt ends visibly and keeps what was asked; its id pushed again is
    acknowledged and stays as it was, for there is no running again by message; the question asked anew is answered.
    """
    provider = Provider(desk, patient=True)
    message = payload("poison", message_id="om_p", parent_id=seat.activation)
    assert await provider.push(message) == 200
    for number in range(limits.RECEIPT_ATTEMPTS_MAX):
        order = Claim(f"w-{number}", LEASE_US, 8)

        def fail(tx: Tx, order: Claim = order) -> list[Receipt]:
            taken = claiming.claim(tx, order, desk.parts)
            for receipt in taken:
                working.retry(tx, receipt, "connector_processing_failed")
            return taken

        assert len(await desk.database.write(fail)) == 1
        desk.clock.advance(20 * MINUTE)
    (ended,) = await replies(desk)
    assert (ended["status"], ended["error_code"]) == ("permanent_failed", "attempts_exhausted")
    assert (ended["content_text"], ended["attempt_count"]) == ("poison", limits.RECEIPT_ATTEMPTS_MAX)

    assert await provider.push(message) == 200
    await desk.work()
    assert await replies(desk) == [ended]
    assert desk.runner.requests == []
    assert await provider.push(payload("poison", message_id="om_q", parent_id=seat.activation)) == 200
    await desk.work()
    assert await answers(desk) == ["answer to poison"]
