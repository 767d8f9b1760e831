"""Who belongs to a workspace."""

from __future__ import annotations

from pydantic import model_validator

from frontdesk.wire.identity.shapes import Email, Role
from frontdesk.wire.model import Identifier, Instant, Page, PageQuery, Request, Response
from frontdesk.wire.registry import Operation, W


class MemberAdd(Request):
    """A user, by id or by an e-mail address that one account alone has, and the role to give."""

    user_id: Identifier | None = None
    email: Email | None = None
    role: Role

    @model_validator(mode="after")
    def _one_name(self) -> MemberAdd:
        if (self.user_id is None) == (self.email is None):
            raise ValueError("exactly one of user_id and email is needed")
        return self


class MemberUpdate(Request):
    """The role to give."""

    role: Role


class MemberRead(Response):
    """A member."""

    id: str
    user_id: str
    role: Role
    display_name: str
    email: str
    disabled: bool
    created_at: Instant
    updated_at: Instant


_LIST = W + "/members"
_ONE = _LIST + "/{member_id}"
_RIGHT = "members.manage or platform administrator (+admins.manage for admins)"

OPERATIONS = (
    Operation(
        "identity.members.list",
        "GET",
        _LIST,
        "List a workspace's members",
        "workspace.read",
        query=PageQuery,
        response=Page[MemberRead],
    ),
    Operation(
        "identity.members.add",
        "POST",
        _LIST,
        "Add a member (an admin needs admins.manage)",
        _RIGHT,
        request=MemberAdd,
        response=MemberRead,
        status=201,
        errors=("user_not_found", "workspace_not_found", "already_member"),
    ),
    Operation(
        "identity.members.update",
        "PATCH",
        _ONE,
        "Change a member's role (to or from admin needs admins.manage)",
        _RIGHT,
        request=MemberUpdate,
        response=MemberRead,
        errors=("member_not_found", "workspace_not_found", "last_admin"),
    ),
    Operation(
        "identity.members.remove",
        "DELETE",
        _ONE,
        "Remove a member (an admin needs admins.manage)",
        _RIGHT,
        status=204,
        errors=("member_not_found", "workspace_not_found", "last_admin"),
    ),
)
