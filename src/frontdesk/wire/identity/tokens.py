"""The caller's own tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.limits import TOKEN_PROJECTS_MAX, TOKEN_TTL_US_MAX
from frontdesk.wire.identity.shapes import AuthMethod
from frontdesk.wire.model import Identifier, Instant, Name, Page, PageQuery, Request, Response
from frontdesk.wire.registry import Operation

RightName = Annotated[str, Field(max_length=32, pattern=r"^[a-z]+\.[a-z]+$")]


class TokenCreate(Request):
    """A token to make. `rights` and `project_ids` left out mean all of its owner's."""

    name: Name
    expires_in_seconds: StrictInt = Field(ge=1, le=TOKEN_TTL_US_MAX // SECOND)
    kind: Literal["access", "results"] = "access"
    workspace_id: Identifier | None = None
    rights: Annotated[list[RightName], Field(max_length=16)] | None = None
    project_ids: Annotated[list[Identifier], Field(max_length=TOKEN_PROJECTS_MAX)] | None = None
    platform_admin: StrictBool = False


class TokenRead(Response):
    """A token without its secret."""

    id: str
    kind: Literal["access", "host", "results"]
    name: str
    workspace_id: str | None
    rights: list[str] | None
    project_ids: list[str] | None
    source_application: str | None
    auth_method: AuthMethod
    platform_admin: bool
    expires_at: Instant | None
    last_used_at: Instant | None
    revoked_at: Instant | None
    created_at: Instant
    updated_at: Instant


class TokenCreated(TokenRead):
    """A new token with its secret, which is shown this once."""

    token: str = Field(repr=False)


OPERATIONS = (
    Operation(
        "identity.tokens.create",
        "POST",
        "/tokens",
        "Make a token of your own",
        "own",
        request=TokenCreate,
        response=TokenCreated,
        status=201,
        errors=("platform_admin_required", "project_not_found"),
    ),
    Operation(
        "identity.tokens.list",
        "GET",
        "/tokens",
        "List your own tokens",
        "own",
        query=PageQuery,
        response=Page[TokenRead],
    ),
    Operation(
        "identity.tokens.revoke",
        "DELETE",
        "/tokens/{token_id}",
        "Revoke a token of your own",
        "own",
        status=204,
        errors=("token_not_found",),
    ),
)
