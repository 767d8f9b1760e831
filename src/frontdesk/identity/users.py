"""People's accounts: what they change of themselves, and what platform administrators do with accounts."""

from __future__ import annotations

from typing import Any

from frontdesk.identity import store
from frontdesk.identity.model import (
    BOOTSTRAP,
    Actor,
    OwnMembership,
    ProfileChanges,
    User,
    UserChanges,
    normal_email,
    normal_username,
)
from frontdesk.identity.rights import require_platform_admin
from frontdesk.identity.tables import USERS
from frontdesk.kernel.errors import Defect, Problem, invalid
from frontdesk.kernel.limits import EMAIL_CHARS_MAX, MEMBERSHIPS_SHOWN_MAX, NAME_CHARS_MAX
from frontdesk.storage.tx import Tx


def get_me(tx: Tx, actor: Actor) -> tuple[User, list[OwnMembership]]:
    """The actor's own account and memberships in active workspaces (within the token's reach, 200 at most)."""
    only = None if actor.token is None else actor.token.workspace_id
    return _get(tx, actor.user_id), store.memberships_of(tx, actor.user_id, only, MEMBERSHIPS_SHOWN_MAX)


def update_me(tx: Tx, actor: Actor, changes: ProfileChanges) -> None:
    """Change one's own display name or language. A host or results token may not (`permission_required`)."""
    if actor.token is not None and actor.token.kind != "access":
        raise Problem("permission_required")
    if changes:
        store.update_row(tx, USERS, actor.user_id, dict(changes))


def list_users(
    tx: Tx, actor: Actor, *, limit: int, after: tuple[int, str] | None = None
) -> tuple[list[User], tuple[int, str] | None]:
    """Every account, newest first. Raises `platform_admin_required`."""
    require_platform_admin(actor)
    return store.list_users(tx, limit, after)


def create_user(
    tx: Tx,
    actor: Actor,
    *,
    username: str,
    display_name: str,
    email: str | None = None,
    locale: str | None = None,
    password_hash: str | None = None,
    is_platform_admin: bool = False,
) -> User:
    """Make a local account; without a password nobody can log in to it yet. It is a member of nothing.

    Raises `platform_admin_required`, `username_taken`, `request_invalid`. Two addresses may be equal: an e-mail proves
    nobody's identity here.
    """
    require_platform_admin(actor)
    return insert_local_user(
        tx,
        username=username,
        display_name=display_name,
        email=email,
        locale=locale,
        password_hash=password_hash,
        is_platform_admin=is_platform_admin,
    )


def insert_local_user(
    tx: Tx,
    *,
    username: str,
    display_name: str,
    email: str | None = None,
    locale: str | None = None,
    password_hash: str | None = None,
    is_platform_admin: bool = False,
) -> User:
    """As `create_user` without asking who wants it: for the first start and administration on the machine itself."""
    name = normal_username(username)
    if not name or len(name) > NAME_CHARS_MAX:
        raise invalid("username", "out of bounds")
    if name == BOOTSTRAP:  # its user may not exist yet, and nobody else may become it
        raise Problem("username_taken")
    values: dict[str, Any] = {
        "subject": f"local:{name}",
        "username": name,
        "email": _email(email),
        "display_name": display_name,
        "locale": locale,
        "password_hash": password_hash,
        "is_platform_admin": is_platform_admin,
    }
    user_id = store.insert_row(tx, USERS, "usr", values)
    if user_id is not None:
        return _get(tx, user_id)
    if store.find_user_by_username(tx, name) is None and store.find_user_by_subject(tx, values["subject"]) is None:
        raise Defect("a user row was refused by something else than its name")
    raise Problem("username_taken")


def update_user(tx: Tx, actor: Actor, user_id: str, changes: UserChanges) -> User:
    """Change an account; absent keys stay. A new password ends the user's sessions, but not the one that set it.

    Raises `platform_admin_required`, `user_not_found`. Disabling takes effect on the next request of any session or
    token; it removes no membership and may be undone. Nothing here keeps the last platform administrator.
    """
    require_platform_admin(actor)
    found = _get(tx, user_id)
    values: dict[str, Any] = {key: value for key, value in changes.items() if key != "disabled"}
    if "email" in changes:
        values["email"] = _email(changes["email"])
    if "disabled" in changes and changes["disabled"] != found.disabled:
        values["disabled_at"] = tx.now if changes["disabled"] else None
    if values:
        store.update_row(tx, USERS, user_id, values)
    if "password_hash" in changes:
        store.revoke_sessions_of(tx, user_id, but=actor.session_id)
    return _get(tx, user_id)


def set_password(tx: Tx, username: str, password_hash: str) -> None:
    """Give a user a new password and end their sessions: for administration on the machine. Raises `user_not_found`."""
    row = store.find_user_by_username(tx, normal_username(username))
    if row is None:
        raise Problem("user_not_found")
    store.update_row(tx, USERS, row["id"], {"password_hash": password_hash})
    store.revoke_sessions_of(tx, row["id"], but=None)


def local_actor(tx: Tx, username: str) -> Actor:
    """A user as administration on the machine acts for them, with the power of a local login. Raises `user_not_found`.

    Who can call this can read the database anyway; no surface does.
    """
    row = store.find_user_by_username(tx, normal_username(username))
    if row is None or row["disabled_at"] is not None:
        raise Problem("user_not_found")
    return Actor(
        user_id=row["id"],
        subject=row["subject"],
        display_name=row["display_name"],
        email=row["email"],
        auth_method="local",
        is_platform_admin=bool(row["is_platform_admin"]),
    )


def _email(text: str | None) -> str:
    """The spelling to keep. Raises `request_invalid`: lower case can be longer than what was typed (`İ`)."""
    address = normal_email(text or "")
    if len(address) > EMAIL_CHARS_MAX:
        raise invalid("email", "out of bounds")
    return address


def _get(tx: Tx, user_id: str) -> User:
    row = store.find_user(tx, user_id)
    if row is None:
        raise Problem("user_not_found")
    return store.user_of(row)
