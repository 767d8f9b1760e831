"""Runs: provenance of work, with a server-only origin."""

from __future__ import annotations

from typing import Final

from sqlalchemy import JSON, BigInteger, CheckConstraint, Column, Index, UniqueConstraint

from frontdesk.storage.columns import ref, room_table, text_column

RUNS: Final = room_table(
    "runs",
    ref("workspace", "workspaces"),
    ref("project", "projects"),
    ref("workflow", "workflows"),
    ref("parent_run", "runs", nullable=True),
    ref("started_by", "users"),
    text_column("request_id", 64),
    text_column("create_request_hash", 64),
    Column("input", JSON, nullable=False),
    ref("origin_conversation", "conversations", nullable=True),
    Column("origin_revision", BigInteger, nullable=True),
    ref("origin_user", "users", nullable=True),
    Column("archived_at", BigInteger, nullable=True),
    UniqueConstraint("workflow", "started_by", "request_id"),
    CheckConstraint(
        "(origin_conversation IS NULL AND origin_revision IS NULL AND origin_user IS NULL) OR "
        "(origin_conversation IS NOT NULL AND origin_revision IS NOT NULL AND origin_user IS NOT NULL)",
        name="origin_whole",
    ),
    Index("ix_runs_project", "project", "created_at", "id"),
)
