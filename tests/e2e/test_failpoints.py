"""SIGKILL at every step of a message's way, on real processes: what a restart makes of it (desk.md 8.6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from frontdesk.kernel.failpoints import POINTS
from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.rig import House, until

# Servers alive at once; most of them only wait for a lease to lapse.
ALIVE = 12

ANSWER = "one answer"
NOTICE = "one failure notice"
UNKNOWN_TURN = "receipt agent_execution_indeterminate"
UNKNOWN_DELIVERY = "delivery indeterminate"

# The table of desk.md 8.6, row by row: how it ends, and how many wire requests the message has led to.
ENDINGS: dict[str, tuple[str, int]] = {
    "t0.before": (ANSWER, 1),
    **dict.fromkeys(("t0.after", "t1.before", "t1.after", "t1b.before"), (ANSWER, 1)),
    **dict.fromkeys(("t1b.after", "t2.before", "t2.after", "t3.before"), (UNKNOWN_TURN, 0)),
    **dict.fromkeys(("t3.after", "t4.before", "t4.after", "t5.before", "t5.after"), (ANSWER, 1)),
    **dict.fromkeys(("t6.before", "t6.after", "t7.before"), (ANSWER, 1)),
    **dict.fromkeys(("t7.after", "t8.before"), (UNKNOWN_DELIVERY, 0)),
    **dict.fromkeys(("t8.after", "t9.before"), (UNKNOWN_DELIVERY, 1)),
    "t9.after": (ANSWER, 1),
    "tF.before": (UNKNOWN_TURN, 0),
    "tF.after": (NOTICE, 1),
}
# How often the runner may have been asked by then, over both lives: never twice.
UNASKED = {"t1b.after", "t2.before"}
OPEN_RECEIPTS = {"received", "processing", "retryable_failed"}
OPEN_DELIVERIES = {"pending", "connecting", "sending", "retryable_failed"}


def test_every_failpoint_stands_in_the_table() -> None:
    assert set(ENDINGS) == set(POINTS)


@pytest.mark.spec("DESK-108")
@pytest.mark.timeout(420)
async def test_a_sigkill_at_each_failpoint_ends_as_the_table_says(copy_house: Copy) -> None:
    """Killed at any step and started again, a message ends in exactly one of: one answer or notice, one visible
    unknown delivery, one visible unknown turn; only what followed the final commit counts as done, and no operation
    is sent twice.

    FC-28, FC-30.
    """
    # One provider for all; each house uses an app of its own, so that its requests are told apart.
    async with copy_house() as provider:
        alive = asyncio.Semaphore(ALIVE)

        async def one(number: int, point: str, question: str) -> str:
            async with alive, copy_house(number, simulator=provider.simulator) as house:
                try:
                    await _killed_at(house, point, question)
                except AssertionError as error:
                    return f"{point} {question!r}: {error}"
                return ""

        cases = [(point, "What is Frontdesk?") for point in POINTS]
        # An answer that is a proposal goes the same way: dropped before its commit, kept after it.
        cases += [("t3.before", "task: count the chairs"), ("t3.after", "task: count the chairs")]
        found = await asyncio.gather(*(one(number, *case) for number, case in enumerate(cases)))
    wrong = [line for line in found if line]
    assert not wrong, "\n".join(wrong)


async def _killed_at(house: House, point: str, question: str) -> None:
    """One message, killed at the point and started again; then another message, which is answered."""
    example = house.example
    kind, wire = ENDINGS[point]
    if point.startswith("tF"):
        house.fail("runner_unavailable")
    server = await house.serve(failpoint=point)
    await house.listen()
    before = len(await house.wires())
    message = await rig.say(example, question)
    assert await server.ended() == -9, "the server was to kill itself"
    await house.serve()
    if point == "t0.before":  # nothing was kept, nothing was acknowledged; the provider pushes again
        assert _receipt(house, message) is None
        await example.simulate("POST", "/_sim/push", json={"message_id": message})
    receipt = await until("the receipt to end", lambda: _ended_receipt(house, message), rig.LAPSE_S, rig.SLOW_POLL_S)
    deliveries = await until(
        "its delivery to end", lambda: _ended_deliveries(house, receipt), rig.LAPSE_S, rig.SLOW_POLL_S
    )
    _judge(house, point, kind, receipt, deliveries)
    await _visible(house, kind, receipt, deliveries)
    assert len(await house.wires()) - before == wire
    # Life goes on, and what ended stays ended: by the time the next answer is there, nothing else was sent.
    house.release()
    following = await rig.say(example, "And then?", None)
    await until("the next answer", lambda: example.answers_to(following))
    await until("the next answer's commit", lambda: _is_sent(house, following))
    wires = await house.wires()
    rig.once_each(wires)
    assert len(wires) - before == wire + 1
    assert len(await example.answers_to(message)) == wire
    assert len(house.rows("turns", conversation=example.conversation_id)) == 2
    assert house.server is not None
    assert await house.server.terminate() == 0


def _receipt(house: House, message: str) -> dict[str, Any] | None:
    found = house.rows("receipts", provider_message_id=message)
    assert len(found) <= 1
    return found[0] if found else None


def _ended_receipt(house: House, message: str) -> dict[str, Any] | None:
    receipt = _receipt(house, message)
    return receipt if receipt is not None and receipt["status"] not in OPEN_RECEIPTS else None


def _ended_deliveries(house: House, receipt: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The deliveries of the receipt in a list, once all of them have ended (none at all counts as well)."""
    found = house.rows("deliveries", receipt=receipt["id"])
    return [found] if all(row["status"] not in OPEN_DELIVERIES for row in found) else []


def _is_sent(house: House, message: str) -> bool:
    receipt = _receipt(house, message)
    return receipt is not None and any(
        row["status"] == "sent" for row in house.rows("deliveries", receipt=receipt["id"])
    )


def _judge(
    house: House, point: str, kind: str, receipt: dict[str, Any], deliveries: list[list[dict[str, Any]]]
) -> None:
    """The rows are those of exactly one of the endings."""
    turns = house.rows("turns", conversation=house.example.conversation_id)
    conversation = house.rows("conversations", id=house.example.conversation_id)[0]
    grant = house.rows("reply_grants", id=house.example.grant_id)[0]
    sent = [(row["purpose"], row["status"], row["error_code"]) for row in deliveries[0]]
    seen = (
        receipt["status"],
        receipt["error_code"],
        [turn["status"] for turn in turns],
        conversation["revision"],
        sent,
    )
    answered = turns[0]["status"] if turns else ""
    purpose = "proposal_notice" if answered == "proposal" else "agent_reply"
    ended = "proposal" if answered == "proposal" else "completed"
    expected = {
        ANSWER: (ended, None, [ended], 1, [(purpose, "sent", None)]),
        UNKNOWN_DELIVERY: (ended, None, [ended], 1, [(purpose, "indeterminate", "send_result_unknown")]),
        UNKNOWN_TURN: ("permanent_failed", "agent_execution_indeterminate", ["failed"], 0, []),
        NOTICE: ("permanent_failed", "runner_unavailable", ["failed"], 0, [("failure_notice", "sent", None)]),
    }[kind]
    assert seen == expected
    assert grant["cursor"] == conversation["revision"]
    assert len(house.asked()) == (0 if point in UNASKED else 1), "the runner is asked once at most"


async def _visible(house: House, kind: str, receipt: dict[str, Any], deliveries: list[list[dict[str, Any]]]) -> None:
    """What is unknown is shown to people, under its code."""
    example = house.example
    unknown = await example.call("GET", f"{example.workspace}/deliveries", params={"status": "indeterminate"})
    failed = await example.call(
        "GET", f"{example.workspace}/receipts", params={"code": "agent_execution_indeterminate"}
    )
    expected = [row["id"] for row in deliveries[0]] if kind == UNKNOWN_DELIVERY else []
    assert [item["id"] for item in unknown["items"]] == expected
    assert [item["id"] for item in failed["items"]] == ([receipt["id"]] if kind == UNKNOWN_TURN else [])
