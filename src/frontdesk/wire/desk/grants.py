"""Reply grants on the wire (desk.md 4.4)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictInt

from frontdesk.kernel import limits
from frontdesk.wire.model import Identifier, Instant, Page, PageQuery, Request, RequestId, Response
from frontdesk.wire.registry import G, Operation, P


class ReplyGrantCreate(Request):
    """What a person authorises: replies from this bound chat continue this conversation."""

    request_id: RequestId
    installation_id: Identifier
    binding_id: Identifier
    conversation_id: Identifier
    expires_in_seconds: Annotated[
        StrictInt,
        Field(ge=limits.REPLY_GRANT_TTL_SECONDS_MIN, le=limits.REPLY_GRANT_TTL_SECONDS_MAX),
    ] = limits.REPLY_GRANT_TTL_SECONDS_DEFAULT


class ReplyGrantRead(Response):
    """A reply grant as its owner sees it; never chat, sender or hashes."""

    id: str
    installation_id: str
    binding_id: str
    workspace_id: str
    project_id: str
    workflow_id: str | None
    run_id: str | None
    conversation_id: str
    status: str
    version: int
    expires_at: Instant
    revoked_at: Instant | None
    activation_status: str | None
    usable: bool
    unusable_reason: str | None
    created_at: Instant
    updated_at: Instant


class ReplyGrantCreated(ReplyGrantRead):
    """A create's answer; `created` is false for a replay of the same request."""

    created: bool


class ReplyGrantQuery(PageQuery):
    """Own grants of one conversation."""

    conversation_id: Identifier


class ProjectAccess(Request):
    """A project's access, and what becomes of its active grants when it turns to administrators."""

    access: Literal["members", "administrators"]
    active_reply_grants: Literal["keep", "revoke"] | None = None


class ProjectAccessRead(Response):
    """A project after its access was set (ProjectRead)."""

    id: str
    workspace_id: str
    name: str
    slug: str
    access: str
    runner: str | None
    archived_at: Instant | None
    created_at: Instant
    updated_at: Instant


class TimelineEvent(Response):
    """One content-free event of a grant's life."""

    id: str
    kind: str
    object_kind: str
    object_id: str
    code: str | None
    reason: str | None
    actor_id: str | None
    data: dict[str, str | int | bool | None]
    at: Instant


_CREATE_ERRORS = (
    "project_not_found",
    "installation_not_found",
    "binding_not_found",
    "conversation_not_found",
    "installation_not_active",
    "installation_revoked",
    "binding_not_active",
    "conversation_closed",
    "project_context_required",
    "conversation_context_mismatch",
    "idempotency_key_reused",
    "active_reply_grant_exists",
    "reply_grant_conflict",
    "credential_unavailable",
    "reply_execution_not_ready",
)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        id="desk.grants.create",
        method="POST",
        path=P + "/reply-grants",
        summary="Authorise replies from a bound chat to continue a conversation",
        right="READ+EXPORT",
        request=ReplyGrantCreate,
        response=ReplyGrantCreated,
        status=201,
        errors=_CREATE_ERRORS,
        gate=True,
    ),
    Operation(
        id="desk.grants.list",
        method="GET",
        path=P + "/reply-grants",
        summary="List own reply grants of a conversation",
        right="READ, own",
        query=ReplyGrantQuery,
        response=Page[ReplyGrantRead],
        errors=("project_not_found", "conversation_not_found"),
        gate=True,
    ),
    Operation(
        id="desk.grants.get",
        method="GET",
        path=G,
        summary="Read one own reply grant",
        right="READ, own",
        response=ReplyGrantRead,
        errors=("reply_grant_not_found",),
        gate=True,
    ),
    Operation(
        id="desk.grants.revoke",
        method="DELETE",
        path=G,
        summary="Revoke an own reply grant; idempotent",
        right="READ, own",
        response=ReplyGrantRead,
        errors=("reply_grant_not_found",),
        gate=True,
    ),
    Operation(
        id="desk.grants.set_project_access",
        method="PUT",
        path=P + "/access",
        summary="Set who may work in a project, and what becomes of its active reply grants",
        right="configuration.manage",
        request=ProjectAccess,
        response=ProjectAccessRead,
        errors=("project_not_found", "active_reply_grants_required"),
        gate=True,
    ),
    Operation(
        id="desk.grants.timeline",
        method="GET",
        path=G + "/timeline",
        summary="What happened to a reply grant, newest first",
        right="READ, own; or inbox.work",
        query=PageQuery,
        response=Page[TimelineEvent],
        errors=("reply_grant_not_found",),
        gate=True,
    ),
)
