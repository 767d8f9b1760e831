"""From a bearer to an actor: sessions, tokens and the bootstrap token. Read anew on every request.

OIDC bearers are not decided here but in `oidc`. A surface calls `authenticate` in a read, and where it raises
`BootstrapUserAbsent` writes `ensure_bootstrap_user` and asks again; where the actor says `touch_due`, it writes that.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import RowMapping

from frontdesk.identity import store
from frontdesk.identity.model import BOOTSTRAP, SESSION_PREFIX, TOKEN_PREFIXES, Actor, TokenScope
from frontdesk.identity.tables import USERS
from frontdesk.kernel.errors import Defect, Problem
from frontdesk.kernel.limits import BOOTSTRAP_TOKEN_CHARS_MIN, SESSION_IDLE_US, USE_NOTED_EVERY_US
from frontdesk.kernel.oncesecret import same_secret, token_digest
from frontdesk.storage.tx import Tx

SECRET_CHARS: Final = 43
_KINDS: Final = {prefix: kind for kind, prefix in TOKEN_PREFIXES.items()}


class BootstrapUserAbsent(Exception):
    """The bootstrap token is right and its user does not exist yet: call `ensure_bootstrap_user` in a write."""


def authenticate(tx: Tx, bearer: str, bootstrap_token: str = "") -> Actor:
    """Who comes with this bearer.

    Raises `unauthenticated` for anything unknown, expired, idle, ended or revoked, all alike; `membership_required`
    where the credential is good and its user is disabled (DESK-259); `BootstrapUserAbsent` at the bootstrap token's
    first use. A `bootstrap_token` below 32 characters never matches. Does not look at workspaces.
    """
    if same_secret(bearer, bootstrap_token if len(bootstrap_token) >= BOOTSTRAP_TOKEN_CHARS_MIN else ""):
        return _bootstrap_actor(tx)
    prefix, secret = bearer[:4], bearer[4:]
    if len(secret) == SECRET_CHARS:
        if prefix == SESSION_PREFIX:
            return _session_actor(tx, token_digest(bearer))
        if prefix in _KINDS:
            return _token_actor(tx, token_digest(bearer), _KINDS[prefix])
    raise Problem("unauthenticated")


def _bootstrap_actor(tx: Tx) -> Actor:
    row = store.find_user_by_subject(tx, BOOTSTRAP)
    if row is None:
        raise BootstrapUserAbsent
    _require_enabled(row)
    return Actor(row["id"], row["subject"], row["display_name"], row["email"], BOOTSTRAP, is_platform_admin=True)


def _session_actor(tx: Tx, digest: str) -> Actor:
    row = store.find_session(tx, digest)
    if (
        row is None
        or row["revoked_at"] is not None
        or row["expires_at"] <= tx.now
        or row["last_seen_at"] + SESSION_IDLE_US <= tx.now
    ):
        raise Problem("unauthenticated")
    _require_enabled(row)
    return Actor(
        row["user"],
        row["subject"],
        row["display_name"],
        row["email"],
        row["auth_method"],
        # An OIDC login never has that power, whatever the row of its user says.
        is_platform_admin=bool(row["is_platform_admin"]) and row["auth_method"] in ("local", BOOTSTRAP),
        session_id=row["id"],
        csrf_digest=row["csrf_digest"],
        touch_due=row["last_seen_at"] + USE_NOTED_EVERY_US <= tx.now,
    )


def _token_actor(tx: Tx, digest: str, kind: str) -> Actor:
    row = store.find_token(tx, digest)
    if (
        row is None
        or row["kind"] != kind
        or row["revoked_at"] is not None
        or (row["expires_at"] is not None and row["expires_at"] <= tx.now)
    ):
        raise Problem("unauthenticated")
    _require_enabled(row)
    platform_admin = kind == "access" and bool(row["platform_admin"]) and row["auth_method"] in ("local", BOOTSTRAP)
    return Actor(
        row["user"],
        row["subject"],
        row["display_name"],
        row["email"],
        row["auth_method"],
        is_platform_admin=platform_admin and bool(row["person_is_platform_admin"]),
        token=TokenScope(
            token_id=row["id"],
            kind=kind,
            workspace_id=row["workspace"],
            rights=None if row["rights"] is None else frozenset(row["rights"]),
            project_ids=None if row["project_ids"] is None else frozenset(row["project_ids"]),
            platform_admin=platform_admin,
        ),
        touch_due=row["last_used_at"] is None or row["last_used_at"] + USE_NOTED_EVERY_US <= tx.now,
    )


def _require_enabled(row: RowMapping) -> None:
    if row["disabled_at"] is not None:
        raise Problem("membership_required")


def ensure_bootstrap_user(tx: Tx) -> None:
    """Make the persisted user `bootstrap` where it is missing. Idempotent, also between processes.

    It has no password, so nobody logs in by its name.
    """
    if store.find_user_by_subject(tx, BOOTSTRAP) is not None:
        return
    values = {"subject": BOOTSTRAP, "username": BOOTSTRAP, "email": "", "display_name": "Bootstrap"}
    made = store.insert_row(tx, USERS, "usr", {**values, "is_platform_admin": True})
    if made is None and store.find_user_by_subject(tx, BOOTSTRAP) is None:
        raise Defect("the name bootstrap belongs to another user")


def touch(tx: Tx, actor: Actor) -> None:
    """Note the use of the actor's session or token, at most once a minute; does nothing for an ended one."""
    before = tx.now - USE_NOTED_EVERY_US
    if actor.session_id is not None:
        store.touch_session(tx, actor.session_id, before)
    elif actor.token is not None:
        store.touch_token(tx, actor.token.token_id, before)
