"""Indexes in the order of their reads: a chat's open deliveries by arrival, lists of one status newest first."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.drop_index("ix_deliveries_chat", table_name="deliveries")
    op.create_index(
        "ix_deliveries_chat", "deliveries", ["installation", "chat_id", "status", "created_at", "id"], unique=False
    )
    for table in ("deliveries", "receipts"):
        op.create_index(f"ix_{table}_by_status", table, ["workspace", "status", "created_at", "id"], unique=False)


def downgrade() -> None:
    """Take back."""
    for table in ("receipts", "deliveries"):
        op.drop_index(f"ix_{table}_by_status", table_name=table)
    op.drop_index("ix_deliveries_chat", table_name="deliveries")
    op.create_index("ix_deliveries_chat", "deliveries", ["installation", "chat_id", "status"], unique=False)
