"""Conversations as their owner handles them: create, list, get, update, close, and reading turns.

A conversation is its owner's alone: everybody else, other administrators included, gets what an absent id gets. What is
bound to an `administrators` project stands behind the gate, which is asked anew by every verb here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from frontdesk.desk.conversations import store
from frontdesk.desk.conversations.context import RunFinder, context_hash, normalise_context, storable
from frontdesk.desk.conversations.model import Conversation, Turn
from frontdesk.identity import (
    find_project,
    hidden_project_ids,
    read_scope,
    record_event,
    require,
    require_behind,
)
from frontdesk.identity.model import Actor, Right
from frontdesk.kernel.errors import Problem
from frontdesk.storage.tx import Tx

find_conversation = store.find_conversation

TURN_SEQUENCE_MAX: Final = 2**31 - 1


def create_conversation(
    tx: Tx, actor: Actor, workspace_id: str, *, title: str, context: Mapping[str, Any], find_run: RunFinder
) -> Conversation:
    """A new conversation of the actor.

    Raises `conversation_context_invalid`, `project_not_found`, `workflow_not_found`, `run_not_found`, and the refusals
    of rights and gate.
    """
    _require_project_named(tx, actor, workspace_id, context)
    normalised = _proven_context(tx, workspace_id, context, find_run)
    conversation = store.insert_conversation(
        tx,
        {
            "id": tx.new_id("cnv"),
            "workspace": workspace_id,
            "owner_user": actor.user_id,
            "title": title,
            "status": "active",
            "session_start_ms": tx.now // 1000,
            **_context_columns(normalised),
        },
    )
    _record(tx, actor, conversation, "conversation.created")
    return conversation


def list_conversations(
    tx: Tx,
    actor: Actor,
    workspace_id: str,
    *,
    project_id: str | None = None,
    status: str | None = None,
    limit: int,
    after: tuple[int, str] | None = None,
) -> tuple[list[Conversation], tuple[int, str] | None]:
    """The actor's own conversations, newest first; those of projects hidden from the actor are left out."""
    require(tx, actor, workspace_id, Right.READ)
    return store.page_conversations(
        tx,
        workspace_id,
        actor.user_id,
        hidden=hidden_project_ids(tx, actor, workspace_id),
        project_id=project_id,
        status=status,
        limit=limit,
        after=after,
    )


def get_conversation(
    tx: Tx, actor: Actor, workspace_id: str, conversation_id: str, *rights: Right, lock: bool = False
) -> Conversation:
    """The actor's own conversation, with READ and all of `rights`, before the gate.

    Raises `conversation_not_found` for an absent one, one of another workspace and one of another person alike.
    """
    found = store.find_conversation(tx, conversation_id, lock=lock)
    if found is not None and (found.workspace_id != workspace_id or found.owner_user_id != actor.user_id):
        found = None
    require_behind(tx, actor, workspace_id, None if found is None else found.project_id, Right.READ, *rights)
    if found is None:
        raise Problem("conversation_not_found")
    return found


def update_conversation(
    tx: Tx,
    actor: Actor,
    workspace_id: str,
    conversation_id: str,
    *,
    title: str | None = None,
    context: Mapping[str, Any] | None = None,
    find_run: RunFinder,
) -> Conversation:
    """Another title, another context, or both; None leaves a part as it is.

    Another context is a new hash and revision+1; one that is equal to the present one changes nothing. Raises
    `conversation_closed` besides what creating and getting raise.
    """
    conversation = get_conversation(tx, actor, workspace_id, conversation_id, lock=True)
    if not conversation.active:
        raise Problem("conversation_closed")
    changed: Conversation | None = conversation
    if context is not None:
        _require_project_named(tx, actor, workspace_id, context)
        columns = _context_columns(_proven_context(tx, workspace_id, context, find_run))
        if columns["context_hash"] != conversation.context_hash:
            changed = store.move_conversation(tx, conversation_id, columns)
            if changed is not None:
                _record(tx, actor, changed, "conversation.context_changed")
    if title is not None and changed is not None and title != changed.title:
        changed = store.rename_conversation(tx, conversation_id, title)
    if changed is None:
        raise Problem("conversation_closed")
    return changed


def close_conversation(tx: Tx, actor: Actor, workspace_id: str, conversation_id: str) -> Conversation:
    """Close for good, revision+1; closing again changes nothing. A turn that still runs will not be committed."""
    conversation = get_conversation(tx, actor, workspace_id, conversation_id, lock=True)
    if not conversation.active:
        return conversation
    closed = store.close_conversation(tx, conversation_id)
    if closed is None:  # closed by somebody between reading and writing
        return get_conversation(tx, actor, workspace_id, conversation_id)
    _record(tx, actor, closed, "conversation.closed")
    return closed


def list_turns(
    tx: Tx,
    actor: Actor,
    workspace_id: str,
    conversation_id: str,
    *,
    limit: int,
    after: tuple[int, str] | None = None,
) -> tuple[list[Turn], tuple[int, str] | None]:
    """The turns of the actor's own conversation in the order they were asked; positions are (sequence, id)."""
    conversation = get_conversation(tx, actor, workspace_id, conversation_id)
    # No turn has a place beyond the column's; PostgreSQL would refuse to compare with one.
    place = 0 if after is None else min(after[0], TURN_SEQUENCE_MAX)
    turns = store.turns_after(tx, conversation.id, place, limit + 1)
    if len(turns) <= limit:
        return turns, None
    return turns[:limit], (turns[limit - 1].sequence, turns[limit - 1].id)


def context_holds(tx: Tx, conversation: Conversation, find_run: RunFinder) -> bool:
    """True where project, workflow and run of the context exist, belong together and none is archived.

    The context is normalised and hashed anew. Reads the rows FOR SHARE on PostgreSQL: for the authority query before a
    side effect. Asks for no right.
    """
    try:
        context = normalise_context(conversation.context)
        _prove_scope(tx, conversation.workspace_id, context, find_run)
    except Problem:
        return False
    return context_hash(context) == conversation.context_hash


def _require_project_named(tx: Tx, actor: Actor, workspace_id: str, raw: Mapping[str, Any]) -> None:
    """READ behind the gate of the project that a context names, before anything of that context is looked at."""
    named = raw.get("project_id")
    project = find_project(tx, workspace_id, named) if isinstance(named, str) and storable(named) else None
    require_behind(tx, actor, workspace_id, project, Right.READ)


def _proven_context(tx: Tx, workspace_id: str, raw: Mapping[str, Any], find_run: RunFinder) -> dict[str, str]:
    context = normalise_context(raw)
    _prove_scope(tx, workspace_id, context, find_run)
    return context


def _prove_scope(tx: Tx, workspace_id: str, context: Mapping[str, str], find_run: RunFinder) -> None:
    project_id = context.get("project_id")
    if project_id is None:
        return
    workflow_id, run_id = context.get("workflow_id"), context.get("run_id")
    scope = read_scope(tx, workspace_id, project_id, workflow_id, share=True)
    if not scope.project_exists:
        raise Problem("project_not_found")
    if not scope.workflow_exists:
        raise Problem("workflow_not_found")
    run = None if run_id is None else find_run(tx, run_id)
    if run_id is not None and (
        run is None or (run.workspace_id, run.project_id, run.workflow_id) != (workspace_id, project_id, workflow_id)
    ):
        raise Problem("run_not_found")
    if scope.archived or (run is not None and run.archived):
        raise Problem("conversation_context_invalid")


def _context_columns(context: dict[str, str]) -> dict[str, Any]:
    return {"project": context.get("project_id"), "context": context, "context_hash": context_hash(context)}


def _record(tx: Tx, actor: Actor, conversation: Conversation, kind: str) -> None:
    record_event(
        tx,
        workspace_id=conversation.workspace_id,
        kind=kind,
        object_kind="conversation",
        object_id=conversation.id,
        project_id=conversation.project_id,
        owner_user_id=conversation.owner_user_id,
        actor_id=actor.user_id,
        data={"revision": conversation.revision},
    )
