"""Alembic's entry. The caller hands an open connection in `config.attributes`; there is no other way to run this."""

from __future__ import annotations

from alembic import context

from frontdesk.app.schema import METADATA

connection = context.config.attributes["connection"]
context.configure(
    connection=connection, target_metadata=METADATA, render_as_batch=False, transaction_per_migration=False
)
with context.begin_transaction():
    context.run_migrations()
