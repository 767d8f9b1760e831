"""Workspaces: the unit of belonging."""

from __future__ import annotations

from frontdesk.identity import store
from frontdesk.identity.events import record_event
from frontdesk.identity.model import Actor, Right, Workspace, WorkspaceChanges
from frontdesk.identity.rights import membership_of_inactive, require, require_platform_admin
from frontdesk.identity.tables import MEMBERS, WORKSPACES
from frontdesk.kernel.errors import Defect, Problem
from frontdesk.storage.tx import Tx


def list_workspaces(
    tx: Tx, actor: Actor, *, limit: int, after: tuple[int, str] | None = None
) -> tuple[list[Workspace], tuple[int, str] | None]:
    """The workspaces the actor is a member of, newest first; switched-off ones say so by `active`."""
    only = None if actor.token is None else actor.token.workspace_id
    return store.list_workspaces_of(tx, actor.user_id, only, limit, after)


def create_workspace(tx: Tx, actor: Actor, *, name: str, slug: str) -> Workspace:
    """Make a workspace; the creator becomes its first admin. Raises `platform_admin_required`, `slug_taken`."""
    require_platform_admin(actor)
    return insert_workspace(tx, name=name, slug=slug, admin_user_id=actor.user_id)


def insert_workspace(tx: Tx, *, name: str, slug: str, admin_user_id: str) -> Workspace:
    """As `create_workspace` without asking who wants it: for the first start."""
    workspace_id = store.insert_row(tx, WORKSPACES, "wsp", {"name": name, "slug": slug, "active": True})
    if workspace_id is None:
        raise Problem("slug_taken")
    member_id = store.insert_row(
        tx, MEMBERS, "mbr", {"workspace": workspace_id, "user": admin_user_id, "role": "admin"}
    )
    if member_id is None:
        raise Defect("a new workspace has a member already")
    record_event(
        tx,
        workspace_id=workspace_id,
        kind="workspace.created",
        object_kind="workspace",
        object_id=workspace_id,
        actor_id=admin_user_id,
    )
    return _get(tx, workspace_id)


def update_workspace(tx: Tx, actor: Actor, workspace_id: str, changes: WorkspaceChanges) -> Workspace:
    """Change name, runner or `active`; needs `members.manage`. Absent keys stay.

    Switching off takes effect on the next request of anybody. A switched-off workspace answers `membership_required`
    everywhere; the one way back is this verb with `active` true, for those who still hold the right.
    """
    if changes.get("active") is True:
        if Right.MEMBERS_MANAGE not in membership_of_inactive(tx, actor, workspace_id).rights:
            raise Problem("permission_required")
    else:
        require(tx, actor, workspace_id, Right.MEMBERS_MANAGE)
    before = _get(tx, workspace_id)
    if changes:
        store.update_row(tx, WORKSPACES, workspace_id, dict(changes))
    after = _get(tx, workspace_id)
    if after != before:
        record_event(
            tx,
            workspace_id=workspace_id,
            kind="workspace.changed",
            object_kind="workspace",
            object_id=workspace_id,
            actor_id=actor.user_id,
            data={"active": after.active} if after.active != before.active else None,
        )
    return after


def find_workspace(tx: Tx, workspace_id: str) -> Workspace | None:
    """A workspace by id, switched off or not. Asks for no right."""
    row = store.find_workspace(tx, workspace_id)
    return None if row is None else store.workspace_of(row)


def _get(tx: Tx, workspace_id: str) -> Workspace:
    row = store.find_workspace(tx, workspace_id)
    if row is None:
        raise Problem("workspace_not_found")
    return store.workspace_of(row)
