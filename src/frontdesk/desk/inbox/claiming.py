"""t1: who works on which receipt, and what becomes of one whose worker went away (desk.md 5.4).

A claim is one conditional UPDATE that raises the generation; the partial unique index admits one `processing` receipt of a
grant even where this module's own checks were missing. An expired holder is settled in the transaction of whoever comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frontdesk.desk import conversations, grants, outbox
from frontdesk.desk.inbox import store
from frontdesk.desk.inbox.endings import complete, fail, notice_due
from frontdesk.desk.inbox.model import Receipt, receipt_of, turn_request_id
from frontdesk.desk.inbox.ports import Parts
from frontdesk.desk.inbox.tables import RECEIPTS
from frontdesk.kernel import limits
from frontdesk.storage.guarded import Take
from frontdesk.storage.tx import Tx

INDETERMINATE = "agent_execution_indeterminate"


@dataclass(frozen=True, slots=True)
class Claim:
    """Up to `limit` receipts for one owner, each with a full lease."""

    owner: str
    lease_us: int
    limit: int


def claim(tx: Tx, order: Claim, parts: Parts, found_work: Callable[[], None] = lambda: None) -> list[Receipt]:
    """Take over what expired (settling what has a turn), then claim due heads. Returns what is to be worked on.

    Bounded by one scan page; what is left is found by the next call. `found_work` is called once where there is something. Does not prevent that a claimed receipt's grant is
    revoked a moment later: each later step judges anew.
    """
    claimed: list[Receipt] = []
    lapsed = store.lapsed(tx, limits.SCAN_PAGE)
    heads = store.heads(tx, limits.SCAN_PAGE)
    if lapsed or heads:
        found_work()
    for found in lapsed:
        if len(claimed) >= order.limit:
            return claimed
        receipt = _take_over(tx, found["id"], order)
        if receipt is None or settle(tx, receipt, parts) or _exhausted(tx, receipt):
            continue
        claimed.append(receipt)
    for found in heads:
        if len(claimed) >= order.limit:
            break
        receipt = _claim_head(tx, found["id"], found["attempt_count"], order)
        if receipt is not None:
            claimed.append(receipt)
    return claimed


def recover(tx: Tx, owner: str, lease_us: int, limit: int, parts: Parts) -> int:
    """Settle expired receipts that have a turn; those without one wait for the next claim. Returns how many were settled."""
    settled = 0
    for found in store.lapsed(tx, limit):
        if _has_turn(tx, found["id"], parts) is False:
            continue
        receipt = _take_over(tx, found["id"], Claim(owner, lease_us, 1))
        if receipt is not None and settle(tx, receipt, parts):
            settled += 1
    return settled


def _has_turn(tx: Tx, receipt_id: str, parts: Parts) -> bool:
    row = store.find(tx, receipt_id)
    if row is None or row["conversation"] is None:
        return False
    receipt = receipt_of(row)
    request_id = turn_request_id(
        parts.channel_of(tx, receipt.installation_id).prefix, receipt.installation_id, receipt.provider_message_id
    )
    return conversations.find_connector_turn(tx, row["conversation"], request_id) is not None


def _take_over(tx: Tx, receipt_id: str, order: Claim) -> Receipt | None:
    values = {"attempt_count": RECEIPTS.c.attempt_count + 1}
    row = store.move(tx, "take_over", receipt_id, take=Take(order.owner, tx.now + order.lease_us), values=values)
    return receipt_of(row) if row is not None else None


def _exhausted(tx: Tx, receipt: Receipt) -> bool:
    if receipt.attempt_count <= limits.RECEIPT_ATTEMPTS_MAX:
        return False
    fail(tx, receipt, "attempts_exhausted")
    return True


def _claim_head(tx: Tx, receipt_id: str, attempts: int, order: Claim) -> Receipt | None:
    if attempts >= limits.RECEIPT_ATTEMPTS_MAX:
        row = store.move(
            tx, "exhaust", receipt_id, values={"error_code": "attempts_exhausted", "processed_at": tx.now}
        )
        if row is not None and row["reply_grant"] is not None:
            store.make_next_due(tx, row["reply_grant"])
        return None
    take = Take(order.owner, tx.now + order.lease_us)
    values = {
        "attempt_count": RECEIPTS.c.attempt_count + 1,
        "processing_started_at": tx.now,
        "error_code": None,
    }
    row, busy = store.try_claim(tx, receipt_id, take, values)
    if busy:
        later = {"error_code": "reply_grant_busy", "not_before": tx.now + limits.BUSY_RETRY_US}
        store.move(tx, "defer", receipt_id, values=later)
    return receipt_of(row) if row is not None else None


def settle(tx: Tx, receipt: Receipt, parts: Parts) -> bool:
    """Apply desk.md 5.4 to a receipt just taken over. False: no turn exists, so it runs normally.

    Only a state after the final commit counts as done; a running turn may have acted, so nothing is run or sent again.
    """
    channel = parts.channel_of(tx, receipt.installation_id)
    request_id = turn_request_id(channel.prefix, receipt.installation_id, receipt.provider_message_id)
    if receipt.conversation_id is None or receipt.reply_grant_id is None:
        return False
    turn = conversations.find_connector_turn(tx, receipt.conversation_id, request_id)
    if turn is None:
        return False
    if turn.running:
        conversations.fail_turn(tx, turn.id, INDETERMINATE)
        fail(tx, receipt, INDETERMINATE, turn_id=turn.id)
        return True
    if not turn.answered:
        code = turn.error_code or INDETERMINATE
        fail(tx, receipt, code, turn_id=turn.id, notice=notice_due(code), parts=parts)
        return True
    grant = grants.read_grant(tx, receipt.reply_grant_id)
    proven = turn.committed_revision is not None and grant.cursor >= turn.committed_revision
    if not proven:
        fail(tx, receipt, INDETERMINATE, turn_id=turn.id)
        return True
    if outbox.find_of_receipt(tx, receipt.id) is not None:
        complete(tx, receipt, turn, deliver=False, parts=parts)
    else:
        complete(tx, receipt, turn, deliver=True, parts=parts)
    return True
