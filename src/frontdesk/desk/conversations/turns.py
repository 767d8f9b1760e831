"""The shared core of every send, in transactions: begin a turn, look at its history, end it.

The unique request id is the execution gate and the partial unique index the one open turn: whoever got a fresh turn
here is the only one who may call a runner for it. Does not authorise; whoever calls has done so in this transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from frontdesk.desk.conversations import runner as port
from frontdesk.desk.conversations import store
from frontdesk.desk.conversations.model import Begun, Conversation, ConversationBusy, Turn, TurnOutcome
from frontdesk.kernel import limits
from frontdesk.kernel.codes import ROW_CODES
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.machine import Lease
from frontdesk.kernel.secret_shapes import redact
from frontdesk.storage.tx import Tx

UNKNOWN: Final = "unknown"  # what is stored of a usage that nobody reported; never 0
INTERRUPTED: Final = "interrupted"

find_turn = store.find_turn
find_turn_by_request = store.find_turn_by_request
find_running_turn = store.find_running_turn
request_cancel = store.try_request_cancel
renew_turn = store.try_renew_turn


class _Missed(Exception):
    """A guard of the final commit refused: everything since the savepoint is undone."""


def begin_turn(
    tx: Tx, conversation: Conversation, request_id: str, content: str, *, surface: str, lease: Lease | None = None
) -> Begun:
    """The running turn of a new request id, or the turn that this id already made, whatever became of it.

    `lease` (generation 1) is given by console and API; a chat turn lives under its receipt's lease. Raises
    `input_too_long` and `ConversationBusy`. Comparing the content of a found turn is the caller's affair.
    """
    if len(content) > limits.USER_CONTENT_CHARS_MAX:
        raise Problem("input_too_long")
    found = store.find_turn_by_request(tx, conversation.id, request_id)
    if found is not None:
        return Begun(found, fresh=False)
    running = store.find_running_turn(tx, conversation.id)
    if running is not None and running.request_id == request_id:
        return Begun(running, fresh=False)  # committed by another session between the two readings
    if running is not None:
        raise ConversationBusy
    turn_id = tx.new_id("trn")
    inserted = store.try_insert_turn(
        tx,
        {
            "id": turn_id,
            "conversation": conversation.id,
            "sequence": store.next_sequence(tx, conversation.id),
            "request_id": request_id,
            "surface": surface,
            "user_content": content,
            "context_snapshot": _snapshot(conversation),
            "lease_owner": None if lease is None else lease.owner,
            "lease_generation": 0 if lease is None else lease.generation,
            "lease_expires_at": None if lease is None else lease.expires_at,
        },
    )
    # A loser of the race finds the winner of its own request id, or that another request took the one running place.
    turn = store.find_turn_by_request(tx, conversation.id, request_id)
    if turn is None:
        raise ConversationBusy
    return Begun(turn, fresh=inserted)


def _snapshot(conversation: Conversation) -> dict[str, Any]:
    return {
        "context": dict(conversation.context),
        "context_hash": conversation.context_hash,
        "session_number": conversation.session_number,
    }


def history(
    tx: Tx, conversation_id: str, session_number: int, *, before_sequence: int | None = None
) -> tuple[port.HistoryPair, ...]:
    """The newest complete pairs of a session, oldest first, within 20 turns and 32,000 characters.

    A pair that does not fit ends the look back: what is kept is always the newest stretch without a hole.
    """
    pairs: list[port.HistoryPair] = []
    characters = 0
    for turn in store.newest_answered_turns(tx, conversation_id, before_sequence, limits.HISTORY_TURNS_MAX):
        characters += len(turn.user_content) + len(turn.answer_text)
        if turn.session_number != session_number or characters > limits.HISTORY_CHARS_MAX:
            break
        answered_at = turn.completed_at or turn.updated_at
        pairs.append(port.HistoryPair(turn.user_content, turn.answer_text, turn.created_at, answered_at))
    return tuple(reversed(pairs))


def outcome_of(result: port.Answer | port.Proposal, runner_name: str) -> TurnOutcome:
    """What the final commit writes for a runner's result."""
    runner = runner_column(runner_name, result)
    trace = tuple({"tool": step.tool, "outcome": step.outcome} for step in result.tool_trace)
    if isinstance(result, port.Proposal):
        return TurnOutcome("proposal", {"text": result.draft.summary, "finish": "complete"}, trace, runner)
    return TurnOutcome("completed", {"text": result.text, "finish": str(result.finish)}, trace, runner)


def runner_column(name: str, result: port.Answer | port.Proposal | None = None) -> dict[str, Any]:
    """What a turn keeps of its runner; without a result (a failed turn) everything but the name is unknown."""
    usage = None if result is None else result.usage
    return {
        "name": name,
        "profile": None if result is None else result.profile,
        "model": None if result is None else result.model,
        "template_version": None if result is None else result.template_version,
        "usage": UNKNOWN if usage is None else asdict(usage),
    }


def complete_turn(
    tx: Tx,
    turn_id: str,
    *,
    expected_revision: int,
    outcome: TurnOutcome,
    context_hash: str | None = None,
    lease: Lease | None = None,
    also: Callable[[Tx], bool] | None = None,
) -> Turn | None:
    """The one commit of a turn: {response, status, revision N→N+1} and what `also` writes, or None and nothing at all.

    None where the turn is no longer running, was asked to stop, is no longer held by `lease`, or where the conversation
    is closed, has another context or another revision than `expected_revision`. `also` (a chat's cursor) may veto.
    """
    try:
        with tx.conn.begin_nested():
            return _committed(
                tx, turn_id, expected_revision, outcome, context_hash=context_hash, lease=lease, also=also
            )
    except _Missed:
        return None


def _committed(
    tx: Tx,
    turn_id: str,
    revision: int,
    outcome: TurnOutcome,
    *,
    context_hash: str | None,
    lease: Lease | None,
    also: Callable[[Tx], bool] | None,
) -> Turn:
    turn = store.find_turn(tx, turn_id)
    if turn is None or turn.cancel_requested_at is not None:
        raise _Missed
    # The grant stands before the conversation and the conversation before the turn in the one order of locks.
    if also is not None and not also(tx):
        raise _Missed
    if not store.try_advance_revision(tx, turn.conversation_id, revision, context_hash):
        raise _Missed
    values = {
        "response": dict(outcome.response),
        "tool_trace": [dict(step) for step in outcome.tool_trace],
        "runner": dict(outcome.runner),
        "committed_revision": revision + 1,
    }
    event = "propose" if outcome.status == "proposal" else "complete"
    done = store.try_finish_turn(tx, turn_id, event, lease, values)
    if done is None or done.cancel_requested_at is not None:
        raise _Missed
    return done


def fail_turn(
    tx: Tx,
    turn_id: str,
    code: str,
    message: str | None = None,
    *,
    lease: Lease | None = None,
    runner: Mapping[str, Any] | None = None,
) -> Turn | None:
    """End a still running turn with a code of desk.md 4.6; None where it is final or no longer held. Revision stays.

    `message` is for operators: it is redacted and cut here, and never a text of an exception, model or provider.
    """
    if code not in ROW_CODES:
        raise KeyError(code)
    values: dict[str, Any] = {"error_code": code, "error_message": _operators_text(message)}
    if runner is not None:
        values["runner"] = dict(runner)
    return store.try_finish_turn(tx, turn_id, "fail", lease, values)


def _operators_text(message: str | None) -> str | None:
    return None if message is None else redact(message)[: limits.ERROR_MESSAGE_CHARS_MAX]


def interrupt_abandoned(tx: Tx, limit: int) -> int:
    """Fail console and API turns whose process let their lease lapse; how many. Their conversations are free again."""
    return sum(
        store.try_interrupt_turn(tx, turn_id, INTERRUPTED) is not None for turn_id in store.lapsed_turn_ids(tx, limit)
    )


def start_session(tx: Tx, conversation: Conversation, start_ms: int) -> bool:
    """Begin the next chat session: history before it is no longer shown to runners. Revision and context stay."""
    return store.try_start_session(tx, conversation.id, conversation.session_number, start_ms)


def set_session_start(tx: Tx, conversation: Conversation, start_ms: int) -> bool:
    """Date the present session by the provider's clock, once that is known."""
    return store.try_set_session_start(tx, conversation.id, conversation.session_number, start_ms)
