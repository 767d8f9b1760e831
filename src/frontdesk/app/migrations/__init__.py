"""Alembic environment and numbered versions; one head, up and down on both engines."""
