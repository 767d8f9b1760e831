"""Identity's statements, one function each, and how its rows become values. No decisions are made here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, Table, and_, bindparam, delete, func, or_, select, update

from frontdesk.identity.model import Event, Member, OwnMembership, Project, Token, User, Workflow, Workspace
from frontdesk.identity.tables import EVENTS, MEMBERS, PROJECTS, SESSIONS, TOKENS, USERS, WORKFLOWS, WORKSPACES
from frontdesk.storage.conflict import try_insert, try_write
from frontdesk.storage.paging import page
from frontdesk.storage.prepared import ById, Prepared
from frontdesk.storage.tx import Tx, for_share

Position = tuple[int, str] | None
Values = Mapping[str, Any]
Row = Mapping[Any, Any]

_USER, _WORKSPACE, _PROJECT, _WORKFLOW = (ById(table) for table in (USERS, WORKSPACES, PROJECTS, WORKFLOWS))


def insert_row(tx: Tx, table: Table, prefix: str, values: Values) -> str | None:
    """Insert with a fresh id and times; the id, or None where a unique key is taken."""
    row_id = tx.new_id(prefix)
    written = try_insert(tx, table, {"id": row_id, "created_at": tx.now, "updated_at": tx.now, **values})
    return row_id if written else None


def update_row(tx: Tx, table: Table, row_id: str, values: Values) -> None:
    """Change columns of one row."""
    tx.execute(update(table).where(table.c.id == row_id).values(updated_at=tx.now, **values))


def try_update_row(tx: Tx, table: Table, row_id: str, values: Values) -> bool:
    """As `update_row`; False where a unique key is taken."""
    return try_write(tx, update(table).where(table.c.id == row_id).values(updated_at=tx.now, **values))


# ------------------------------------------------------------------------------------------------ users


def find_user(tx: Tx, user_id: str, *, share: bool = False) -> Row | None:
    """A user by id."""
    return _USER.find(tx, user_id, share=share)


def find_user_by_subject(tx: Tx, subject: str) -> RowMapping | None:
    """A user by subject."""
    return tx.find(select(USERS).where(USERS.c.subject == subject))


def find_user_by_username(tx: Tx, username: str) -> RowMapping | None:
    """A user by normal user name."""
    return tx.find(select(USERS).where(USERS.c.username == username))


def users_of_email(tx: Tx, email: str) -> Sequence[RowMapping]:
    """At most two users of an address: one is an answer, two are none."""
    return tx.rows(select(USERS).where(USERS.c.email == email).limit(2))


def any_user(tx: Tx) -> bool:
    """True where at least one user exists."""
    return tx.find(select(USERS.c.id).limit(1)) is not None


def list_users(tx: Tx, limit: int, after: Position) -> tuple[list[User], Position]:
    """Users, newest first."""
    rows, following = page(tx, USERS, select(USERS), limit, after)
    return [user_of(row) for row in rows], following


def user_of(row: Row) -> User:
    """The value of a users row."""
    return User(
        id=row["id"],
        subject=row["subject"],
        username=row["username"],
        email=row["email"],
        display_name=row["display_name"],
        locale=row["locale"],
        is_platform_admin=row["is_platform_admin"],
        disabled_at=row["disabled_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


# ------------------------------------------------------------------------------------- sessions, tokens

_PERSON = (USERS.c.subject, USERS.c.display_name, USERS.c.email, USERS.c.is_platform_admin, USERS.c.disabled_at)


def find_session(tx: Tx, digest: str) -> RowMapping | None:
    """A session by digest with the person it belongs to."""
    joined = SESSIONS.join(USERS, USERS.c.id == SESSIONS.c.user)
    return tx.find(select(SESSIONS, *_PERSON).select_from(joined).where(SESSIONS.c.digest == digest))


def find_token(tx: Tx, digest: str) -> RowMapping | None:
    """A token by digest with the person it belongs to."""
    joined = TOKENS.join(USERS, USERS.c.id == TOKENS.c.user)
    platform = USERS.c.is_platform_admin.label("person_is_platform_admin")
    columns = (USERS.c.subject, USERS.c.display_name, USERS.c.email, USERS.c.disabled_at, platform)
    return tx.find(select(TOKENS, *columns).select_from(joined).where(TOKENS.c.digest == digest))


def touch_session(tx: Tx, session_id: str, before: int) -> bool:
    """Move a live session's last use to now where it is older than `before`."""
    column = SESSIONS.c
    statement = update(SESSIONS).where(
        column.id == session_id, column.revoked_at.is_(None), column.last_seen_at <= before
    )
    return tx.execute(statement.values(last_seen_at=tx.now, updated_at=tx.now)).rowcount == 1


def touch_token(tx: Tx, token_id: str, before: int) -> bool:
    """Move a token's last use to now where it is older than `before`."""
    column = TOKENS.c
    stale = or_(column.last_used_at.is_(None), column.last_used_at <= before)
    statement = update(TOKENS).where(column.id == token_id, column.revoked_at.is_(None), stale)
    return tx.execute(statement.values(last_used_at=tx.now, updated_at=tx.now)).rowcount == 1


def revoke_session(tx: Tx, session_id: str) -> None:
    """End a session; an ended one keeps its time."""
    statement = update(SESSIONS).where(SESSIONS.c.id == session_id, SESSIONS.c.revoked_at.is_(None))
    tx.execute(statement.values(revoked_at=tx.now, updated_at=tx.now))


def revoke_sessions_of(tx: Tx, user_id: str, *, but: str | None) -> None:
    """End every session of a user, except one."""
    open_ones = and_(SESSIONS.c.user == user_id, SESSIONS.c.revoked_at.is_(None))
    statement = update(SESSIONS).where(open_ones if but is None else and_(open_ones, SESSIONS.c.id != but))
    tx.execute(statement.values(revoked_at=tx.now, updated_at=tx.now))


def find_own_token(tx: Tx, user_id: str, token_id: str) -> RowMapping | None:
    """A token by id where it belongs to the user."""
    return tx.find(select(TOKENS).where(TOKENS.c.id == token_id, TOKENS.c.user == user_id))


def revoke_token(tx: Tx, token_id: str) -> None:
    """Revoke a token; a revoked one keeps its time."""
    statement = update(TOKENS).where(TOKENS.c.id == token_id, TOKENS.c.revoked_at.is_(None))
    tx.execute(statement.values(revoked_at=tx.now, updated_at=tx.now))


def list_tokens(tx: Tx, user_id: str, limit: int, after: Position) -> tuple[list[Token], Position]:
    """A user's tokens, newest first, revoked ones included."""
    rows, following = page(tx, TOKENS, select(TOKENS).where(TOKENS.c.user == user_id), limit, after)
    return [token_of(row) for row in rows], following


def token_of(row: Row) -> Token:
    """The value of an access_tokens row."""
    return Token(
        id=row["id"],
        kind=row["kind"],
        user_id=row["user"],
        workspace_id=row["workspace"],
        name=row["name"],
        rights=None if row["rights"] is None else tuple(row["rights"]),
        project_ids=None if row["project_ids"] is None else tuple(row["project_ids"]),
        source_application=row["source_application"],
        auth_method=row["auth_method"],
        platform_admin=row["platform_admin"],
        expires_at=row["expires_at"],
        last_used_at=row["last_used_at"],
        revoked_at=row["revoked_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


# ----------------------------------------------------------------------------------- workspaces, members


def find_workspace(tx: Tx, workspace_id: str, *, share: bool = False, lock: bool = False) -> Row | None:
    """A workspace by id."""
    return _WORKSPACE.find(tx, workspace_id, share=share, lock=lock)


def list_workspaces_of(
    tx: Tx, user_id: str, only: str | None, limit: int, after: Position
) -> tuple[list[Workspace], Position]:
    """Workspaces a user is a member of, newest first; `only` narrows to one."""
    joined = WORKSPACES.join(MEMBERS, MEMBERS.c.workspace == WORKSPACES.c.id)
    statement = select(WORKSPACES).select_from(joined).where(MEMBERS.c.user == user_id)
    if only is not None:
        statement = statement.where(WORKSPACES.c.id == only)
    rows, following = page(tx, WORKSPACES, statement, limit, after)
    return [workspace_of(row) for row in rows], following


def workspace_of(row: Row) -> Workspace:
    """The value of a workspaces row."""
    return Workspace(
        id=row["id"],
        name=row["name"],
        slug=row["slug"],
        runner=row["runner"],
        active=row["active"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def find_membership(tx: Tx, user_id: str, workspace_id: str) -> RowMapping | None:
    """The join user → member → workspace: role, `active`, `disabled_at`."""
    joined = MEMBERS.join(USERS, USERS.c.id == MEMBERS.c.user).join(WORKSPACES, WORKSPACES.c.id == MEMBERS.c.workspace)
    statement = select(MEMBERS.c.role, WORKSPACES.c.active, USERS.c.disabled_at).select_from(joined)
    return tx.find(statement.where(MEMBERS.c.user == user_id, MEMBERS.c.workspace == workspace_id))


_ROLE = select(MEMBERS).where(MEMBERS.c.user == bindparam("user_id"), MEMBERS.c.workspace == bindparam("workspace_id"))
_FIND_ROLE, _HOLD_ROLE = Prepared(_ROLE), Prepared(for_share(_ROLE))


def find_role(tx: Tx, user_id: str, workspace_id: str, *, share: bool) -> Row | None:
    """The member row alone, so that it can be locked."""
    prepared = _HOLD_ROLE if share else _FIND_ROLE
    return prepared.find(tx, {"user_id": user_id, "workspace_id": workspace_id})


def memberships_of(tx: Tx, user_id: str, only: str | None, limit: int) -> list[OwnMembership]:
    """A user's memberships in active workspaces, by name; bounded."""
    joined = MEMBERS.join(WORKSPACES, WORKSPACES.c.id == MEMBERS.c.workspace)
    statement = select(WORKSPACES.c.id, WORKSPACES.c.name, MEMBERS.c.role).select_from(joined)
    statement = statement.where(MEMBERS.c.user == user_id, WORKSPACES.c.active.is_(True))
    if only is not None:
        statement = statement.where(WORKSPACES.c.id == only)
    rows = tx.rows(statement.order_by(WORKSPACES.c.name, WORKSPACES.c.id).limit(limit))
    return [OwnMembership(row["id"], row["name"], row["role"]) for row in rows]


_MEMBERS = MEMBERS.join(USERS, USERS.c.id == MEMBERS.c.user)
_MEMBER_COLUMNS = (MEMBERS, USERS.c.display_name, USERS.c.email, USERS.c.disabled_at)


def find_member(tx: Tx, workspace_id: str, member_id: str) -> Member | None:
    """A member by id in a workspace."""
    statement = select(*_MEMBER_COLUMNS).select_from(_MEMBERS)
    row = tx.find(statement.where(MEMBERS.c.id == member_id, MEMBERS.c.workspace == workspace_id))
    return None if row is None else member_of(row)


def list_members(tx: Tx, workspace_id: str, limit: int, after: Position) -> tuple[list[Member], Position]:
    """Members of a workspace, newest first."""
    statement = select(*_MEMBER_COLUMNS).select_from(_MEMBERS).where(MEMBERS.c.workspace == workspace_id)
    rows, following = page(tx, MEMBERS, statement, limit, after)
    return [member_of(row) for row in rows], following


def count_other_admins(tx: Tx, workspace_id: str, member_id: str) -> int:
    """Admins beside this member whose accounts are enabled."""
    statement = select(func.count()).select_from(_MEMBERS)
    others = (MEMBERS.c.workspace == workspace_id, MEMBERS.c.role == "admin", MEMBERS.c.id != member_id)
    return tx.count(statement.where(*others, USERS.c.disabled_at.is_(None)))


def delete_member(tx: Tx, member_id: str) -> None:
    """Remove a membership."""
    tx.execute(delete(MEMBERS).where(MEMBERS.c.id == member_id))


def member_of(row: Row) -> Member:
    """The value of a joined members row."""
    return Member(
        id=row["id"],
        workspace_id=row["workspace"],
        user_id=row["user"],
        role=row["role"],
        display_name=row["display_name"],
        email=row["email"],
        disabled=row["disabled_at"] is not None,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


# ----------------------------------------------------------------------------------- projects, workflows


def find_project(tx: Tx, project_id: str, *, share: bool = False, lock: bool = False) -> Row | None:
    """A project by id."""
    return _PROJECT.find(tx, project_id, share=share, lock=lock)


def list_projects(
    tx: Tx, workspace_id: str, hidden: Collection[str], limit: int, after: Position
) -> tuple[list[Project], Position]:
    """Projects of a workspace without the hidden ones, newest first."""
    statement = select(PROJECTS).where(PROJECTS.c.workspace == workspace_id)
    if hidden:
        statement = statement.where(PROJECTS.c.id.not_in(sorted(hidden)))
    rows, following = page(tx, PROJECTS, statement, limit, after)
    return [project_of(row) for row in rows], following


def project_ids(tx: Tx, workspace_id: str, *conditions: ColumnElement[bool]) -> list[str]:
    """Ids of a workspace's projects that fulfil the conditions."""
    statement = select(PROJECTS.c.id).where(PROJECTS.c.workspace == workspace_id, *conditions)
    return [row["id"] for row in tx.rows(statement)]


def project_of(row: Row) -> Project:
    """The value of a projects row."""
    return Project(
        id=row["id"],
        workspace_id=row["workspace"],
        name=row["name"],
        slug=row["slug"],
        access=row["access"],
        runner=row["runner"],
        archived_at=row["archived_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def find_workflow(tx: Tx, workflow_id: str, *, share: bool = False) -> Row | None:
    """A workflow by id."""
    return _WORKFLOW.find(tx, workflow_id, share=share)


def list_workflows(tx: Tx, project_id: str, limit: int, after: Position) -> tuple[list[Workflow], Position]:
    """Workflows of a project, newest first."""
    rows, following = page(tx, WORKFLOWS, select(WORKFLOWS).where(WORKFLOWS.c.project == project_id), limit, after)
    return [workflow_of(row) for row in rows], following


def workflow_of(row: Row) -> Workflow:
    """The value of a workflows row."""
    return Workflow(
        id=row["id"],
        project_id=row["project"],
        name=row["name"],
        archived_at=row["archived_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


# ----------------------------------------------------------------------------------------------- events


def newest_events(tx: Tx, conditions: Sequence[ColumnElement[bool]], limit: int, before: str | None) -> list[Event]:
    """Events in falling id order, which is time order (the id's time is `at`), so that the index serves it."""
    statement = select(EVENTS).where(*conditions)
    if before is not None:
        statement = statement.where(EVENTS.c.id < before)
    return [event_of(row) for row in tx.rows(statement.order_by(EVENTS.c.id.desc()).limit(limit))]


def oldest_events(tx: Tx, conditions: Sequence[ColumnElement[bool]], limit: int) -> list[Event]:
    """Events in rising id order."""
    return [event_of(row) for row in tx.rows(select(EVENTS).where(*conditions).order_by(EVENTS.c.id).limit(limit))]


def event_of(row: Row) -> Event:
    """The value of an events row."""
    return Event(
        id=row["id"],
        workspace_id=row["workspace"],
        kind=row["kind"],
        object_kind=row["object_kind"],
        object_id=row["object_id"],
        project_id=row["project"],
        owner_user_id=row["owner_user"],
        reply_grant_id=row["reply_grant"],
        actor_id=row["actor"],
        code=row["code"],
        data=row["data"],
        at=row["at"],
    )
