"""The one event table: what happened to which object, without content. Append-only.

Ids are made from the transaction's time, so id order is time order within one clock; commits may become visible out of
that order, which is why a tail reads the last seconds again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy import ColumnElement, and_, exists, insert, or_, select

from frontdesk.identity import store
from frontdesk.identity.model import Actor, Event, Right
from frontdesk.identity.rights import hidden_project_ids, require
from frontdesk.identity.tables import EVENTS
from frontdesk.kernel.canonical import canonical_bytes
from frontdesk.kernel.errors import Defect
from frontdesk.kernel.limits import EVENT_DATA_BYTES_MAX
from frontdesk.storage.tx import Tx

Datum = str | int | bool | None
EVENTS_TOPIC: Final = "events"


def record_event(
    tx: Tx,
    *,
    workspace_id: str,
    kind: str,
    object_kind: str,
    object_id: str,
    project_id: str | None = None,
    owner_user_id: str | None = None,
    reply_grant_id: str | None = None,
    actor_id: str | None = None,
    code: str | None = None,
    data: Mapping[str, Datum] | None = None,
) -> str:
    """Append one event in the caller's transaction and return its id.

    `kind` reads `object.past_participle`. `data` holds flat scalars, at most 1 KiB; more is a `Defect`. Nothing here
    can tell a person's text from a code: that no content enters is the caller's duty.
    """
    kept = dict(data or {})
    if any(not isinstance(value, str | int | bool | None) for value in kept.values()):
        raise Defect("event data holds flat scalars only")
    if len(canonical_bytes(kept)) > EVENT_DATA_BYTES_MAX:
        raise Defect("event data is too large")
    event_id = tx.new_id("evt")
    tx.execute(
        insert(EVENTS).values(
            id=event_id,
            created_at=tx.now,
            updated_at=tx.now,
            workspace=workspace_id,
            kind=kind,
            object_kind=object_kind,
            object_id=object_id,
            project=project_id,
            owner_user=owner_user_id,
            reply_grant=reply_grant_id,
            actor=actor_id,
            code=code,
            data=kept,
            at=tx.now,
        )
    )
    tx.wake(EVENTS_TOPIC)
    return event_id


def list_events(
    tx: Tx,
    actor: Actor,
    workspace_id: str,
    *,
    kind: str | None = None,
    object_id: str | None = None,
    actor_id: str | None = None,
    limit: int,
    after: tuple[int, str] | None = None,
) -> tuple[list[Event], tuple[int, str] | None]:
    """The audit view, newest first; what belongs to hidden projects is left out.

    Raises `membership_required`, `permission_required` (`members.manage`).
    """
    require(tx, actor, workspace_id, Right.MEMBERS_MANAGE)
    conditions = [EVENTS.c.workspace == workspace_id, *_shown(hidden_project_ids(tx, actor, workspace_id))]
    if kind is not None:
        conditions.append(EVENTS.c.kind == kind)
    if object_id is not None:
        conditions.append(EVENTS.c.object_id == object_id)
    if actor_id is not None:
        conditions.append(EVENTS.c.actor == actor_id)
    return _page(store.newest_events(tx, conditions, limit + 1, None if after is None else after[1]), limit)


def list_events_of_grant(
    tx: Tx, grant_id: str, *, limit: int, after: tuple[int, str] | None = None
) -> tuple[list[Event], tuple[int, str] | None]:
    """What happened under one reply grant, newest first. The caller has authorised the grant itself."""
    conditions = [EVENTS.c.reply_grant == grant_id]
    return _page(store.newest_events(tx, conditions, limit + 1, None if after is None else after[1]), limit)


def events_since(
    tx: Tx, workspace_id: str, *, since: int, hidden: Collection[str], after: str | None = None, limit: int
) -> list[Event]:
    """Events of a workspace at or after the instant `since`, oldest first, hidden projects left out.

    For the live view, which reads a little of the past again and drops ids it has shown: an event that commits late has
    an early id. `after` continues a long reading. Asks for no right.
    """
    conditions = [EVENTS.c.workspace == workspace_id, EVENTS.c.id >= _lowest_id(since), *_shown(hidden)]
    if after is not None:
        conditions.append(EVENTS.c.id > after)
    return store.oldest_events(tx, conditions, limit)


def _lowest_id(instant: int) -> str:
    """A text below every event id of `instant` or later: the id begins with the milliseconds in hex."""
    return f"evt_{max(instant, 0) // 1000:012x}"


def _shown(hidden: Collection[str]) -> list[ColumnElement[bool]]:
    """Without the events of hidden projects, and without those that belong to one by their reply grant alone."""
    if not hidden:
        return []
    listed = sorted(hidden)
    of_grant = EVENTS.alias("of_grant")
    by_grant = select(of_grant.c.id).where(
        of_grant.c.reply_grant == EVENTS.c.reply_grant, of_grant.c.project.in_(listed)
    )
    return [or_(and_(EVENTS.c.project.is_(None), ~exists(by_grant)), EVENTS.c.project.not_in(listed))]


def _page(events: list[Event], limit: int) -> tuple[list[Event], tuple[int, str] | None]:
    if len(events) <= limit:
        return events, None
    last = events[limit - 1]
    return events[:limit], (last.at, last.id)
