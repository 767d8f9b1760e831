"""Starting, listing and reading runs.

The origin is never taken from a caller: it is proven here from a conversation's own row, or copied from the parent's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frontdesk.desk.conversations.context import RunScope
from frontdesk.desk.conversations.service import find_conversation
from frontdesk.desk.runs import store
from frontdesk.desk.runs.model import Origin, Run, Started
from frontdesk.identity import read_scope, record_event, require_project
from frontdesk.identity.model import Actor, Right
from frontdesk.kernel import limits
from frontdesk.kernel.canonical import NotCanonical, canonical_bytes, canonical_digest
from frontdesk.kernel.errors import Defect, Problem, invalid
from frontdesk.storage.tx import Tx

find_run = store.find_run


def find_run_scope(tx: Tx, run_id: str) -> RunScope | None:
    """Where a run belongs, read FOR SHARE on PostgreSQL; what conversations ask for as their `RunFinder`."""
    run = store.find_run(tx, run_id, share=True)
    if run is None:
        return None
    return RunScope(run.id, run.workspace_id, run.project_id, run.workflow_id, run.archived)


def start_run(
    tx: Tx,
    actor: Actor,
    workspace_id: str,
    project_id: str,
    workflow_id: str,
    *,
    request_id: str,
    input_data: Mapping[str, Any],
    conversation_id: str | None = None,
    parent_run_id: str | None = None,
) -> Started:
    """Start a run once per request id of its starter; the same body again returns the run of the first call.

    Raises `workflow_not_found` (an archived one takes no new work either), `run_not_found` for the parent,
    `conversation_not_found`, `conversation_closed`, `conversation_context_mismatch`, `idempotency_key_reused`,
    `request_invalid`, and the refusals of rights and gate.
    """
    _, project = require_project(tx, actor, workspace_id, project_id, Right.AGENTS_RUN)
    scope = read_scope(tx, workspace_id, project_id, workflow_id, share=True)
    if not scope.workflow_exists:
        raise Problem("workflow_not_found")
    body = {"conversation_id": conversation_id, "input": dict(input_data), "parent_run_id": parent_run_id}
    digest = _start_hash(workspace_id, project_id, workflow_id, body)
    earlier = store.find_run_of_request(tx, workflow_id, actor.user_id, request_id)
    if earlier is not None:
        return _replayed(earlier, digest)
    if project.archived or scope.archived:
        raise Problem("workflow_not_found")
    origin = _proven_origin(
        tx,
        actor,
        workspace_id,
        project_id,
        workflow_id,
        conversation_id=conversation_id,
        parent_run_id=parent_run_id,
    )
    inserted = store.try_insert_run(
        tx,
        {
            "id": tx.new_id("run"),
            "workspace": workspace_id,
            "project": project_id,
            "workflow": workflow_id,
            "parent_run": parent_run_id,
            "started_by": actor.user_id,
            "request_id": request_id,
            "create_request_hash": digest,
            "input": dict(input_data),
            "origin_conversation": None if origin is None else origin.conversation_id,
            "origin_revision": None if origin is None else origin.revision,
            "origin_user": None if origin is None else origin.user_id,
        },
    )
    run = store.find_run_of_request(tx, workflow_id, actor.user_id, request_id)
    if run is None:
        raise Defect("a run was refused by something else than its request id")
    if not inserted:
        return _replayed(run, digest)
    _record_start(tx, run)
    return Started(run, created=True)


def _record_start(tx: Tx, run: Run) -> None:
    record_event(
        tx,
        workspace_id=run.workspace_id,
        kind="run.started",
        object_kind="run",
        object_id=run.id,
        project_id=run.project_id,
        owner_user_id=run.started_by,
        actor_id=run.started_by,
    )


def list_runs(
    tx: Tx, actor: Actor, workspace_id: str, project_id: str, *, limit: int, after: tuple[int, str] | None = None
) -> tuple[list[Run], tuple[int, str] | None]:
    """Runs of a project, newest first."""
    require_project(tx, actor, workspace_id, project_id, Right.READ)
    return store.page_runs(tx, project_id, limit, after)


def get_run(tx: Tx, actor: Actor, workspace_id: str, project_id: str, run_id: str) -> Run:
    """A run of this project. Raises `run_not_found` for an absent and for a foreign one alike."""
    require_project(tx, actor, workspace_id, project_id, Right.READ)
    run = store.find_run(tx, run_id)
    if run is None or run.project_id != project_id:
        raise Problem("run_not_found")
    return run


def _start_hash(workspace_id: str, project_id: str, workflow_id: str, body: Mapping[str, Any]) -> str:
    try:
        if len(canonical_bytes(body["input"])) > limits.RUN_INPUT_BYTES_MAX:
            raise invalid("input", f"larger than {limits.RUN_INPUT_BYTES_MAX} bytes")
        return canonical_digest(
            {
                "schema": "run-start-v1",
                "route_workspace_id": workspace_id,
                "route_project_id": project_id,
                "route_workflow_id": workflow_id,
                "body": body,
            }
        )
    except NotCanonical:
        raise invalid("input", "has no canonical form") from None


def _replayed(run: Run, digest: str) -> Started:
    if run.create_request_hash != digest:
        raise Problem("idempotency_key_reused")
    return Started(run, created=False)


def _proven_origin(
    tx: Tx,
    actor: Actor,
    workspace_id: str,
    project_id: str,
    workflow_id: str,
    *,
    conversation_id: str | None,
    parent_run_id: str | None,
) -> Origin | None:
    parent = None
    if parent_run_id is not None:
        parent = store.find_run(tx, parent_run_id, share=True)
        if parent is None or (parent.workspace_id, parent.project_id) != (workspace_id, project_id):
            raise Problem("run_not_found")
    if conversation_id is None:
        return None if parent is None else parent.origin
    conversation = find_conversation(tx, conversation_id, share=True)
    if conversation is None or conversation.workspace_id != workspace_id or conversation.owner_user_id != actor.user_id:
        raise Problem("conversation_not_found")
    if not conversation.active:
        raise Problem("conversation_closed")
    if (
        conversation.project_id != project_id
        or conversation.workflow_id not in (None, workflow_id)
        or conversation.run_id not in (None, parent_run_id)
    ):
        raise Problem("conversation_context_mismatch")
    if parent is None:
        return Origin(conversation.id, conversation.revision, actor.user_id)
    # A child has its parent's origin; naming another conversation beside it would be a second, conflicting origin.
    if parent.origin is None or parent.origin.conversation_id != conversation.id:
        raise Problem("conversation_context_mismatch")
    return parent.origin
