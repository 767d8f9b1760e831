"""Deliveries: one outbound message each, an immutable snapshot with at most one wire request per operation id.

Owns the nouns delivery, settlement and chat pacing. Invariants: a snapshot never changes after insert; one delivery per
receipt, one activation per grant, one offer per artifact grant (`dedupe_key`); from `sending` on only a listed proof
leads back to another try. The steps that use the network live in `desk/sending`; who may send is decided in
`desk/grants/authority.py`.
"""

from frontdesk.desk.outbox import templates
from frontdesk.desk.outbox.machine import WAITING
from frontdesk.desk.outbox.model import REPLIES, Delivery, Payload
from frontdesk.desk.outbox.neutral import neutralise
from frontdesk.desk.outbox.service import (
    Slot,
    Target,
    begin,
    claim,
    confirm,
    connect_failed,
    due,
    expire,
    expire_aged,
    find_activation,
    find_delivery,
    find_of_receipt,
    find_owned,
    find_targets,
    forbid,
    get,
    has_unproven_twin,
    list_deliveries,
    lose,
    not_sent,
    note_read_back,
    postpone,
    prepared_targets,
    refuse,
    refused_by_provider,
    reserve_slot,
    settle,
    settle_lapsed,
    store_upload_key,
    target_of,
)
from frontdesk.desk.outbox.snapshot import answer_payload, take_snapshot, text_payload
from frontdesk.desk.outbox.upkeep import acknowledge, census, list_dead, purge, purgeable

__all__ = [
    "REPLIES",
    "WAITING",
    "Delivery",
    "Payload",
    "Slot",
    "Target",
    "acknowledge",
    "answer_payload",
    "begin",
    "census",
    "claim",
    "confirm",
    "connect_failed",
    "due",
    "expire",
    "expire_aged",
    "find_activation",
    "find_delivery",
    "find_of_receipt",
    "find_owned",
    "find_targets",
    "forbid",
    "get",
    "has_unproven_twin",
    "list_dead",
    "list_deliveries",
    "lose",
    "neutralise",
    "not_sent",
    "note_read_back",
    "postpone",
    "prepared_targets",
    "purge",
    "purgeable",
    "refuse",
    "refused_by_provider",
    "reserve_slot",
    "settle",
    "settle_lapsed",
    "store_upload_key",
    "take_snapshot",
    "target_of",
    "templates",
    "text_payload",
]
