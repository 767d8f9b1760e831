"""HTTP handlers of reply grants.

Each is one transaction, but a create that lost a race: its winner is read in a second one.
"""

from __future__ import annotations

from typing import Any

from frontdesk.api.binding import Call, Handler
from frontdesk.desk import grants
from frontdesk.desk.connections import process_readiness
from frontdesk.desk.grants import CreateGrant, CreateRaced, GrantView
from frontdesk.desk.grants.wording import reason_in_words
from frontdesk.identity import read_standing
from frontdesk.identity.model import Event
from frontdesk.storage.tx import Tx
from frontdesk.wire.desk.grants import (
    OPERATIONS,
    ProjectAccessRead,
    ReplyGrantCreated,
    ReplyGrantRead,
    TimelineEvent,
)
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor, encode_cursor
from frontdesk.wire.registry import Operation


def _fields(view: GrantView) -> dict[str, Any]:
    grant = view.grant
    return {
        "id": grant.id,
        "installation_id": grant.installation_id,
        "binding_id": grant.binding_id,
        "workspace_id": grant.workspace_id,
        "project_id": grant.project_id,
        "workflow_id": grant.workflow_id,
        "run_id": grant.run_id,
        "conversation_id": grant.conversation_id,
        "status": view.status,
        "version": grant.version,
        "expires_at": grant.expires_at,
        "revoked_at": grant.revoked_at,
        "activation_status": view.activation_status,
        "usable": view.unusable_reason is None,
        "unusable_reason": view.unusable_reason,
        "created_at": grant.created_at,
        "updated_at": grant.updated_at,
    }


def _keys(call: Call) -> dict[str, Any]:
    return {"keyring": call.services.keyring, "channels": call.services.channels}


async def create(call: Call) -> ReplyGrantCreated:
    """`desk.grants.create`."""
    body = call.body
    command = CreateGrant(
        workspace_id=call.workspace_id,
        project_id=call.project_id,
        request_id=body.request_id,
        installation_id=body.installation_id,
        binding_id=body.binding_id,
        conversation_id=body.conversation_id,
        expires_in_seconds=body.expires_in_seconds,
    )
    policy = call.services.policy
    worker = call.services.extras.get("worker_snapshot")

    def work(tx: Tx) -> GrantView:
        ready = process_readiness(
            tx,
            reply_enabled=policy.reply_enabled,
            artifact_enabled=policy.artifact_enabled,
            worker=worker() if worker is not None else None,
        )
        return grants.create(tx, call.actor, command, reply_ready=ready.reply_execution, **_keys(call))

    try:
        view = await call.services.database.write(work)
    except CreateRaced:
        view = await call.services.database.write(
            lambda tx: grants.resolve_race(tx, call.actor, command, **_keys(call))
        )
    return ReplyGrantCreated(**_fields(view), created=bool(view.created))


async def list_grants(call: Call) -> Page[ReplyGrantRead]:
    """`desk.grants.list`."""
    after = decode_cursor(call.query.cursor)
    views, following = await call.services.database.read(
        lambda tx: grants.list_grants(
            tx,
            call.actor,
            call.workspace_id,
            call.project_id,
            call.query.conversation_id,
            limit=call.query.limit,
            after=after,
            **_keys(call),
        )
    )
    return Page[ReplyGrantRead](
        items=[ReplyGrantRead(**_fields(view)) for view in views],
        next_cursor=encode_cursor(*following) if following else None,
    )


async def get(call: Call) -> ReplyGrantRead:
    """`desk.grants.get`."""
    view = await call.services.database.read(
        lambda tx: grants.get(tx, call.actor, call.workspace_id, call.project_id, call.reply_grant_id, **_keys(call))
    )
    return ReplyGrantRead(**_fields(view))


async def revoke(call: Call) -> ReplyGrantRead:
    """`desk.grants.revoke`."""
    view = await call.services.database.write(
        lambda tx: grants.revoke(tx, call.actor, call.workspace_id, call.project_id, call.reply_grant_id, **_keys(call))
    )
    return ReplyGrantRead(**_fields(view))


async def set_project_access(call: Call) -> ProjectAccessRead:
    """`desk.grants.set_project_access`."""
    project = await call.services.database.write(
        lambda tx: grants.set_project_access(
            tx,
            call.actor,
            call.workspace_id,
            call.project_id,
            access=call.body.access,
            active_reply_grants=call.body.active_reply_grants,
        )
    )
    return ProjectAccessRead.model_validate(project)


async def timeline(call: Call) -> Page[TimelineEvent]:
    """`desk.grants.timeline`."""
    after = decode_cursor(call.query.cursor)

    def work(tx: Tx) -> tuple[list[Event], tuple[int, str] | None, str | None]:
        found, following = grants.timeline(
            tx,
            call.actor,
            call.workspace_id,
            call.project_id,
            call.reply_grant_id,
            limit=call.query.limit,
            after=after,
        )
        return found, following, read_standing(tx, call.actor.user_id, call.workspace_id, share=False).locale

    events, following, language = await call.services.database.read(work)
    return Page[TimelineEvent](
        items=[_timeline_event(event, language) for event in events],
        next_cursor=encode_cursor(*following) if following else None,
    )


def _timeline_event(event: Event, language: str | None) -> TimelineEvent:
    return TimelineEvent(
        id=event.id,
        kind=event.kind,
        object_kind=event.object_kind,
        object_id=event.object_id,
        code=event.code,
        reason=reason_in_words(event.kind, event.code, language),
        actor_id=event.actor_id,
        data=dict(event.data),
        at=event.at,
    )


_HANDLERS: dict[str, Handler] = {
    "desk.grants.create": create,
    "desk.grants.list": list_grants,
    "desk.grants.get": get,
    "desk.grants.revoke": revoke,
    "desk.grants.set_project_access": set_project_access,
    "desk.grants.timeline": timeline,
}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
