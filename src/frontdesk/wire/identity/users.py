"""Accounts, for platform administrators."""

from __future__ import annotations

from pydantic import Field, StrictBool

from frontdesk.wire.identity.shapes import Changes, Email, Locale, Password, Username, absent
from frontdesk.wire.model import Instant, Name, Page, PageQuery, Request, Response
from frontdesk.wire.registry import Operation


class UserCreate(Request):
    """An account to make; without a password nobody can log in to it yet."""

    username: Username
    display_name: Name
    email: Email | None = None
    locale: Locale | None = None
    password: Password | None = Field(default=None, repr=False)
    is_platform_admin: StrictBool = False


class UserUpdate(Changes):
    """What to change of an account."""

    display_name: Name = Field(default_factory=absent)
    email: Email | None = None
    locale: Locale | None = None
    password: Password = Field(default_factory=absent, repr=False)
    is_platform_admin: StrictBool = Field(default_factory=absent)
    disabled: StrictBool = Field(default_factory=absent)


class UserRead(Response):
    """An account."""

    id: str
    subject: str
    username: str | None
    email: str
    display_name: str
    locale: Locale | None
    is_platform_admin: bool
    disabled: bool
    created_at: Instant
    updated_at: Instant


_RIGHT = "platform administrator"

OPERATIONS = (
    Operation(
        "identity.users.list",
        "GET",
        "/users",
        "List all accounts",
        _RIGHT,
        query=PageQuery,
        response=Page[UserRead],
        errors=("platform_admin_required",),
    ),
    Operation(
        "identity.users.create",
        "POST",
        "/users",
        "Make a local account",
        _RIGHT,
        request=UserCreate,
        response=UserRead,
        status=201,
        errors=("platform_admin_required", "username_taken"),
    ),
    Operation(
        "identity.users.update",
        "PATCH",
        "/users/{user_id}",
        "Change or disable an account",
        _RIGHT,
        request=UserUpdate,
        response=UserRead,
        errors=("platform_admin_required", "user_not_found"),
    ),
)
