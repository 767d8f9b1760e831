"""Opening a proposal: a write that a runner asked for, with the running turn as its provenance.

Deciding one is another verb.
"""

from __future__ import annotations

from typing import Final

from frontdesk.desk.conversations import runner as port
from frontdesk.desk.conversations import store
from frontdesk.desk.conversations.model import StoredProposal
from frontdesk.identity import require
from frontdesk.identity.model import Actor, Right
from frontdesk.storage.tx import Tx

SUMMARY_CHARS_MAX: Final = 2_000
TOOL_CHARS_MAX: Final = 128
TARGET_CHARS_MAX: Final = 64

# Which right the decision needs besides `actions.approve`. A tool that is not listed needs that right and no other.
REQUIRED_PERMISSION: Final[dict[str, Right]] = {
    "roster_tasks_submit": Right.AGENTS_RUN,
    "roster_tasks_report": Right.AGENTS_RUN,
    "roster_knowledge_capture": Right.AGENTS_RUN,
    "desk_artifact_grants_create": Right.EXPORT,
}
# Raised whenever the table above changes: an open proposal was frozen under the older rule and becomes stale.
PERMISSION_VERSION: Final = 1

find_proposal_of_turn = store.find_proposal_of_turn


def store_proposal(tx: Tx, turn_id: str, draft: port.ProposalDraft, actor: Actor) -> StoredProposal | None:
    """The open proposal of a turn that still runs; one that the turn made before is returned as it is.

    None where the turn is not running or was asked to stop, or where the actor is not the owner of its conversation:
    nothing is written. Raises `membership_required` and `permission_required`: the actor's standing is read anew.
    """
    turn = store.find_turn(tx, turn_id)
    if turn is None or not turn.running or turn.cancel_requested_at is not None:
        return None
    conversation = store.find_conversation(tx, turn.conversation_id)
    if conversation is None or not conversation.active or conversation.owner_user_id != actor.user_id:
        return None
    require(tx, actor, conversation.workspace_id, Right.READ)
    store.try_insert_proposal(
        tx,
        {
            "id": tx.new_id("prp"),
            "workspace": conversation.workspace_id,
            "conversation": conversation.id,
            "turn": turn_id,
            "tool": draft.tool,
            "args": dict(draft.arguments),
            "summary": draft.summary,
            "diff": draft.diff,
            "target_kind": draft.target_kind,
            "target_id": draft.target_id,
            "target_version": draft.target_version,
            "permission_version": PERMISSION_VERSION,
            "required_permission": str(REQUIRED_PERMISSION.get(draft.tool, Right.ACTIONS_APPROVE)),
            "actor_user": actor.user_id,
            "actor_method": actor.auth_method,
        },
    )
    return store.find_proposal_of_turn(tx, turn_id)
