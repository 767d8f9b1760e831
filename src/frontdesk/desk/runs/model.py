"""What a run is: provenance of work. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Origin:
    """The conversation a run comes from, as it was then. Project and workflow are the run's own."""

    conversation_id: str
    revision: int
    user_id: str


@dataclass(frozen=True, slots=True)
class Run:
    """One start of a workflow. `origin` None means that where it comes from is not proven, and never will be."""

    id: str
    workspace_id: str
    project_id: str
    workflow_id: str
    parent_run_id: str | None
    started_by: str
    request_id: str
    create_request_hash: str
    input: Mapping[str, Any] = field(repr=False)
    origin: Origin | None
    archived_at: int | None
    created_at: int
    updated_at: int

    @property
    def archived(self) -> bool:
        """True while it takes no part in new work."""
        return self.archived_at is not None


@dataclass(frozen=True, slots=True)
class Started:
    """The run of a request id; `created` is false where an earlier call with the same body made it."""

    run: Run
    created: bool
