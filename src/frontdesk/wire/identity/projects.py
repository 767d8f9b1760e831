"""Projects. Their `access` is set when they are made and changed by an operation of grants."""

from __future__ import annotations

from pydantic import Field, StrictBool

from frontdesk.wire.identity.shapes import Access, Changes, RunnerName, absent
from frontdesk.wire.model import Instant, Name, Page, PageQuery, Request, Response, Slug
from frontdesk.wire.registry import Operation, P, W


class ProjectCreate(Request):
    """A project to make."""

    name: Name
    slug: Slug
    access: Access = "members"


class ProjectUpdate(Changes):
    """What to change of a project."""

    name: Name = Field(default_factory=absent)
    runner: RunnerName | None = None
    archived: StrictBool = Field(default_factory=absent)


class ProjectRead(Response):
    """A project."""

    id: str
    workspace_id: str
    name: str
    slug: str
    access: Access
    runner: str | None
    archived_at: Instant | None
    created_at: Instant
    updated_at: Instant


_LIST = W + "/projects"

OPERATIONS = (
    Operation(
        "identity.projects.list",
        "GET",
        _LIST,
        "List a workspace's projects",
        "workspace.read",
        query=PageQuery,
        response=Page[ProjectRead],
    ),
    Operation(
        "identity.projects.create",
        "POST",
        _LIST,
        "Make a project",
        "configuration.manage",
        request=ProjectCreate,
        response=ProjectRead,
        status=201,
        errors=("slug_taken",),
    ),
    Operation(
        "identity.projects.get",
        "GET",
        P,
        "Read one project",
        "workspace.read",
        response=ProjectRead,
        errors=("project_not_found",),
        gate=True,
    ),
    Operation(
        "identity.projects.update",
        "PATCH",
        P,
        "Change or archive a project",
        "configuration.manage",
        request=ProjectUpdate,
        response=ProjectRead,
        errors=("project_not_found",),
        gate=True,
    ),
)
