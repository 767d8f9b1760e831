"""Requests of every operation that stands behind the administrators gate, for tests that sweep over them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from frontdesk.wire.operations import OPERATIONS
from frontdesk.wire.registry import Operation

# What a request of each operation looks like. A new operation behind the gate has to be told here.
BODIES: dict[str, list[dict[str, Any]]] = {
    "identity.projects.get": [{}],
    "identity.projects.update": [{"name": "Seen"}, {"archived": True}],
    "identity.workflows.list": [{}],
    "identity.workflows.create": [{"name": "Another"}, {"name": "reports"}],
    "identity.workflows.update": [{"name": "Renamed"}],
    "desk.conversations.create": [
        {"title": "New", "context": {"project_id": "{project_id}"}},
        {"title": "New", "context": {"project_id": "{project_id}", "workflow_id": "{workflow_id}"}},
        {"title": "New", "context": {"project_id": "{project_id}", "workflow_id": "wfl_absent"}},
        {"title": "New", "context": {"project_id": "{project_id}", "run_id": "{run_id}"}},
    ],
    "desk.conversations.get": [{}],
    "desk.conversations.update": [
        {"title": "Other"},
        {"context": {}},
        {"context": {"project_id": "{open_project_id}"}},
    ],
    "desk.conversations.turns": [{}],
    "desk.conversations.send": [{"request_id": "sweep", "content": "Hello?"}],
    "desk.conversations.close": [{}],
    "desk.runs.start": [
        {"request_id": "sweep"},
        {"request_id": "sweep-2", "conversation_id": "{conversation_id}"},
        {"request_id": "sweep-3", "parent_run_id": "{run_id}"},
    ],
    "desk.runs.list": [{}],
    "desk.runs.get": [{}],
    "desk.grants.create": [
        {  # a replay
            "request_id": "{grant_request_id}",
            "installation_id": "{installation_id}",
            "binding_id": "{binding_id}",
            "conversation_id": "{conversation_id}",
        },
        {
            "request_id": "sweep",
            "installation_id": "{installation_id}",
            "binding_id": "{binding_id}",
            "conversation_id": "{conversation_id}",
        },
    ],
    "desk.grants.list": [{}],
    "desk.grants.get": [{}],
    "desk.grants.revoke": [{}],
    "desk.grants.set_project_access": [
        {"access": "members"},
        {"access": "administrators", "active_reply_grants": "keep"},
    ],
    "desk.grants.timeline": [{}],
}
QUERIES = {"desk.grants.list": {"conversation_id": "{conversation_id}"}}
LISTS = {"desk.conversations.list"}  # behind the gate, and over the whole workspace: they leave out

GATED = [each for each in OPERATIONS.values() if each.gate and each.id not in LISTS]


def filled(value: Any, objects: dict[str, str]) -> Any:
    if isinstance(value, str):
        return re.sub(r"\{([a-z_]+)\}", lambda found: objects[found[1]], value)
    if isinstance(value, dict):
        return {name: filled(each, objects) for name, each in value.items()}
    return value


def requests_of(operation: Operation, objects: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Every request of the operation that the table knows."""
    for body in BODIES[operation.id]:
        asked: dict[str, Any] = {"method": operation.method, "url": filled(operation.path, objects)}
        if operation.request is not None:
            asked["json"] = filled(body, objects)
        if operation.id in QUERIES:
            asked["params"] = filled(QUERIES[operation.id], objects)
        yield asked
