"""The transaction a verb receives: connection, one clock reading, ids, randomness and wake hints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult, Executable, RowMapping, Select

from frontdesk.kernel.ids import Entropy, new_id


class Tx:
    """One open transaction. Commit and roll-back belong to the database alone.

    `now` is read once (host clock on SQLite, `clock_timestamp()` on PostgreSQL) and is the only time a verb may use.
    """

    __slots__ = ("_driver", "conn", "entropy", "now", "wakes")

    def __init__(self, conn: Connection, now: int, entropy: Entropy) -> None:
        self.conn = conn
        self.now = now
        self.entropy = entropy
        self.wakes: list[str] = []
        self._driver: Any = None

    @property
    def driver(self) -> Any:
        """The driver's own connection, for `storage.prepared` alone."""
        if self._driver is None:
            self._driver = self.conn.connection.driver_connection
        return self._driver

    def new_id(self, prefix: str) -> str:
        """A fresh id whose time is `now`."""
        return new_id(prefix, self.now, self.entropy)

    def wake(self, topic: str) -> None:
        """Hint, after the commit, that there is work. Losing every hint delays work to the next poll and loses none."""
        if topic not in self.wakes:
            self.wakes.append(topic)

    def execute(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> CursorResult[Any]:
        """Run one statement."""
        result = self.conn.execute(statement, parameters or {})
        assert isinstance(result, CursorResult)
        return result

    def find(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> RowMapping | None:
        """The single row of a statement, or None."""
        return self.execute(statement, parameters).mappings().one_or_none()

    def rows(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[RowMapping]:
        """All rows of a bounded statement."""
        return self.execute(statement, parameters).mappings().all()

    def count(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> int:
        """The single integer of a statement."""
        return int(self.execute(statement, parameters).scalar_one())


def for_share(statement: Select[Any]) -> Select[Any]:
    """Read rows so that a racing change is seen or waits for this commit (PostgreSQL); SQLite serialises writers."""
    return statement.with_for_update(read=True)


def for_update(statement: Select[Any]) -> Select[Any]:
    """Lock the rows in the documented lock order; an optimisation, never the guard. Dropped on SQLite."""
    return statement.with_for_update()
