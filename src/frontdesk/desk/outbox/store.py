"""Statements of the outbox, one function each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    RowMapping,
    Select,
    String,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from frontdesk.desk.outbox.machine import DELIVERY, ENDED, UNDER_WAY, WAITING
from frontdesk.desk.outbox.tables import CHAT_PACING, DELIVERIES, SETTLEMENTS
from frontdesk.kernel.machine import Lease
from frontdesk.storage.conflict import try_insert
from frontdesk.storage.guarded import Take, note, transition
from frontdesk.storage.paging import first_over, page, stands_before
from frontdesk.storage.prepared import ById, Prepared
from frontdesk.storage.tx import Tx, for_update

D = DELIVERIES.c


def insert_delivery(tx: Tx, values: Mapping[str, Any]) -> bool:
    """Insert a snapshot; False where a uniqueness rule (dedupe key, receipt, slot) refused it."""
    return try_insert(tx, DELIVERIES, values)


def find_by_dedupe_key(tx: Tx, key: str) -> RowMapping | None:
    """The delivery that holds a dedupe key."""
    return tx.find(select(DELIVERIES).where(D.dedupe_key == key))


_DELIVERY = ById(DELIVERIES)


def find(tx: Tx, delivery_id: str, *, lock: bool = False) -> Mapping[str, Any] | None:
    """One delivery by id."""
    return _DELIVERY.find(tx, delivery_id, lock=lock)


def find_of_receipt(tx: Tx, receipt_id: str) -> RowMapping | None:
    """The one delivery of a receipt."""
    return tx.find(select(DELIVERIES).where(D.receipt == receipt_id))


def _by_message(bind: str) -> Prepared:
    columns = (D.id, D.reply_grant, D.chat_id, D.status, D.provider_message_id)
    return Prepared(
        select(*columns).where(
            D.installation == bindparam("installation_id"), D.provider_message_id == bindparam(bind, type_=String)
        )
    )


BY_PARENT, BY_ROOT = _by_message("parent_id"), _by_message("root_id")


def find_by_message_ids(
    tx: Tx, installation_id: str, parent_id: str | None, root_id: str | None
) -> list[dict[str, Any]]:
    """Deliveries that the provider knows under a message's parent and root, the parent's first."""
    names = {"installation_id": installation_id, "parent_id": parent_id, "root_id": root_id}
    found = (part.find(tx, names) for part, name in ((BY_PARENT, parent_id), (BY_ROOT, root_id)) if name)
    return [row for row in found if row is not None]


def owned_message_ids(tx: Tx, installation_id: str, message_ids: Sequence[str], *, but: str) -> Sequence[str]:
    """Which of the provider's message ids other deliveries of the installation hold."""
    statement = select(D.provider_message_id).where(
        D.installation == installation_id, D.provider_message_id.in_(message_ids), D.id != but
    )
    return [row["provider_message_id"] for row in tx.rows(statement)]


def find_unproven_twin(tx: Tx, delivery_id: str, sent_from: int, sent_until: int) -> bool:
    """Whether another delivery of equal place and payload may have been sent in that time and holds no message id."""
    other = DELIVERIES.alias("other")
    same = ("installation", "chat_id", "payload_hash")
    statement = (
        select(D.id)
        .join(other, and_(other.c.id == delivery_id, *(D[name] == other.c[name] for name in same)))
        .where(
            D.id != delivery_id,
            D.reply_to_message_id.is_not_distinct_from(other.c.reply_to_message_id),
            D.provider_message_id.is_(None),
            D.status.in_(("sending", "indeterminate", "settled_sent")),
            D.sending_at.between(sent_from, sent_until),
        )
        .limit(1)
    )
    return tx.find(statement) is not None


@cache
def _due(resumed: bool) -> Select[Any]:
    """What `due_ids` runs, built once: several loops of an idle server ask it every second."""
    earlier = DELIVERIES.alias("earlier")
    e = earlier.c
    now: BindParameter[int] = bindparam("now")
    blocked = exists().where(
        e.installation == D.installation,
        e.chat_id == D.chat_id,
        e.status.in_((*UNDER_WAY, *WAITING)),
        or_(e.status.in_(UNDER_WAY), e.not_before <= now),
        stands_before(earlier, DELIVERIES),
    )
    parts = [
        select(D.id, D.not_before, D.reply_grant).where(D.status == status, D.not_before <= now, ~blocked)
        for status in WAITING
    ]
    if resumed:
        at: BindParameter[int] = bindparam("after_at")
        last: BindParameter[str] = bindparam("after_id")
        parts = [part.where((D.not_before > at) | ((D.not_before == at) & (D.id > last))) for part in parts]
    return first_over(parts, ("not_before", "id"), bindparam("at_most"))


def due_ids(tx: Tx, limit: int, after: tuple[int, str] | None = None) -> Sequence[RowMapping]:
    """Waiting deliveries that are due, oldest due first, after a fair cursor; of each chat the earliest alone.

    One that is due or under way stands before the later ones of its chat, so that answers leave in the order in which
    they were given. One that waits for another try later does not hold the others up.
    """
    cursor = {} if after is None else {"after_at": after[0], "after_id": after[1]}
    return tx.rows(_due(after is not None), {"now": tx.now, "at_most": limit, **cursor})


_LAPSED: Final = (
    select(D.id, D.status)
    .where(D.status.in_(UNDER_WAY), D.lease_expires_at <= bindparam("now"))
    .order_by(D.lease_expires_at, D.id)
    .limit(bindparam("at_most"))
)


def lapsed_ids(tx: Tx, limit: int) -> Sequence[RowMapping]:
    """Deliveries whose lease has passed, oldest first."""
    return tx.rows(_LAPSED, {"now": tx.now, "at_most": limit})


def aged_ids(tx: Tx, born_before: int, limit: int) -> Sequence[str]:
    """Waiting deliveries older than the stale-send limit."""
    rows = tx.rows(
        select(D.id).where(D.status.in_(WAITING), D.created_at < born_before).order_by(D.created_at).limit(limit)
    )
    return [row["id"] for row in rows]


def move(
    tx: Tx,
    event: str,
    delivery_id: str,
    *,
    lease: Lease | None = None,
    take: Take | None = None,
    values: Mapping[str, Any] | None = None,
    where: Sequence[ColumnElement[bool]] = (),
) -> RowMapping | None:
    """One guarded transition of a delivery."""
    return transition(tx, DELIVERIES, DELIVERY, event, delivery_id, lease=lease, take=take, values=values, where=where)


def store_upload_key(tx: Tx, delivery_id: str, lease: Lease, key: str) -> bool:
    """Keep the provider's file key, fenced; later attempts reuse it."""
    return note(tx, DELIVERIES, ("connecting",), delivery_id, lease, values={"upload_key": key})


def store_read_back(tx: Tx, delivery_id: str, result: str) -> None:
    """Note one look into the provider's history; changes no state."""
    tx.execute(
        update(DELIVERIES)
        .where(D.id == delivery_id)
        .values(
            read_back_at=tx.now,
            read_back_result=result,
            read_back_attempts=D.read_back_attempts + 1,
            updated_at=tx.now,
        )
    )


def insert_settlement(tx: Tx, values: Mapping[str, Any]) -> bool:
    """Insert the one settlement of a delivery; False where it has one."""
    return try_insert(tx, SETTLEMENTS, values)


def find_settlement(tx: Tx, delivery_id: str) -> RowMapping | None:
    """The settlement of a delivery."""
    return tx.find(select(SETTLEMENTS).where(SETTLEMENTS.c.delivery == delivery_id))


def list_page(
    tx: Tx, conditions: Sequence[ColumnElement[bool]], limit: int, after: tuple[int, str] | None
) -> tuple[Sequence[RowMapping], tuple[int, str] | None]:
    """One page of deliveries, newest first."""
    return page(tx, DELIVERIES, select(DELIVERIES).where(*conditions), limit, after)


def next_free_at(tx: Tx, channel: str, app_id: str, chat_id: str) -> int:
    """When the chat's next slot is free, its row locked (made where absent)."""
    now = tx.now
    values = {
        "channel": channel,
        "app_id": app_id,
        "chat_id": chat_id,
        "next_free_at": now,
        "created_at": now,
        "updated_at": now,
    }
    insert = postgresql.insert if tx.conn.dialect.name == "postgresql" else sqlite.insert
    tx.execute(insert(CHAT_PACING).values(values).on_conflict_do_nothing())
    statement: Select[Any] = select(CHAT_PACING.c.next_free_at).where(*_pace_key(channel, app_id, chat_id))
    return tx.count(for_update(statement))


def reserve_slot(tx: Tx, channel: str, app_id: str, chat_id: str, next_free: int) -> None:
    """Move the chat's next free slot."""
    tx.execute(
        update(CHAT_PACING)
        .where(*_pace_key(channel, app_id, chat_id))
        .values(next_free_at=next_free, updated_at=tx.now)
    )


def _pace_key(channel: str, app_id: str, chat_id: str) -> tuple[ColumnElement[bool], ...]:
    column = CHAT_PACING.c
    return (column.channel == channel, column.app_id == app_id, column.chat_id == chat_id)


def census(workspace_id: str | None) -> Select[Any]:
    """Rows by status and code, with the earliest birth of each; of one workspace or of all."""
    statement = select(D.status, D.error_code, func.count().label("rows"), func.min(D.created_at).label("oldest"))
    if workspace_id is not None:
        statement = statement.where(D.workspace == workspace_id)
    return statement.group_by(D.status, D.error_code)


def newest_birth(tx: Tx) -> int | None:
    """When the newest delivery was made."""
    row = tx.find(select(D.created_at).order_by(D.id.desc()).limit(1))
    return row["created_at"] if row is not None else None


def newest_chats(tx: Tx, installation_id: str, limit: int) -> Sequence[RowMapping]:
    """The chats last written to, each with the birth of its newest delivery."""
    newest = func.max(D.created_at).label("newest")
    statement = select(D.chat_id, newest).where(D.installation == installation_id).group_by(D.chat_id)
    return tx.rows(statement.order_by(newest.desc(), D.chat_id).limit(limit))


def known_message_ids(tx: Tx, message_ids: Sequence[str]) -> Sequence[str]:
    """Which of the provider's message ids any delivery holds."""
    statement = select(D.provider_message_id).where(D.provider_message_id.in_(message_ids))
    return [row["provider_message_id"] for row in tx.rows(statement)]


def count_perhaps_sent(tx: Tx, chat_id: str) -> int:
    """Deliveries of a chat that may have made a message and hold no id."""
    perhaps = ("sending", "indeterminate", "settled_sent", "settled_not_sent")
    conditions = (D.chat_id == chat_id, D.provider_message_id.is_(None), D.status.in_(perhaps))
    return tx.count(select(func.count()).select_from(DELIVERIES).where(*conditions))


def ids_between(tx: Tx, after: str, before: str, limit: int) -> Sequence[RowMapping]:
    """Id, state and purge of deliveries in rising id order, which is the order of their birth."""
    return tx.rows(select(D.id, D.status, D.purged_at).where(D.id > after, D.id < before).order_by(D.id).limit(limit))


def purge(tx: Tx, delivery_ids: Sequence[str]) -> int:
    """Clear text and bytes of ended deliveries; how many rows changed. What is waiting or under way is left alone."""
    statement = (
        update(DELIVERIES)
        .where(D.id.in_(delivery_ids), D.status.in_(ENDED), D.purged_at.is_(None))
        .values(text=None, payload_bytes=None, purged_at=tx.now, updated_at=tx.now)
    )
    return tx.execute(statement).rowcount
