"""All tables of the product, imported so that the one MetaData is whole."""

from __future__ import annotations

from sqlalchemy import Table

from frontdesk.desk.artifacts import tables as artifacts
from frontdesk.desk.connections import tables as connections
from frontdesk.desk.conversations import tables as conversations
from frontdesk.desk.grants import tables as grants
from frontdesk.desk.inbox import tables as inbox
from frontdesk.desk.outbox import tables as outbox
from frontdesk.desk.runs import tables as runs
from frontdesk.identity import tables as identity
from frontdesk.storage.metadata import METADATA

ROOMS = (identity, conversations, runs, connections, artifacts, grants, inbox, outbox)
CIPHERTEXTS = (*connections.CIPHERTEXTS, *grants.CIPHERTEXTS)
# What goes with the desk's own rooms: its audit is in receipts and deliveries.
DESK_TABLES = frozenset(
    noun.name
    for room in ROOMS
    if room.__name__.startswith("frontdesk.desk.")
    for noun in vars(room).values()
    if isinstance(noun, Table)
)

__all__ = ["CIPHERTEXTS", "DESK_TABLES", "METADATA", "ROOMS"]
