"""Receipts: one inbound message each, durable before it is acknowledged (desk.md 3)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, Text, UniqueConstraint, text

from frontdesk.desk.inbox.machine import RECEIPT
from frontdesk.storage.columns import instant, lease_columns, one_of, ref, room_table, state_column, text_column

RECEIPTS: Final = room_table(
    "receipts",
    ref("workspace", "workspaces"),
    ref("installation", "installations"),
    text_column("provider_message_id", 255),
    text_column("provider_event_id", 255),
    text_column("transport", 16),
    text_column("execution", 16),
    text_column("request_hash", 64, nullable=True),
    text_column("tenant_key", 255),
    text_column("sender_id", 255),
    text_column("chat_id", 255),
    text_column("parent_message_id", 255, nullable=True),
    text_column("root_message_id", 255, nullable=True),
    Column("provider_created_at", BigInteger, nullable=False),
    Column("content_text", Text, nullable=True),
    text_column("intent", 16),
    *state_column(RECEIPT),
    text_column("error_code", 96, nullable=True),
    ref("binding", "bindings", nullable=True),
    ref("conversation", "conversations", nullable=True),
    ref("reply_grant", "reply_grants", nullable=True),
    ref("artifact_grant", "artifact_grants", nullable=True),
    ref("turn", "turns", nullable=True),
    *lease_columns(),
    Column("attempt_count", Integer, nullable=False, default=0),
    instant("not_before"),
    instant("processing_started_at", nullable=True),
    instant("processed_at", nullable=True),
    instant("acknowledged_at", nullable=True),
    ref("acknowledged_by", "users", nullable=True),
    text_column("acknowledged_reason", 1000, nullable=True),
    instant("purged_at", nullable=True),
    UniqueConstraint("installation", "provider_message_id"),
    one_of("transport", ("webhook", "long_connection", "history")),
    one_of("execution", ("work", "answer_only")),
    one_of("intent", ("binding", "reply", "artifact_claim", "control")),
    CheckConstraint("attempt_count >= 0", name="attempt_count_not_negative"),
    Index(
        "uq_receipts_one_in_work",
        "reply_grant",
        unique=True,
        sqlite_where=text("status = 'processing'"),
        postgresql_where=text("status = 'processing'"),
    ),
    Index("ix_receipts_lapsing", "status", "lease_expires_at"),
    Index("ix_receipts_arrival", "reply_grant", "status", "created_at", "id"),
    Index("ix_receipts_due", "status", "not_before"),
    Index("ix_receipts_sender", "installation", "sender_id", "created_at"),
    Index("ix_receipts_listed", "workspace", "created_at", "id"),
    Index("ix_receipts_by_status", "workspace", "status", "created_at", "id"),
)
