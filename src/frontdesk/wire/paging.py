"""Keyset cursors: opaque text over (created_at, id), newest first."""

from __future__ import annotations

import base64
import binascii

from frontdesk.kernel.errors import invalid


def encode_cursor(created_at: int, row_id: str) -> str:
    """The cursor that continues after this row."""
    return base64.urlsafe_b64encode(f"{created_at}:{row_id}".encode()).decode("ascii").rstrip("=")


def decode_cursor(text: str | None) -> tuple[int, str] | None:
    """(created_at, id) of a cursor; None for none. Raises `request_invalid` for anything else."""
    if text is None:
        return None
    try:
        plain = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
        created_at, _, row_id = plain.partition(":")
    except (ValueError, binascii.Error):
        created_at = row_id = ""
    numbered = created_at.isascii() and created_at.isdigit() and len(created_at) <= 18
    if not numbered or not 0 < len(row_id) <= 64 or not row_id.isprintable():  # PostgreSQL has no text with a NUL
        raise invalid("cursor", "not a cursor of this list")
    return int(created_at), row_id
