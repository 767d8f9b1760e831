"""Identity: who asks, what they may do, what work belongs to, and the one content-free event table.

Tables: users, workspaces, workspace_members, console_sessions, access_tokens, projects, workflows, events.

Invariants:
- An `Actor` is made from rows just read (`authentication`), a `Membership` from one join on each request (`rights`).
- A token narrows its owner's present rights and never adds to them; secrets are kept as digests and shown once.
- Power over the platform comes from a local or bootstrap login alone, never from OIDC, a host or a results token.
- A workspace keeps an admin whose account is enabled (`members`).
- A project's `access` changes through grants alone (`set_access_row`).
- A write by cookie carries its session's form token, which is derived from the bearer (`sessions`).
- Events hold no content and are never changed.

Before a side effect rooms read `read_standing` and `read_scope`, which hold the rows still until the commit.
"""

from __future__ import annotations

from frontdesk.identity.authentication import BootstrapUserAbsent, authenticate, ensure_bootstrap_user, touch
from frontdesk.identity.bootstrap import FirstStart, first_start
from frontdesk.identity.events import (
    EVENTS_TOPIC,
    events_since,
    list_events,
    list_events_of_grant,
    record_event,
)
from frontdesk.identity.model import Actor, Event, Membership, Project, Right, Scope, Standing, Workflow, Workspace
from frontdesk.identity.projects import find_workflow, set_access_row
from frontdesk.identity.rights import (
    find_project,
    hidden_project_ids,
    membership,
    passes_gate,
    reaches_project,
    require,
    require_behind,
    require_platform_admin,
    require_project,
)
from frontdesk.identity.sessions import create_session, csrf_matches, csrf_token_of, end_session, find_login
from frontdesk.identity.standing import connector_actor, read_scope, read_standing
from frontdesk.identity.users import local_actor, set_password
from frontdesk.identity.workspaces import find_workspace

__all__ = [
    "EVENTS_TOPIC",
    "Actor",
    "BootstrapUserAbsent",
    "Event",
    "FirstStart",
    "Membership",
    "Project",
    "Right",
    "Scope",
    "Standing",
    "Workflow",
    "Workspace",
    "authenticate",
    "connector_actor",
    "create_session",
    "csrf_matches",
    "csrf_token_of",
    "end_session",
    "ensure_bootstrap_user",
    "events_since",
    "find_login",
    "find_project",
    "find_workflow",
    "find_workspace",
    "first_start",
    "hidden_project_ids",
    "list_events",
    "list_events_of_grant",
    "local_actor",
    "membership",
    "passes_gate",
    "reaches_project",
    "read_scope",
    "read_standing",
    "record_event",
    "require",
    "require_behind",
    "require_platform_admin",
    "require_project",
    "set_access_row",
    "set_password",
    "touch",
]
