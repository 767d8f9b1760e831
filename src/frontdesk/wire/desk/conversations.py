"""Conversations and their turns on the wire."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from frontdesk.kernel.limits import CONTEXT_VALUE_CHARS_MAX
from frontdesk.wire.model import Clean, Identifier, Instant, Name, Page, PageQuery, Request, RequestId, Response, Trim
from frontdesk.wire.registry import Operation, W

ContextValue = Annotated[str, Trim, Clean, Field(min_length=1, max_length=CONTEXT_VALUE_CHARS_MAX)]
# The upper bound of a message is the room's, which answers `input_too_long`.
Content = Annotated[str, Clean, Field(min_length=1)]
ConversationStatus = Literal["active", "closed"]


class Context(Request):
    """What a conversation is about. A source stands without a project, a workflow with one, a run with a workflow."""

    project_id: ContextValue | None = None
    workflow_id: ContextValue | None = None
    run_id: ContextValue | None = None
    source_id: ContextValue | None = None
    surface: ContextValue | None = None

    def keys(self) -> dict[str, str]:
        """The keys that have a value."""
        return self.model_dump(exclude_none=True)


class ConversationCreate(Request):
    """A conversation to begin."""

    title: Name
    context: Context = Field(default_factory=Context)


def _absent() -> Any:
    """Stands for a key that was not sent; never read, because only sent keys are."""
    return None


class ConversationUpdate(Request):
    """What to change; a key left out stays as it is. A context replaces the whole one."""

    title: Name = Field(default_factory=_absent)
    context: Context = Field(default_factory=_absent)

    @model_validator(mode="after")
    def _something(self) -> ConversationUpdate:
        if not self.model_fields_set:
            raise ValueError("nothing to change")
        return self


class ConversationsQuery(PageQuery):
    """Which of one's own conversations."""

    project_id: Identifier | None = None
    status: ConversationStatus | None = None


class MessageSend(Request):
    """A message to put before the conversation. The same request id never runs twice."""

    request_id: RequestId
    content: Content = Field(repr=False)


class ConversationRead(Response):
    """A conversation. `revision` rises with each committed turn, changed context and closing."""

    id: str
    workspace_id: str
    project_id: str | None
    title: str
    context: dict[str, str]
    status: ConversationStatus
    revision: int
    session_number: int
    closed_at: Instant | None
    created_at: Instant
    updated_at: Instant


class TurnResponse(Response):
    """What the person is told; `length` says that the model's limit cut it."""

    text: str
    finish: Literal["complete", "length"]


class TurnRead(Response):
    """One question and, once it is answered, its answer. `runner.usage` is "unknown" where nobody reported it."""

    id: str
    conversation_id: str
    sequence: int
    request_id: str
    surface: Literal["console", "api", "channel"]
    user_content: str
    response: TurnResponse | None
    status: Literal["running", "completed", "proposal", "failed"]
    runner: dict[str, Any]
    tool_trace: list[dict[str, Any]]
    error_code: str | None
    committed_revision: int | None
    completed_at: Instant | None
    created_at: Instant
    updated_at: Instant


_LIST = W + "/conversations"
_ONE = _LIST + "/{conversation_id}"
_ABSENT = "conversation_not_found"
_SCOPE = ("project_not_found", "workflow_not_found", "run_not_found")

OPERATIONS = (
    Operation(
        "desk.conversations.create",
        "POST",
        _LIST,
        "Begin a conversation",
        "workspace.read",
        request=ConversationCreate,
        response=ConversationRead,
        status=201,
        errors=("conversation_context_invalid", *_SCOPE),
        gate=True,
    ),
    Operation(
        "desk.conversations.list",
        "GET",
        _LIST,
        "List your own conversations",
        "workspace.read, own",
        query=ConversationsQuery,
        response=Page[ConversationRead],
        gate=True,
    ),
    Operation(
        "desk.conversations.get",
        "GET",
        _ONE,
        "Read one of your conversations",
        "workspace.read, own",
        response=ConversationRead,
        errors=(_ABSENT,),
        gate=True,
    ),
    Operation(
        "desk.conversations.update",
        "PATCH",
        _ONE,
        "Change title or context of a conversation",
        "workspace.read, own",
        request=ConversationUpdate,
        response=ConversationRead,
        errors=(_ABSENT, "conversation_context_invalid", "conversation_closed", *_SCOPE),
        gate=True,
    ),
    Operation(
        "desk.conversations.turns",
        "GET",
        _ONE + "/turns",
        "Read the turns of a conversation in the order they were asked",
        "workspace.read, own",
        query=PageQuery,
        response=Page[TurnRead],
        errors=(_ABSENT,),
        gate=True,
    ),
    Operation(
        "desk.conversations.send",
        "POST",
        _ONE + "/messages",
        "Send a message and wait for its answer, at most 25 seconds",
        "workspace.read+agents.run, own",
        request=MessageSend,
        response=TurnRead,
        errors=(
            _ABSENT,
            "turn_open",
            "turn_failed",
            "idempotency_key_reused",
            "conversation_closed",
            "input_too_long",
            "credential_text_refused",
            "runner_failed",
        ),
        gate=True,
    ),
    Operation(
        "desk.conversations.close",
        "POST",
        _ONE + "/close",
        "Close a conversation for good",
        "workspace.read, own",
        response=ConversationRead,
        errors=(_ABSENT,),
        gate=True,
    ),
)
