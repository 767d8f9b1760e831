"""Who belongs to a workspace, and that an admin stays.

Every change locks the workspace's row first, so that two demotions at once see each other: the second counts the admins
that the first left. SQLite's writers are serial anyway.
"""

from __future__ import annotations

from frontdesk.identity import store
from frontdesk.identity.events import Datum, record_event
from frontdesk.identity.model import Actor, Member, Right, normal_email
from frontdesk.identity.rights import membership, passes_gate, require
from frontdesk.identity.tables import MEMBERS
from frontdesk.kernel.errors import Defect, Problem
from frontdesk.storage.tx import Tx


def list_members(
    tx: Tx, actor: Actor, workspace_id: str, *, limit: int, after: tuple[int, str] | None = None
) -> tuple[list[Member], tuple[int, str] | None]:
    """The workspace's members, newest first; needs READ."""
    require(tx, actor, workspace_id, Right.READ)
    return store.list_members(tx, workspace_id, limit, after)


def add_member(
    tx: Tx, actor: Actor, workspace_id: str, *, role: str, user_id: str | None = None, email: str | None = None
) -> Member:
    """Give a user, named by id or by an address that exactly one account has, a place.

    Needs `members.manage` or a platform administrator, for the role admin `admins.manage`. Raises
    `membership_required`, `permission_required`, `user_not_found`, `already_member`. An address proves nothing about
    who made the account.
    """
    _lock_and_authorise(tx, actor, workspace_id, admin=role == "admin")
    found = _user(tx, user_id, email)
    member_id = store.insert_row(tx, MEMBERS, "mbr", {"workspace": workspace_id, "user": found, "role": role})
    if member_id is None:
        if store.find_role(tx, found, workspace_id, share=False) is None:
            raise Defect("a member row was refused by something else than its user")
        raise Problem("already_member")
    member = _get(tx, workspace_id, member_id)
    _record(tx, actor, member, "member.added", {"role": role})
    return member


def update_member(tx: Tx, actor: Actor, workspace_id: str, member_id: str, *, role: str) -> Member:
    """Change a role; to or from admin it needs `admins.manage`.

    Raises `membership_required`, `permission_required`, `member_not_found`, `last_admin`.
    """
    _lock_and_authorise(tx, actor, workspace_id, admin=role == "admin")
    member = _get(tx, workspace_id, member_id)
    if member.role == role:
        return member
    _leave_an_admin(tx, actor, member)
    store.update_row(tx, MEMBERS, member_id, {"role": role})
    _record(tx, actor, member, "member.changed", {"role": role, "role_before": member.role})
    return _get(tx, workspace_id, member_id)


def remove_member(tx: Tx, actor: Actor, workspace_id: str, member_id: str) -> None:
    """Take a place away, effective on the member's next request; an admin's needs `admins.manage`.

    Raises `membership_required`, `permission_required`, `member_not_found`, `last_admin`. What the person owns stays.
    """
    _lock_and_authorise(tx, actor, workspace_id, admin=False)
    member = _get(tx, workspace_id, member_id)
    _leave_an_admin(tx, actor, member)
    store.delete_member(tx, member_id)
    _record(tx, actor, member, "member.removed", {"role_before": member.role})


def _lock_and_authorise(tx: Tx, actor: Actor, workspace_id: str, *, admin: bool) -> None:
    """The lock first, then rights as they are under it: an admin demoted a moment ago no longer is one."""
    row = store.find_workspace(tx, workspace_id, lock=True)
    if passes_gate(actor) and not admin:
        if row is None:
            raise Problem("workspace_not_found")
        return
    needed = (Right.MEMBERS_MANAGE, Right.ADMINS_MANAGE) if admin else (Right.MEMBERS_MANAGE,)
    require(tx, actor, workspace_id, *needed)


def _leave_an_admin(tx: Tx, actor: Actor, member: Member) -> None:
    """Before an admin is demoted or removed. Only admins whose account is enabled count as left."""
    if member.role != "admin":
        return
    if Right.ADMINS_MANAGE not in membership(tx, actor, member.workspace_id).rights:
        raise Problem("permission_required")
    if store.count_other_admins(tx, member.workspace_id, member.id) == 0:
        raise Problem("last_admin")


def _user(tx: Tx, user_id: str | None, email: str | None) -> str:
    if user_id is not None:
        row = store.find_user(tx, user_id)
        if row is None:
            raise Problem("user_not_found")
        return user_id
    address = normal_email(email or "")
    rows = store.users_of_email(tx, address) if address else []
    if len(rows) != 1:
        raise Problem("user_not_found")
    found: str = rows[0]["id"]
    return found


def _get(tx: Tx, workspace_id: str, member_id: str) -> Member:
    member = store.find_member(tx, workspace_id, member_id)
    if member is None:
        raise Problem("member_not_found")
    return member


def _record(tx: Tx, actor: Actor, member: Member, kind: str, data: dict[str, Datum]) -> None:
    record_event(
        tx,
        workspace_id=member.workspace_id,
        kind=kind,
        object_kind="member",
        object_id=member.id,
        owner_user_id=member.user_id,
        actor_id=actor.user_id,
        data=data,
    )
