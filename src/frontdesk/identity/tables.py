"""Identity's rows: users, workspaces, members, sessions, tokens, projects, workflows and the one event table."""

from __future__ import annotations

from typing import Final

from sqlalchemy import JSON, Boolean, CheckConstraint, Column, Index, String, UniqueConstraint

from frontdesk.identity.model import ACCESS_VALUES, AUTH_METHODS, LOCALES, ROLES, TOKEN_KINDS
from frontdesk.storage.columns import instant, one_of, ref, room_table, text_column

USERS: Final = room_table(
    "users",
    text_column("subject", 600),
    text_column("username", 255, nullable=True),
    text_column("email", 320),
    text_column("display_name", 255),
    text_column("locale", 8, nullable=True),
    text_column("password_hash", 512, nullable=True),
    Column("is_platform_admin", Boolean, nullable=False, default=False),
    instant("disabled_at", nullable=True),
    UniqueConstraint("subject"),
    UniqueConstraint("username"),
    one_of("locale", LOCALES, nullable=True),
)

WORKSPACES: Final = room_table(
    "workspaces",
    text_column("name", 255),
    text_column("slug", 64),
    text_column("runner", 64, nullable=True),
    Column("active", Boolean, nullable=False, default=True),
    UniqueConstraint("slug"),
)

MEMBERS: Final = room_table(
    "workspace_members",
    ref("workspace", "workspaces"),
    ref("user", "users", index=True),
    text_column("role", 16),
    UniqueConstraint("workspace", "user"),
    one_of("role", ROLES),
)

SESSIONS: Final = room_table(
    "console_sessions",
    text_column("digest", 64),
    ref("user", "users", index=True),
    text_column("auth_method", 16),
    text_column("csrf_digest", 64),
    instant("last_seen_at"),
    instant("expires_at"),
    instant("revoked_at", nullable=True),
    UniqueConstraint("digest"),
    one_of("auth_method", AUTH_METHODS),
)

TOKENS: Final = room_table(
    "access_tokens",
    text_column("kind", 8),
    text_column("digest", 64),
    ref("user", "users", index=True),
    ref("workspace", "workspaces", nullable=True),
    text_column("name", 255),
    Column("rights", JSON(none_as_null=True), nullable=True),
    Column("project_ids", JSON(none_as_null=True), nullable=True),
    text_column("source_application", 64, nullable=True),
    text_column("auth_method", 16),
    Column("platform_admin", Boolean, nullable=False, default=False),
    instant("expires_at", nullable=True),
    instant("last_used_at", nullable=True),
    instant("revoked_at", nullable=True),
    UniqueConstraint("digest"),
    one_of("kind", TOKEN_KINDS),
    one_of("auth_method", AUTH_METHODS),
)

PROJECTS: Final = room_table(
    "projects",
    ref("workspace", "workspaces"),
    text_column("name", 255),
    text_column("slug", 64),
    text_column("access", 16),
    text_column("runner", 64, nullable=True),
    instant("archived_at", nullable=True),
    UniqueConstraint("workspace", "slug"),
    one_of("access", ACCESS_VALUES),
)

WORKFLOWS: Final = room_table(
    "workflows",
    ref("project", "projects"),
    text_column("name", 255),
    instant("archived_at", nullable=True),
    UniqueConstraint("project", "name"),
)

EVENTS: Final = room_table(
    "events",
    ref("workspace", "workspaces"),
    text_column("kind", 64),
    text_column("object_kind", 32),
    text_column("object_id", 64),
    # Named without foreign keys: events outlive what they tell of, and rooms above own those rows.
    Column("project", String(36), nullable=True),
    Column("owner_user", String(36), nullable=True),
    Column("reply_grant", String(36), nullable=True),
    Column("actor", String(36), nullable=True),
    text_column("code", 96, nullable=True),
    Column("data", JSON, nullable=False),
    instant("at"),
    Index("ix_events_workspace_id", "workspace", "id"),
    Index("ix_events_reply_grant_id", "reply_grant", "id"),
    CheckConstraint("length(kind) > 0", name="kind_named"),
)
