"""Conversations, turns and proposals."""

from __future__ import annotations

from typing import Final

from sqlalchemy import JSON, BigInteger, CheckConstraint, Column, Index, Integer, Text, UniqueConstraint, text

from frontdesk.desk.conversations.machine import CONVERSATION, PROPOSAL, TURN
from frontdesk.storage.columns import instant, lease_columns, one_of, ref, room_table, state_column, text_column

CONVERSATIONS: Final = room_table(
    "conversations",
    ref("workspace", "workspaces", index=True),
    ref("owner_user", "users"),
    ref("project", "projects", nullable=True),
    text_column("title", 255),
    *state_column(CONVERSATION),
    Column("context", JSON, nullable=False),
    text_column("context_hash", 64),
    Column("revision", BigInteger, nullable=False, default=0),
    Column("session_number", Integer, nullable=False, default=1),
    Column("session_start_ms", BigInteger, nullable=False),
    instant("closed_at", nullable=True),
    CheckConstraint("revision >= 0", name="revision_not_negative"),
    CheckConstraint("session_number >= 1", name="session_number_positive"),
    Index("ix_conversations_owner", "workspace", "owner_user", "created_at", "id"),
)

TURNS: Final = room_table(
    "turns",
    ref("conversation", "conversations"),
    Column("sequence", Integer, nullable=False),
    text_column("request_id", 64),
    text_column("surface", 16),
    Column("user_content", Text, nullable=False),
    Column("response", JSON(none_as_null=True), nullable=True),
    Column("context_snapshot", JSON, nullable=False),
    Column("tool_trace", JSON, nullable=False),
    *state_column(TURN),
    Column("runner", JSON, nullable=False),
    text_column("error_code", 96, nullable=True),
    Column("error_message", Text, nullable=True),
    instant("cancel_requested_at", nullable=True),
    Column("committed_revision", BigInteger, nullable=True),
    *lease_columns(),
    instant("completed_at", nullable=True),
    UniqueConstraint("conversation", "sequence"),
    UniqueConstraint("conversation", "request_id"),
    CheckConstraint("sequence > 0", name="sequence_positive"),
    CheckConstraint("length(request_id) BETWEEN 1 AND 64", name="request_id_length"),
    one_of("surface", ("console", "api", "channel")),
    Index(
        "uq_turns_one_running",
        "conversation",
        unique=True,
        sqlite_where=text("status = 'running'"),
        postgresql_where=text("status = 'running'"),
    ),
    Index("ix_turns_lapsing", "status", "lease_expires_at"),
)

PROPOSALS: Final = room_table(
    "proposals",
    ref("workspace", "workspaces", index=True),
    ref("conversation", "conversations", index=True),
    ref("turn", "turns"),
    text_column("tool", 128),
    Column("args", JSON, nullable=False),
    Column("summary", Text, nullable=False),
    Column("diff", Text, nullable=True),
    text_column("target_kind", 64),
    text_column("target_id", 64),
    Column("target_version", BigInteger, nullable=False),
    Column("permission_version", BigInteger, nullable=False),
    text_column("required_permission", 64),
    Column("version", Integer, nullable=False, default=1),
    *state_column(PROPOSAL),
    ref("actor_user", "users"),
    text_column("actor_method", 16),
    ref("decided_by", "users", nullable=True),
    instant("decided_at", nullable=True),
    Column("decision_reason", Text, nullable=True),
    UniqueConstraint("turn"),
    CheckConstraint("version >= 1", name="version_positive"),
    one_of("actor_method", ("local", "bootstrap", "oidc", "connector")),
)
