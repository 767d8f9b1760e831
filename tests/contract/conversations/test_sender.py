"""The ordinary send: one run a request id, a bounded wait, and an end for every turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from frontdesk.desk import conversations
from frontdesk.desk.conversations.model import Conversation
from frontdesk.desk.conversations.runner import Answer, Cancel, Failed, Proposal, ProposalDraft, Result, TurnRequest
from frontdesk.desk.conversations.sender import ConversationSender, Message, Sent
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.codes import RUNNER_CODES
from tests.contract.conversations.world import MEMBERS, PROJECTS, PROPOSALS, TURNS, WORKSPACES, Gate, World, code_of

LEASE = 30 * SECOND


async def send(
    world: World,
    sender: ConversationSender,
    conversation: Conversation,
    request_id: str = "r-1",
    content: str = "hi",
    *,
    actor: str = "owner",
    wait_s: float = 20,
) -> Sent:
    message = Message(request_id, content, "api")
    return await sender.send(world.people[actor], world.home, conversation.id, message, wait_s=wait_s)


async def settled(world: World, sender: ConversationSender, turn_id: str) -> Any:
    """The turn's row once its sender has nothing left to do."""
    async with asyncio.timeout(20):
        while sender._tasks:
            await asyncio.wait(set(sender._tasks))
    (row,) = await world.rows(TURNS, TURNS.c.id == turn_id)
    return row


@pytest.mark.spec("DESK-264")
async def test_a_send_waits_a_bounded_time_and_runs_its_id_once(world: World) -> None:
    """200 with the answer in time, else 202; a repeat answers by its turn's state; ten at once run the runner once."""
    assert limits.SEND_WAIT_US == 25 * SECOND
    conversation = await world.converse(project_id=world.project)
    world.extras["conversation_sender"] = sender = world.sender()
    path = world.path(f"/conversations/{conversation.id}/messages")
    async with world.http("owner") as client:
        body = {"request_id": "r-1", "content": "What is it?"}
        ten = await asyncio.gather(*(client.post(path, json=body) for _ in range(10)))
        assert len(world.runner.requests) == 1
        codes = sorted((each.status_code, each.json().get("code", "answered")) for each in ten)
        assert set(codes) <= {(200, "answered"), (409, "turn_open")}
        assert (200, "answered") in codes
        repeated = await client.post(path, json=body)
        assert (repeated.status_code, repeated.json()["status"]) == (200, "completed")
        assert repeated.json()["response"]["text"] == "answer to What is it?"
        reused = await client.post(path, json={**body, "content": "Something else"})
        assert (reused.status_code, reused.json()["code"]) == (409, "idempotency_key_reused")
        # slower than the wait: 202, and it goes on in this process
        world.runner.behaviour = gate = Gate()
        slow = await send(world, sender, conversation, "r-2", wait_s=0.01)
        assert (slow.done, slow.turn.status) == (False, "running")
        while_running = await client.post(path, json={"request_id": "r-2", "content": "hi"})
        assert (while_running.status_code, while_running.json()["code"]) == (409, "turn_open")
        other = await client.post(path, json={"request_id": "r-3", "content": "hi"})
        assert (other.status_code, other.json()["code"]) == (409, "turn_open")
        gate.opened.set()
        await settled(world, sender, slow.turn.id)
        done = await client.post(path, json={"request_id": "r-2", "content": "hi"})
        assert (done.status_code, done.json()["status"]) == (200, "completed")

        async def refuse(request: TurnRequest, cancel: Cancel) -> Result:
            return Failed("runner_refused")

        world.runner.behaviour = refuse
        failed = await client.post(path, json={"request_id": "r-4", "content": "hi"})
        assert (failed.status_code, failed.json()["code"]) == (502, "runner_refused")
        again = await client.post(path, json={"request_id": "r-4", "content": "hi"})
        assert (again.status_code, again.json()["code"]) == (409, "turn_failed")
    assert len(world.runner.requests) == 3
    assert (await world.get(conversation)).revision == 2


async def test_a_turn_that_outlasts_the_wait_is_202_on_the_wire(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = await world.converse()
    world.runner.behaviour = gate = Gate()
    sender = world.sender()
    monkeypatch.setitem(ConversationSender.send.__kwdefaults__, "wait_s", 0.01)
    world.extras["conversation_sender"] = sender
    async with world.http("owner") as client:
        path = world.path(f"/conversations/{conversation.id}/messages")
        answer = await client.post(path, json={"request_id": "r-1", "content": "hi"})
    assert (answer.status_code, answer.json()["status"]) == (202, "running")
    gate.opened.set()
    assert (await settled(world, sender, answer.json()["id"]))["status"] == "completed"


async def test_ten_sessions_that_send_one_id_run_the_runner_once(world: World, open_session: Any) -> None:
    conversation = await world.converse()
    senders = [world.sender(database=open_session(), owner=f"process-{number}") for number in range(10)]
    outcomes = await asyncio.gather(*(send(world, sender, conversation) for sender in senders), return_exceptions=True)
    assert len(world.runner.requests) == 1
    assert any(isinstance(each, Sent) and each.done for each in outcomes)
    assert len(await world.rows(TURNS)) == 1


async def test_what_may_not_be_sent_leaves_no_turn(world: World) -> None:
    conversation = await world.converse(project_id=world.project)
    sender = world.sender()
    planted = "please use sk-" + "a" * 30
    assert await code_of(send(world, sender, conversation, content=planted)) == "credential_text_refused"
    assert await code_of(send(world, sender, conversation, content="x" * 20_001)) == "input_too_long"
    assert await code_of(send(world, sender, conversation, actor="mate")) == "conversation_not_found"
    own = await world.converse("viewer")
    assert await code_of(send(world, sender, own, actor="viewer")) == "permission_required"
    await world.change(PROJECTS, world.project, access="administrators")
    assert await code_of(send(world, sender, conversation)) == "administrators_only"
    await world.change(PROJECTS, world.project, access="members")
    await world.write(conversations.close_conversation, world.people["owner"], world.home, conversation.id)
    assert await code_of(send(world, sender, conversation)) == "conversation_closed"
    assert await world.rows(TURNS) == []
    assert world.runner.requests == []


@pytest.mark.spec("RUN-9")
async def test_the_projects_runner_serves_else_the_workspaces_else_the_settings(world: World) -> None:
    """It is read at each turn, and a name that nobody has is `runner_not_configured`, never another runner."""
    conversation = await world.converse(project_id=world.project)
    sender = world.sender()
    assert (await send(world, sender, conversation, "r-1")).turn.runner["name"] == "fake"
    await world.change(WORKSPACES, world.home, runner="nobody")
    assert await code_of(send(world, sender, conversation, "r-2")) == "runner_not_configured"
    await world.change(PROJECTS, world.project, runner="fake")
    assert (await send(world, sender, conversation, "r-3")).done
    await world.change(PROJECTS, world.project, runner="Fake")
    assert await code_of(send(world, sender, conversation, "r-4")) == "runner_not_configured"
    await world.change(PROJECTS, world.project, runner=None)
    await world.change(WORKSPACES, world.home, runner="fake")
    elsewhere = world.sender(default_runner="nobody")
    assert (await send(world, elsewhere, conversation, "r-5")).done
    assert len(world.runner.requests) == 3


@pytest.mark.spec("DESK-302")
@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("fails", "runner_overloaded"),
        ("raises", "runner_output_invalid"),
        ("idle", "runner_idle_timeout"),
        ("hard", "runner_hard_timeout"),
    ],
)
async def test_a_runner_that_fails_or_takes_too_long_ends_its_turn_once(world: World, case: str, code: str) -> None:
    """The turn has its code, the runner was called once, what it returns later is dropped, the next turn works."""
    planted = "planted in an exception"

    async def misbehave(request: TurnRequest, cancel: Cancel) -> Result:
        if case == "fails":
            return Failed("runner_overloaded")
        if case == "raises":
            raise LookupError(planted)
        await cancel.wait()  # the limit has passed and it was asked to end
        return Answer("too late")

    world.runner.behaviour = misbehave
    limit = {"idle": {"idle_us": 20_000}, "hard": {"hard_us": 20_000, "idle_us": 10 * SECOND}}.get(case, {})
    conversation = await world.converse()
    sender = world.sender(**limit)
    assert await code_of(send(world, sender, conversation)) == code
    (row,) = await world.rows(TURNS)
    assert (row["status"], row["error_code"], row["response"], row["committed_revision"]) == (
        "failed",
        code,
        None,
        None,
    )
    assert code in RUNNER_CODES
    assert planted not in repr(row)
    assert await code_of(send(world, sender, conversation)) == "turn_failed"
    assert len(world.runner.requests) == 1
    assert (await world.get(conversation)).revision == 0
    world.runner.behaviour = None
    assert (await send(world, world.sender(), conversation, "r-2")).done


@pytest.mark.spec("DESK-300")
async def test_a_turn_that_a_crash_abandoned_ends_within_lease_and_one_recovery_interval(world: World) -> None:
    """It reads failed with `interrupted`, what its process still had is dropped, and the next message is taken."""
    world.runner.behaviour = gate = Gate()
    conversation = await world.converse()
    crashed = world.sender(lease_us=LEASE)
    running = await send(world, crashed, conversation, wait_s=0.01)
    await gate.reached.wait()
    started = world.clock.now_us()
    # the process is gone: no heartbeat of it moves the clocked lease; recovery steps once an interval
    while (await world.rows(TURNS))[0]["status"] == "running":
        assert world.clock.now_us() <= started + LEASE + limits.RECOVERY_INTERVAL_US
        world.clock.advance(limits.RECOVERY_INTERVAL_US // 2)
        await world.write(conversations.interrupt_abandoned, limits.SCAN_PAGE)
    (row,) = await world.rows(TURNS)
    assert (row["status"], row["error_code"], row["lease_generation"]) == ("failed", "interrupted", 2)
    gate.opened.set()  # the zombie answers after all
    await crashed.stop(5)
    assert (await world.rows(TURNS))[0] == row
    world.runner.behaviour = None
    following = await send(world, world.sender(), conversation, "r-2")
    assert (following.turn.status, following.turn.committed_revision) == ("completed", 1)
    assert running.turn.id != following.turn.id


async def test_the_heartbeat_keeps_a_long_turn_alive(world: World) -> None:
    world.runner.behaviour = gate = Gate()
    conversation = await world.converse()
    sender = world.sender(lease_us=60_000)
    turn = (await send(world, sender, conversation, wait_s=0.01)).turn
    first = turn.lease_expires_at
    assert first is not None
    async with asyncio.timeout(20):
        for _ in range(5):
            world.clock.advance(40_000)
            expected = world.clock.now_us() + 60_000
            while (await world.rows(TURNS))[0]["lease_expires_at"] != expected:  # each look lets the heartbeat run
                pass
    assert await world.write(conversations.interrupt_abandoned, 100) == 0
    gate.opened.set()
    assert (await settled(world, sender, turn.id))["status"] == "completed"


@pytest.mark.spec("RUN-7")
@pytest.mark.parametrize("cause", ["stop", "lease", "closed", "context"])
async def test_a_result_that_comes_too_late_writes_nothing(world: World, cause: str) -> None:
    """After Stop, a lost lease, or a conversation that moved, there is no response, no revision and no answer."""
    world.runner.behaviour = gate = Gate()
    conversation = await world.converse()
    sender = world.sender(lease_us=90_000)
    turn = (await send(world, sender, conversation, wait_s=0.01)).turn
    await gate.reached.wait()
    expected = "runner_cancelled"
    if cause == "stop":
        await world.write(conversations.request_cancel, turn.id)
    elif cause == "lease":
        await world.change(TURNS, turn.id, lease_owner="another", lease_generation=2)
        expected = "interrupted"
    elif cause == "closed":
        await world.write(conversations.close_conversation, world.people["owner"], world.home, conversation.id)
        expected = "conversation_revision_changed"
    else:
        async with world.http("owner") as client:
            await client.patch(world.path(f"/conversations/{conversation.id}"), json={"context": {"surface": "x"}})
        expected = "conversation_revision_changed"
    before = (await world.get(conversation)).revision
    gate.opened.set()
    await sender.stop(10)
    if cause == "lease":
        (row,) = await world.rows(TURNS)
        assert (row["status"], row["lease_owner"]) == ("running", "another")
        world.clock.advance(3_600 * SECOND)
        await world.write(conversations.interrupt_abandoned, 100)
    row = await settled(world, sender, turn.id)
    assert (row["status"], row["error_code"], row["response"]) == ("failed", expected, None)
    assert (await world.get(conversation)).revision == before


async def test_stopping_the_process_ends_its_turns_and_takes_no_more(world: World) -> None:
    async def polite(request: TurnRequest, cancel: Cancel) -> Result:
        await cancel.wait()
        return Failed("runner_cancelled")

    world.runner.behaviour = polite
    conversation = await world.converse()
    sender = world.sender()
    turn = (await send(world, sender, conversation, wait_s=0.01)).turn
    await sender.stop(0)
    (row,) = await world.rows(TURNS)
    assert (row["id"], row["status"], row["error_code"]) == (turn.id, "failed", "runner_cancelled")
    assert await code_of(send(world, sender, conversation, "r-2")) == "unavailable"
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith(("send ", "runner ", "lease "))]
    sender.start()
    world.runner.behaviour = None
    assert (await send(world, sender, conversation, "r-3")).done


async def test_a_caller_that_goes_away_leaves_a_turn_that_is_answered(world: World) -> None:
    conversation = await world.converse()
    sender = world.sender()
    caller = asyncio.create_task(send(world, sender, conversation))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    await sender.stop(20)
    rows = await world.rows(TURNS)
    assert [row["status"] for row in rows] == ["completed"]


async def test_a_proposal_of_a_person_who_lost_their_rights_is_kept_as_text(world: World) -> None:
    draft = ProposalDraft("roster_tasks_submit", {"title": "t"}, "Create a task", "project", "prj_1", 0)
    leaving: list[str] = []

    async def propose(request: TurnRequest, cancel: Cancel) -> Result:
        for member in leaving:
            await world.database.write(
                lambda tx, member=member: tx.execute(MEMBERS.delete().where(MEMBERS.c.id == member)) and None
            )
        return Proposal(draft)

    world.runner.behaviour = propose
    conversation = await world.converse(project_id=world.project)
    sender = world.sender()
    kept = await send(world, sender, conversation)
    assert (kept.turn.status, kept.turn.answer_text) == ("proposal", "Create a task")
    assert [row["turn"] for row in await world.rows(PROPOSALS)] == [kept.turn.id]
    (member,) = await world.rows(MEMBERS, MEMBERS.c.user == world.people["owner"].user_id)
    leaving.append(member["id"])
    lost = await send(world, sender, conversation, "r-2")
    assert (lost.turn.status, lost.turn.answer_text) == ("completed", "Create a task")
    assert len(await world.rows(PROPOSALS)) == 1
