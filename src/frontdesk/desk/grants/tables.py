"""Reply grants and artifact grants (desk.md 3)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, Index, Integer, Text, UniqueConstraint

from frontdesk.desk.grants.machine import ARTIFACT_GRANT, REPLY_GRANT
from frontdesk.storage.columns import instant, ref, room_table, state_column, text_column

REPLY_GRANTS: Final = room_table(
    "reply_grants",
    ref("workspace", "workspaces"),
    ref("installation", "installations"),
    ref("binding", "bindings"),
    ref("bound_user", "users"),
    ref("project", "projects"),
    ref("workflow", "workflows", nullable=True),
    ref("run", "runs", nullable=True),
    ref("conversation", "conversations"),
    text_column("context_hash", 64),
    Column("binding_revision", Integer, nullable=False),
    text_column("chat_id", 255),
    ref("created_by", "users"),
    text_column("create_request_id", 64),
    text_column("create_request_hash", 64),
    Column("cursor", BigInteger, nullable=False, default=0),
    *state_column(REPLY_GRANT),
    Column("version", Integer, nullable=False, default=1),
    instant("expires_at"),
    instant("revoked_at", nullable=True),
    ref("revoked_by", "users", nullable=True),
    text_column("active_slot", 64, nullable=True),
    UniqueConstraint("workspace", "project", "created_by", "create_request_id"),
    UniqueConstraint("active_slot"),
    CheckConstraint('"cursor" >= 0', name="cursor_not_negative"),
    CheckConstraint("(status = 'active') = (active_slot IS NOT NULL)", name="slot_follows_status"),
    CheckConstraint("version >= 1", name="version_positive"),
    Index("ix_reply_grants_expiring", "status", "expires_at"),
    Index("ix_reply_grants_conversation", "conversation", "created_at", "id"),
    Index("ix_reply_grants_chat", "installation", "chat_id", "status"),
)

ARTIFACT_GRANTS: Final = room_table(
    "artifact_grants",
    ref("workspace", "workspaces"),
    ref("reply_grant", "reply_grants", index=True),
    ref("conversation", "conversations"),
    ref("project", "projects"),
    ref("workflow", "workflows"),
    ref("run", "runs"),
    ref("artifact", "artifacts"),
    text_column("session", 64),
    text_column("content_hash", 64),
    text_column("title", 255),
    text_column("media_type", 127),
    Column("simulated", Boolean, nullable=False),
    ref("created_by", "users"),
    text_column("create_request_id", 64),
    text_column("create_request_hash", 64),
    text_column("claim_digest", 64),
    Column("claim_ct", Text, nullable=False),
    *state_column(ARTIFACT_GRANT),
    Column("version", Integer, nullable=False, default=1),
    instant("expires_at"),
    instant("redeemed_at", nullable=True),
    instant("revoked_at", nullable=True),
    text_column("error_code", 96, nullable=True),
    text_column("active_slot", 64, nullable=True),
    UniqueConstraint("workspace", "project", "created_by", "create_request_id"),
    UniqueConstraint("claim_digest"),
    UniqueConstraint("active_slot"),
    CheckConstraint("(status = 'active') = (active_slot IS NOT NULL)", name="slot_follows_status"),
    CheckConstraint("version >= 1", name="version_positive"),
    Index("ix_artifact_grants_expiring", "status", "expires_at"),
)

CIPHERTEXTS: Final = ((ARTIFACT_GRANTS, ("claim_ct",)),)
