"""Journey 13: two web and two worker processes, clocks apart, killed and restarted, on one PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from typing import Any

import psycopg
import pytest

from frontdesk.app.example import Example
from frontdesk.kernel.failpoints import POINTS
from tests.e2e import ledger, rig
from tests.e2e.people import listen, own
from tests.e2e.rig import House, until
from tests.support.postgres import PostgresServer

GRANTS = 20
ROUNDS = 25
LIVES = 2  # of each worker that end at a failpoint; the one after them is left alone
SEED = 13
MINUTES_US = 60_000_000
# A receipt's and a delivery's way; t0 belongs to the web processes, and nothing reaches tF where no turn fails.
WAY = [point for point in POINTS if not point.startswith(("t0", "tF"))]


def stage_of(house: House, name: str, minutes: int) -> dict[str, str]:
    """The environment of a process with a clock of its own, so many minutes off."""
    folder = house.data / f"stage-{name}"
    folder.mkdir()
    (folder / "clock").write_text(str(minutes * MINUTES_US))
    (folder / "limits").write_text(json.dumps({"INBOX_PENDING_MAX_PER_GRANT": 100}))
    return {"FRONTDESK_TEST_STAGE": str(folder)}


@pytest.mark.engine("postgresql")
@pytest.mark.timeout(900)
async def test_two_of_everything(own_house: House, own_server: PostgresServer, known: list[dict[str, Any]]) -> None:
    """Five hundred messages, each pushed twice and out of order to two web processes, answered by two workers that are
    killed again and again, on a PostgreSQL that restarts: each has one receipt and one turn, in the order of arrival
    within its grant, no message is made twice, and what was not sent says why.
    """
    async with rig.closing(own_house) as house:
        await house.start_simulator()
        await house.meet(**known[0])
        chats = [own(house, each) for each in known[:GRANTS]]
        webs = await _webs(house)
        for number, chat in enumerate(chats):
            await listen(chat, webs[number % 2])
        first_wire = len(await _wires(house))
        chance = random.Random(SEED)
        done = asyncio.Event()
        plans = [[chance.choice(WAY) for _ in range(LIVES)] for _ in range(2)]
        workers = [
            asyncio.create_task(_lives(house, stage_of(house, f"worker-{number}", 10 - 20 * number), plan, done))
            for number, plan in enumerate(plans)
        ]
        messages = await _load(house, own_server, chats, webs)
        await until("everything to have ended", lambda: _ended(house, messages), 400, 1.0)
        done.set()
        kills = sum(await asyncio.gather(*workers))
        assert kills == 2 * LIVES, "each of those lives was to end at its failpoint"
        _judge(house, [chat.grant_id for chat in chats], messages)
        wires = (await _wires(house))[first_wire:]
        ledger.never_blindly(wires)
        await _chats_agree(house, messages, wires)


async def _webs(house: House) -> list[str]:
    addresses = []
    for number in range(2):
        port = house.port if number == 0 else rig.free_port()
        environment = stage_of(house, f"web-{number}", 20 * number - 10)
        addresses.append((await house.serve("--no-worker", "--port", str(port), environment=environment)).address)
    return addresses


async def _lives(house: House, environment: dict[str, str], plan: list[str], done: asyncio.Event) -> int:
    """One worker after the other: those of the plan kill themselves at their failpoint, the last one stays."""
    words = ["work", "--data", str(house.data), "--allow-failpoints"]
    points = [*plan, ""]
    kills = 0
    while points:
        armed = {"FRONTDESK_FAILPOINTS": f"{points[0]}=kill"} if points[0] else {}
        program = rig.start("work", words, house.logs, house.settings(environment | armed))
        house.programs.append(program)
        await until("a worker to end", lambda program=program: done.is_set() or not program.running, 500)
        if program.running:
            assert not armed, f"nothing came to {points[0]} any more"
            assert await program.terminate(60) == 0
            break
        if program.process.returncode == 1:  # started while the database was away; a service manager starts it again
            assert "the database does not answer" in program.text, program.text
            continue
        assert program.process.returncode == -9, program.text
        kills += 1
        del points[0]
    return kills


async def _load(house: House, server: PostgresServer, chats: list[Example], webs: list[str]) -> list[str]:
    """Every chat asks in every round; the database restarts while they do. The messages' ids."""
    faults = [{"match": {"route": "push"}, "duplicate": 1, "reorder": 6}]
    await house.example.simulate("POST", "/_sim/faults", json={"faults": faults})
    messages: list[str] = []
    restart: asyncio.Task[Any] | None = None
    for number in range(ROUNDS):
        messages += await asyncio.gather(*(rig.say(chat, f"Question {number}?", wait=True) for chat in chats))
        if restart is None:
            await _keeping_up(house, len(messages) - 5 * GRANTS)
        if number == ROUNDS // 2:
            restart = asyncio.create_task(asyncio.to_thread(server.restart))
            for place, chat in enumerate(chats):  # from here on by the other web process
                await _moved(chat, webs[(place + 1) % 2])
    assert restart is not None
    await restart
    await house.example.simulate("POST", "/_sim/faults", json={"faults": []})  # what is still held goes out
    # The provider would push again after 15 s, 5 min, 1 h and 6 h what was not answered 200; we do not wait for that.
    await until("every message to be received", lambda: _pushed_again(house, messages), 120, 1.0)
    return messages


async def _keeping_up(house: House, count: int) -> None:
    """Wait until so many messages were received: a burst of a thousand pushes would only show how slow a machine is.

    What was pushed while the database was away comes later; it is not waited for here.
    """

    def look() -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            return bool(house.query("SELECT count(*) AS n FROM receipts")[0]["n"] >= count)
        return True

    await until("the web processes to keep up", look, 120)


async def _moved(chat: Example, address: str) -> None:
    """Another web process takes this chat's pushes; the URL check needs its database, which may be away."""

    async def look() -> bool:
        url = address + chat.installation["callback_path"]
        checked = await chat.simulate("PUT", f"/_sim/apps/{chat.app['app_id']}/callback", json={"url": url})
        return bool(checked["ok"])

    await until("the URL check", look, 120, 0.5)


async def _pushed_again(house: House, messages: list[str]) -> bool:
    known = {row["provider_message_id"] for row in house.rows("receipts")}
    missing = [message for message in messages if message not in known]
    for message in missing:
        body = {"message_id": message, "wait": True, "redeliver": False}
        await house.example.simulate("POST", "/_sim/push", json=body)
    return not missing


def _ended(house: House, messages: list[str]) -> bool:
    with contextlib.suppress(psycopg.OperationalError):
        return ledger.ended(house, messages)
    return False


def _judge(house: House, grants: list[str], messages: list[str]) -> None:
    receipts = ledger.receipts_of(house, messages)
    assert len(receipts) == GRANTS * ROUNDS
    ledger.one_turn_each(house, receipts)
    ledger.cursors_agree(house, grants)
    seen = ledger.ends_are_named(house, receipts)
    assert set(seen) <= {"sent", "send_result_unknown", "agent_execution_indeterminate"}, seen


async def _wires(house: House) -> list[dict[str, Any]]:
    """Everything the provider was asked for that can make a message appear, of every app."""
    seen = await house.example.simulate("GET", "/_sim/requests", params={"limit": 10_000})
    return [row for row in seen["items"] if row["kind"] in {"create", "reply"}]


async def _chats_agree(house: House, messages: list[str], wires: list[dict[str, Any]]) -> None:
    """No question has two answers in its chat, and what is called sent is there."""
    query = {"sender_type": "app", "limit": 10_000}
    shown = (await house.example.simulate("GET", "/_sim/messages", params=query))["items"]
    answers = Counter(row["parent_id"] for row in shown if row["parent_id"] in set(messages))
    assert set(answers.values()) <= {1}, [message for message, count in answers.items() if count > 1]
    assert len(answers) == len([row for row in wires if row["accepted"]])
    receipts = {row["id"]: row["provider_message_id"] for row in ledger.receipts_of(house, messages)}
    sent = [receipts[row["receipt"]] for row in house.rows("deliveries", status="sent") if row["receipt"] in receipts]
    assert set(sent) <= set(answers)
