"""Access, host and results tokens: made in a session, shown once, kept as digests, narrower than their owner.

What a token may do is decided anew at each use (`authentication`, `rights`); the rows here only narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from frontdesk.identity import store
from frontdesk.identity.model import RESULTS_RIGHTS, TOKEN_PREFIXES, Actor, NewToken, Right, Token
from frontdesk.identity.rights import membership, passes_gate
from frontdesk.identity.tables import TOKENS
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.errors import Defect, Problem, invalid
from frontdesk.kernel.limits import TOKEN_TTL_US_MAX
from frontdesk.kernel.oncesecret import new_token, token_digest
from frontdesk.storage.tx import Tx

_RIGHTS: Final = frozenset(right.value for right in Right)


def create_token(
    tx: Tx,
    actor: Actor,
    *,
    name: str,
    expires_in_seconds: int | None,
    kind: str = "access",
    workspace_id: str | None = None,
    rights: Sequence[str] | None = None,
    project_ids: Sequence[str] | None = None,
    platform_admin: bool = False,
    source_application: str | None = None,
) -> NewToken:
    """Make a token of the actor's own; its secret is in this value alone.

    Raises `permission_required` for an actor who came with a token (a token makes no tokens, or revoking it would not
    end what it made) and for rights beyond the actor's own in the named workspace; `membership_required`;
    `project_not_found`; `platform_admin_required` where that power is asked for without having it in this session;
    `request_invalid` for rights that the kind does not know, a results or host token without a workspace, and an expiry
    out of bounds. Rights that the owner loses later are lost to the token too, without a change here.
    """
    if actor.token is not None:
        raise Problem("permission_required")
    if platform_admin and (kind != "access" or not passes_gate(actor)):
        raise Problem("platform_admin_required")
    expires_at = _expiry(tx, kind, expires_in_seconds)
    _check_rights(tx, actor, kind, workspace_id, rights)
    for project_id in project_ids or ():
        _check_project(tx, actor, workspace_id, project_id)
    secret = new_token(TOKEN_PREFIXES[kind], tx.entropy)
    token_id = store.insert_row(
        tx,
        TOKENS,
        "tok",
        {
            "kind": kind,
            "digest": token_digest(secret),
            "user": actor.user_id,
            "workspace": workspace_id,
            "name": name,
            "rights": None if rights is None else sorted(set(rights)),
            "project_ids": None if project_ids is None else sorted(set(project_ids)),
            "source_application": source_application,
            "auth_method": actor.auth_method,
            "platform_admin": platform_admin,
            "expires_at": expires_at,
        },
    )
    if token_id is None:
        raise Defect("a random token was taken")
    return NewToken(_own(tx, actor, token_id), secret)


def list_tokens(
    tx: Tx, actor: Actor, *, limit: int, after: tuple[int, str] | None = None
) -> tuple[list[Token], tuple[int, str] | None]:
    """The actor's own tokens of every kind, newest first, revoked ones included."""
    return store.list_tokens(tx, actor.user_id, limit, after)


def revoke_token(tx: Tx, actor: Actor, token_id: str) -> None:
    """End a token of the actor's own from the next call on; a repeated call changes nothing. Raises `token_not_found`.

    A token may end itself and no other one.
    """
    _own(tx, actor, token_id)
    if actor.token is not None and actor.token.token_id != token_id:
        raise Problem("permission_required")
    store.revoke_token(tx, token_id)


def _own(tx: Tx, actor: Actor, token_id: str) -> Token:
    row = store.find_own_token(tx, actor.user_id, token_id)
    if row is None:
        raise Problem("token_not_found")
    return store.token_of(row)


def _expiry(tx: Tx, kind: str, seconds: int | None) -> int | None:
    if seconds is None:
        if kind == "access":
            raise invalid("expires_in_seconds", "required")
        return None
    if seconds < 1 or seconds * SECOND > TOKEN_TTL_US_MAX:
        raise invalid("expires_in_seconds", "out of bounds")
    return tx.now + seconds * SECOND


def _check_rights(tx: Tx, actor: Actor, kind: str, workspace_id: str | None, rights: Sequence[str] | None) -> None:
    known = RESULTS_RIGHTS if kind == "results" else _RIGHTS
    if rights is not None and not known.issuperset(rights):
        raise invalid("rights", "unknown right")
    if workspace_id is None:
        if kind != "access":
            raise invalid("workspace_id", "required")
        return
    own = {right.value for right in membership(tx, actor, workspace_id).rights}
    if kind != "results" and rights is not None and not own.issuperset(rights):
        raise Problem("permission_required")


def _check_project(tx: Tx, actor: Actor, workspace_id: str | None, project_id: str) -> None:
    row = store.find_project(tx, project_id)
    if row is None or workspace_id not in (None, row["workspace"]):
        raise Problem("project_not_found")
    try:
        membership(tx, actor, row["workspace"])
    except Problem:
        raise Problem("project_not_found") from None
