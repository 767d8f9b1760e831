"""Who is asking and what they may do: frozen values, no I/O."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypedDict

ROLES: Final = ("admin", "maintainer", "operator", "viewer")
LOCALES: Final = ("zh", "en")
AUTH_METHODS: Final = ("local", "bootstrap", "oidc")
TOKEN_KINDS: Final = ("access", "host", "results")
ACCESS_VALUES: Final = ("members", "administrators")
TOKEN_PREFIXES: Final = {"access": "fdt_", "host": "fdh_", "results": "fdp_"}
SESSION_PREFIX: Final = "fdu_"
RESULTS_RIGHTS: Final = frozenset({"results.own", "results.produce", "results.runtime"})
BOOTSTRAP: Final = "bootstrap"
CONNECTOR: Final = "connector"


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
    csrf_digest: str | None = field(default=None, repr=False, compare=False)  # of the session's form token
    touch_due: bool = field(default=False, compare=False)  # `authentication.touch` has something to write


@dataclass(frozen=True, slots=True)
class Membership:
    """A member's standing in one workspace, read for this request alone."""

    workspace_id: str
    user_id: str
    role: str
    rights: frozenset[Right]


@dataclass(frozen=True, slots=True)
class Standing:
    """What a persisted user may do in a workspace right now. `rights` are empty unless everything else is in order."""

    user_id: str
    workspace_id: str
    subject: str
    display_name: str
    email: str
    locale: str | None
    user_enabled: bool
    workspace_active: bool
    role: str | None
    rights: frozenset[Right]

    @property
    def active(self) -> bool:
        """An enabled user, a member, an active workspace."""
        return self.user_enabled and self.workspace_active and self.role is not None


@dataclass(frozen=True, slots=True)
class Scope:
    """Whether a project and a workflow exist, belong together and are open. Without a workflow its part is in order."""

    workspace_id: str
    project_id: str
    workflow_id: str | None
    project_exists: bool
    access: str | None
    project_archived: bool
    workflow_exists: bool
    workflow_archived: bool

    @property
    def exists(self) -> bool:
        """Project and workflow exist and belong to the workspace and to each other."""
        return self.project_exists and self.workflow_exists

    @property
    def archived(self) -> bool:
        """Either of them is archived."""
        return self.project_archived or self.workflow_archived

    @property
    def usable(self) -> bool:
        """Both exist, belong together and are not archived."""
        return self.exists and not self.archived


@dataclass(frozen=True, slots=True)
class User:
    """A person's account. The password hash is not part of it."""

    id: str
    subject: str
    username: str | None
    email: str
    display_name: str
    locale: str | None
    is_platform_admin: bool
    disabled_at: int | None
    created_at: int
    updated_at: int

    @property
    def disabled(self) -> bool:
        """True after a platform administrator switched the account off."""
        return self.disabled_at is not None


@dataclass(frozen=True, slots=True)
class Login:
    """What a login compares: read before the slow hash, checked again when the session is made."""

    user_id: str
    password_hash: str | None = field(repr=False)
    enabled: bool


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session as its creating response shows it, once."""

    id: str
    user_id: str
    token: str = field(repr=False)
    csrf_token: str = field(repr=False)
    expires_at: int


@dataclass(frozen=True, slots=True)
class Token:
    """An access, host or results token without its secret."""

    id: str
    kind: str
    user_id: str
    workspace_id: str | None
    name: str
    rights: tuple[str, ...] | None
    project_ids: tuple[str, ...] | None
    source_application: str | None
    auth_method: str
    platform_admin: bool
    expires_at: int | None
    last_used_at: int | None
    revoked_at: int | None
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token with its secret, which is shown once."""

    record: Token
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Workspace:
    """The unit of belonging."""

    id: str
    name: str
    slug: str
    runner: str | None
    active: bool
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class Member:
    """One person's place in a workspace."""

    id: str
    workspace_id: str
    user_id: str
    role: str
    display_name: str
    email: str
    disabled: bool
    created_at: int
    updated_at: int


@dataclass(frozen=True, slots=True)
class OwnMembership:
    """One of a person's own memberships."""

    workspace_id: str
    name: str
    role: str


@dataclass(frozen=True, slots=True)
class Project:
    """Work inside a workspace."""

    id: str
    workspace_id: str
    name: str
    slug: str
    access: str
    runner: str | None
    archived_at: int | None
    created_at: int
    updated_at: int

    @property
    def archived(self) -> bool:
        """True while it takes no new work."""
        return self.archived_at is not None


@dataclass(frozen=True, slots=True)
class Workflow:
    """A way of working inside a project."""

    id: str
    project_id: str
    name: str
    archived_at: int | None
    created_at: int
    updated_at: int

    @property
    def archived(self) -> bool:
        """True while it takes no new work."""
        return self.archived_at is not None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, without content."""

    id: str
    workspace_id: str
    kind: str
    object_kind: str
    object_id: str
    project_id: str | None
    owner_user_id: str | None
    reply_grant_id: str | None
    actor_id: str | None
    code: str | None
    data: Mapping[str, Any]
    at: int


class ProfileChanges(TypedDict, total=False):
    """What a person changes of themselves; an absent key stays as it is."""

    display_name: str
    locale: str | None


class UserChanges(TypedDict, total=False):
    """What a platform administrator changes of a user."""

    display_name: str
    email: str
    locale: str | None
    password_hash: str
    is_platform_admin: bool
    disabled: bool


class WorkspaceChanges(TypedDict, total=False):
    """What a workspace's manager changes of it."""

    name: str
    runner: str | None
    active: bool


class ProjectChanges(TypedDict, total=False):
    """What a configuration manager changes of a project; its access is a verb of grants."""

    name: str
    runner: str | None
    archived: bool


class WorkflowChanges(TypedDict, total=False):
    """What a configuration manager changes of a workflow."""

    name: str
    archived: bool


def normal_username(text: str) -> str:
    """The one spelling under which a user name is kept and looked up: NFKC, trimmed, case folded."""
    return unicodedata.normalize("NFKC", text).strip().casefold()


def normal_email(text: str) -> str:
    """The spelling under which an e-mail address is kept and looked up: trimmed, lower case."""
    return text.strip().lower()
