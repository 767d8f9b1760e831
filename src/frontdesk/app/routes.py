"""Every HTTP route of the product, from every room of the API."""

from __future__ import annotations

from frontdesk.api.binding import Handler
from frontdesk.api.desk import connections, conversations, grants, inbox, operations, outbox, runs
from frontdesk.api.identity import events, me, members, projects, sessions, tokens, users, workflows, workspaces
from frontdesk.wire.registry import Operation

ROOMS = (
    events,
    me,
    members,
    projects,
    sessions,
    tokens,
    users,
    workflows,
    workspaces,
    connections,
    conversations,
    grants,
    inbox,
    operations,
    outbox,
    runs,
)

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple(route for room in ROOMS for route in room.ROUTES)
