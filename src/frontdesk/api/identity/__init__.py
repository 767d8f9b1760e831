"""HTTP handlers of identity, one module for each noun; every module has its `ROUTES`."""

from __future__ import annotations

from frontdesk.api.binding import Handler
from frontdesk.api.identity import events, me, members, projects, sessions, tokens, users, workflows, workspaces
from frontdesk.wire.registry import Operation

ROUTES: tuple[tuple[Operation, Handler], ...] = (
    *sessions.ROUTES,
    *me.ROUTES,
    *tokens.ROUTES,
    *users.ROUTES,
    *workspaces.ROUTES,
    *members.ROUTES,
    *projects.ROUTES,
    *workflows.ROUTES,
    *events.ROUTES,
)
