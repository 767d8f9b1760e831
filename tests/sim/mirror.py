"""Every change of every watched row, in the order it was written: a log kept by triggers, and the rows as they are now.

The triggers write in the product's own transaction, so what was rolled back never appears, and the states inside one
commit are seen one by one.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

WATCHED = {
    "receipts": (
        "provider_message_id status error_code intent reply_grant conversation turn lease_owner lease_generation "
        "lease_expires_at attempt_count not_before created_at"
    ),
    "deliveries": (
        "operation_id provider_uuid status error_code purpose reply_grant receipt chat_id reply_to_message_id "
        "payload_kind text payload_hash request_hash lease_owner lease_generation lease_expires_at attempt_count "
        "not_before provider_message_id dedupe_key proved_by"
    ),
    "reply_grants": (
        "installation binding bound_user project conversation context_hash binding_revision chat_id cursor status "
        "expires_at"
    ),
    "conversations": "owner_user workspace project status context_hash revision",
    "turns": (
        "conversation sequence request_id surface user_content status response committed_revision lease_owner "
        "error_code"
    ),
    "installations": "status",
    "bindings": "user active revision chat_id sender_id",
    "users": "disabled_at",
    "workspaces": "active",
    "workspace_members": "workspace user role",
    "projects": "archived_at",
}

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One row written: `before` is None for a new row, `after` for one that is gone."""

    table: str
    id: str
    before: Row | None
    after: Row | None

    def moved(self) -> tuple[str | None, str | None]:
        """Status before and after."""
        return (self.before or {}).get("status"), (self.after or {}).get("status")

    def became(self, status: str) -> bool:
        """Whether this write brought the row to `status`."""
        before, after = self.moved()
        return after == status and before != status


def install_triggers(path: Path) -> None:
    """Make the log in a migrated file."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE sim_log (seq INTEGER PRIMARY KEY, tbl TEXT, id TEXT, body TEXT)")
        for table, columns in WATCHED.items():
            body = ", ".join(f"'{name}', NEW.\"{name}\"" for name in columns.split())
            for event, value, row in (
                ("INSERT", f"json_object({body})", "NEW"),
                ("UPDATE", f"json_object({body})", "NEW"),
                ("DELETE", "NULL", "OLD"),
            ):
                connection.execute(
                    f"CREATE TRIGGER sim_{table}_{event.lower()} AFTER {event} ON {table} BEGIN "
                    f"INSERT INTO sim_log (tbl, id, body) VALUES ('{table}', {row}.id, {value}); END"
                )
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


class Mirror:
    """The watched rows by table and id, as of the last look. `read_log` gives what was logged after a number."""

    def __init__(self, read_log: Callable[[int], Iterable[tuple[int, str, str, str | None]]]) -> None:
        self._read_log = read_log
        self._seq = 0
        self.tables: dict[str, dict[str, Row]] = {table: {} for table in WATCHED}

    def look(self) -> list[Change]:
        """What was written since the last look, in order; the rows here follow."""
        changes = []
        for seq, table, row_id, body in self._read_log(self._seq):
            self._seq = seq
            rows = self.tables[table]
            after = None if body is None else json.loads(body)
            changes.append(Change(table, row_id, rows.get(row_id), after))
            if after is None:
                rows.pop(row_id, None)
            else:
                rows[row_id] = after
        return changes

    def rows(self, table: str, **equal: Any) -> list[tuple[str, Row]]:
        """(id, row) of a table with these values, in the order they were first seen."""
        return [
            (row_id, row)
            for row_id, row in self.tables[table].items()
            if all(row[name] == value for name, value in equal.items())
        ]


class FileLog:
    """The log of a file."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)

    def read(self, since: int) -> list[tuple[int, str, str, str | None]]:
        """What was logged after this number."""
        statement = "SELECT seq, tbl, id, body FROM sim_log WHERE seq > ? ORDER BY seq"
        return self._connection.execute(statement, (since,)).fetchall()

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()
