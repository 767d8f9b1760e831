"""Verbs on deliveries: look-ups, fenced transitions, pacing, settlement. None of them uses the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement

from frontdesk.desk.outbox import store
from frontdesk.desk.outbox.machine import ENDED
from frontdesk.desk.outbox.model import Delivery, delivery_of
from frontdesk.desk.outbox.tables import DELIVERIES
from frontdesk.identity import record_event, require
from frontdesk.identity.model import Actor, Right
from frontdesk.kernel import limits
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.retry import backoff_us
from frontdesk.storage.guarded import Take
from frontdesk.storage.prepared import Prepared
from frontdesk.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class Target:
    """One of our messages that a person may reply to."""

    reply_grant_id: str
    chat_id: str
    valid: bool


def find_targets(tx: Tx, installation_id: str, parent_id: str | None, root_id: str | None) -> list[Target]:
    """Our deliveries that a message's parent and root name, the parent's first."""
    return [target_of(row) for row in store.find_by_message_ids(tx, installation_id, parent_id, root_id)]


def prepared_targets() -> tuple[Prepared, Prepared]:
    """`find_targets` as two parts of a bundled reading: `installation_id` with `parent_id` and with `root_id`."""
    return store.BY_PARENT, store.BY_ROOT


def target_of(row: Mapping[str, Any]) -> Target:
    """The value of a prepared row. Only `sent` and `settled_sent` deliveries are valid targets."""
    return Target(row["reply_grant"], row["chat_id"], row["status"] in ("sent", "settled_sent"))


def find_delivery(tx: Tx, delivery_id: str, *, lock: bool = False) -> Delivery | None:
    """One delivery by id, whoever asks; surfaces use `get`."""
    row = store.find(tx, delivery_id, lock=lock)
    return delivery_of(row) if row is not None else None


def find_of_receipt(tx: Tx, receipt_id: str) -> Delivery | None:
    """The one delivery of a receipt."""
    row = store.find_of_receipt(tx, receipt_id)
    return delivery_of(row) if row is not None else None


def find_activation(tx: Tx, reply_grant_id: str) -> Delivery | None:
    """The one activation of a reply grant."""
    row = store.find_by_dedupe_key(tx, f"activation:{reply_grant_id}")
    return delivery_of(row) if row is not None else None


def due(tx: Tx, limit: int, after: tuple[int, str] | None = None) -> list[tuple[str, int]]:
    """(id, not_before) of waiting deliveries that are due."""
    return [(row["id"], row["not_before"]) for row in store.due_ids(tx, limit, after)]


def claim(tx: Tx, delivery: Delivery, owner: str, lease_us: int) -> Delivery | None:
    """Pending or due retryable_failed → connecting: full lease, generation+1, attempt+1. None: someone was first."""
    row = store.move(
        tx,
        "claim",
        delivery.id,
        take=Take(owner, tx.now + lease_us),
        values={"attempt_count": DELIVERIES.c.attempt_count + 1, "error_code": None},
    )
    return delivery_of(row) if row is not None else None


def expire(tx: Tx, delivery_id: str) -> Delivery | None:
    """A waiting delivery past the stale-send limit fails without connecting."""
    return _ended(tx, store.move(tx, "expire", delivery_id, values={"error_code": "delivery_expired"}))


def forbid(tx: Tx, delivery: Delivery, code: str) -> Delivery | None:
    """Authority was lost before sending: the delivery fails and the channel is not used."""
    if delivery.status == "connecting":
        row = store.move(tx, "forbid_connecting", delivery.id, lease=delivery.lease, values={"error_code": code})
    else:
        row = store.move(tx, "forbid", delivery.id, values={"error_code": code})
    return _ended(tx, row)


def refuse(tx: Tx, delivery: Delivery, code: str, provider_code: int | None = None) -> Delivery | None:
    """Refused locally or for good while connecting: limits, media, address, a final upload answer."""
    values = {"error_code": code, "provider_code": provider_code}
    return _ended(tx, store.move(tx, "refuse", delivery.id, lease=delivery.lease, values=values))


def connect_failed(
    tx: Tx, delivery: Delivery, code: str, *, wait_us: int | None = None, provider_code: int | None = None
) -> Delivery | None:
    """Connect or upload did not come about: another try later, or the end at the cap. Never counts as sending."""
    if delivery.attempt_count >= limits.DELIVERY_ATTEMPTS_MAX:
        return refuse(tx, delivery, "attempts_exhausted", provider_code)
    return _later(tx, "connect_failed", delivery, code, wait_us=wait_us, provider_code=provider_code)


def postpone(tx: Tx, delivery: Delivery, not_before: int) -> Delivery | None:
    """The chat's slot is too far away: the attempt is given back."""
    row = store.move(
        tx,
        "postpone",
        delivery.id,
        lease=delivery.lease,
        values={
            "not_before": not_before,
            "attempt_count": DELIVERIES.c.attempt_count - 1,
            "error_code": "rate_limited",
        },
    )
    return _left(tx, row)


def begin(tx: Tx, delivery: Delivery, lease_us: int) -> Delivery | None:
    """t7: connecting → sending with a new full lease, while the old one is live. Committed before the wire request."""
    row = store.move(
        tx,
        "begin",
        delivery.id,
        lease=delivery.lease,
        take=Take(delivery.lease.owner, tx.now + lease_us),
        values={"sending_at": tx.now},
    )
    return delivery_of(row) if row is not None else None


def confirm(tx: Tx, delivery: Delivery, message_id: str, created_ms: int | None) -> Delivery | None:
    """Sending → sent. None: the lease was taken over, and what the provider said is dropped."""
    values = {
        "provider_message_id": message_id,
        "provider_created_ms": created_ms,
        "sent_at": tx.now,
        "error_code": None,
        "read_back_due_at": None,
    }
    return _ended(tx, store.move(tx, "confirm", delivery.id, lease=delivery.lease, values=values))


def refused_by_provider(tx: Tx, delivery: Delivery, code: str, provider_code: int | None) -> Delivery | None:
    """Sending → failed by a listed definite refusal."""
    values = {"error_code": code, "provider_code": provider_code}
    return _ended(tx, store.move(tx, "refused", delivery.id, lease=delivery.lease, values=values))


def not_sent(
    tx: Tx, delivery: Delivery, code: str, *, wait_us: int | None = None, provider_code: int | None = None
) -> Delivery | None:
    """Sending → retryable_failed by proof that no message was made; failed at the cap. Next time the same bytes."""
    if delivery.attempt_count >= limits.DELIVERY_ATTEMPTS_MAX:
        return refused_by_provider(tx, delivery, "attempts_exhausted", provider_code)
    return _later(tx, "not_sent", delivery, code, wait_us=wait_us, provider_code=provider_code)


def lose(tx: Tx, delivery: Delivery, provider_code: int | None = None) -> Delivery | None:
    """Sending → indeterminate: nobody knows, so nobody sends again."""
    values = {"error_code": "send_result_unknown", "provider_code": provider_code}
    return _ended(tx, store.move(tx, "lose", delivery.id, lease=delivery.lease, values=values))


def _later(
    tx: Tx, event: str, delivery: Delivery, code: str, *, wait_us: int | None, provider_code: int | None
) -> Delivery | None:
    wait = wait_us if wait_us is not None else backoff_us(delivery.attempt_count, tx.entropy)
    row = store.move(
        tx,
        event,
        delivery.id,
        lease=delivery.lease,
        values={"error_code": code, "provider_code": provider_code, "not_before": tx.now + wait},
    )
    return _left(tx, row)


def _left(tx: Tx, row: Any) -> Delivery | None:
    """A delivery that stands before its chat's later ones no more: they may be claimed now."""
    if row is None:
        return None
    tx.wake("deliveries")
    return delivery_of(row)


def _ended(tx: Tx, row: Any) -> Delivery | None:
    """Common end of a delivery: its event in the same transaction."""
    delivery = _left(tx, row)
    if delivery is not None and delivery.status in ENDED:
        record_delivery(tx, delivery)
    return delivery


def record_delivery(tx: Tx, delivery: Delivery, actor_id: str | None = None) -> None:
    """One content-free event for the delivery's present state."""
    record_event(
        tx,
        workspace_id=delivery.workspace_id,
        kind=f"delivery.{delivery.status}",
        object_kind="delivery",
        object_id=delivery.id,
        reply_grant_id=delivery.reply_grant_id,
        actor_id=actor_id,
        code=delivery.error_code,
        data={"purpose": delivery.purpose},
    )


def settle_lapsed(tx: Tx, limit: int) -> int:
    """Recovery: connecting with a lapsed lease → retryable (or the end at the cap), sending → indeterminate."""
    changed = 0
    for found in store.lapsed_ids(tx, limit):
        if found["status"] == "sending":
            values: dict[str, Any] = {"error_code": "send_result_unknown"}
            ended = _ended(tx, store.move(tx, "lapse", found["id"], values=values))
            changed += ended is not None
            continue
        row = store.move(
            tx, "interrupt", found["id"], values={"error_code": "connect_interrupted", "not_before": tx.now}
        )
        if row is not None:
            changed += 1
            if row["attempt_count"] >= limits.DELIVERY_ATTEMPTS_MAX:
                _ended(tx, store.move(tx, "exhaust", found["id"], values={"error_code": "attempts_exhausted"}))
    return changed


def expire_aged(tx: Tx, age_max_us: int, limit: int) -> list[Delivery]:
    """Sweeper: waiting deliveries older than the stale-send limit fail without connecting."""
    aged = store.aged_ids(tx, tx.now - age_max_us, limit)
    return [ended for delivery_id in aged if (ended := expire(tx, delivery_id)) is not None]


def store_upload_key(tx: Tx, delivery: Delivery, key: str) -> bool:
    """Keep the provider's file key, fenced; False means the lease is lost."""
    return store.store_upload_key(tx, delivery.id, delivery.lease, key)


@dataclass(frozen=True, slots=True)
class Slot:
    """A reserved moment in a chat, or (reserved False) when to come back."""

    reserved: bool
    at: int


def reserve_slot(tx: Tx, channel: str, app_id: str, chat_id: str) -> Slot:
    """Take the chat's next 200 ms slot where it lies within `pace_wait_max`; holds across processes."""
    free = max(store.next_free_at(tx, channel, app_id, chat_id), tx.now)
    if free - tx.now > limits.PACE_WAIT_MAX_US:
        return Slot(False, free)
    store.reserve_slot(tx, channel, app_id, chat_id, free + limits.CHAT_SLOT_US)
    return Slot(True, free)


# ------------------------------------------------------------------------------------------------- people


def get(tx: Tx, actor: Actor, workspace_id: str, delivery_id: str) -> Delivery:
    """One delivery for an operator. Raises `delivery_not_found` also for another workspace's."""
    require(tx, actor, workspace_id, Right.INBOX_WORK)
    delivery = find_delivery(tx, delivery_id)
    if delivery is None or delivery.workspace_id != workspace_id:
        raise Problem("delivery_not_found")
    return delivery


def list_deliveries(
    tx: Tx,
    actor: Actor,
    workspace_id: str,
    *,
    status: str | None,
    code: str | None,
    installation_id: str | None,
    limit: int,
    after: tuple[int, str] | None,
    hidden_grant_filter: Sequence[ColumnElement[bool]] = (),
) -> tuple[list[Delivery], tuple[int, str] | None]:
    """One page for operators, newest first; no text, chat or provider id is in what surfaces show."""
    require(tx, actor, workspace_id, Right.INBOX_WORK)
    column = DELIVERIES.c
    conditions: list[ColumnElement[bool]] = [column.workspace == workspace_id, *hidden_grant_filter]
    if status is not None:
        conditions.append(column.status == status)
    if code is not None:
        conditions.append(column.error_code == code)
    if installation_id is not None:
        conditions.append(column.installation == installation_id)
    rows, following = store.list_page(tx, conditions, limit, after)
    return [delivery_of(row) for row in rows], following


def find_owned(tx: Tx, delivery: Delivery, message_ids: Sequence[str]) -> frozenset[str]:
    """Those of the provider's message ids that another delivery of the installation holds."""
    return frozenset(store.owned_message_ids(tx, delivery.installation_id, message_ids, but=delivery.id))


def has_unproven_twin(tx: Tx, delivery: Delivery) -> bool:
    """True where another delivery may have put the very same text to the same place, and no id says which is whose."""
    if delivery.payload_kind != "text" or delivery.sending_at is None:
        return False
    reach_us = limits.READ_BACK_BEFORE_US + limits.READ_BACK_AFTER_US
    return store.find_unproven_twin(tx, delivery.id, delivery.sending_at - reach_us, delivery.sending_at + reach_us)


def note_read_back(tx: Tx, delivery_id: str, result: str) -> None:
    """Keep the result of one look into the provider's history; it proves nothing by itself and sends nothing."""
    store.store_read_back(tx, delivery_id, result)


def settle(
    tx: Tx,
    actor: Actor,
    workspace_id: str,
    delivery_id: str,
    *,
    outcome: str,
    reason: str,
    read_back: tuple[str, str | None] | None,
) -> Delivery:
    """A person decides an indeterminate delivery; sends nothing.

    `read_back` is (result, found message id) where accepted. Raises `delivery_not_found`, `already_settled`,
    `delivery_not_indeterminate`. Guard: status = indeterminate; a late worker write and a settlement have one winner.
    Only an accepted, found read-back makes the message a valid reply target.
    """
    require(tx, actor, workspace_id, Right.ACTIONS_APPROVE)
    row = store.find(tx, delivery_id, lock=True)
    if row is None or row["workspace"] != workspace_id:
        raise Problem("delivery_not_found")
    if row["status"] in ("settled_sent", "settled_not_sent"):
        raise Problem("already_settled")
    message_id = read_back[1] if read_back is not None and outcome == "settled_sent" else None
    values: dict[str, Any] = {"provider_message_id": message_id} if message_id is not None else {}
    event = "settle_sent" if outcome == "settled_sent" else "settle_not_sent"
    settled = store.move(tx, event, delivery_id, values=values)
    if settled is None:
        raise Problem("delivery_not_indeterminate")
    evidence = {"read_back": read_back[0]} if read_back is not None else {}
    inserted = store.insert_settlement(
        tx,
        {
            "id": tx.new_id("stl"),
            "created_at": tx.now,
            "updated_at": tx.now,
            "delivery": delivery_id,
            "outcome": outcome,
            "reason": reason,
            "actor_user": actor.user_id,
            "evidence": evidence,
        },
    )
    if not inserted:
        raise Problem("already_settled")
    delivery = delivery_of(settled)
    record_delivery(tx, delivery, actor.user_id)
    return delivery
