"""Statements of the inbox, one function each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, RowMapping, Select, and_, bindparam, exists, func, or_, select, update
from sqlalchemy.exc import IntegrityError

from frontdesk.desk.inbox.machine import ENDED, OPEN, RECEIPT, WAITING
from frontdesk.desk.inbox.tables import RECEIPTS
from frontdesk.kernel.machine import Lease
from frontdesk.storage.guarded import Take, note, renew, transition
from frontdesk.storage.paging import first_over, page, stands_before
from frontdesk.storage.prepared import Bundle, ById, InsertUnlessKnown, Prepared
from frontdesk.storage.tx import Tx

R = RECEIPTS.c


_RECEIPT = ById(RECEIPTS)


def find(tx: Tx, receipt_id: str, *, lock: bool = False) -> Mapping[str, Any] | None:
    """One receipt by id."""
    return _RECEIPT.find(tx, receipt_id, lock=lock)


BY_MESSAGE = Prepared(
    select(R.id, R.status, R.error_code, R.request_hash).where(
        R.installation == bindparam("installation_id"), R.provider_message_id == bindparam("message_id")
    )
)


def find_by_message(tx: Tx, installation_id: str, message_id: str) -> Mapping[str, Any] | None:
    """The receipt of a provider message: what deduplicates."""
    return BY_MESSAGE.find(tx, {"installation_id": installation_id, "message_id": message_id})


_COLUMNS = (
    "id created_at updated_at workspace installation provider_message_id provider_event_id transport execution "
    "request_hash tenant_key sender_id chat_id parent_message_id root_message_id provider_created_at content_text "
    "intent status error_code binding conversation reply_grant lease_generation attempt_count not_before processed_at"
).split()
_INSERT = InsertUnlessKnown(RECEIPTS, _COLUMNS, ("installation", "provider_message_id"))


def insert(tx: Tx, rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Insert receipts of different messages; the ids of those whose message was not known. Any other rule raises.

    In the order of their messages: two transactions that insert the same ones can't wait for each other.
    """
    ordered = sorted(rows, key=lambda row: (row["installation"], row["provider_message_id"]))
    return _INSERT.ids(tx, ordered)


FROM_SENDER = Prepared(
    select(func.count().label("messages")).where(
        R.installation == bindparam("installation_id"),
        R.sender_id == bindparam("sender_id"),
        R.created_at > bindparam("since"),
    )
)


def count_from_sender(tx: Tx, installation_id: str, sender_id: str, since: int) -> int:
    """Messages of one sender since a moment, refused ones included."""
    row = FROM_SENDER.find(tx, {"installation_id": installation_id, "sender_id": sender_id, "since": since})
    return int(row["messages"]) if row is not None else 0


def count_wrong_codes(tx: Tx, workspace_id: str, installation_id: str, chat_id: str, since: int) -> tuple[int, int]:
    """Wrong binding codes since a moment: in this chat, in the whole installation."""
    wrong = and_(
        R.workspace == workspace_id,
        R.created_at > since,
        R.installation == installation_id,
        R.intent == "binding",
        R.error_code == "binding_challenge_invalid",
    )
    row = tx.find(
        select(
            func.count().label("all"),
            func.count().filter(R.chat_id == chat_id).label("chat"),
        ).where(wrong)
    )
    return (row["chat"], row["all"]) if row is not None else (0, 0)


_OPEN_OF_GRANT = Prepared(
    select(func.count().label("open"), func.max(R.created_at).label("newest")).where(
        R.reply_grant == bindparam("grant_id"), or_(*(R.status == status for status in OPEN))
    )
)


_OPEN_OF_EACH = Bundle(_OPEN_OF_GRANT)


def open_of_grants(tx: Tx, grant_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """How many receipts of each grant are open, and the newest arrival among them (0 where none)."""
    found = _OPEN_OF_EACH.read_each(tx, [{"grant_id": grant_id} for grant_id in grant_ids])
    return {
        grant_id: (0, 0) if row is None else (row["open"], row["newest"] or 0)
        for grant_id, (row,) in zip(grant_ids, found, strict=True)
    }


def _heads() -> Select[Any]:
    earlier = RECEIPTS.alias("earlier")
    e = earlier.c
    blocked = exists().where(
        e.reply_grant == R.reply_grant,
        e.status.in_(OPEN),
        e.execution == "work",
        stands_before(earlier, RECEIPTS),
    )
    due = [
        select(R.id, R.attempt_count, R.reply_grant, R.not_before, R.created_at).where(
            R.status == status, R.not_before <= bindparam("now"), R.execution == "work", ~blocked
        )
        for status in WAITING
    ]
    return first_over(due, ("not_before", "created_at", "id"), bindparam("at_most"))


# Built once: several loops of an idle server ask them every second.
_HEADS: Final = _heads()
_LAPSED: Final = (
    select(R.id, R.attempt_count)
    .where(R.status == "processing", R.lease_expires_at <= bindparam("now"))
    .order_by(R.lease_expires_at, R.id)
    .limit(bindparam("at_most"))
)
_LAPSED_WITH_TURN: Final = _LAPSED.where(R.turn.is_not(None))


def heads(tx: Tx, limit: int) -> Sequence[RowMapping]:
    """Due receipts that no earlier open receipt of their grant stands before, oldest due first."""
    return tx.rows(_HEADS, {"now": tx.now, "at_most": limit})


def lapsed(tx: Tx, limit: int) -> Sequence[RowMapping]:
    """Receipts in work whose lease has passed."""
    return tx.rows(_LAPSED, {"now": tx.now, "at_most": limit})


def move(
    tx: Tx,
    event: str,
    receipt_id: str,
    *,
    lease: Lease | None = None,
    take: Take | None = None,
    values: Mapping[str, Any] | None = None,
) -> RowMapping | None:
    """One guarded transition of a receipt."""
    return transition(tx, RECEIPTS, RECEIPT, event, receipt_id, lease=lease, take=take, values=values)


def try_claim(tx: Tx, receipt_id: str, take: Take, values: Mapping[str, Any]) -> tuple[RowMapping | None, bool]:
    """Claim behind a savepoint: (row, busy). Busy: the partial unique index says that its grant has one in work."""
    try:
        with tx.conn.begin_nested():
            return move(tx, "claim", receipt_id, take=take, values=values), False
    except IntegrityError:
        return None, True


def renew_lease(tx: Tx, receipt_id: str, lease: Lease, expires_at: int) -> bool:
    """Extend a live lease of a receipt in work."""
    return renew(tx, RECEIPTS, ("processing",), receipt_id, lease, expires_at=expires_at)


def set_turn(tx: Tx, receipt_id: str, lease: Lease, turn_id: str) -> bool:
    """Name the receipt's turn, fenced."""
    return note(tx, RECEIPTS, ("processing",), receipt_id, lease, values={"turn": turn_id})


def make_next_due(tx: Tx, grant_id: str) -> bool:
    """Make the grant's next waiting receipt due now, not a scan interval later."""
    row = tx.find(
        select(R.id)
        .where(R.reply_grant == grant_id, R.status.in_(WAITING), R.execution == "work")
        .order_by(R.created_at, R.id)
        .limit(1)
    )
    if row is None:
        return False
    statement = (
        update(RECEIPTS)
        .where(
            R.id == row["id"],
            R.not_before > tx.now,
            R.error_code.in_(("reply_grant_busy", "conversation_busy")),
        )
        .values(not_before=tx.now, updated_at=tx.now)
    )
    tx.execute(statement)
    return True


def list_page(
    tx: Tx, conditions: Sequence[ColumnElement[bool]], limit: int, after: tuple[int, str] | None
) -> tuple[Sequence[RowMapping], tuple[int, str] | None]:
    """One page of receipts, newest first."""
    return page(tx, RECEIPTS, select(RECEIPTS).where(*conditions), limit, after)


def census(workspace_id: str | None) -> Select[Any]:
    """Rows by status and code, with the earliest arrival of each; of one workspace or of all."""
    statement = select(R.status, R.error_code, func.count().label("rows"), func.min(R.created_at).label("oldest"))
    if workspace_id is not None:
        statement = statement.where(R.workspace == workspace_id)
    return statement.group_by(R.status, R.error_code)


def newest_arrival(tx: Tx) -> int | None:
    """When the newest receipt was made."""
    row = tx.find(select(R.created_at).order_by(R.id.desc()).limit(1))
    return row["created_at"] if row is not None else None


def ids_between(tx: Tx, after: str, before: str, limit: int) -> Sequence[RowMapping]:
    """Id, state and purge of receipts in rising id order, which is the order of arrival."""
    return tx.rows(select(R.id, R.status, R.purged_at).where(R.id > after, R.id < before).order_by(R.id).limit(limit))


def purge(tx: Tx, receipt_ids: Sequence[str]) -> int:
    """Clear text and inbound hash of ended receipts; how many rows changed. What is open is left alone."""
    statement = (
        update(RECEIPTS)
        .where(R.id.in_(receipt_ids), R.status.in_(ENDED), R.purged_at.is_(None))
        .values(content_text=None, request_hash=None, purged_at=tx.now, updated_at=tx.now)
    )
    return tx.execute(statement).rowcount


def lapsed_with_turn(tx: Tx, limit: int) -> Sequence[RowMapping]:
    """As `lapsed`, but only what made a turn: `set_turn` is in the commit that begins it."""
    return tx.rows(_LAPSED_WITH_TURN, {"now": tx.now, "at_most": limit})
