"""What a fresh database is given at `frontdesk init`: one person, one workspace, one project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from frontdesk.identity import store
from frontdesk.identity.projects import insert_project
from frontdesk.identity.users import insert_local_user
from frontdesk.identity.workspaces import insert_workspace
from frontdesk.kernel.errors import Problem
from frontdesk.storage.tx import Tx

OWNER: Final = "owner"
WORKSPACE: Final = "home"
PROJECT: Final = "first"


@dataclass(frozen=True, slots=True)
class FirstStart:
    """What was made."""

    user_id: str
    workspace_id: str
    project_id: str


def first_start(tx: Tx, password_hash: str) -> FirstStart:
    """Make user `owner` (platform administrator, admin of workspace `home` with project `first`).

    Raises `database_has_users` where any user exists, and then changes nothing. Two first starts at once are one: the
    loser of the name gets the same answer.
    """
    if store.any_user(tx):
        raise Problem("database_has_users")
    try:
        user = insert_local_user(
            tx, username=OWNER, display_name="Owner", password_hash=password_hash, is_platform_admin=True
        )
    except Problem:
        raise Problem("database_has_users") from None
    workspace = insert_workspace(tx, name="Home", slug=WORKSPACE, admin_user_id=user.id)
    project = insert_project(tx, workspace.id, name="First", slug=PROJECT, actor_id=user.id)
    return FirstStart(user.id, workspace.id, project.id)
