"""Runs on the wire. An origin can be read and never sent."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from frontdesk.wire.model import Identifier, Instant, Page, PageQuery, Request, RequestId, Response
from frontdesk.wire.registry import Operation, P


class RunStart(Request):
    """A run to start. The request id covers the whole body, the conversation included."""

    request_id: RequestId
    input: dict[str, Any] = Field(default_factory=dict, repr=False)
    conversation_id: Identifier | None = None
    parent_run_id: Identifier | None = None


class OriginRead(Response):
    """The conversation a run comes from, as the server proved it."""

    conversation_id: str
    revision: int
    user_id: str


class RunRead(Response):
    """A run: provenance of work."""

    id: str
    workspace_id: str
    project_id: str
    workflow_id: str
    parent_run_id: str | None
    started_by: str
    request_id: str
    input: dict[str, Any]
    origin: OriginRead | None
    archived_at: Instant | None
    created_at: Instant
    updated_at: Instant


class RunStarted(RunRead):
    """The run of a request id; `created` is false where an earlier call with the same body made it."""

    created: bool


_ONE = P + "/runs/{run_id}"

OPERATIONS = (
    Operation(
        "desk.runs.start",
        "POST",
        P + "/workflows/{workflow_id}/runs",
        "Start a run of a workflow",
        "agents.run",
        request=RunStart,
        response=RunStarted,
        status=201,
        errors=(
            "project_not_found",
            "workflow_not_found",
            "run_not_found",
            "conversation_not_found",
            "conversation_closed",
            "conversation_context_mismatch",
            "idempotency_key_reused",
        ),
        gate=True,
    ),
    Operation(
        "desk.runs.list",
        "GET",
        P + "/runs",
        "List the runs of a project",
        "workspace.read",
        query=PageQuery,
        response=Page[RunRead],
        errors=("project_not_found",),
        gate=True,
    ),
    Operation(
        "desk.runs.get",
        "GET",
        _ONE,
        "Read one run",
        "workspace.read",
        response=RunRead,
        errors=("project_not_found", "run_not_found"),
        gate=True,
    ),
)
