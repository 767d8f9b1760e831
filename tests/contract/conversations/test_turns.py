"""The shared send core: one execution of a request id, one open turn, one commit, and a bounded history."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable
from typing import Any

import pytest

from frontdesk.desk import conversations
from frontdesk.desk.conversations import store
from frontdesk.desk.conversations.model import Begun, Conversation, ConversationBusy, Turn
from frontdesk.desk.conversations.runner import Answer, Briefing, TurnRequest, Usage
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.machine import Lease
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.conversations.world import CONVERSATIONS, TURNS, World, code_of


def outcome(text: str = "yes") -> Any:
    return conversations.outcome_of(Answer(text), "fake")


async def begin(
    world: World, conversation: Conversation, request_id: str = "r-1", content: str = "hi", **named: Any
) -> Begun:
    return await world.write(conversations.begin_turn, conversation, request_id, content, **{"surface": "api", **named})


async def request_of(world: World, conversation: Conversation, turn: Turn) -> TurnRequest:
    return await world.read(conversations.build_request, conversation, turn, briefing=Briefing(), locale="en")


# ---------------------------------------------------------------------------------------------- beginning


async def test_a_request_id_is_run_once_whatever_became_of_its_turn(world: World) -> None:
    conversation = await world.converse()
    first = await begin(world, conversation)
    again = await begin(world, conversation)
    assert (first.fresh, again.fresh, again.turn) == (True, False, first.turn)
    await world.write(conversations.fail_turn, first.turn.id, "runner_unavailable")
    failed = await begin(world, conversation)
    assert (failed.fresh, failed.turn.id, failed.turn.status) == (False, first.turn.id, "failed")
    assert len(await world.rows(TURNS)) == 1


async def test_an_open_turn_keeps_another_request_out_until_it_ends(world: World) -> None:
    conversation = await world.converse()
    first = await begin(world, conversation)
    with pytest.raises(ConversationBusy):
        await begin(world, conversation, "r-2")
    await world.write(conversations.fail_turn, first.turn.id, "runner_unavailable")
    second = await begin(world, conversation, "r-2")
    assert (second.fresh, second.turn.sequence) == (True, 2)


@pytest.mark.spec("DESK-270")
@pytest.mark.parametrize("surfaces", [("console", "channel"), ("api", "channel"), ("api", "console")])
async def test_of_two_sessions_that_saw_no_open_turn_one_opens_one(
    world: World, open_session: Callable[[], Database], surfaces: tuple[str, str]
) -> None:
    """Whatever the surfaces, and with the senders' own look for an open turn removed, the database admits one."""
    conversation = await world.converse()
    sessions = [open_session(), open_session()]
    serial = sessions[0].engine_name == "sqlite"  # SQLite's writers are serial: both cannot be between read and write
    barrier = threading.Barrier(2)
    saw_none: list[bool] = []

    def insert(number: int) -> Callable[[Tx], bool]:
        def write(tx: Tx) -> bool:
            saw_none.append(store.find_running_turn(tx, conversation.id) is None)
            if not serial:
                barrier.wait(10)
            return store.try_insert_turn(
                tx,
                {
                    "id": tx.new_id("trn"),
                    "conversation": conversation.id,
                    "sequence": number + 1,
                    "request_id": f"r-{number}",
                    "surface": surfaces[number],
                    "user_content": "hi",
                    "context_snapshot": {},
                },
            )

        return write

    won = await asyncio.gather(*(session.write(insert(number)) for number, session in enumerate(sessions)))
    assert sorted(won) == [False, True]
    assert saw_none == ([True, False] if serial else [True, True])
    (row,) = await world.rows(TURNS)
    assert row["surface"] == surfaces[won.index(True)]


async def test_of_two_sessions_that_begin_the_same_request_one_is_fresh(
    world: World, open_session: Callable[[], Database]
) -> None:
    conversation = await world.converse()
    sessions = [open_session() for _ in range(4)]
    begun = await asyncio.gather(
        *(
            session.write(lambda tx: conversations.begin_turn(tx, conversation, "r-1", "hi", surface="api"))
            for session in sessions
        )
    )
    assert sorted(each.fresh for each in begun) == [False, False, False, True]
    assert len({each.turn.id for each in begun}) == 1


# ---------------------------------------------------------------------------------------------- history


@pytest.mark.spec("RUN-5")
async def test_history_holds_the_newest_complete_pairs_of_the_session_within_both_bounds(world: World) -> None:
    """No failed, foreign or earlier session's question; at most 20 pairs and 32,000 characters, newest kept."""
    conversation, foreign = await world.converse(), await world.converse()
    await world.exchange(foreign, "of another conversation")
    await world.exchange(conversation, "of an earlier session")
    await world.write(conversations.start_session, conversation, 1)
    conversation = await world.get(conversation)
    for number in range(25):
        await world.exchange(conversation, f"q{number}", f"a{number}")
        if number == 20:
            failed = await begin(world, await world.get(conversation), "failing", "unanswered")
            await world.write(conversations.fail_turn, failed.turn.id, "runner_refused")
    current = await begin(world, conversation, "now", "the question itself")
    request = await request_of(world, conversation, current.turn)
    assert [(pair.question, pair.answer) for pair in request.history] == [
        (f"q{number}", f"a{number}") for number in range(5, 25)
    ]
    await world.write(conversations.fail_turn, current.turn.id, "runner_refused")
    # 10 + 15,990 characters a pair: two fit exactly, and an older short one does not slip in behind a gap
    await world.exchange(conversation, "q" * 10, "a" * 15_990)
    await world.exchange(conversation, "r" * 10, "b" * 15_990)
    bounded = await begin(world, conversation, "then", "?")
    request = await request_of(world, conversation, bounded.turn)
    assert [pair.question for pair in request.history] == ["q" * 10, "r" * 10]
    assert sum(len(pair.question) + len(pair.answer) for pair in request.history) == limits.HISTORY_CHARS_MAX
    await world.write(conversations.fail_turn, bounded.turn.id, "runner_refused")
    await world.exchange(conversation, "one more")
    request = await request_of(world, conversation, (await begin(world, conversation, "last", "?")).turn)
    assert [pair.question for pair in request.history] == ["r" * 10, "one more"]


async def test_a_turn_that_ends_after_the_session_changed_belongs_to_the_older_one(world: World) -> None:
    conversation = await world.converse()
    begun = await begin(world, conversation)
    await world.write(conversations.start_session, conversation, 1)
    await world.write(conversations.complete_turn, begun.turn.id, expected_revision=0, outcome=outcome())
    assert await world.read(conversations.history, conversation.id, 2) == ()
    assert [pair.question for pair in await world.read(conversations.history, conversation.id, 1)] == ["hi"]


@pytest.mark.spec("DESK-125")
async def test_history_and_input_are_bounded_on_the_connector_path_too(world: World) -> None:
    """20 turns and 32,000 characters of history; 20,000 characters of input pass, one more is `input_too_long`."""
    conversation = await world.converse(project_id=world.project)
    for number in range(22):
        await world.exchange(conversation, f"q{number}", "a" * 1_000)
    conversation = await world.get(conversation)
    access = await world.access(conversation)
    too_long = world.write(conversations.send_connector_message, access, "feishu:1", "字" * 20_001)
    assert await code_of(too_long) == "input_too_long"
    for surface in ("api", "console"):
        assert await code_of(begin(world, conversation, "r-x", "x" * 20_001, surface=surface)) == "input_too_long"
    assert len(await world.rows(TURNS)) == 22
    _, turn = await world.write(conversations.send_connector_message, access, "feishu:1", "字" * 20_000)
    request = await request_of(world, conversation, turn)
    assert [pair.question for pair in request.history] == [f"q{number}" for number in range(2, 22)]
    assert request.text == "字" * 20_000
    await world.write(conversations.fail_turn, turn.id, "runner_refused")
    await world.exchange(conversation, "long", "b" * 31_000)
    conversation = await world.get(conversation)
    again = await world.access(conversation)
    _, turn = await world.write(conversations.send_connector_message, again, "feishu:2", "?")
    assert [pair.question for pair in (await request_of(world, conversation, turn)).history] == ["long"]


# ---------------------------------------------------------------------------------------------- the one commit


class Injected(Exception):
    """What a test throws into the commit."""


async def seen(world: World, conversation: Conversation, turn: Turn) -> tuple[Any, ...]:
    (row,) = await world.rows(TURNS, TURNS.c.id == turn.id)
    (cnv,) = await world.rows(CONVERSATIONS, CONVERSATIONS.c.id == conversation.id)
    return row["status"], row["response"], row["committed_revision"], cnv["revision"]


async def test_the_commit_of_a_turn_is_whole(world: World) -> None:
    conversation = await world.converse()
    turn = (await begin(world, conversation)).turn
    answer = Answer("yes", model="m-1", usage=Usage(3, 4), template_version=2)
    done = await world.write(
        conversations.complete_turn,
        turn.id,
        expected_revision=0,
        outcome=conversations.outcome_of(answer, "fake"),
    )
    assert done is not None
    assert await seen(world, conversation, turn) == ("completed", {"text": "yes", "finish": "complete"}, 1, 1)
    assert done.runner == {
        "name": "fake",
        "profile": None,
        "model": "m-1",
        "template_version": 2,
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    again = await world.write(conversations.complete_turn, turn.id, expected_revision=1, outcome=outcome("other"))
    assert again is None
    assert await seen(world, conversation, turn) == ("completed", {"text": "yes", "finish": "complete"}, 1, 1)


@pytest.mark.parametrize(
    "obstacle", ["revision", "closed", "context", "cancelled", "veto", "failed", "foreign_lease", "generation"]
)
async def test_an_obstacle_to_the_commit_leaves_nothing_of_it(world: World, obstacle: str) -> None:
    conversation = await world.converse()
    lease = Lease("p", 1, world.clock.now_us() + 30 * SECOND)
    turn = (await begin(world, conversation, lease=lease)).turn
    named: dict[str, Any] = {"expected_revision": 0, "context_hash": conversation.context_hash, "lease": lease}
    if obstacle == "revision":
        named["expected_revision"] = 1
    elif obstacle == "closed":
        await world.write(conversations.close_conversation, world.people["owner"], world.home, conversation.id)
        named["expected_revision"] = 1
    elif obstacle == "context":
        named["context_hash"] = "0" * 64
    elif obstacle == "cancelled":
        assert await world.write(conversations.request_cancel, turn.id)
    elif obstacle == "veto":
        named["also"] = lambda tx: False
    elif obstacle == "failed":
        await world.write(conversations.fail_turn, turn.id, "runner_refused")
    elif obstacle == "foreign_lease":
        named["lease"] = Lease("q", 1, lease.expires_at)
    else:
        named["lease"] = Lease("p", 2, lease.expires_at)
    before = await seen(world, conversation, turn)

    def commit(tx: Tx) -> Turn | None:
        return conversations.complete_turn(tx, turn.id, outcome=outcome(), **named)

    assert await world.database.write(commit) is None
    assert await seen(world, conversation, turn) == before


@pytest.mark.parametrize("step", ["cursor", "after"])
async def test_a_failure_inside_the_commit_makes_all_of_it_invisible(world: World, step: str) -> None:
    """Whether the companion write or the statement after it breaks, status, response and revision stay as they were."""
    conversation = await world.converse()
    turn = (await begin(world, conversation)).turn

    def commit(tx: Tx) -> None:
        def also(inner: Tx) -> bool:
            if step == "cursor":
                raise Injected
            return True

        conversations.complete_turn(tx, turn.id, expected_revision=0, outcome=outcome(), also=also)
        raise Injected

    with pytest.raises(Injected):
        await world.database.write(commit)
    assert await seen(world, conversation, turn) == ("running", None, None, 0)


async def test_of_two_commits_of_one_revision_one_takes_effect(
    world: World, open_session: Callable[[], Database]
) -> None:
    conversation = await world.converse()
    turn = (await begin(world, conversation)).turn
    done = await asyncio.gather(
        *(
            open_session().write(
                lambda tx: conversations.complete_turn(tx, turn.id, expected_revision=0, outcome=outcome())
            )
            for _ in range(2)
        )
    )
    assert sum(each is not None for each in done) == 1
    assert (await seen(world, conversation, turn))[3] == 1


async def test_a_failure_keeps_the_revision_and_a_redacted_message(world: World) -> None:
    conversation = await world.converse()
    turn = (await begin(world, conversation)).turn
    planted = "sk-" + "a" * 30
    failed = await world.write(conversations.fail_turn, turn.id, "runner_unavailable", f"told {planted} " + "x" * 9_000)
    assert failed is not None
    assert failed.error_message is not None
    assert planted not in failed.error_message
    assert len(failed.error_message) == limits.ERROR_MESSAGE_CHARS_MAX
    assert await seen(world, conversation, turn) == ("failed", None, None, 0)
    assert await world.write(conversations.fail_turn, turn.id, "runner_refused") is None
    with pytest.raises(KeyError):
        await world.write(conversations.fail_turn, turn.id, "no_such_code")


async def test_only_the_holder_of_a_live_lease_renews_it(world: World) -> None:
    """The complement of the taker: at the very instant of expiry the holder has lost it and recovery may take it."""
    conversation = await world.converse()
    now = world.clock.now_us()
    lease = Lease("p", 1, now + 30 * SECOND)
    turn = (await begin(world, conversation, lease=lease)).turn
    world.clock.advance(30 * SECOND - 1)
    assert await world.write(conversations.interrupt_abandoned, 100) == 0
    assert not await world.write(conversations.renew_turn, turn.id, Lease("q", 1, 0), now + 99 * SECOND)
    assert await world.write(conversations.renew_turn, turn.id, lease, now + 60 * SECOND)
    world.clock.advance(30 * SECOND + 1)
    assert not await world.write(conversations.renew_turn, turn.id, lease, now + 99 * SECOND)
    assert await world.write(conversations.interrupt_abandoned, 100) == 1
    assert await world.write(conversations.fail_turn, turn.id, "runner_refused", lease=lease) is None
    assert (await seen(world, conversation, turn))[0] == "failed"


async def test_recovery_leaves_turns_of_the_connector_to_their_receipt(world: World) -> None:
    conversation = await world.converse()
    await begin(world, conversation, surface="channel")
    world.clock.advance(3_600 * SECOND)
    assert await world.write(conversations.interrupt_abandoned, 100) == 0


async def test_stop_is_asked_once_and_of_running_turns_alone(world: World) -> None:
    conversation = await world.converse()
    turn = (await begin(world, conversation)).turn
    assert await world.write(conversations.request_cancel, turn.id)
    assert not await world.write(conversations.request_cancel, turn.id)
    await world.write(conversations.fail_turn, turn.id, "runner_cancelled")
    assert not await world.write(conversations.request_cancel, turn.id)


async def test_the_input_bound_counts_characters(world: World) -> None:
    conversation = await world.converse()
    with pytest.raises(Problem):
        await begin(world, conversation, content="😀" * 20_001)
    assert (await begin(world, conversation, content="😀" * 20_000)).fresh


async def test_a_made_up_position_is_no_failure(world: World) -> None:
    """A cursor nobody was given is an empty page or 422, on both engines: PostgreSQL knows no NUL and no huge place."""
    conversation = await world.converse()
    await world.exchange(conversation, "hello")
    async with world.http("owner") as client:
        for text, status in (("9" * 18 + ":x", 200), ("1:a\x00b", 422), ("1:a\nb", 422), ("1:", 422), (":x", 422)):
            cursor = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
            for rest in ("/conversations", f"/conversations/{conversation.id}/turns"):
                answer = await client.get(world.path(rest), params={"cursor": cursor})
                assert answer.status_code == status, (text, rest, answer.text)
