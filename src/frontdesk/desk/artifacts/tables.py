"""Artifacts and their producers (desk.md 3)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import JSON, Boolean, Column, Integer, PrimaryKeyConstraint, Table, Text, UniqueConstraint

from frontdesk.storage.columns import ref, room_table, text_column, times
from frontdesk.storage.metadata import METADATA

ARTIFACTS: Final = room_table(
    "artifacts",
    ref("project", "projects", index=True),
    text_column("session", 64, nullable=True),
    text_column("artifact_key", 255),
    text_column("kind", 64),
    text_column("title", 255),
    text_column("media_type", 127),
    Column("payload", Text, nullable=True),
    Column("content_ref", JSON(none_as_null=True), nullable=True),
    Column("simulated", Boolean, nullable=False, default=False),
    Column("provenance", JSON, nullable=False),
    text_column("content_hash", 64),
    UniqueConstraint("session", "artifact_key"),
)

PRODUCERS: Final = Table(
    "artifact_producers",
    METADATA,
    ref("artifact", "artifacts"),
    ref("run", "runs"),
    Column("sequence", Integer, nullable=False),
    *times(),
    PrimaryKeyConstraint("artifact", "run"),
)
