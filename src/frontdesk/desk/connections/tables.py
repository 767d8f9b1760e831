"""Installations, binding challenges, bindings and workers. `CIPHERTEXTS` lists the columns to rotate."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from frontdesk.desk.connections.machine import INSTALLATION
from frontdesk.storage.columns import instant, lease_columns, one_of, ref, room_table, state_column, text_column, times
from frontdesk.storage.metadata import METADATA

INSTALLATIONS: Final = room_table(
    "installations",
    ref("workspace", "workspaces"),
    text_column("channel", 16),
    text_column("name", 255),
    text_column("app_id", 255),
    text_column("tenant_key", 255),
    text_column("inbound", 16),
    Column("app_secret_ct", Text, nullable=True),
    Column("encrypt_key_ct", Text, nullable=True),
    Column("verification_token_ct", Text, nullable=True),
    Column("target_url", Text, nullable=True),
    text_column("command_language", 8),
    text_column("provider_zone", 64, nullable=True),
    Column("late_answers_enabled", Boolean, nullable=False, default=False),
    *state_column(INSTALLATION),
    Column("config_revision", Integer, nullable=False, default=1),
    text_column("bot_open_id", 255, nullable=True),
    *lease_columns(),
    instant("last_ready_at", nullable=True),
    text_column("last_error_code", 96, nullable=True),
    instant("last_error_at", nullable=True),
    instant("revoked_at", nullable=True),
    ref("revoked_by", "users", nullable=True),
    UniqueConstraint("workspace", "channel", "tenant_key", "app_id"),
    one_of("inbound", ("webhook", "long_connection")),
    one_of("command_language", ("zh", "en")),
    CheckConstraint("config_revision >= 1", name="config_revision_positive"),
)

CHALLENGES: Final = room_table(
    "binding_challenges",
    ref("installation", "installations"),
    ref("user", "users"),
    text_column("code_digest", 64),
    instant("expires_at"),
    instant("consumed_at", nullable=True),
    UniqueConstraint("code_digest"),
)

BINDINGS: Final = room_table(
    "bindings",
    ref("installation", "installations"),
    ref("user", "users"),
    text_column("tenant_key", 255),
    text_column("sender_id", 255),
    text_column("chat_id", 255),
    Column("active", Boolean, nullable=False),
    Column("revision", Integer, nullable=False, default=1),
    instant("revoked_at", nullable=True),
    ref("revoked_by", "users", nullable=True),
    UniqueConstraint("installation", "user", "tenant_key", "sender_id"),
    CheckConstraint("revision >= 1", name="revision_positive"),
    Index(
        "uq_bindings_active_sender",
        "installation",
        "tenant_key",
        "sender_id",
        unique=True,
        sqlite_where=text("active = 1"),
        postgresql_where=text("active"),
    ),
    Index(
        "uq_bindings_active_user",
        "installation",
        "user",
        unique=True,
        sqlite_where=text("active = 1"),
        postgresql_where=text("active"),
    ),
)

WORKERS: Final = Table(
    "workers",
    METADATA,
    Column("owner", String(64), primary_key=True),
    *times(),
    Column("started_at", BigInteger, nullable=False),
    Column("last_seen_at", BigInteger, nullable=False),
    Column("accepting_claims", Boolean, nullable=False),
    Column("outbound_started", Boolean, nullable=False),
    Column("artifact_configured", Boolean, nullable=False),
    Column("version", String(32), nullable=False),
)

CIPHERTEXTS: Final = ((INSTALLATIONS, ("app_secret_ct", "encrypt_key_ct", "verification_token_ct")),)
