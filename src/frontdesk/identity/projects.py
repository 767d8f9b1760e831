"""Projects and their workflows. Changing a project's `access` is a verb of grants, which calls `set_access_row`."""

from __future__ import annotations

from typing import Any

from frontdesk.identity import store
from frontdesk.identity.events import record_event
from frontdesk.identity.model import (
    ACCESS_VALUES,
    Actor,
    Project,
    ProjectChanges,
    Right,
    Workflow,
    WorkflowChanges,
)
from frontdesk.identity.rights import hidden_project_ids, passes_gate, require, require_project
from frontdesk.identity.tables import PROJECTS, WORKFLOWS
from frontdesk.kernel.errors import Defect, Problem
from frontdesk.storage.tx import Tx


def list_projects(
    tx: Tx, actor: Actor, workspace_id: str, *, limit: int, after: tuple[int, str] | None = None
) -> tuple[list[Project], tuple[int, str] | None]:
    """The workspace's projects, newest first, without those behind the gate or beyond the token; needs READ."""
    require(tx, actor, workspace_id, Right.READ)
    return store.list_projects(tx, workspace_id, hidden_project_ids(tx, actor, workspace_id), limit, after)


def create_project(
    tx: Tx, actor: Actor, workspace_id: str, *, name: str, slug: str, access: str = "members"
) -> Project:
    """Make a project; needs `configuration.manage`, and to be let through the gate where `access` is administrators.

    Raises `membership_required`, `permission_required` (also for a token restricted to projects),
    `administrators_only`, `slug_taken`.
    """
    require(tx, actor, workspace_id, Right.CONFIGURE)
    if actor.token is not None and actor.token.project_ids is not None:
        raise Problem("permission_required")
    if access == "administrators" and not passes_gate(actor):
        raise Problem("administrators_only")
    return insert_project(tx, workspace_id, name=name, slug=slug, access=access, actor_id=actor.user_id)


def insert_project(
    tx: Tx, workspace_id: str, *, name: str, slug: str, access: str = "members", actor_id: str
) -> Project:
    """As `create_project` without asking who wants it: for the first start."""
    values = {"workspace": workspace_id, "name": name, "slug": slug, "access": access}
    project_id = store.insert_row(tx, PROJECTS, "prj", values)
    if project_id is None:
        raise Problem("slug_taken")
    project = _get(tx, project_id)
    _record(tx, project, "project.created", actor_id)
    return project


def get_project(tx: Tx, actor: Actor, workspace_id: str, project_id: str) -> Project:
    """One project; needs READ and the gate. Raises as `rights.require_project`."""
    return require_project(tx, actor, workspace_id, project_id, Right.READ)[1]


def update_project(tx: Tx, actor: Actor, workspace_id: str, project_id: str, changes: ProjectChanges) -> Project:
    """Change name, runner or `archived`; needs `configuration.manage` and the gate. Absent keys stay."""
    before = require_project(tx, actor, workspace_id, project_id, Right.CONFIGURE)[1]
    values = _with_archived(tx, dict(changes), before.archived_at)
    if not values:
        return before
    store.update_row(tx, PROJECTS, project_id, values)
    _record(tx, before, "project.changed", actor.user_id)
    return _get(tx, project_id)


def set_access_row(tx: Tx, project_id: str, access: str) -> None:
    """Write `access`, for the verb of grants that has authorised it and decides about active grants.

    The caller has read the row with `find_project(..., lock=True)` before it counted active grants: a grant being
    created reads it FOR SHARE, so neither misses the other.
    """
    if access not in ACCESS_VALUES:
        raise Defect("unknown access")
    store.update_row(tx, PROJECTS, project_id, {"access": access})


# -------------------------------------------------------------------------------------------- workflows


def list_workflows(
    tx: Tx, actor: Actor, workspace_id: str, project_id: str, *, limit: int, after: tuple[int, str] | None = None
) -> tuple[list[Workflow], tuple[int, str] | None]:
    """The project's workflows, newest first; needs READ and the gate."""
    require_project(tx, actor, workspace_id, project_id, Right.READ)
    return store.list_workflows(tx, project_id, limit, after)


def find_workflow(tx: Tx, project_id: str, workflow_id: str) -> Workflow | None:
    """A workflow of this project, or None: absent and foreign look alike. Asks for no right."""
    row = store.find_workflow(tx, workflow_id)
    return None if row is None or row["project"] != project_id else store.workflow_of(row)


def create_workflow(tx: Tx, actor: Actor, workspace_id: str, project_id: str, *, name: str) -> Workflow:
    """Make a workflow; needs `configuration.manage` and the gate. Raises `name_taken`."""
    project = require_project(tx, actor, workspace_id, project_id, Right.CONFIGURE)[1]
    workflow_id = store.insert_row(tx, WORKFLOWS, "wfl", {"project": project_id, "name": name})
    if workflow_id is None:
        raise Problem("name_taken")
    _record(tx, project, "workflow.created", actor.user_id, workflow_id)
    return _workflow(tx, project_id, workflow_id)


def update_workflow(
    tx: Tx, actor: Actor, workspace_id: str, project_id: str, workflow_id: str, *, changes: WorkflowChanges
) -> Workflow:
    """Change name or `archived`; needs `configuration.manage` and the gate.

    Raises `workflow_not_found`, `name_taken`.
    """
    project = require_project(tx, actor, workspace_id, project_id, Right.CONFIGURE)[1]
    before = _workflow(tx, project_id, workflow_id)
    values = _with_archived(tx, dict(changes), before.archived_at)
    if not values:
        return before
    if not store.try_update_row(tx, WORKFLOWS, workflow_id, values):
        raise Problem("name_taken")
    _record(tx, project, "workflow.changed", actor.user_id, workflow_id)
    return _workflow(tx, project_id, workflow_id)


def _workflow(tx: Tx, project_id: str, workflow_id: str) -> Workflow:
    found = find_workflow(tx, project_id, workflow_id)
    if found is None:
        raise Problem("workflow_not_found")
    return found


def _get(tx: Tx, project_id: str) -> Project:
    row = store.find_project(tx, project_id)
    if row is None:
        raise Problem("project_not_found")
    return store.project_of(row)


def _with_archived(tx: Tx, changes: dict[str, Any], archived_at: int | None) -> dict[str, Any]:
    """The columns to write: `archived` as a time that a repeated call does not move."""
    wanted = changes.pop("archived", None)
    if wanted is not None and wanted != (archived_at is not None):
        changes["archived_at"] = tx.now if wanted else None
    return changes


def _record(tx: Tx, project: Project, kind: str, actor_id: str, workflow_id: str | None = None) -> None:
    record_event(
        tx,
        workspace_id=project.workspace_id,
        kind=kind,
        object_kind="project" if workflow_id is None else "workflow",
        object_id=workflow_id or project.id,
        project_id=project.id,
        actor_id=actor_id,
    )
