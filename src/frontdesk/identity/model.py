"""Who is asking and what they may do: frozen values, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ROLES: Final = ("admin", "maintainer", "operator", "viewer")
LOCALES: Final = ("zh", "en")
AUTH_METHODS: Final = ("local", "bootstrap", "oidc")
TOKEN_KINDS: Final = ("access", "host", "results")
ACCESS_VALUES: Final = ("members", "administrators")


class Right(StrEnum):
    """Every permission of desk.md 2.2."""

    READ = "workspace.read"
    INBOX_WORK = "inbox.work"
    AGENTS_RUN = "agents.run"
    ACTIONS_APPROVE = "actions.approve"
    EXPORT = "artifacts.export"
    CONFIGURE = "configuration.manage"
    MEMBERS_MANAGE = "members.manage"
    AGENTS_MANAGE = "agents.manage"
    ADMINS_MANAGE = "admins.manage"


_WORK: Final = {Right.READ, Right.INBOX_WORK, Right.AGENTS_RUN, Right.ACTIONS_APPROVE, Right.EXPORT}
_MANAGE: Final = _WORK | {Right.CONFIGURE, Right.MEMBERS_MANAGE, Right.AGENTS_MANAGE}

ROLE_RIGHTS: Final[dict[str, frozenset[Right]]] = {
    "admin": frozenset(_MANAGE | {Right.ADMINS_MANAGE}),
    "maintainer": frozenset(_MANAGE),
    "operator": frozenset(_WORK),
    "viewer": frozenset({Right.READ}),
}


@dataclass(frozen=True, slots=True)
class TokenScope:
    """What the presented token narrows: kind, rights and projects (None = all of its owner's)."""

    token_id: str
    kind: str
    workspace_id: str | None
    rights: frozenset[str] | None
    project_ids: frozenset[str] | None
    platform_admin: bool


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks, fixed for one request. `is_platform_admin` is already what the login and token allow."""

    user_id: str
    subject: str
    display_name: str
    email: str
    auth_method: str  # local | bootstrap | oidc | connector
    is_platform_admin: bool
    token: TokenScope | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class Membership:
    """A member's standing in one workspace, read for this request alone."""

    workspace_id: str
    user_id: str
    role: str
    rights: frozenset[Right]
