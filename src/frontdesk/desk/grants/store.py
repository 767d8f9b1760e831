"""Statements of the grants room, one function each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import RowMapping, select, update

from frontdesk.desk.grants.machine import REPLY_GRANT
from frontdesk.desk.grants.tables import REPLY_GRANTS
from frontdesk.storage.conflict import try_insert
from frontdesk.storage.guarded import transition
from frontdesk.storage.paging import page
from frontdesk.storage.prepared import Bundle, ById
from frontdesk.storage.tx import Tx, for_update

R = REPLY_GRANTS.c


_GRANT = ById(REPLY_GRANTS)
_LOCK_EACH = Bundle(_GRANT.locked)


def find(tx: Tx, grant_id: str, *, share: bool = False, lock: bool = False) -> Mapping[str, Any] | None:
    """One reply grant by id."""
    return _GRANT.find(tx, grant_id, share=share, lock=lock)


def lock_each(tx: Tx, grant_ids: Sequence[str]) -> list[Mapping[str, Any]]:
    """Those of several grants that exist, locked in the order given."""
    found = _LOCK_EACH.read_each(tx, [{"row_id": grant_id} for grant_id in grant_ids])
    return [row for (row,) in found if row is not None]


def find_by_creator_key(tx: Tx, workspace_id: str, project_id: str, user_id: str, request_id: str) -> RowMapping | None:
    """The grant of an idempotency key."""
    return tx.find(
        select(REPLY_GRANTS).where(
            R.workspace == workspace_id,
            R.project == project_id,
            R.created_by == user_id,
            R.create_request_id == request_id,
        )
    )


def find_by_slot(tx: Tx, slot: str, *, lock: bool = False) -> RowMapping | None:
    """The active holder of a slot."""
    statement = select(REPLY_GRANTS).where(R.active_slot == slot)
    return tx.find(for_update(statement) if lock else statement)


def insert(tx: Tx, values: Mapping[str, Any]) -> bool:
    """Insert a grant; False where its creator key or slot is taken."""
    return try_insert(tx, REPLY_GRANTS, values)


def end(tx: Tx, event: str, grant_id: str, values: Mapping[str, Any]) -> RowMapping | None:
    """`revoke` or `expire`: one version step, slot cleared."""
    return transition(
        tx,
        REPLY_GRANTS,
        REPLY_GRANT,
        event,
        grant_id,
        values={"active_slot": None, "version": R.version + 1, **values},
    )


def advance_cursor(tx: Tx, grant_id: str, expected: int) -> bool:
    """Compare-and-set N → N+1, whatever the grant's state: the turn it belongs to is committed with it."""
    statement = (
        update(REPLY_GRANTS)
        .where(R.id == grant_id, R.cursor == expected)
        .values(cursor=expected + 1, updated_at=tx.now)
    )
    return tx.execute(statement).rowcount == 1


def active_in_chat(tx: Tx, binding_id: str, chat_id: str, limit: int) -> Sequence[RowMapping]:
    """Active, unexpired grants of one binding's chat, locked."""
    return tx.rows(
        for_update(
            select(REPLY_GRANTS)
            .where(R.binding == binding_id, R.chat_id == chat_id, R.status == "active", R.expires_at > tx.now)
            .order_by(R.created_at, R.id)
            .limit(limit)
        )
    )


def active_of_project(tx: Tx, project_id: str, limit: int) -> Sequence[RowMapping]:
    """Active grants of one project, locked."""
    return tx.rows(
        for_update(
            select(REPLY_GRANTS)
            .where(R.project == project_id, R.status == "active")
            .order_by(R.created_at, R.id)
            .limit(limit)
        )
    )


def past_expiry(tx: Tx, limit: int) -> Sequence[str]:
    """Ids of active grants whose time is over."""
    rows = tx.rows(
        select(R.id).where(R.status == "active", R.expires_at <= tx.now).order_by(R.expires_at, R.id).limit(limit)
    )
    return [row["id"] for row in rows]


def list_page(
    tx: Tx, project_id: str, conversation_id: str, user_id: str, *, limit: int, after: tuple[int, str] | None
) -> tuple[Sequence[RowMapping], tuple[int, str] | None]:
    """Own grants of one conversation, newest first."""
    statement = select(REPLY_GRANTS).where(
        R.project == project_id, R.conversation == conversation_id, R.bound_user == user_id
    )
    return page(tx, REPLY_GRANTS, statement, limit, after)
