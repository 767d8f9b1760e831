"""Logging in and out."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool

from frontdesk.kernel.limits import PASSWORD_CHARS_MAX
from frontdesk.wire.model import Clean, Instant, Name, Request, Response
from frontdesk.wire.registry import Operation


class SessionCreate(Request):
    """A user name and a password; with `cookie` the session goes into a browser's cookie instead of the answer."""

    username: Name
    password: Annotated[str, Clean] = Field(min_length=1, max_length=PASSWORD_CHARS_MAX, repr=False)
    cookie: StrictBool = Field(
        default=False, description="For a browser: set a session cookie; needs this host's own Origin"
    )


class SessionCreated(Response):
    """A session's bearer; it is shown this once."""

    token: str = Field(repr=False)
    expires_at: Instant


class CookieSessionCreated(Response):
    """A session in the cookie of this answer, and the token that writes by that cookie carry as `X-CSRF-Token`."""

    csrf_token: str = Field(repr=False)
    expires_at: Instant


OPERATIONS = (
    Operation(
        "identity.session.create",
        "POST",
        "/session",
        "Log in with a user name and a password",
        "none",
        request=SessionCreate,
        response=SessionCreated | CookieSessionCreated,
        status=201,
        errors=("login_failed", "origin_not_allowed"),
        authenticated=False,
    ),
    Operation("identity.session.end", "DELETE", "/session", "Log out: end this session", "session", status=204),
)
