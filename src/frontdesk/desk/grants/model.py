"""Grants as values, and what authority decides about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from frontdesk.kernel.canonical import canonical_digest, joined_digest

SCOPE_REASONS: Final = frozenset(
    {"conversation_closed", "conversation_context_changed", "conversation_revision_changed"}
)


@dataclass(frozen=True, slots=True)
class ReplyGrant:
    """One reply grant as read in this transaction."""

    id: str
    workspace_id: str
    installation_id: str
    binding_id: str
    bound_user_id: str
    project_id: str
    workflow_id: str | None
    run_id: str | None
    conversation_id: str
    context_hash: str
    binding_revision: int
    chat_id: str = field(repr=False)
    created_by: str
    create_request_hash: str
    cursor: int
    status: str
    version: int
    expires_at: int
    revoked_at: int | None
    created_at: int
    updated_at: int

    def status_at(self, now: int) -> str:
        """The state a reader sees: past its expiry a grant reads `expired`, sweep or not."""
        return "expired" if self.status == "active" and self.expires_at <= now else self.status


def grant_of(row: Mapping[Any, Any]) -> ReplyGrant:
    """The value of one row."""
    return ReplyGrant(
        id=row["id"],
        workspace_id=row["workspace"],
        installation_id=row["installation"],
        binding_id=row["binding"],
        bound_user_id=row["bound_user"],
        project_id=row["project"],
        workflow_id=row["workflow"],
        run_id=row["run"],
        conversation_id=row["conversation"],
        context_hash=row["context_hash"],
        binding_revision=row["binding_revision"],
        chat_id=row["chat_id"],
        created_by=row["created_by"],
        create_request_hash=row["create_request_hash"],
        cursor=row["cursor"],
        status=row["status"],
        version=row["version"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


@dataclass(frozen=True, slots=True)
class GrantView:
    """What a person may read of a reply grant (ReplyGrantRead)."""

    grant: ReplyGrant
    status: str
    activation_status: str | None
    unusable_reason: str | None
    created: bool | None = None


@dataclass(frozen=True, slots=True)
class ReceiptFacts:
    """What authority needs of a receipt; handed in by the inbox, which owns the row."""

    receipt_id: str
    tenant_key: str
    sender_id: str = field(repr=False)
    chat_id: str = field(repr=False)
    parent_id: str | None = field(repr=False)
    root_id: str | None = field(repr=False)


def reply_slot(workspace_id: str, conversation_id: str, user_id: str) -> str:
    """The "one at a time" key of a reply grant (check value V1)."""
    return joined_digest("reply-slot-v1", workspace_id, conversation_id, user_id)


def create_hash(
    *, workspace_id: str, project_id: str, installation_id: str, binding_id: str, conversation_id: str, expires_in: int
) -> str:
    """Canonical hash of a create with defaults filled in (check value V5). The request id is never part of it."""
    return canonical_digest(
        {
            "body": {
                "binding_id": binding_id,
                "conversation_id": conversation_id,
                "expires_in_seconds": expires_in,
                "installation_id": installation_id,
            },
            "route_project_id": project_id,
            "route_workspace_id": workspace_id,
            "schema": "reply-grant-create-v1",
        }
    )


def lost_code(reason: str) -> str:
    """The receipt and delivery code of a lost authority."""
    if reason in SCOPE_REASONS:
        return "conversation_revision_changed"
    return "authorization_revoked_before_delivery"
