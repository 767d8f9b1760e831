"""Logging in and out."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from frontdesk.kernel.limits import PASSWORD_CHARS_MAX
from frontdesk.wire.model import Clean, Instant, Name, Request, Response
from frontdesk.wire.registry import Operation


class SessionCreate(Request):
    """A user name and a password."""

    username: Name
    password: Annotated[str, Clean] = Field(min_length=1, max_length=PASSWORD_CHARS_MAX, repr=False)


class SessionCreated(Response):
    """A session's bearer; it is shown this once."""

    token: str = Field(repr=False)
    expires_at: Instant


OPERATIONS = (
    Operation(
        "identity.session.create",
        "POST",
        "/session",
        "Log in with a user name and a password",
        "none",
        request=SessionCreate,
        response=SessionCreated,
        status=201,
        errors=("login_failed",),
        authenticated=False,
    ),
    Operation("identity.session.end", "DELETE", "/session", "Log out: end this session", "session", status=204),
)
