"""Logins as rows: made once the password is proven, idle for 12 hours at most, 7 days old at most, ended at once."""

from __future__ import annotations

from frontdesk.identity import store
from frontdesk.identity.model import SESSION_PREFIX, Actor, Login, NewSession, normal_username
from frontdesk.identity.tables import SESSIONS
from frontdesk.kernel.errors import Defect, Problem
from frontdesk.kernel.limits import SESSION_ABSOLUTE_US
from frontdesk.kernel.oncesecret import derived_token, new_token, same_secret, token_digest
from frontdesk.storage.tx import Tx


def find_login(tx: Tx, username: str) -> Login | None:
    """What to compare a password with, or None for an unknown name.

    The caller verifies in either case (`passwords.verify_password` takes None), so that both take as long.
    """
    row = store.find_user_by_username(tx, normal_username(username))
    if row is None:
        return None
    return Login(user_id=row["id"], password_hash=row["password_hash"], enabled=row["disabled_at"] is None)


def create_session(tx: Tx, login: Login, *, auth_method: str = "local") -> NewSession:
    """A session for a proven login; token and CSRF token are in this value alone, their digests in the row.

    Raises `login_failed` where the user was disabled or got another password since `find_login`: the row is read FOR
    SHARE, so a password change either is seen here or ends this session when it commits.
    """
    row = store.find_user(tx, login.user_id, share=True)
    if row is None or row["disabled_at"] is not None or row["password_hash"] != login.password_hash:
        raise Problem("login_failed")
    token = new_token(SESSION_PREFIX, tx.entropy)
    csrf_token = csrf_token_of(token)
    expires_at = tx.now + SESSION_ABSOLUTE_US
    session_id = store.insert_row(
        tx,
        SESSIONS,
        "ses",
        {
            "digest": token_digest(token),
            "user": login.user_id,
            "auth_method": auth_method,
            "csrf_digest": token_digest(csrf_token),
            "last_seen_at": tx.now,
            "expires_at": expires_at,
        },
    )
    if session_id is None:
        raise Defect("a random token was taken")
    return NewSession(session_id, login.user_id, token, csrf_token, expires_at)


def end_session(tx: Tx, actor: Actor) -> None:
    """End the session the actor came with. Raises `permission_required` for one who came with a token."""
    if actor.session_id is None:
        raise Problem("permission_required")
    store.revoke_session(tx, actor.session_id)


def csrf_token_of(session_token: str) -> str:
    """The form token of a session, made from its bearer: a page can show it again, another site cannot know it."""
    return derived_token(session_token, "csrf-v1")


def csrf_matches(actor: Actor, csrf_token: str) -> bool:
    """True where a form's or a header's token is that of the actor's session; compared in constant time."""
    return same_secret(token_digest(csrf_token), actor.csrf_digest or "")
