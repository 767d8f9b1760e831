"""Workflows of a project."""

from __future__ import annotations

from pydantic import Field, StrictBool

from frontdesk.wire.identity.shapes import Changes, absent
from frontdesk.wire.model import Instant, Name, Page, PageQuery, Request, Response
from frontdesk.wire.registry import Operation, P


class WorkflowCreate(Request):
    """A workflow to make."""

    name: Name


class WorkflowUpdate(Changes):
    """What to change of a workflow."""

    name: Name = Field(default_factory=absent)
    archived: StrictBool = Field(default_factory=absent)


class WorkflowRead(Response):
    """A workflow."""

    id: str
    project_id: str
    name: str
    archived_at: Instant | None
    created_at: Instant
    updated_at: Instant


_LIST = P + "/workflows"

OPERATIONS = (
    Operation(
        "identity.workflows.list",
        "GET",
        _LIST,
        "List a project's workflows",
        "workspace.read",
        query=PageQuery,
        response=Page[WorkflowRead],
        errors=("project_not_found",),
        gate=True,
    ),
    Operation(
        "identity.workflows.create",
        "POST",
        _LIST,
        "Make a workflow",
        "configuration.manage",
        request=WorkflowCreate,
        response=WorkflowRead,
        status=201,
        errors=("project_not_found", "name_taken"),
        gate=True,
    ),
    Operation(
        "identity.workflows.update",
        "PATCH",
        _LIST + "/{workflow_id}",
        "Rename or archive a workflow",
        "configuration.manage",
        request=WorkflowUpdate,
        response=WorkflowRead,
        errors=("project_not_found", "workflow_not_found", "name_taken"),
        gate=True,
    ),
)
