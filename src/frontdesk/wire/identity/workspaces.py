"""Workspaces."""

from __future__ import annotations

from pydantic import Field, StrictBool

from frontdesk.wire.identity.shapes import Changes, RunnerName, absent
from frontdesk.wire.model import Instant, Name, Page, PageQuery, Request, Response, Slug
from frontdesk.wire.registry import Operation, W


class WorkspaceCreate(Request):
    """A workspace to make."""

    name: Name
    slug: Slug


class WorkspaceUpdate(Changes):
    """What to change; `active` true is the way back for a switched-off workspace."""

    name: Name = Field(default_factory=absent)
    runner: RunnerName | None = None
    active: StrictBool = Field(default_factory=absent)


class WorkspaceRead(Response):
    """A workspace."""

    id: str
    name: str
    slug: str
    runner: str | None
    active: bool
    created_at: Instant
    updated_at: Instant


OPERATIONS = (
    Operation(
        "identity.workspaces.list",
        "GET",
        "/workspaces",
        "List the workspaces you belong to",
        "own",
        query=PageQuery,
        response=Page[WorkspaceRead],
    ),
    Operation(
        "identity.workspaces.create",
        "POST",
        "/workspaces",
        "Make a workspace and become its first admin",
        "platform administrator",
        request=WorkspaceCreate,
        response=WorkspaceRead,
        status=201,
        errors=("platform_admin_required", "slug_taken"),
    ),
    Operation(
        "identity.workspaces.update",
        "PATCH",
        W,
        "Change a workspace or switch it off",
        "members.manage",
        request=WorkspaceUpdate,
        response=WorkspaceRead,
    ),
)
