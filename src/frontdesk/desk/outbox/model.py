"""What the outbox hands out: frozen values, never rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from frontdesk.kernel.machine import Lease

REPLIES: Final = ("agent_reply", "proposal_notice", "failure_notice")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery as read in this transaction."""

    id: str
    workspace_id: str
    operation_id: str
    provider_uuid: str
    installation_id: str
    reply_grant_id: str
    artifact_grant_id: str | None
    receipt_id: str | None
    purpose: str
    chat_id: str = field(repr=False)
    reply_to: str | None = field(repr=False)
    payload_kind: str
    text: str | None = field(repr=False)
    payload_bytes: bytes | None = field(repr=False)
    file_name: str | None = field(repr=False)
    media_type: str | None
    status: str
    attempt_count: int
    not_before: int
    lease: Lease
    upload_key: str | None = field(repr=False)
    sending_at: int | None
    provider_message_id: str | None = field(repr=False)
    error_code: str | None
    provider_code: int | None
    sent_at: int | None
    read_back_at: int | None
    read_back_result: str | None
    proved_by: str | None
    created_at: int
    updated_at: int
    acknowledged_at: int | None = None
    acknowledged_by: str | None = None
    acknowledged_reason: str | None = field(default=None, repr=False)
    purged_at: int | None = None


def delivery_of(row: Mapping[Any, Any]) -> Delivery:
    """The value of one row."""
    return Delivery(
        id=row["id"],
        workspace_id=row["workspace"],
        operation_id=row["operation_id"],
        provider_uuid=row["provider_uuid"],
        installation_id=row["installation"],
        reply_grant_id=row["reply_grant"],
        artifact_grant_id=row["artifact_grant"],
        receipt_id=row["receipt"],
        purpose=row["purpose"],
        chat_id=row["chat_id"],
        reply_to=row["reply_to_message_id"],
        payload_kind=row["payload_kind"],
        text=row["text"],
        payload_bytes=bytes(row["payload_bytes"]) if row["payload_bytes"] is not None else None,
        file_name=row["file_name"],
        media_type=row["media_type"],
        status=row["status"],
        attempt_count=row["attempt_count"],
        not_before=row["not_before"],
        lease=Lease(row["lease_owner"] or "", row["lease_generation"], row["lease_expires_at"] or 0),
        upload_key=row["upload_key"],
        sending_at=row["sending_at"],
        provider_message_id=row["provider_message_id"],
        error_code=row["error_code"],
        provider_code=row["provider_code"],
        sent_at=row["sent_at"],
        read_back_at=row["read_back_at"],
        read_back_result=row["read_back_result"],
        proved_by=row["proved_by"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        acknowledged_at=row["acknowledged_at"],
        acknowledged_by=row["acknowledged_by"],
        acknowledged_reason=row["acknowledged_reason"],
        purged_at=row["purged_at"],
    )


@dataclass(frozen=True, slots=True)
class Payload:
    """What a delivery carries, decided when the snapshot is taken."""

    kind: str  # text | file
    text: str | None = field(default=None, repr=False)
    content: bytes | None = field(default=None, repr=False)
    file_name: str | None = None
    media_type: str | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """A person's decision about an unknown delivery."""

    outcome: str
    reason: str = field(repr=False)
    actor_user_id: str
    read_back_result: str | None
