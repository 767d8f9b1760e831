"""Receipts as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frontdesk.desk.grants.model import ReceiptFacts
from frontdesk.kernel.canonical import joined_digest
from frontdesk.kernel.machine import Lease


@dataclass(frozen=True, slots=True)
class Receipt:
    """One receipt as read in this transaction."""

    id: str
    workspace_id: str
    installation_id: str
    provider_message_id: str = field(repr=False)
    tenant_key: str
    sender_id: str = field(repr=False)
    chat_id: str = field(repr=False)
    parent_id: str | None = field(repr=False)
    root_id: str | None = field(repr=False)
    provider_created_at: int
    content_text: str | None = field(repr=False)
    transport: str
    execution: str
    intent: str
    status: str
    error_code: str | None
    conversation_id: str | None
    reply_grant_id: str | None
    turn_id: str | None
    lease: Lease
    attempt_count: int
    not_before: int
    processed_at: int | None
    created_at: int
    updated_at: int
    acknowledged_at: int | None = None
    acknowledged_by: str | None = None
    acknowledged_reason: str | None = field(default=None, repr=False)

    def facts(self) -> ReceiptFacts:
        """What authority needs of this receipt."""
        return ReceiptFacts(self.id, self.tenant_key, self.sender_id, self.chat_id, self.parent_id, self.root_id)


def receipt_of(row: Mapping[Any, Any]) -> Receipt:
    """The value of one row."""
    return Receipt(
        id=row["id"],
        workspace_id=row["workspace"],
        installation_id=row["installation"],
        provider_message_id=row["provider_message_id"],
        tenant_key=row["tenant_key"],
        sender_id=row["sender_id"],
        chat_id=row["chat_id"],
        parent_id=row["parent_message_id"],
        root_id=row["root_message_id"],
        provider_created_at=row["provider_created_at"],
        content_text=row["content_text"],
        transport=row["transport"],
        execution=row["execution"],
        intent=row["intent"],
        status=row["status"],
        error_code=row["error_code"],
        conversation_id=row["conversation"],
        reply_grant_id=row["reply_grant"],
        turn_id=row["turn"],
        lease=Lease(row["lease_owner"] or "", row["lease_generation"], row["lease_expires_at"] or 0),
        attempt_count=row["attempt_count"],
        not_before=row["not_before"],
        processed_at=row["processed_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        acknowledged_at=row["acknowledged_at"],
        acknowledged_by=row["acknowledged_by"],
        acknowledged_reason=row["acknowledged_reason"],
    )


def turn_request_id(prefix: str, installation_id: str, provider_message_id: str) -> str:
    """A message's execution idempotency key: `prefix:` + 56 hex digits (check values V3, V4), at most 64 characters."""
    return f"{prefix}:{joined_digest('connector-turn-v1', installation_id, provider_message_id)[:56]}"


@dataclass(frozen=True, slots=True)
class Received:
    """What became of a push in t0. `fresh` False: the message was known and nothing changed."""

    outcome: str  # accepted | rejected | completed | known | recalled | ignored
    receipt_id: str | None
    code: str | None
    fresh: bool


class SecretsChanged(Exception):
    """The push was verified with secrets that the installation no longer has: verify again with the present ones."""


class ReceiptConflict(Exception):
    """The same message id came with another hash: the first row stands, the push is not accepted."""
