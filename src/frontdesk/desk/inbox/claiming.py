"""t1: who works on which receipt, and what becomes of one whose worker went away (desk.md 5.4).

A claim is one conditional UPDATE that raises the generation; the partial unique index admits one `processing` receipt
of a
grant even where this module's own checks were missing. An expired holder is settled in the transaction of whoever
comes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frontdesk.desk import conversations, grants, outbox
from frontdesk.desk.conversations.model import Turn
from frontdesk.desk.inbox import store
from frontdesk.desk.inbox.endings import complete, fail, notice_due, record_receipt, record_turn
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

    Bounded by one scan page of each; what is left is found by the next call. `found_work` is called before the first
    write. Does not prevent that a claimed receipt's grant is revoked a moment later: each later step judges anew.
    """
    claimed: list[Receipt] = []
    lapsed = store.lapsed(tx, limits.SCAN_PAGE)
    if lapsed:
        found_work()
    for found in lapsed:
        if len(claimed) >= order.limit:
            return claimed
        receipt = _take_over(tx, found["id"], found["attempt_count"], order)
        if receipt is None or settle(tx, receipt, parts):
            continue
        if found["attempt_count"] >= limits.RECEIPT_ATTEMPTS_MAX:
            fail(tx, receipt, "attempts_exhausted")
            continue
        claimed.append(receipt)
    # Looked for only now: what was settled above may have made the next receipt of its grant due.
    heads = store.heads(tx, limits.SCAN_PAGE)
    if heads and not lapsed:
        found_work()
    for found in heads:
        if len(claimed) >= order.limit:
            break
        receipt = _claim_head(tx, found["id"], found["attempt_count"], order)
        if receipt is not None:
            claimed.append(receipt)
    return claimed


def recover(tx: Tx, owner: str, lease_us: int, limit: int, parts: Parts) -> int:
    """Settle expired receipts that have a turn; how many. Those without one wait for the next claim and hide nobody."""
    settled = 0
    for found in store.lapsed_with_turn(tx, limit):
        receipt = _take_over(tx, found["id"], found["attempt_count"], Claim(owner, lease_us, 1))
        if receipt is not None and settle(tx, receipt, parts):
            settled += 1
    return settled


def _turn_of(tx: Tx, receipt: Receipt, parts: Parts) -> Turn | None:
    """The turn that a receipt made, by its derived request id."""
    if receipt.conversation_id is None or receipt.reply_grant_id is None:
        return None
    channel = parts.find_channel(tx, receipt.installation_id)
    if channel is None:  # no longer installed: one such receipt must not keep the others from being settled
        return conversations.find_turn(tx, receipt.turn_id) if receipt.turn_id is not None else None
    request_id = turn_request_id(channel.prefix, receipt.installation_id, receipt.provider_message_id)
    return conversations.find_connector_turn(tx, receipt.conversation_id, request_id)


def _take_over(tx: Tx, receipt_id: str, attempts: int, order: Claim) -> Receipt | None:
    """Take an expired holder's place. At the cap it is taken only to be ended, which is no further attempt."""
    counts = 0 if attempts >= limits.RECEIPT_ATTEMPTS_MAX else 1
    values = {"attempt_count": RECEIPTS.c.attempt_count + counts}
    row = store.move(tx, "take_over", receipt_id, take=Take(order.owner, tx.now + order.lease_us), values=values)
    return receipt_of(row) if row is not None else None


def _claim_head(tx: Tx, receipt_id: str, attempts: int, order: Claim) -> Receipt | None:
    if attempts >= limits.RECEIPT_ATTEMPTS_MAX:
        row = store.move(tx, "exhaust", receipt_id, values={"error_code": "attempts_exhausted", "processed_at": tx.now})
        if row is not None:
            record_receipt(tx, receipt_of(row))
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
    turn = _turn_of(tx, receipt, parts)
    if turn is None or receipt.reply_grant_id is None:
        return False
    if turn.running:
        conversations.fail_turn(tx, turn.id, INDETERMINATE)
        record_turn(tx, receipt, turn.id, "failed", INDETERMINATE)
        fail(tx, receipt, INDETERMINATE, turn_id=turn.id)
        return True
    if not turn.answered:
        code = "stopped_by_owner" if turn.cancel_requested_at is not None else turn.error_code or INDETERMINATE
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
