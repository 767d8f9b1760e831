"""HTTP handlers of conversations. Each is one transaction, but sending: the answer is made outside of any."""

from __future__ import annotations

from frontdesk.api.binding import Call, Handler, WithStatus
from frontdesk.desk import conversations, runs
from frontdesk.desk.conversations.model import API
from frontdesk.desk.conversations.sender import ConversationSender, Message
from frontdesk.kernel.errors import Problem
from frontdesk.wire.desk.conversations import OPERATIONS, ConversationRead, TurnRead
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor, encode_cursor
from frontdesk.wire.registry import Operation

SENDER = "conversation_sender"


async def create_conversation(call: Call) -> ConversationRead:
    """`desk.conversations.create`."""
    made = await call.services.database.write(
        lambda tx: conversations.create_conversation(
            tx,
            call.actor,
            call.workspace_id,
            title=call.body.title,
            context=call.body.context.keys(),
            find_run=runs.find_run_scope,
        )
    )
    return _shown(made)


async def list_conversations(call: Call) -> Page[ConversationRead]:
    """`desk.conversations.list`."""
    query = call.query
    after = decode_cursor(query.cursor)
    found, following = await call.services.database.read(
        lambda tx: conversations.list_conversations(
            tx,
            call.actor,
            call.workspace_id,
            project_id=query.project_id,
            status=query.status,
            limit=query.limit,
            after=after,
        )
    )
    return Page[ConversationRead](
        items=[_shown(each) for each in found],
        next_cursor=encode_cursor(*following) if following else None,
    )


async def get_conversation(call: Call) -> ConversationRead:
    """`desk.conversations.get`."""
    found = await call.services.database.read(
        lambda tx: conversations.get_conversation(tx, call.actor, call.workspace_id, call.conversation_id)
    )
    return _shown(found)


async def update_conversation(call: Call) -> ConversationRead:
    """`desk.conversations.update`."""
    body = call.body
    sent = body.model_fields_set
    changed = await call.services.database.write(
        lambda tx: conversations.update_conversation(
            tx,
            call.actor,
            call.workspace_id,
            call.conversation_id,
            title=body.title if "title" in sent else None,
            context=body.context.keys() if "context" in sent else None,
            find_run=runs.find_run_scope,
        )
    )
    return _shown(changed)


async def list_turns(call: Call) -> Page[TurnRead]:
    """`desk.conversations.turns`."""
    after = decode_cursor(call.query.cursor)
    found, following = await call.services.database.read(
        lambda tx: conversations.list_turns(
            tx, call.actor, call.workspace_id, call.conversation_id, limit=call.query.limit, after=after
        )
    )
    return Page[TurnRead](
        items=[_turn(each) for each in found],
        next_cursor=encode_cursor(*following) if following else None,
    )


async def send(call: Call) -> TurnRead | WithStatus:
    """`desk.conversations.send`: the answered turn, or 202 with the one that goes on in this process."""
    sender: ConversationSender | None = call.services.extras.get(SENDER)
    if sender is None:
        raise Problem("unavailable")
    message = Message(call.body.request_id, call.body.content, API)
    sent = await sender.send(call.actor, call.workspace_id, call.conversation_id, message)
    return _turn(sent.turn) if sent.done else WithStatus(_turn(sent.turn), 202)


async def close_conversation(call: Call) -> ConversationRead:
    """`desk.conversations.close`."""
    closed = await call.services.database.write(
        lambda tx: conversations.close_conversation(tx, call.actor, call.workspace_id, call.conversation_id)
    )
    return _shown(closed)


def _shown(found: conversations.Conversation) -> ConversationRead:
    return ConversationRead(
        id=found.id,
        workspace_id=found.workspace_id,
        project_id=found.project_id,
        title=found.title,
        context=dict(found.context),
        status="active" if found.active else "closed",
        revision=found.revision,
        session_number=found.session_number,
        closed_at=found.closed_at,
        created_at=found.created_at,
        updated_at=found.updated_at,
    )


def _turn(turn: conversations.Turn) -> TurnRead:
    return TurnRead.model_validate(
        {name: getattr(turn, name) for name in TurnRead.model_fields} | {"tool_trace": list(turn.tool_trace)}
    )


_HANDLERS: tuple[Handler, ...] = (
    create_conversation,
    list_conversations,
    get_conversation,
    update_conversation,
    list_turns,
    send,
    close_conversation,
)
ROUTES: tuple[tuple[Operation, Handler], ...] = tuple(zip(OPERATIONS, _HANDLERS, strict=True))
