"""Every operation of the product, from every room of the wire. A room that is not listed here does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from frontdesk.wire import callback
from frontdesk.wire.desk import connections as desk_connections
from frontdesk.wire.desk import conversations as desk_conversations
from frontdesk.wire.desk import grants as desk_grants
from frontdesk.wire.desk import inbox as desk_inbox
from frontdesk.wire.desk import operations as desk_operations
from frontdesk.wire.desk import outbox as desk_outbox
from frontdesk.wire.desk import runs as desk_runs
from frontdesk.wire.identity import events as identity_events
from frontdesk.wire.identity import me as identity_me
from frontdesk.wire.identity import members as identity_members
from frontdesk.wire.identity import projects as identity_projects
from frontdesk.wire.identity import sessions as identity_sessions
from frontdesk.wire.identity import tokens as identity_tokens
from frontdesk.wire.identity import users as identity_users
from frontdesk.wire.identity import workflows as identity_workflows
from frontdesk.wire.identity import workspaces as identity_workspaces
from frontdesk.wire.registry import Operation

ROOMS: Final = (
    identity_sessions,
    identity_me,
    identity_tokens,
    identity_users,
    identity_workspaces,
    identity_members,
    identity_projects,
    identity_workflows,
    identity_events,
    desk_conversations,
    desk_runs,
    desk_connections,
    desk_grants,
    desk_outbox,
    desk_inbox,
    desk_operations,
    callback,
)


def assembled(rooms: Iterable[Iterable[Operation]]) -> dict[str, Operation]:
    """Operations by id. Raises ValueError where two share an id, or a method and path."""
    operations: dict[str, Operation] = {}
    routes: dict[tuple[str, str], str] = {}
    for operation in (each for room in rooms for each in room):
        if operation.id in operations:
            raise ValueError(f"{operation.id} is listed twice")
        route = (operation.method, operation.path)
        if route in routes:
            raise ValueError(f"{operation.id} and {routes[route]} share {operation.method} {operation.path}")
        operations[operation.id] = operation
        routes[route] = operation.id
    return operations


OPERATIONS: Final = assembled(room.OPERATIONS for room in ROOMS)
