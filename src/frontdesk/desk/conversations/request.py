"""Building the one frozen value a runner gets, in a read transaction, from rows as they are now."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from frontdesk.desk.conversations import runner as port
from frontdesk.desk.conversations import turns
from frontdesk.desk.conversations.model import Conversation, Turn
from frontdesk.identity import find_project, find_workspace, read_standing
from frontdesk.kernel import limits
from frontdesk.kernel.secret_shapes import redact
from frontdesk.storage.tx import Tx


class Briefer(Protocol):
    """Who tells what a turn is briefed with; the roster, once it stands. Reads only."""

    def __call__(self, tx: Tx, conversation: Conversation, turn: Turn) -> port.Briefing:
        """The briefing of this turn."""
        ...


def fixed_briefing(notes: tuple[port.BriefingNote, ...]) -> Briefer:
    """A briefer that hands every turn the same notes."""
    briefing = port.Briefing(notes)

    def brief(tx: Tx, conversation: Conversation, turn: Turn) -> port.Briefing:  # noqa: ARG001 - the same for everybody
        return briefing

    return brief


def runner_name_of(tx: Tx, conversation: Conversation, default: str) -> str:
    """Name of the runner that serves: the project's, else the workspace's, else the setting. Nobody may have it."""
    if conversation.project_id is not None:
        project = find_project(tx, conversation.workspace_id, conversation.project_id)
        if project is not None and project.runner is not None:
            return project.runner
    workspace = find_workspace(tx, conversation.workspace_id)
    if workspace is not None and workspace.runner is not None:
        return workspace.runner
    return default


def build_request(
    tx: Tx,
    conversation: Conversation,
    turn: Turn,
    *,
    briefing: port.Briefing,
    locale: str,
    mode: port.Mode = port.Mode.WORK,
    asked_at: int | None = None,
    origin: str = "live",
    quoted: port.QuotedContext | None = None,
    secrets: tuple[str, ...] = (),
    idle_us: int = limits.RUNNER_IDLE_US,
    hard_us: int = limits.RUNNER_HARD_US,
) -> port.TurnRequest:
    """The request of a running turn. The person's characters stay as they are; briefing and quoted text are redacted.

    `locale` is the person's, else the installation's command language; `asked_at` is the provider's time of a chat
    message.
    """
    person = read_standing(tx, conversation.owner_user_id, conversation.workspace_id, share=False)
    workspace = find_workspace(tx, conversation.workspace_id)
    project = (
        None
        if conversation.project_id is None
        else find_project(tx, conversation.workspace_id, conversation.project_id)
    )
    notes = tuple(
        replace(note, title=redact(note.title, secrets), text=redact(note.text, secrets)) for note in briefing.notes
    )
    return port.TurnRequest(
        conversation_id=conversation.id,
        turn_id=turn.id,
        mode=mode,
        text=turn.user_content,
        created_at=turn.created_at if asked_at is None else asked_at,
        origin=origin,
        quoted=None if quoted is None else replace(quoted, text=redact(quoted.text, secrets)),
        history=turns.history(tx, conversation.id, turn.session_number, before_sequence=turn.sequence),
        briefing=replace(briefing, notes=notes),
        person=port.Person(conversation.owner_user_id, person.display_name, locale),
        workspace_id=conversation.workspace_id,
        workspace_name="" if workspace is None else workspace.name,
        project_id=conversation.project_id,
        project_name=None if project is None else project.name,
        context=tuple(sorted(conversation.context.items())),
        idle_us=idle_us,
        hard_us=hard_us,
    )
