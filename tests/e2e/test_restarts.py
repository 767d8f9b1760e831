"""Journey 3: killed and restarted, or asked to stop, between the acknowledgement and the answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.rig import House, until


class Cases:
    """Houses of one engine at one provider, each with an app of its own, worked on at the same time."""

    def __init__(self, copy_house: Copy, provider: House) -> None:
        self._copy = copy_house
        self._simulator = provider.simulator
        self._next = 0

    @contextlib.asynccontextmanager
    async def house(self) -> AsyncIterator[House]:
        self._next += 1
        async with self._copy(self._next, simulator=self._simulator) as house:
            yield house


async def acknowledged(house: House, message: str) -> bool:
    """Whether the first push of a message was answered 200."""
    (push,) = await rig.pushes_of(house.example, message)
    return bool(push["attempts"]) and push["attempts"][0]["status"] == 200


@pytest.mark.spec("DESK-58")
async def test_killed_between_the_acknowledgement_and_the_claim(copy_house: Copy) -> None:
    """At the moment of 200 only the receipt exists, and the acknowledgement waited for neither runner nor send; killed
    there, the message is answered once after the restart, by its first claim.

    FC-10.
    """
    async with copy_house() as house:
        example = house.example
        wires = len(await house.wires())
        web = await house.serve("--no-worker")
        await house.listen()
        message = await rig.say(example, "What is Frontdesk?", wait=True)
        assert await acknowledged(house, message)
        receipt = house.receipt(message)
        assert (receipt["status"], receipt["attempt_count"], receipt["turn"]) == ("received", 0, None)
        assert house.rows("turns", conversation=example.conversation_id) == []
        assert house.rows("deliveries", receipt=receipt["id"]) == []
        web.kill()
        house.hold()
        server = await house.serve()
        await house.held()
        # Also beside a worker nothing is waited for: this one is acknowledged while the first is still in the runner.
        following = await rig.say(example, "And who may answer?", wait=True)
        assert await acknowledged(house, following)
        assert len(await house.wires()) == wires
        assert house.receipt(following)["status"] == "received"
        house.release()
        await house.answered(message, following)
        assert house.receipt(message)["attempt_count"] == 1
        assert len(house.rows("turns", conversation=example.conversation_id)) == 2
        assert [call["question"] for call in house.asked()] == ["What is Frontdesk?", "And who may answer?"]
        assert len(await example.answers_to(message)) == 1
        rig.once_each(await house.wires())
        assert len(await house.wires()) == wires + 2
        assert await server.terminate() == 0


async def test_killed_while_the_runner_works(copy_house: Copy) -> None:
    """A SIGKILL while the runner works leaves a visible `agent_execution_indeterminate` receipt: not asked again,
    nothing sent.
    """
    async with copy_house() as house:
        example = house.example
        wires = len(await house.wires())
        server = await house.serve()
        await house.listen()
        house.hold()
        message = await rig.say(example, "What is Frontdesk?")
        await house.held()
        server.kill()
        house.release()
        await house.serve()

        async def judged() -> Any:
            query = {"code": "agent_execution_indeterminate"}
            return (await example.call("GET", f"{example.workspace}/receipts", params=query))["items"]

        (shown,) = await until("the receipt to be judged", judged, rig.LAPSE_S, rig.SLOW_POLL_S)
        receipt = house.receipt(message)
        assert (shown["id"], shown["status"]) == (receipt["id"], "permanent_failed")
        (turn,) = house.rows("turns", conversation=example.conversation_id)
        assert (turn["status"], turn["response"]) == ("failed", None)
        assert house.rows("conversations", id=example.conversation_id)[0]["revision"] == 0
        following = await rig.say(example, "Still there?")
        await until("the next answer", lambda: example.answers_to(following))
        assert [call["question"] for call in house.asked()] == ["What is Frontdesk?", "Still there?"]
        assert [row["target_id"] for row in (await house.wires())[wires:]] == [following]


@pytest.mark.spec("DESK-327")
async def test_asked_to_stop_while_something_is_under_way(copy_house: Copy) -> None:
    """On SIGTERM nothing new is claimed; turns and sends that end within the grace end normally, any other turn is
    `runner_cancelled` with its notice sent once after the next start, a send in flight ends or is unknown; the exit
    is 0.
    """
    async with copy_house() as provider:
        cases = Cases(copy_house, provider)
        async with cases.house() as late, cases.house() as slow, cases.house() as sending, cases.house() as stuck:
            await slow.example.simulate("POST", "/_sim/faults", json={"faults": _faults(sending, stuck)})
            await asyncio.gather(
                _turn_ends_within_the_grace(late),
                _turn_does_not_end(slow),
                _send_ends_within_the_grace(sending),
                _send_does_not_end(stuck),
            )
            for house in (late, slow, sending, stuck):
                left = [row["status"] for row in house.rows("receipts")]
                assert set(left) <= {"completed", "permanent_failed"}, "nothing is left half done"


def _faults(sending: House, stuck: House) -> list[dict[str, Any]]:
    return [
        {"match": {"route": "send", "app": sending.example.app["app_id"], "times": 1}, "delay_ms": 3_000},
        {"match": {"route": "send", "app": stuck.example.app["app_id"], "times": 1}, "stall": True, "accept": True},
    ]


async def _turn_ends_within_the_grace(house: House) -> None:
    example = house.example
    wires = len(await house.wires())
    server = await house.serve(environment={"FRONTDESK_SHUTDOWN_GRACE": "40s"})
    await house.listen()
    house.hold()
    message = await rig.say(example, "What is Frontdesk?")
    await house.held()
    stopping = asyncio.create_task(server.terminate(60))
    await until("the worker to say that it stops", lambda: not house.rows("workers")[0]["accepting_claims"])
    following = await rig.say(example, "Too late?", wait=True)
    assert await acknowledged(house, following), "callbacks are answered while work ends"
    house.release()
    assert await stopping == 0
    (turn,) = house.rows("turns", conversation=example.conversation_id)
    assert turn["status"] == "completed"
    assert house.receipt(message)["status"] == "completed"
    waiting = house.receipt(following)
    assert (waiting["status"], waiting["attempt_count"]) == ("received", 0), "nothing new was claimed"
    await house.serve()
    await house.answered(message, following)
    assert [call["question"] for call in house.asked()] == ["What is Frontdesk?", "Too late?"]
    assert [row["target_id"] for row in (await house.wires())[wires:]] == [message, following]


async def _turn_does_not_end(house: House) -> None:
    example = house.example
    wires = len(await house.wires())
    server = await house.serve(environment={"FRONTDESK_SHUTDOWN_GRACE": "1s"})
    await house.listen()
    house.hold()
    message = await rig.say(example, "What is Frontdesk?")
    await house.held()
    assert await server.terminate(60) == 0
    (turn,) = house.rows("turns", conversation=example.conversation_id)
    assert (turn["status"], turn["error_code"], turn["response"]) == ("failed", "runner_cancelled", None)
    receipt = house.receipt(message)
    assert (receipt["status"], receipt["error_code"]) == ("permanent_failed", "runner_cancelled")
    notice = house.delivery(message)
    assert (notice["purpose"], notice["status"]) == ("failure_notice", "pending")
    assert len(await house.wires()) == wires
    house.release()
    await house.serve()
    await house.answered(message)
    following = await rig.say(example, "And now?")
    await house.answered(following)
    assert [row["target_id"] for row in (await house.wires())[wires:]] == [message, following]
    assert len(house.asked()) == 2


async def _send_ends_within_the_grace(house: House) -> None:
    example = house.example
    wires = len(await house.wires())
    server = await house.serve(environment={"FRONTDESK_SHUTDOWN_GRACE": "40s"})
    await house.listen()
    message = await rig.say(example, "What is Frontdesk?")
    await _in_flight(house, wires)
    assert house.delivery_is(message, "sending"), "it was still on its way when the server was asked to stop"
    assert await server.terminate(60) == 0
    assert house.delivery_is(message, "sent")
    assert len(await house.wires()) == wires + 1


async def _send_does_not_end(house: House) -> None:
    example = house.example
    wires = len(await house.wires())
    server = await house.serve(environment={"FRONTDESK_SHUTDOWN_GRACE": "1s"})
    await house.listen()
    message = await rig.say(example, "What is Frontdesk?")
    await _in_flight(house, wires)
    assert await server.terminate(60) == 0
    await house.serve()
    await until("it to be called unknown", lambda: house.delivery_is(message, "indeterminate"), rig.LAPSE_S)
    following = await rig.say(example, "And now?")
    await house.answered(following)
    assert house.delivery(message)["error_code"] == "send_result_unknown"
    assert [row["target_id"] for row in (await house.wires())[wires:]] == [message, following]


async def _in_flight(house: House, wires: int) -> None:
    async def arrived() -> bool:
        return len(await house.wires()) > wires

    await until("the request to arrive", arrived, poll_s=0.05)


@pytest.mark.spec("DESK-63")
async def test_no_wake_up_is_needed(copy_house: Copy) -> None:
    """The wake-up after a commit is a hint: where web and worker are processes of their own, none of them ever
    arrives, and every message is answered by the next polls.
    """
    async with copy_house() as house:
        example = house.example
        wires = len(await house.wires())
        web = await house.serve("--no-worker")
        worker = await house.work()
        await house.listen()
        health = f"{example.workspace}/installations/{example.installation['id']}/health"
        assert (await example.call("GET", health))["reply_execution_ready"] is True
        asked = [await rig.say(example, f"Question {number}?", wait=True) for number in range(3)]
        await house.answered(*asked)
        assert [row["target_id"] for row in (await house.wires())[wires:]] == asked
        assert [house.receipt(message)["attempt_count"] for message in asked] == [1, 1, 1]
        assert await web.terminate() == 0
        assert await worker.terminate() == 0
