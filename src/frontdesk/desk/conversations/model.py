"""What a conversation, a turn and a proposal are, and what the room says when it cannot go on. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

CONSOLE: Final = "console"
API: Final = "api"
CHANNEL: Final = "channel"
ANSWERED: Final = ("completed", "proposal")


@dataclass(frozen=True, slots=True)
class Conversation:
    """One person's dialogue. `revision` rises by one with each committed turn, changed context and closing."""

    id: str
    workspace_id: str
    owner_user_id: str
    project_id: str | None
    title: str
    status: str
    context: Mapping[str, str]
    context_hash: str
    revision: int
    session_number: int
    session_start_ms: int
    closed_at: int | None
    created_at: int
    updated_at: int

    @property
    def active(self) -> bool:
        """True until it is closed."""
        return self.status == "active"

    @property
    def workflow_id(self) -> str | None:
        """The workflow of the context."""
        return self.context.get("workflow_id")

    @property
    def run_id(self) -> str | None:
        """The run of the context."""
        return self.context.get("run_id")


@dataclass(frozen=True, slots=True)
class Turn:
    """One question and, once it is answered, its answer. The lease serves console and API turns alone."""

    id: str
    conversation_id: str
    sequence: int
    request_id: str
    surface: str
    user_content: str = field(repr=False)
    response: Mapping[str, Any] | None = field(repr=False)
    context_snapshot: Mapping[str, Any]
    tool_trace: tuple[Mapping[str, Any], ...]
    status: str
    runner: Mapping[str, Any]
    error_code: str | None
    error_message: str | None
    cancel_requested_at: int | None
    committed_revision: int | None
    lease_owner: str | None
    lease_generation: int
    lease_expires_at: int | None
    completed_at: int | None
    created_at: int
    updated_at: int

    @property
    def running(self) -> bool:
        """True while nothing final is known of it."""
        return self.status == "running"

    @property
    def answered(self) -> bool:
        """True once it ended with an answer or a proposal."""
        return self.status in ANSWERED

    @property
    def answer_text(self) -> str:
        """What the person is told; empty while there is nothing."""
        return "" if self.response is None else str(self.response["text"])

    @property
    def session_number(self) -> int:
        """The chat session of the conversation in which the question was asked."""
        return int(self.context_snapshot["session_number"])


@dataclass(frozen=True, slots=True)
class Begun:
    """The turn of a request id: just begun (`fresh`), or found as an earlier call with the same id left it."""

    turn: Turn
    fresh: bool


@dataclass(frozen=True, slots=True)
class StoredProposal:
    """A write that waits for a person's decision."""

    id: str
    workspace_id: str
    conversation_id: str
    turn_id: str
    tool: str
    arguments: Mapping[str, Any] = field(repr=False)
    summary: str = field(repr=False)
    diff: str | None = field(repr=False)
    target_kind: str
    target_id: str
    target_version: int
    permission_version: int
    required_permission: str
    version: int
    status: str
    actor_user_id: str
    actor_method: str
    decided_by: str | None
    decided_at: int | None
    decision_reason: str | None
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """What the final commit of a turn writes beside its status: the response, how it was made, and by whom."""

    status: str
    response: Mapping[str, Any] = field(repr=False)
    tool_trace: tuple[Mapping[str, Any], ...]
    runner: Mapping[str, Any]


class ConversationBusy(Exception):
    """Another turn of the conversation is running. Console and API say `turn_open`, receipts `conversation_busy`."""


class ConversationMoved(Exception):
    """The conversation is not where the caller believes it is: closed, another context, another revision."""


class TurnExists(Exception):
    """The request id made a turn already. `turn` is as found; it is recovered by its state and never run again."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(turn.id)
        self.turn = turn
