"""Conversations: one person's dialogue with their agent, its turns and its proposals.

Owns the tables `conversations`, `turns` and `proposals`, and declares the port that runners implement (`runner`).
Invariants: a request id runs once in a conversation (unique in the database); at most one turn of a conversation is
`running` (partial unique index); response, status and revision N+1 of a turn become visible in one commit or not at
all. Knows neither grants nor receipts: the chat's authority arrives as `connector.ConnectorAccess`, and a chat's cursor
as a callback inside it.
"""

from __future__ import annotations

from frontdesk.desk.conversations.connector import find_connector_turn, finish_connector_turn, send_connector_message
from frontdesk.desk.conversations.context import RunFinder, RunScope, context_hash, normalise_context
from frontdesk.desk.conversations.model import Conversation, Turn
from frontdesk.desk.conversations.proposals import find_proposal_of_turn, store_proposal
from frontdesk.desk.conversations.request import Briefer, build_request, fixed_briefing, runner_name_of
from frontdesk.desk.conversations.sender import ConversationSender, Sent
from frontdesk.desk.conversations.service import (
    close_conversation,
    context_holds,
    create_conversation,
    find_conversation,
    get_conversation,
    list_conversations,
    list_turns,
    update_conversation,
)
from frontdesk.desk.conversations.turns import (
    begin_turn,
    complete_turn,
    fail_turn,
    find_running_turn,
    find_turn,
    find_turn_by_request,
    history,
    interrupt_abandoned,
    outcome_of,
    renew_turn,
    request_cancel,
    runner_column,
    set_session_start,
    start_session,
)

__all__ = [
    "Briefer",
    "Conversation",
    "ConversationSender",
    "RunFinder",
    "RunScope",
    "Sent",
    "Turn",
    "begin_turn",
    "build_request",
    "close_conversation",
    "complete_turn",
    "context_hash",
    "context_holds",
    "create_conversation",
    "fail_turn",
    "find_connector_turn",
    "find_conversation",
    "find_proposal_of_turn",
    "find_running_turn",
    "find_turn",
    "find_turn_by_request",
    "finish_connector_turn",
    "fixed_briefing",
    "get_conversation",
    "history",
    "interrupt_abandoned",
    "list_conversations",
    "list_turns",
    "normalise_context",
    "outcome_of",
    "renew_turn",
    "request_cancel",
    "runner_column",
    "runner_name_of",
    "send_connector_message",
    "set_session_start",
    "start_session",
    "store_proposal",
    "update_conversation",
]
