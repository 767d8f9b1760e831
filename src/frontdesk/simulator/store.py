"""Where the world survives a kill: one SQLite file of JSON records and file bytes, or the same in memory.

Every change is written through before the request that caused it is answered. WAL with ``synchronous=NORMAL`` loses
nothing when the *process* is killed; a power cut may lose the last moments, which is fine for a stand-in.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, key));
CREATE TABLE IF NOT EXISTS file_bytes (key TEXT PRIMARY KEY, data BLOB NOT NULL);
"""


class Store:
    """Records by kind and key. One thread at a time: the event loop's."""

    def __init__(self, path: Path | None) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            path.chmod(0o600)  # app secrets are in it; SQLite gives its log the mode the file has now
        self._db = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False, timeout=5)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)

    def put(self, kind: str, key: str, record: dict[str, Any]) -> None:
        """Writes or replaces one record."""
        body = json.dumps(record, ensure_ascii=False)
        self._db.execute(
            "INSERT INTO records VALUES (?, ?, ?) ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body",
            (kind, key, body),
        )

    def delete(self, kind: str, key: str) -> None:
        """Removes one record if it is there."""
        self._db.execute("DELETE FROM records WHERE kind = ? AND key = ?", (kind, key))

    def delete_kind(self, kind: str) -> None:
        """Removes every record of one kind."""
        self._db.execute("DELETE FROM records WHERE kind = ?", (kind,))

    def records(self, kind: str) -> Iterator[dict[str, Any]]:
        """Every record of one kind, in the order of first writing."""
        for (body,) in self._db.execute("SELECT body FROM records WHERE kind = ? ORDER BY rowid", (kind,)).fetchall():
            yield json.loads(body)

    def put_bytes(self, key: str, data: bytes) -> None:
        """Keeps the bytes of one file."""
        self._db.execute("INSERT OR REPLACE INTO file_bytes VALUES (?, ?)", (key, data))

    def get_bytes(self, key: str) -> bytes | None:
        """The bytes of one file, or None."""
        row = self._db.execute("SELECT data FROM file_bytes WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def delete_bytes(self, key: str) -> None:
        """Drops the bytes of one file."""
        self._db.execute("DELETE FROM file_bytes WHERE key = ?", (key,))

    def close(self) -> None:
        """Closes the file; nothing is lost when this is never called."""
        self._db.close()
