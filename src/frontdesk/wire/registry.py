"""The operation registry: one entry → HTTP operation, CLI words, metric, log event, right and errors.

The id `desk.grants.create` is the OpenAPI operation id, the CLI words `frontdesk desk grants create`, the metric label
and the log event. A test keeps the surfaces equal to this list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

_PARAMETER = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `path` is relative to `/api/v1`; `response` None means 204; `right` is the documented right.

    `gate` says that the administrators gate of desk.md 2.3 stands before the object's project. `errors` are the codes
    beyond those that every route can answer. `cli` False: an address for machines alone, no command.
    `media_type` is the answer's; of a stream, `response` is the shape of one event.
    """

    id: str
    method: str
    path: str
    summary: str
    right: str
    request: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    response: Any = None
    status: int = 200
    errors: tuple[str, ...] = ()
    gate: bool = False
    authenticated: bool = True
    cli: bool = True
    media_type: str = "application/json"

    @property
    def success_status(self) -> int:
        """The status of success: 204 where there is nothing to say."""
        return 204 if self.response is None and self.status == 200 else self.status

    @property
    def path_parameters(self) -> tuple[str, ...]:
        """Names in braces, in order."""
        return tuple(_PARAMETER.findall(self.path))

    @property
    def cli_words(self) -> tuple[str, ...]:
        """`desk.artifact_grants.create` → ("desk", "artifact-grants", "create")."""
        return tuple(part.replace("_", "-") for part in self.id.split("."))


COMMON_ERRORS = (
    "unauthenticated",
    "membership_required",
    "permission_required",
    "administrators_only",
    "user_unknown",
    "request_invalid",
    "rate_limited",
    "unavailable",
)

W = "/workspaces/{workspace_id}"
P = W + "/projects/{project_id}"
G = P + "/reply-grants/{reply_grant_id}"
