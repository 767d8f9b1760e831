"""The caller's own account."""

from __future__ import annotations

from pydantic import Field

from frontdesk.wire.identity.shapes import AuthMethod, Changes, Locale, Role, absent
from frontdesk.wire.identity.users import UserRead
from frontdesk.wire.model import Name, Response
from frontdesk.wire.registry import Operation


class MeUpdate(Changes):
    """Your own name and language."""

    display_name: Name = Field(default_factory=absent)
    locale: Locale | None = None


class OwnMembershipRead(Response):
    """A workspace you belong to."""

    workspace_id: str
    name: str
    role: Role


class MeRead(Response):
    """Who you are here, and how you came in."""

    user: UserRead
    auth_method: AuthMethod
    is_platform_admin: bool
    memberships: list[OwnMembershipRead]


OPERATIONS = (
    Operation("identity.me.get", "GET", "/me", "Read your own account and memberships", "any", response=MeRead),
    Operation(
        "identity.me.update",
        "PATCH",
        "/me",
        "Change your own display name or language",
        "any",
        request=MeUpdate,
        response=MeRead,
    ),
)
