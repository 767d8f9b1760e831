"""What the authority query before a side effect reads: persisted users, members, workspaces, projects and workflows.

With `share` the rows are read FOR SHARE on PostgreSQL: a racing revocation is seen, or waits for this commit. Lock
order: workspace, member, user, project, workflow.
"""

from __future__ import annotations

from frontdesk.identity import store
from frontdesk.identity.model import CONNECTOR, ROLE_RIGHTS, Actor, Right, Scope, Standing
from frontdesk.storage.tx import Tx


def read_standing(tx: Tx, user_id: str, workspace_id: str, *, share: bool = True) -> Standing:
    """A user's present standing in a workspace. What is missing reads as disabled, inactive, no role and no rights.

    A membership that is added meanwhile may be missed; one that is taken away is not. Creates nothing.
    """
    workspace = store.find_workspace(tx, workspace_id, share=share)
    member = store.find_role(tx, user_id, workspace_id, share=share)
    user = store.find_user(tx, user_id, share=share)
    enabled = user is not None and user["disabled_at"] is None
    active = workspace is not None and bool(workspace["active"])
    role = None if member is None else member["role"]
    rights: frozenset[Right] = ROLE_RIGHTS[role] if enabled and active and role is not None else frozenset()
    return Standing(
        user_id=user_id,
        workspace_id=workspace_id,
        subject="" if user is None else user["subject"],
        display_name="" if user is None else user["display_name"],
        email="" if user is None else user["email"],
        locale=None if user is None else user["locale"],
        user_enabled=enabled,
        workspace_active=active,
        role=role,
        rights=rights,
    )


def connector_actor(standing: Standing) -> Actor:
    """The persisted user as the connector acts for them: never an administrator, no token, no claims."""
    return Actor(
        user_id=standing.user_id,
        subject=standing.subject,
        display_name=standing.display_name,
        email=standing.email,
        auth_method=CONNECTOR,
        is_platform_admin=False,
    )


def read_scope(
    tx: Tx, workspace_id: str, project_id: str, workflow_id: str | None = None, *, share: bool = True
) -> Scope:
    """Whether project and workflow exist, belong together and are open, and what access the project has now.

    A project of another workspace and a workflow of another project read as absent. Runs are their own room's question.
    """
    project = store.find_project(tx, project_id, share=share)
    if project is not None and project["workspace"] != workspace_id:
        project = None
    workflow = store.find_workflow(tx, workflow_id, share=share) if workflow_id is not None else None
    if workflow is not None and workflow["project"] != project_id:
        workflow = None
    return Scope(
        workspace_id=workspace_id,
        project_id=project_id,
        workflow_id=workflow_id,
        project_exists=project is not None,
        access=None if project is None else project["access"],
        project_archived=project is not None and project["archived_at"] is not None,
        workflow_exists=workflow_id is None or (project is not None and workflow is not None),
        workflow_archived=workflow is not None and workflow["archived_at"] is not None,
    )
