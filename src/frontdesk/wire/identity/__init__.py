"""Identity on the wire, one module for each noun; every module has its `OPERATIONS`."""

from __future__ import annotations

from frontdesk.wire.identity import events, me, members, projects, sessions, tokens, users, workflows, workspaces
from frontdesk.wire.registry import Operation

OPERATIONS: tuple[Operation, ...] = (
    *sessions.OPERATIONS,
    *me.OPERATIONS,
    *tokens.OPERATIONS,
    *users.OPERATIONS,
    *workspaces.OPERATIONS,
    *members.OPERATIONS,
    *projects.OPERATIONS,
    *workflows.OPERATIONS,
    *events.OPERATIONS,
)
