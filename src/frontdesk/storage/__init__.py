"""The only place that knows an engine: SQLite (one writer thread, group commit) and PostgreSQL behind one interface.

Rooms receive a `Tx` and never open, commit or roll back anything. Public names: `Database`, `Tx`, `guarded`, `columns`.
"""
