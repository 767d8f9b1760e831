"""From a received message to its committed turn: one execution, one commit, and what a failure leaves."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from frontdesk.desk import conversations
from frontdesk.desk.conversations.runner import (
    Answer,
    Cancel,
    Failed,
    Proposal,
    ProposalDraft,
    Result,
    TurnRequest,
)
from frontdesk.desk.inbox import turn_request_id
from frontdesk.desk.outbox import templates
from frontdesk.kernel.codes import RUNNER_CODES
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.kernel.machine import Lease
from frontdesk.storage import prepared
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.answering.steps import Seen, crashed, during, look, recover
from tests.contract.desk_world import LEASE_US, TABLES, DeskWorld, Gate, Seat

DRAFT = ProposalDraft("roster_tasks_submit", {"task": "t-1"}, "Close task t-1", "task", "t-1", 3)


def returning(result: Result | Exception) -> Callable[[TurnRequest, Cancel], Any]:
    async def behave(request: TurnRequest, cancel: Cancel) -> Result:
        if isinstance(result, Exception):
            raise result
        return result

    return behave


# ---------------------------------------------------------------------------------------------- one execution


@pytest.mark.spec("DESK-103")
async def test_the_request_id_of_a_turn_is_derived_from_the_message(desk: DeskWorld, seat: Seat) -> None:
    """The same message always gives the same id of at most 64 characters, whatever the channel's prefix."""
    assert turn_request_id("feishu", "inst-1", "om_1") == (
        "feishu:9b1d46bd4669e473afa5163e783c1939709796550f322c1fa4b18999"
    )
    assert turn_request_id("loop", "inst-1", "msg_1") == (
        "loop:3421df959f84f8c1f7f8d6776a04772f297476890545883185058e4c"
    )
    assert len(turn_request_id("seven_7", "i" * 255, "消" * 255)) == 64
    await desk.ask("hello", seat, message_id="om_hello")
    await desk.work()
    (turn,) = await desk.rows("turns")
    assert turn["request_id"] == turn_request_id("feishu", seat.installation_id, "om_hello")


@pytest.mark.spec("DESK-105")
async def test_nothing_is_held_while_the_runner_works(
    desk: DeskWorld, seat: Seat, open_session: Callable[[], Database]
) -> None:
    """The running turn is committed for everybody, and others write grant and conversation meanwhile."""
    gate = Gate()
    desk.runner.behaviour = gate
    receipt = await desk.ask("hello", seat)
    worker = desk.receipt_worker()
    await worker.step()
    await gate.reached.wait()
    other = open_session()
    turns = TABLES["turns"]
    running = await other.read(lambda tx: [dict(row) for row in tx.rows(sa.select(turns))])
    assert [(turn["status"], turn["user_content"]) for turn in running] == [("running", "hello")]

    def touch(tx: Tx) -> int:
        changed = 0
        for table, row_id in (
            ("receipts", receipt["id"]),
            ("reply_grants", seat.grant_id),
            ("conversations", seat.conversation_id),
            ("turns", running[0]["id"]),
        ):
            found = TABLES[table]
            statement = sa.update(found).where(found.c.id == row_id).values(updated_at=tx.now)
            changed += tx.execute(statement).rowcount
        return changed

    async with asyncio.timeout(5):
        assert await other.write(touch) == 4
    if other.engine_name == "postgresql":
        open_ones = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        found = await other.read(lambda tx: tx.count(sa.text(f"{open_ones} AND xact_start IS NOT NULL")))
        assert found == 0
    gate.opened.set()
    await worker.stop(60)
    assert (await look(desk, seat, receipt["id"])).receipt == ("completed", None)


@pytest.mark.spec("DESK-109")
@pytest.mark.parametrize("concurrent", [False, True])
async def test_two_replies_are_two_turns_one_after_the_other(
    desk: DeskWorld, seat: Seat, open_session: Callable[[], Database], concurrent: bool
) -> None:
    """Each reply moves revision and cursor by one, and the second starts from what the first left."""
    assert (await desk.row("conversations", seat.conversation_id))["revision"] == 0
    if not concurrent:
        await desk.ask("one", seat)
        await desk.work()
        await desk.ask("two", seat)
        await desk.work()
    else:
        gate = Gate()
        desk.runner.behaviour = gate
        await asyncio.gather(desk.push(desk.message("one", seat)), desk.push(desk.message("two", seat)))
        workers = [desk.receipt_worker(database=open_session()) for _ in range(2)]
        assert sum(await asyncio.gather(*(worker.step() for worker in workers))) == 1
        await gate.reached.wait()
        assert sum(await asyncio.gather(*(worker.step() for worker in workers))) == 0
        assert await desk.count("receipts", status="processing") == 1
        gate.opened.set()
        for worker in workers:
            await worker.stop(60)
        assert await desk.work() == 1
    first, second = sorted(await desk.rows("turns"), key=lambda turn: turn["sequence"])
    assert (first["sequence"], first["committed_revision"]) == (1, 1)
    assert (second["sequence"], second["committed_revision"]) == (2, 2)
    assert (await desk.row("conversations", seat.conversation_id))["revision"] == 2
    assert (await desk.row("reply_grants", seat.grant_id))["cursor"] == 2
    earlier, later = desk.runner.requests
    assert earlier.history == ()
    assert [(pair.question, pair.answer) for pair in later.history] == [(earlier.text, f"answer to {earlier.text}")]


@pytest.mark.spec("DESK-111")
async def test_the_same_text_twice_is_two_questions(desk: DeskWorld, seat: Seat) -> None:
    """Two messages with equal text are two turns with two answers."""
    for _ in range(2):
        await desk.ask("again?", seat)
    await desk.work()
    assert [turn["user_content"] for turn in await desk.rows("turns", status="completed")] == ["again?", "again?"]
    assert await desk.count("deliveries", purpose="agent_reply") == 2


@pytest.mark.spec("DESK-120")
async def test_a_failed_turn_ends_its_receipt_and_its_id_for_good(desk: DeskWorld, seat: Seat) -> None:
    """The receipt keeps the turn's code, and neither push nor worker nor core runs that request id again."""
    desk.runner.behaviour = returning(Failed("runner_overloaded"))
    message = desk.message("hello", seat)
    received = await desk.push(message)
    await desk.work()
    seen = await look(desk, seat, str(received.receipt_id))
    assert (seen.receipt, seen.turn) == (("permanent_failed", "runner_overloaded"), ("failed", "runner_overloaded"))
    desk.runner.behaviour = None
    assert (await desk.push(dataclasses.replace(message, event_id="ev_again"))).outcome == "known"
    desk.clock.advance(10 * LEASE_US)
    assert await desk.work() == 0
    (turn,) = await desk.rows("turns")

    def begin(tx: Tx) -> Any:
        conversation = conversations.find_conversation(tx, seat.conversation_id)
        assert conversation is not None
        return conversations.begin_turn(tx, conversation, turn["request_id"], "hello", surface="channel")

    begun = await desk.database.write(begin)
    assert (begun.fresh, begun.turn.status) == (False, "failed")
    assert len(desk.runner.requests) == 1


# ---------------------------------------------------------------------------------------------- one commit


class Injected(RuntimeError):
    pass


class Injection:
    """Lets the n-th statement of t3 fail, the commit included."""

    def __init__(self, database: Database, number: int) -> None:
        self.left = number
        self.active = False
        self.hit = False
        self.engine = database.engine()
        self.prepared = prepared._execute

    def observe(self, point: str) -> None:
        self.active = point == "t3.before"

    def __enter__(self) -> Injection:
        sa.event.listen(self.engine, "before_cursor_execute", self._statement)
        sa.event.listen(self.engine, "commit", self._commit)
        prepared._execute = self._prepared
        return self

    def __exit__(self, *_: object) -> None:
        sa.event.remove(self.engine, "before_cursor_execute", self._statement)
        sa.event.remove(self.engine, "commit", self._commit)
        prepared._execute = self.prepared

    def _statement(self, _c: Any, _u: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("ROLLBACK"):
            self._count()

    def _prepared(self, tx: Tx, sql: str, bound: Any) -> Any:
        self._count()
        return self.prepared(tx, sql, bound)

    def _commit(self, _connection: Any) -> None:
        self._count()

    def _count(self) -> None:
        if not self.active:
            return
        self.left -= 1
        if self.left == 0:
            self.active = False
            self.hit = True
            raise Injected


@pytest.mark.spec("DESK-107")
async def test_an_answer_is_committed_as_a_whole_or_not_at_all(desk: DeskWorld, seat: Seat) -> None:
    """Whichever statement of the final commit fails, response, status, revision and cursor all stay as they were."""
    number = 0
    while True:
        number += 1
        receipt = await desk.ask(f"question {number}", seat)
        with Injection(desk.database, number) as injection:
            worker = desk.receipt_worker(failpoints=Failpoints(observer=injection.observe))
            await worker.step()
            await worker.stop(60)
        seen = await look(desk, seat, receipt["id"])
        if not injection.hit:
            break
        assert seen == Seen(0, 0, ("processing", None), ("running", None), None), number
        (turn,) = await desk.rows("turns", status="running")
        assert (turn["response"], turn["committed_revision"]) == (None, None)
        desk.clock.advance(LEASE_US)
        assert await recover(desk) == 1
        desk.clock.advance(60_000_000)  # away from the sender's limit of messages a minute
    assert seen == Seen(1, 1, ("completed", None), ("completed", None), ("pending", None))
    assert number > 10
    assert await desk.count("deliveries", purpose="agent_reply") == 1


async def test_every_ended_turn_leaves_its_event(desk: DeskWorld, seat: Seat) -> None:
    await desk.ask("one", seat)
    await desk.work()
    desk.runner.behaviour = returning(Failed("runner_refused"))
    await desk.ask("two", seat)
    await desk.work()
    desk.runner.behaviour = None
    await desk.ask("three", seat)
    await crashed(desk, "t2.after")
    await recover(desk)
    await during(desk, seat, lambda: desk.close(seat.conversation_id))
    events = await desk.rows("events", object_kind="turn")
    assert sorted((event["kind"], event["code"] or "") for event in events) == [
        ("turn.completed", ""),
        ("turn.failed", "agent_execution_indeterminate"),
        ("turn.failed", "conversation_revision_changed"),
        ("turn.failed", "runner_refused"),
    ]
    assert {event["reply_grant"] for event in events} == {seat.grant_id}


# ---------------------------------------------------------------------------------------------- failures


@pytest.mark.spec("DESK-115")
async def test_a_runner_that_raises_fails_its_turn_and_says_nothing_of_why(desk: DeskWorld, seat: Seat) -> None:
    """Revision and cursor stay, the turn fails, and neither the exception's text nor a credential is stored."""
    planted = "planted-in-an-exception"
    desk.runner.behaviour = returning(ValueError(planted))
    receipt = await desk.ask("hello", seat)
    await desk.work()
    seen = await look(desk, seat, receipt["id"])
    assert (seen.revision, seen.cursor) == (0, 0)
    assert (seen.turn, seen.receipt) == (
        ("failed", "runner_output_invalid"),
        ("permanent_failed", "runner_output_invalid"),
    )
    desk.runner.behaviour = returning(Failed("runner_exited", "it said password=hunter2hunter2"))
    await desk.ask("hello again", seat)
    await desk.work()
    messages = [turn["error_message"] for turn in await desk.rows("turns", error_code="runner_exited")]
    assert len(messages) == 1
    assert messages[0].startswith("it said")
    everything = await desk.everything()
    assert planted not in everything
    assert "hunter2hunter2" not in everything

    # Fenced: once another took the receipt over, the failure touches nothing.
    async def lose() -> None:
        desk.clock.advance(LEASE_US)
        assert await recover(desk) == 1
        nonlocal before
        before = await desk.everything()

    before = ""
    gate = Gate()

    async def raising(request: TurnRequest, cancel: Cancel) -> Result:
        await gate(request, cancel)
        raise ValueError(planted)

    desk.runner.behaviour = raising
    await desk.ask("a third time", seat)
    worker = desk.receipt_worker()
    await worker.step()
    await gate.reached.wait()
    await lose()
    gate.opened.set()
    await worker.stop(60)
    assert await desk.everything() == before


@pytest.mark.spec("DESK-395")
async def test_each_definite_failure_is_told_once(desk: DeskWorld, seat: Seat) -> None:
    """Turn, receipt and notice become final in one commit; the notice is the code's sentence and nothing else."""
    wire = 0
    for number, code in enumerate(RUNNER_CODES):
        language = ("en", "zh")[number % 2]
        await desk.force("installations", desk.installation_id, command_language=language)
        desk.runner.behaviour = returning(Failed(code, "a detail for operators"))
        receipt = await desk.ask(f"a question for {code}", seat)
        before = await look(desk, seat, receipt["id"])
        worker = desk.receipt_worker(failpoints=Failpoints({"tF.after": "raise"}))  # the commit is all there is
        await worker.step()
        await worker.stop(60)
        after = await look(desk, seat, receipt["id"])
        assert before.receipt == ("received", None)
        assert after == Seen(0, 0, ("permanent_failed", code), ("failed", code), ("pending", None))
        await desk.send()
        wire += 1
        assert len(desk.channel.sent) == wire
        notice = desk.channel.sent[-1]
        assert notice.reply_to == receipt["provider_message_id"]
        assert notice.text == templates.failure_notice(language, code)
        assert "detail for operators" not in notice.text
        assert f"a question for {code}" not in notice.text
        assert (await desk.rows("deliveries", receipt=receipt["id"]))[0]["purpose"] == "failure_notice"
        desk.clock.advance(LEASE_US)
        await recover(desk)
    assert await desk.count("deliveries", purpose="failure_notice") == len(RUNNER_CODES)

    # The excluded cases: wire +0.
    desk.failure_notices = False
    await desk.ask("with notices off", seat)
    await desk.work()
    desk.failure_notices = True
    failing = returning(Failed("runner_unavailable"))

    async def stop() -> None:
        (turn,) = await desk.rows("turns", status="running")
        assert await desk.write(conversations.request_cancel, turn["id"])

    stopped = await failing_during(desk, seat, failing, stop)
    assert (await look(desk, seat, stopped)).receipt == ("permanent_failed", "stopped_by_owner")
    await desk.ask("never answered", seat)
    await crashed(desk, "t2.after")
    await recover(desk)
    moved = await failing_during(
        desk, seat, failing, lambda: desk.force("conversations", seat.conversation_id, revision=7)
    )
    assert (await look(desk, seat, moved)).delivery is None
    await desk.force("conversations", seat.conversation_id, revision=0)
    revoked = await failing_during(desk, seat, failing, lambda: desk.revoke(seat.grant_id))
    assert (await look(desk, seat, revoked)).delivery is None
    await desk.send()
    assert len(desk.channel.sent) == wire


async def failing_during(desk: DeskWorld, seat: Seat, failing: Any, change: Callable[[], Any]) -> str:
    gate = Gate()

    async def behave(request: TurnRequest, cancel: Cancel) -> Result:
        await gate(request, cancel)
        return await failing(request, cancel)

    desk.runner.behaviour = behave
    desk.clock.advance(60_000_000)
    receipt = await desk.ask("a question", seat)
    worker = desk.receipt_worker()
    assert await worker.step() == 1
    await gate.reached.wait()
    await change()
    gate.opened.set()
    await worker.stop(60)
    return str(receipt["id"])


async def test_a_notice_that_could_not_be_committed_leaves_nothing_final(desk: DeskWorld, seat: Seat) -> None:
    desk.runner.behaviour = returning(Failed("runner_refused"))
    receipt = await desk.ask("hello", seat)
    await crashed(desk, "tF.before")
    assert await look(desk, seat, receipt["id"]) == Seen(0, 0, ("processing", None), ("running", None), None)


# ---------------------------------------------------------------------------------------------- proposals


@pytest.mark.spec("DESK-121")
async def test_a_proposal_of_an_unfinished_turn_completes_nothing(desk: DeskWorld, seat: Seat) -> None:
    """A crash after the proposal's own commit is a crash of a running turn: nothing is sent, the proposal stays."""

    async def propose_then_wait(request: TurnRequest, cancel: Cancel) -> Result:
        stored = await desk.write(conversations.store_proposal, request.turn_id, DRAFT, desk.owner)
        assert stored is not None
        return Proposal(DRAFT)

    desk.runner.behaviour = propose_then_wait
    receipt = await desk.ask("close it", seat)
    await crashed(desk, "t3.before")
    await recover(desk)
    await desk.work()
    await desk.send()
    indeterminate = "agent_execution_indeterminate"
    assert await look(desk, seat, receipt["id"]) == Seen(
        0, 0, ("permanent_failed", indeterminate), ("failed", indeterminate), None
    )
    assert desk.channel.sent == []
    assert len(desk.runner.requests) == 1
    (proposal,) = await desk.rows("proposals")
    assert (proposal["status"], proposal["turn"]) == ("open", desk.runner.requests[0].turn_id)


@pytest.mark.spec("DESK-122")
async def test_a_proposal_is_told_once_with_its_link(desk: DeskWorld, seat: Seat) -> None:
    """Receipt and turn are `proposal`; the ordinary proposal names its turn, and one notice says where to decide."""
    desk.runner.behaviour = returning(Proposal(DRAFT))
    receipt = await desk.ask("close it", seat)
    await desk.work()
    await desk.send()
    assert await look(desk, seat, receipt["id"]) == Seen(1, 1, ("proposal", None), ("proposal", None), ("sent", None))
    (proposal,) = await desk.rows("proposals")
    (turn,) = await desk.rows("turns")
    assert (proposal["turn"], proposal["conversation"]) == (turn["id"], seat.conversation_id)
    assert (proposal["actor_user"], proposal["actor_method"]) == (seat.actor.user_id, "connector")
    (message,) = desk.channel.sent
    assert message.text is not None
    assert DRAFT.summary in message.text
    assert f"http://desk.test/console/w/{desk.home}/proposals" in message.text
    (delivery,) = await desk.rows("deliveries", receipt=receipt["id"])
    assert delivery["purpose"] == "proposal_notice"


async def test_a_rewritten_turn_leaves_its_stored_delivery_alone(desk: DeskWorld, seat: Seat) -> None:
    # Deciding a proposal is not built yet: the rewriting is done behind the product's back.
    desk.runner.behaviour = returning(Proposal(DRAFT))
    await desk.ask("close it", seat)
    await desk.work()
    (before,) = await desk.rows("deliveries", purpose="proposal_notice")
    (turn,) = await desk.rows("turns")
    await desk.force("turns", turn["id"], status="completed", response={"text": "applied", "finish": "complete"})
    (after,) = await desk.rows("deliveries", purpose="proposal_notice")
    assert after == before


@pytest.mark.spec("DESK-126")
async def test_text_that_looks_like_a_credential_is_refused_at_the_door(desk: DeskWorld, seat: Seat) -> None:
    """It ends `credential_text_refused` at reception; no row of any table keeps it and nothing runs."""
    planted = "ghp_" + "a1B2c3D4e5" * 4
    receipt = await desk.ask(f"my token is {planted}", seat)
    assert (receipt["status"], receipt["error_code"]) == ("rejected", "credential_text_refused")
    assert await desk.work() == 0
    assert await desk.count("turns") == 0
    assert planted not in await desk.everything()


# ---------------------------------------------------------------------------------------------- console turns


@pytest.mark.spec("DESK-301")
async def test_a_receipt_waits_for_an_open_console_turn_and_never_adopts_it(desk: DeskWorld, seat: Seat) -> None:
    """It waits as `conversation_busy` without using an attempt; once the console moved the revision it fails."""

    def open_turn(tx: Tx) -> str:
        conversation = conversations.find_conversation(tx, seat.conversation_id)
        assert conversation is not None
        lease = Lease("web", 1, tx.now + 10 * LEASE_US)
        begun = conversations.begin_turn(tx, conversation, "console-1", "hi", surface="console", lease=lease)
        return begun.turn.id

    console = await desk.database.write(open_turn)
    receipt = await desk.ask("and me?", seat)
    for _ in range(3):
        worker = desk.receipt_worker()
        assert await worker.step() == 1
        await worker.stop(60)
        row = await desk.row("receipts", receipt["id"])
        assert (row["status"], row["error_code"]) == ("retryable_failed", "conversation_busy")
        assert (row["attempt_count"], row["lease_owner"], row["turn"]) == (0, None, None)
        assert row["not_before"] > desk.clock.now_us()
        assert await desk.work() == 0
        desk.clock.advance(row["not_before"] - desk.clock.now_us())

    def finish(tx: Tx) -> bool:
        done = conversations.complete_turn(
            tx, console, expected_revision=0, outcome=conversations.outcome_of(Answer("yes"), "fake")
        )
        return done is not None

    assert await desk.database.write(finish)
    assert await desk.work() == 1
    seen = await look(desk, seat, receipt["id"])
    assert seen == Seen(1, 0, ("permanent_failed", "conversation_revision_changed"), None, None)
    assert desk.runner.requests == []
