"""Dead letters: receipts and deliveries that ended badly, by code and age. Acknowledging only hides them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from frontdesk.desk import inbox, outbox
from frontdesk.desk.inbox import Receipt
from frontdesk.desk.outbox import Delivery
from frontdesk.identity import require
from frontdesk.identity.model import Actor, Right
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.errors import Problem
from frontdesk.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One of them, without content: `purpose` is a receipt's intent or a delivery's purpose."""

    id: str
    kind: str
    status: str
    code: str | None
    purpose: str
    attempts: int
    age_seconds: int
    installation_id: str
    reply_grant_id: str | None
    created_at: int
    updated_at: int
    acknowledged_at: int | None
    acknowledged_by: str | None
    acknowledged_reason: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters; None takes all. `older_than_us` is an age."""

    kind: str | None = None
    code: str | None = None
    installation_id: str | None = None
    older_than_us: int | None = None
    acknowledged: bool = False


def list_dead_letters(
    tx: Tx, actor: Actor, workspace_id: str, wanted: Filter, *, limit: int, after: tuple[int, str] | None
) -> tuple[list[DeadLetter], tuple[int, str] | None]:
    """One page over both kinds, newest first. Raises as `require` does (`inbox.work`)."""
    require(tx, actor, workspace_id, Right.INBOX_WORK)
    narrowed: dict[str, Any] = {
        "code": wanted.code,
        "installation_id": wanted.installation_id,
        "born_before": None if wanted.older_than_us is None else tx.now - wanted.older_than_us,
        "acknowledged": wanted.acknowledged,
        "limit": limit,
        "after": after,
    }
    found: list[DeadLetter] = []
    more = False
    if wanted.kind in (None, "receipt"):
        receipts, following = inbox.list_dead(tx, workspace_id, **narrowed)
        found += [_receipt(tx, each) for each in receipts]
        more = following is not None
    if wanted.kind in (None, "delivery"):
        deliveries, following = outbox.list_dead(tx, workspace_id, **narrowed)
        found += [_delivery(tx, each) for each in deliveries]
        more = more or following is not None
    found.sort(key=lambda each: (each.created_at, each.id), reverse=True)
    page = found[:limit]
    if not page or (len(found) <= limit and not more):
        return page, None
    return page, (page[-1].created_at, page[-1].id)


def acknowledge(tx: Tx, actor: Actor, workspace_id: str, ids: Sequence[str], reason: str) -> tuple[int, int]:
    """Mark dead letters as seen: (marked now, marked before). All or nothing.

    Raises `dead_letter_not_found` where one of them is absent, foreign, or neither failed nor unknown. A second time
    changes nothing: the first reason stays.
    """
    require(tx, actor, workspace_id, Right.INBOX_WORK)
    wanted = dict.fromkeys(ids)
    # In one order, receipts before deliveries, so that two operators never wait for each other in a circle.
    marked = [_room_of(each)(tx, actor, workspace_id, each, reason) for each in sorted(wanted, key=_order)]
    return sum(marked), len(marked) - sum(marked)


def _order(letter_id: str) -> tuple[bool, str]:
    return not letter_id.startswith("rcp_"), letter_id


def _room_of(letter_id: str) -> Callable[[Tx, Actor, str, str, str], bool]:
    if letter_id.startswith("rcp_"):
        return inbox.acknowledge
    if letter_id.startswith("dlv_"):
        return outbox.acknowledge
    raise Problem("dead_letter_not_found")


def _age(tx: Tx, born: int) -> int:
    return max(0, tx.now - born) // SECOND


def _receipt(tx: Tx, receipt: Receipt) -> DeadLetter:
    return DeadLetter(
        id=receipt.id,
        kind="receipt",
        status=receipt.status,
        code=receipt.error_code,
        purpose=receipt.intent,
        attempts=receipt.attempt_count,
        age_seconds=_age(tx, receipt.created_at),
        installation_id=receipt.installation_id,
        reply_grant_id=receipt.reply_grant_id,
        created_at=receipt.created_at,
        updated_at=receipt.updated_at,
        acknowledged_at=receipt.acknowledged_at,
        acknowledged_by=receipt.acknowledged_by,
        acknowledged_reason=receipt.acknowledged_reason,
    )


def _delivery(tx: Tx, delivery: Delivery) -> DeadLetter:
    return DeadLetter(
        id=delivery.id,
        kind="delivery",
        status=delivery.status,
        code=delivery.error_code,
        purpose=delivery.purpose,
        attempts=delivery.attempt_count,
        age_seconds=_age(tx, delivery.created_at),
        installation_id=delivery.installation_id,
        reply_grant_id=delivery.reply_grant_id,
        created_at=delivery.created_at,
        updated_at=delivery.updated_at,
        acknowledged_at=delivery.acknowledged_at,
        acknowledged_by=delivery.acknowledged_by,
        acknowledged_reason=delivery.acknowledged_reason,
    )
