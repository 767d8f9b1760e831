"""One function per statement on `conversations`, `turns` and `proposals`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import RowMapping, bindparam, func, or_, select, update

from frontdesk.desk.conversations.machine import CONVERSATION, TURN
from frontdesk.desk.conversations.model import ANSWERED, Conversation, StoredProposal, Turn
from frontdesk.desk.conversations.tables import CONVERSATIONS, PROPOSALS, TURNS
from frontdesk.kernel.machine import Lease
from frontdesk.storage import guarded
from frontdesk.storage.conflict import try_insert
from frontdesk.storage.paging import page
from frontdesk.storage.prepared import ById, Prepared
from frontdesk.storage.tx import Tx

Position = tuple[int, str]

_CONVERSATION, _TURN = ById(CONVERSATIONS), ById(TURNS)

# ---------------------------------------------------------------------------------------------- conversations


def insert_conversation(tx: Tx, values: Mapping[str, Any]) -> Conversation:
    """A new conversation, revision 0, session 1 starting now."""
    row = {"created_at": tx.now, "updated_at": tx.now, "revision": 0, "session_number": 1, "closed_at": None, **values}
    tx.execute(CONVERSATIONS.insert().values(row))
    return _conversation(row)


def find_conversation(tx: Tx, conversation_id: str, *, share: bool = False, lock: bool = False) -> Conversation | None:
    """The row by id; `share` and `lock` take PostgreSQL's row lock in the documented order."""
    row = _CONVERSATION.find(tx, conversation_id, share=share, lock=lock)
    return None if row is None else _conversation(row)


def page_conversations(
    tx: Tx,
    workspace_id: str,
    owner_user_id: str,
    *,
    hidden: Collection[str],
    project_id: str | None,
    status: str | None,
    limit: int,
    after: Position | None,
) -> tuple[list[Conversation], Position | None]:
    """A person's own conversations of a workspace, newest first, without those of hidden projects."""
    column = CONVERSATIONS.c
    statement = select(CONVERSATIONS).where(column.workspace == workspace_id, column.owner_user == owner_user_id)
    if project_id is not None:
        statement = statement.where(column.project == project_id)
    if status is not None:
        statement = statement.where(column.status == status)
    if hidden:
        statement = statement.where(or_(column.project.is_(None), column.project.not_in(sorted(hidden))))
    rows, following = page(tx, CONVERSATIONS, statement, limit, after)
    return [_conversation(row) for row in rows], following


def rename_conversation(tx: Tx, conversation_id: str, title: str) -> Conversation | None:
    """Another title; the revision stays, for nothing of the dialogue changed. None where it is not active."""
    return _changed(tx, conversation_id, {"title": title})


def move_conversation(tx: Tx, conversation_id: str, values: Mapping[str, Any]) -> Conversation | None:
    """Another context: its columns and revision+1. None where it is not active."""
    return _changed(tx, conversation_id, {**values, "revision": CONVERSATIONS.c.revision + 1})


def _changed(tx: Tx, conversation_id: str, values: Mapping[str, Any]) -> Conversation | None:
    column = CONVERSATIONS.c
    row = tx.find(
        update(CONVERSATIONS)
        .where(column.id == conversation_id, column.status == "active")
        .values(updated_at=tx.now, **values)
        .returning(CONVERSATIONS)
    )
    return None if row is None else _conversation(row)


def close_conversation(tx: Tx, conversation_id: str) -> Conversation | None:
    """Close an active conversation, revision+1. None where it was closed already or does not exist."""
    values = {"closed_at": tx.now, "revision": CONVERSATIONS.c.revision + 1}
    row = guarded.transition(tx, CONVERSATIONS, CONVERSATION, "close", conversation_id, values=values)
    return None if row is None else _conversation(row)


def try_advance_revision(tx: Tx, conversation_id: str, expected_revision: int, context_hash: str | None) -> bool:
    """Revision N→N+1 where it still is N, the conversation is active and (where given) the context is the same."""
    column = CONVERSATIONS.c
    statement = update(CONVERSATIONS).where(
        column.id == conversation_id, column.revision == expected_revision, column.status == "active"
    )
    if context_hash is not None:
        statement = statement.where(column.context_hash == context_hash)
    return tx.execute(statement.values(revision=expected_revision + 1, updated_at=tx.now)).rowcount == 1


def try_start_session(tx: Tx, conversation_id: str, session_number: int, start_ms: int) -> bool:
    """The next chat session, where the present one is still `session_number`; revision and context stay."""
    column = CONVERSATIONS.c
    statement = (
        update(CONVERSATIONS)
        .where(column.id == conversation_id, column.session_number == session_number, column.status == "active")
        .values(session_number=session_number + 1, session_start_ms=start_ms, updated_at=tx.now)
    )
    return tx.execute(statement).rowcount == 1


def try_set_session_start(tx: Tx, conversation_id: str, session_number: int, start_ms: int) -> bool:
    """Another start of the present session, where it is still `session_number`."""
    column = CONVERSATIONS.c
    statement = (
        update(CONVERSATIONS)
        .where(column.id == conversation_id, column.session_number == session_number)
        .values(session_start_ms=start_ms, updated_at=tx.now)
    )
    return tx.execute(statement).rowcount == 1


# ---------------------------------------------------------------------------------------------- turns


def try_insert_turn(tx: Tx, values: Mapping[str, Any]) -> bool:
    """Insert a running turn; False where its request id, its sequence or the one running place is taken."""
    row = {
        "created_at": tx.now,
        "updated_at": tx.now,
        "status": "running",
        "response": None,
        "tool_trace": [],
        "runner": {},
        **values,
    }
    return try_insert(tx, TURNS, row)


def find_turn(tx: Tx, turn_id: str, *, lock: bool = False) -> Turn | None:
    """The turn by id."""
    row = _TURN.find(tx, turn_id, lock=lock)
    return None if row is None else _turn(row)


_BY_REQUEST = Prepared(
    select(TURNS).where(
        TURNS.c.conversation == bindparam("conversation_id"), TURNS.c.request_id == bindparam("request_id")
    )
)
_RUNNING = Prepared(
    select(TURNS).where(TURNS.c.conversation == bindparam("conversation_id"), TURNS.c.status == "running")
)
_HIGHEST = Prepared(
    select(func.coalesce(func.max(TURNS.c.sequence), 0).label("sequence")).where(
        TURNS.c.conversation == bindparam("conversation_id")
    )
)


def find_turn_by_request(tx: Tx, conversation_id: str, request_id: str) -> Turn | None:
    """The turn that a request id made, whatever became of it."""
    row = _BY_REQUEST.find(tx, {"conversation_id": conversation_id, "request_id": request_id})
    return None if row is None else _turn(row)


def find_running_turn(tx: Tx, conversation_id: str) -> Turn | None:
    """The open turn of a conversation; the partial unique index admits one."""
    row = _RUNNING.find(tx, {"conversation_id": conversation_id})
    return None if row is None else _turn(row)


def next_sequence(tx: Tx, conversation_id: str) -> int:
    """One more than the highest sequence of the conversation."""
    row = _HIGHEST.find(tx, {"conversation_id": conversation_id})
    return 1 + (0 if row is None else int(row["sequence"]))


def newest_answered_turns(tx: Tx, conversation_id: str, before_sequence: int | None, limit: int) -> list[Turn]:
    """The newest turns that ended with an answer or a proposal, newest first."""
    column = TURNS.c
    statement = select(TURNS).where(column.conversation == conversation_id, column.status.in_(ANSWERED))
    if before_sequence is not None:
        statement = statement.where(column.sequence < before_sequence)
    return [_turn(row) for row in tx.rows(statement.order_by(column.sequence.desc()).limit(limit))]


def turns_after(tx: Tx, conversation_id: str, after_sequence: int, limit: int) -> list[Turn]:
    """Turns in the order they were asked, beginning after a sequence."""
    column = TURNS.c
    statement = select(TURNS).where(column.conversation == conversation_id, column.sequence > after_sequence)
    return [_turn(row) for row in tx.rows(statement.order_by(column.sequence).limit(limit))]


def try_finish_turn(tx: Tx, turn_id: str, event: str, lease: Lease | None, values: Mapping[str, Any]) -> Turn | None:
    """Apply a final event to a turn that still runs (and that `lease` still holds), or None."""
    held = f"{event}_held" if lease is not None else event
    changed = guarded.transition(tx, TURNS, TURN, held, turn_id, lease=lease, values={"completed_at": tx.now, **values})
    return None if changed is None else _turn(changed)


def try_renew_turn(tx: Tx, turn_id: str, lease: Lease, expires_at: int) -> bool:
    """Extend the lease of a running console or API turn."""
    return guarded.renew(tx, TURNS, ("running",), turn_id, lease, expires_at=expires_at)


def try_interrupt_turn(tx: Tx, turn_id: str, code: str) -> Turn | None:
    """Fail a running turn whose own lease has lapsed. Turns of the connector carry no lease and are never met."""
    values = {"error_code": code, "completed_at": tx.now}
    row = guarded.transition(tx, TURNS, TURN, "interrupt", turn_id, values=values)
    return None if row is None else _turn(row)


def try_request_cancel(tx: Tx, turn_id: str) -> bool:
    """Ask a running turn to end; what it still returns is dropped. False where it is final or was asked already."""
    column = TURNS.c
    statement = (
        update(TURNS)
        .where(column.id == turn_id, column.status == "running", column.cancel_requested_at.is_(None))
        .values(cancel_requested_at=tx.now, updated_at=tx.now)
    )
    return tx.execute(statement).rowcount == 1


# Built once: a loop of an idle server asks it every second.
_LAPSED: Final = (
    select(TURNS.c.id)
    .where(TURNS.c.status == "running", TURNS.c.lease_expires_at <= bindparam("now"))
    .order_by(TURNS.c.lease_expires_at, TURNS.c.id)
    .limit(bindparam("at_most"))
)


def lapsed_turn_ids(tx: Tx, limit: int) -> Sequence[str]:
    """Running console and API turns whose lease has passed, longest first."""
    return [row["id"] for row in tx.rows(_LAPSED, {"now": tx.now, "at_most": limit})]


# ---------------------------------------------------------------------------------------------- proposals


def try_insert_proposal(tx: Tx, values: Mapping[str, Any]) -> bool:
    """Insert an open proposal; False where the turn has one."""
    row = {"created_at": tx.now, "updated_at": tx.now, "status": "open", "version": 1, **values}
    return try_insert(tx, PROPOSALS, row)


def find_proposal_of_turn(tx: Tx, turn_id: str) -> StoredProposal | None:
    """The proposal a turn made."""
    row = tx.find(select(PROPOSALS).where(PROPOSALS.c.turn == turn_id))
    return None if row is None else _proposal(row)


# ---------------------------------------------------------------------------------------------- rows to values


def _conversation(row: RowMapping | Mapping[str, Any]) -> Conversation:
    return Conversation(
        id=row["id"],
        workspace_id=row["workspace"],
        owner_user_id=row["owner_user"],
        project_id=row["project"],
        title=row["title"],
        status=row["status"],
        context=row["context"],
        context_hash=row["context_hash"],
        revision=row["revision"],
        session_number=row["session_number"],
        session_start_ms=row["session_start_ms"],
        closed_at=row["closed_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def _turn(row: Mapping[Any, Any]) -> Turn:
    return Turn(
        id=row["id"],
        conversation_id=row["conversation"],
        sequence=row["sequence"],
        request_id=row["request_id"],
        surface=row["surface"],
        user_content=row["user_content"],
        response=row["response"],
        context_snapshot=row["context_snapshot"],
        tool_trace=tuple(row["tool_trace"]),
        status=row["status"],
        runner=row["runner"],
        error_code=row["error_code"],
        error_message=row["error_message"],
        cancel_requested_at=row["cancel_requested_at"],
        committed_revision=row["committed_revision"],
        lease_owner=row["lease_owner"],
        lease_generation=row["lease_generation"],
        lease_expires_at=row["lease_expires_at"],
        completed_at=row["completed_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def _proposal(row: RowMapping) -> StoredProposal:
    return StoredProposal(
        id=row["id"],
        workspace_id=row["workspace"],
        conversation_id=row["conversation"],
        turn_id=row["turn"],
        tool=row["tool"],
        arguments=row["args"],
        summary=row["summary"],
        diff=row["diff"],
        target_kind=row["target_kind"],
        target_id=row["target_id"],
        target_version=row["target_version"],
        permission_version=row["permission_version"],
        required_permission=row["required_permission"],
        version=row["version"],
        status=row["status"],
        actor_user_id=row["actor_user"],
        actor_method=row["actor_method"],
        decided_by=row["decided_by"],
        decided_at=row["decided_at"],
        decision_reason=row["decision_reason"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
