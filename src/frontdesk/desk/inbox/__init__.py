"""Receipts: every inbound message, durable before it is acknowledged. The receipt row is the queue; there is no other.

Owns the noun receipt. Invariants: one receipt per (installation, provider message id); at most one `processing`
receipt of a grant (partial unique index), whose lease is the only one; receipts of a grant run in arrival order; a
rejected receipt keeps no text. `reception` is t0, `claiming` t1 and the recovery matrix, `working` t1b, t3 and tF,
`endings` t4 and how a receipt ends, `worker` drives them.
"""

from frontdesk.desk.inbox.claiming import recover
from frontdesk.desk.inbox.endings import revoke_completed
from frontdesk.desk.inbox.machine import OPEN
from frontdesk.desk.inbox.model import Receipt, ReceiptConflict, Received, SecretsChanged, turn_request_id
from frontdesk.desk.inbox.ports import Parts
from frontdesk.desk.inbox.reception import Push, receive, receive_together
from frontdesk.desk.inbox.service import (
    acknowledge,
    census,
    get,
    list_dead,
    list_receipts,
    lock_facts,
    newest_arrival,
    purge,
    purgeable,
)
from frontdesk.desk.inbox.worker import ReceiptWorker

__all__ = [
    "OPEN",
    "Parts",
    "Push",
    "Receipt",
    "ReceiptConflict",
    "ReceiptWorker",
    "Received",
    "SecretsChanged",
    "acknowledge",
    "census",
    "get",
    "list_dead",
    "list_receipts",
    "lock_facts",
    "newest_arrival",
    "purge",
    "purgeable",
    "receive",
    "receive_together",
    "recover",
    "revoke_completed",
    "turn_request_id",
]
