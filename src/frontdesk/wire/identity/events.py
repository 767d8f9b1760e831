"""The audit view."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from frontdesk.wire.model import Identifier, Instant, Page, PageQuery, Response
from frontdesk.wire.registry import Operation, W


class EventQuery(PageQuery):
    """Which events to list."""

    kind: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z][a-z0-9_.]*$")] | None = None
    object_id: Identifier | None = None
    actor: Identifier | None = None


class EventRead(Response):
    """What happened to which object; no content."""

    id: str
    kind: str
    object_kind: str
    object_id: str
    project_id: str | None
    owner_user_id: str | None
    reply_grant_id: str | None
    actor_id: str | None
    code: str | None
    data: dict[str, str | int | bool | None]
    at: Instant


OPERATIONS = (
    Operation(
        "identity.events.list",
        "GET",
        W + "/events",
        "List what happened in a workspace, without content",
        "members.manage",
        query=EventQuery,
        response=Page[EventRead],
    ),
)
