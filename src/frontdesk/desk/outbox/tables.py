"""Deliveries, settlements and the pace of each chat (desk.md 3)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from frontdesk.desk.outbox.machine import DELIVERY
from frontdesk.storage.columns import instant, lease_columns, one_of, ref, room_table, state_column, text_column, times
from frontdesk.storage.metadata import METADATA

DELIVERIES: Final = room_table(
    "deliveries",
    ref("workspace", "workspaces"),
    text_column("operation_id", 64),
    text_column("provider_uuid", 50),
    ref("installation", "installations"),
    ref("reply_grant", "reply_grants"),
    ref("artifact_grant", "artifact_grants", nullable=True),
    ref("receipt", "receipts", nullable=True),
    text_column("purpose", 24),
    text_column("chat_id", 255),
    text_column("reply_to_message_id", 255, nullable=True),
    text_column("payload_kind", 16),
    Column("text", Text, nullable=True),
    Column("payload_bytes", LargeBinary, nullable=True),
    text_column("file_name", 255, nullable=True),
    text_column("media_type", 127, nullable=True),
    Column("template_version", Integer, nullable=False),
    text_column("payload_hash", 64),
    text_column("request_hash", 64),
    *state_column(DELIVERY),
    Column("attempt_count", Integer, nullable=False, default=0),
    instant("not_before"),
    *lease_columns(),
    text_column("upload_key", 255, nullable=True),
    instant("sending_at", nullable=True),
    text_column("provider_message_id", 255, nullable=True),
    Column("provider_created_ms", BigInteger, nullable=True),
    text_column("error_code", 96, nullable=True),
    Column("provider_code", BigInteger, nullable=True),
    instant("sent_at", nullable=True),
    instant("read_back_due_at", nullable=True),
    Column("read_back_attempts", Integer, nullable=False, default=0),
    instant("read_back_at", nullable=True),
    text_column("read_back_result", 16, nullable=True),
    text_column("proved_by", 16, nullable=True),
    text_column("dedupe_key", 64),
    text_column("artifact_slot", 64, nullable=True),
    instant("acknowledged_at", nullable=True),
    ref("acknowledged_by", "users", nullable=True),
    text_column("acknowledged_reason", 1000, nullable=True),
    instant("purged_at", nullable=True),
    UniqueConstraint("operation_id"),
    UniqueConstraint("provider_uuid"),
    UniqueConstraint("receipt"),
    UniqueConstraint("installation", "provider_message_id"),
    UniqueConstraint("dedupe_key"),
    UniqueConstraint("artifact_slot"),
    one_of(
        "purpose",
        ("activation", "agent_reply", "proposal_notice", "failure_notice", "artifact_offer", "artifact_delivery"),
    ),
    one_of("payload_kind", ("text", "file", "artifact_offer")),
    one_of("read_back_result", ("found", "absent", "differs", "unknown"), nullable=True),
    one_of("proved_by", ("history",), nullable=True),
    CheckConstraint("attempt_count >= 0", name="attempt_count_not_negative"),
    CheckConstraint("payload_bytes IS NULL OR length(payload_bytes) <= 1048576", name="payload_bounded"),
    Index("ix_deliveries_lapsing", "status", "lease_expires_at"),
    Index("ix_deliveries_due", "status", "not_before"),
    Index("ix_deliveries_grant", "reply_grant", "created_at", "id"),
    Index("ix_deliveries_chat", "installation", "chat_id", "status", "created_at", "id"),
    Index("ix_deliveries_listed", "workspace", "created_at", "id"),
    Index("ix_deliveries_by_status", "workspace", "status", "created_at", "id"),
)

SETTLEMENTS: Final = room_table(
    "settlements",
    ref("delivery", "deliveries"),
    text_column("outcome", 24),
    text_column("reason", 1000),
    ref("actor_user", "users"),
    Column("evidence", JSON, nullable=False),
    UniqueConstraint("delivery"),
    one_of("outcome", ("settled_sent", "settled_not_sent")),
    CheckConstraint("length(reason) BETWEEN 1 AND 1000", name="reason_length"),
)

CHAT_PACING: Final = Table(
    "chat_pacing",
    METADATA,
    text_column("channel", 16),
    text_column("app_id", 255),
    text_column("chat_id", 255),
    instant("next_free_at"),
    *times(),
    PrimaryKeyConstraint("channel", "app_id", "chat_id"),
)
