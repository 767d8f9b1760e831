"""The entry for turns that come from a chat. It accepts one type alone, which only the authority module can build.

The type is declared here and built in `desk/grants/authority.py` (an import contract keeps others from the key);
neither JSON nor any API yields one. What protects is that the rows behind it are read anew at each use; code in this
process could copy a value, and a copied value buys nothing past the next reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Protocol

from frontdesk.desk.conversations import runner as port
from frontdesk.desk.conversations import store, turns
from frontdesk.desk.conversations.model import (
    CHANNEL,
    Conversation,
    ConversationMoved,
    Turn,
    TurnExists,
    TurnOutcome,
)
from frontdesk.desk.conversations.proposals import store_proposal
from frontdesk.identity.model import Actor
from frontdesk.storage.tx import Tx


class _Key:
    """What proves that the authority module builds an access."""

    __slots__ = ()


_AUTHORITY_KEY: Final = _Key()


class CursorAdvance(Protocol):
    """The grant's cursor as this room sees it: one guarded step for one turn."""

    def advance(self, tx: Tx, *, turn_id: str, revision: int) -> bool:
        """Step the cursor to `revision` for the turn where it is one behind; False where it is not: nothing written."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class ConnectorAccess:
    """One person's authority to put one received message before one conversation, from rows just read."""

    receipt_id: str
    reply_grant_id: str
    conversation_id: str
    user_id: str
    workspace_id: str
    project_id: str
    workflow_id: str | None
    run_id: str | None
    context: Mapping[str, str]
    context_hash: str
    expected_revision: int
    lease_owner: str
    receipt_generation: int
    actor: Actor
    cursor: CursorAdvance = field(repr=False)

    def __init__(self) -> None:
        raise TypeError("a connector access is built by the authority module alone")

    @classmethod
    def build(
        cls,
        key: object,
        *,
        receipt_id: str,
        reply_grant_id: str,
        conversation_id: str,
        user_id: str,
        workspace_id: str,
        project_id: str,
        workflow_id: str | None,
        run_id: str | None,
        context: Mapping[str, str],
        context_hash: str,
        expected_revision: int,
        lease_owner: str,
        receipt_generation: int,
        actor: Actor,
        cursor: CursorAdvance,
    ) -> ConnectorAccess:
        """For `desk/grants/authority.py`, which presents the key. Raises TypeError for anybody else."""
        if key is not _AUTHORITY_KEY:
            raise TypeError("a connector access is built by the authority module alone")
        given = dict(locals())
        access = object.__new__(cls)
        for each in fields(cls):
            object.__setattr__(access, each.name, given[each.name])
        return access


def _checked(access: ConnectorAccess) -> ConnectorAccess:
    if type(access) is not ConnectorAccess:
        raise TypeError("only a ConnectorAccess opens this entry")
    return access


def send_connector_message(tx: Tx, access: ConnectorAccess, request_id: str, content: str) -> tuple[Conversation, Turn]:
    """t1b: begin the turn of a received message. What it returns is fresh, and the caller alone may run it.

    Raises `TurnExists` where the derived request id made a turn already (recover it, never run it again),
    `ConversationMoved` where the conversation is closed, belongs to another person, or is at another context or
    revision than the access believes, `ConversationBusy` where another turn is open, and the problem `input_too_long`.
    """
    _checked(access)
    conversation = store.find_conversation(tx, access.conversation_id, lock=True)
    if conversation is None or conversation.workspace_id != access.workspace_id:
        raise ConversationMoved
    earlier = store.find_turn_by_request(tx, conversation.id, request_id)
    if earlier is not None:
        raise TurnExists(earlier)
    if not _as_believed(conversation, access):
        raise ConversationMoved
    begun = turns.begin_turn(tx, conversation, request_id, content, surface=CHANNEL)
    if not begun.fresh:
        raise TurnExists(begun.turn)
    return conversation, begun.turn


def _as_believed(conversation: Conversation, access: ConnectorAccess) -> bool:
    return (
        conversation.active
        and conversation.owner_user_id == access.user_id
        and conversation.context_hash == access.context_hash
        and conversation.revision == access.expected_revision
    )


def finish_connector_turn(
    tx: Tx,
    access: ConnectorAccess,
    turn_id: str,
    result: port.Answer | port.Proposal,
    *,
    runner_name: str,
    advance_only_audit: bool = False,
) -> Turn | None:
    """t3: {response, status, revision N→N+1, cursor N→N+1} all together, or None and nothing at all.

    The receipt's fence and the authority were checked by the caller in this transaction. With `advance_only_audit` (the
    authority was lost meanwhile) the exchange is kept so that later history is truthful, but a proposal is not opened:
    nobody may act on it any more.
    """
    _checked(access)
    turn = store.find_turn(tx, turn_id)
    if turn is None or turn.conversation_id != access.conversation_id:
        return None
    outcome = turns.outcome_of(result, runner_name)
    if advance_only_audit:
        outcome = TurnOutcome("completed", outcome.response, outcome.tool_trace, outcome.runner)

    def also(inner: Tx) -> bool:
        if not access.cursor.advance(inner, turn_id=turn_id, revision=access.expected_revision + 1):
            return False
        if isinstance(result, port.Proposal) and not advance_only_audit:
            return store_proposal(inner, turn_id, result.draft, access.actor) is not None
        return True

    return turns.complete_turn(
        tx,
        turn_id,
        expected_revision=access.expected_revision,
        outcome=outcome,
        context_hash=access.context_hash,
        also=also,
    )


def find_connector_turn(tx: Tx, conversation_id: str, request_id: str) -> Turn | None:
    """The chat's turn of a derived request id; another surface's turn of the same id is not it."""
    turn = store.find_turn_by_request(tx, conversation_id, request_id)
    return turn if turn is not None and turn.surface == CHANNEL else None
