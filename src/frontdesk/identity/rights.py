"""Who may do what: the one join per request, the role table, and the administrators gate (desk.md 2.2 and 2.3).

Every function reads anew; nothing is cached. A membership is worth one transaction.
"""

from __future__ import annotations

from sqlalchemy import true

from frontdesk.identity import store
from frontdesk.identity.model import ROLE_RIGHTS, Actor, Membership, Project, Right
from frontdesk.identity.tables import PROJECTS
from frontdesk.kernel.errors import Problem
from frontdesk.storage.tx import Tx


def membership(tx: Tx, actor: Actor, workspace_id: str) -> Membership:
    """The actor's standing in a workspace, narrowed by the token used.

    Raises `membership_required` for a missing, disabled or inactive part, a workspace that does not exist and one that
    the token does not reach, all alike. Does not lock: a side effect that must not outrun a revocation reads
    `standing.read_standing` instead.
    """
    found = _membership(tx, actor, workspace_id, inactive_too=False)
    if found is None:
        raise Problem("membership_required")
    return found


def membership_of_inactive(tx: Tx, actor: Actor, workspace_id: str) -> Membership:
    """As `membership`, also in a switched-off workspace: only for switching it on again."""
    found = _membership(tx, actor, workspace_id, inactive_too=True)
    if found is None:
        raise Problem("membership_required")
    return found


def _membership(tx: Tx, actor: Actor, workspace_id: str, *, inactive_too: bool) -> Membership | None:
    token = actor.token
    if token is not None and token.workspace_id not in (None, workspace_id):
        return None
    row = store.find_membership(tx, actor.user_id, workspace_id)
    if row is None or row["disabled_at"] is not None or not (row["active"] or inactive_too):
        return None
    rights = ROLE_RIGHTS[row["role"]]
    if token is not None:
        rights = token_rights(token.kind, token.rights, rights)
    return Membership(workspace_id, actor.user_id, row["role"], rights)


def token_rights(kind: str, rights: frozenset[str] | None, owner: frozenset[Right]) -> frozenset[Right]:
    """What is left of the owner's rights. A results token has none of them: its own rights belong to `results`."""
    if kind == "results":
        return frozenset()
    return owner if rights is None else frozenset(right for right in owner if right.value in rights)


def require(tx: Tx, actor: Actor, workspace_id: str, *rights: Right) -> Membership:
    """The membership, with all of `rights`. Raises `membership_required`, `permission_required`.

    Says nothing about a project: objects bound to one also need `require_behind`.
    """
    return require_behind(tx, actor, workspace_id, None, *rights)


def require_behind(
    tx: Tx, actor: Actor, workspace_id: str, project: Project | str | None, *rights: Right
) -> Membership:
    """As `require`, for an object bound to `project`: membership, then the gate, then the rights.

    The gate comes before the rights, so that whoever it keeps out learns no more than that: a host or results token
    hears `administrators_only`, whatever rights it has. Raises as `membership` and `require_gate`, and
    `permission_required`.
    """
    found = membership(tx, actor, workspace_id)
    require_gate(tx, actor, project)
    if not found.rights.issuperset(rights):
        raise Problem("permission_required")
    return found


def require_platform_admin(actor: Actor) -> None:
    """Raises `platform_admin_required` unless login and token give that power (see `passes_gate`)."""
    if not passes_gate(actor):
        raise Problem("platform_admin_required")


def passes_gate(actor: Actor) -> bool:
    """True for a platform administrator by local or bootstrap login, or an access token of such a login."""
    if not actor.is_platform_admin or actor.auth_method not in ("local", "bootstrap"):
        return False
    return actor.token is None or (actor.token.kind == "access" and actor.token.platform_admin)


def reaches_project(actor: Actor, project_id: str) -> bool:
    """False where the token is restricted to other projects."""
    token = actor.token
    return token is None or token.project_ids is None or project_id in token.project_ids


def require_gate(tx: Tx, actor: Actor, project: Project | str | None) -> None:
    """Stand before an object bound to `project` (value or id): the administrators gate, then the token's restriction.

    Raises `administrators_only` at the gate, `permission_required` where the token does not reach the project. An
    object without a project passes, an id without a row too: existence and workspace are the caller's question.
    Membership is asked before, see `require_behind`. Does not stop a change of `access` that commits later.
    """
    if project is None:
        return
    project_id = project if isinstance(project, str) else project.id
    if not passes_gate(actor):
        if isinstance(project, str):
            row = store.find_project(tx, project)
            access = None if row is None else row["access"]
        else:
            access = project.access
        if access == "administrators":
            raise Problem("administrators_only")
    if not reaches_project(actor, project_id):
        raise Problem("permission_required")


def find_project(
    tx: Tx, workspace_id: str, project_id: str, *, share: bool = False, lock: bool = False
) -> Project | None:
    """A project of this workspace, or None: absent and foreign look alike. Asks for no right.

    `share` holds its `access` still until the commit, `lock` claims the row for a change (both on PostgreSQL; SQLite's
    writers are serial).
    """
    row = store.find_project(tx, project_id, share=share, lock=lock)
    return None if row is None or row["workspace"] != workspace_id else store.project_of(row)


def require_project(
    tx: Tx, actor: Actor, workspace_id: str, project_id: str, *rights: Right, share: bool = False, lock: bool = False
) -> tuple[Membership, Project]:
    """Membership, the project's gate, rights and the project: the opening of every operation below a project's path.

    Raises `membership_required`, `permission_required`, `project_not_found`, `administrators_only`. An archived project
    is no error here. `share` and `lock` are those of `find_project`.
    """
    project = find_project(tx, workspace_id, project_id, share=share, lock=lock)
    found = require_behind(tx, actor, workspace_id, project, *rights)
    if project is None:
        raise Problem("project_not_found")
    return found, project


def hidden_project_ids(tx: Tx, actor: Actor, workspace_id: str) -> frozenset[str]:
    """Projects whose objects a list over the workspace leaves out for this actor.

    Those behind the gate unless the actor passes it, and those the token does not reach. Rooms exclude rows with
    `column.project.not_in(hidden)`, and must keep rows without a project themselves (NULL is not "not in").
    """
    hidden: set[str] = set()
    if not passes_gate(actor):
        hidden.update(store.project_ids(tx, workspace_id, PROJECTS.c.access == "administrators"))
    token = actor.token
    if token is not None and token.project_ids is not None:
        everything = store.project_ids(tx, workspace_id, true())
        hidden.update(project_id for project_id in everything if project_id not in token.project_ids)
    return frozenset(hidden)
