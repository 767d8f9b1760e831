"""Retention: texts, payload bytes and inbound hashes of what ended go after `retention_days`; everything else stays.

A pass walks ids, whose order is that of their birth, in pages with a transaction each. It can be cut off anywhere and
begun anew: a row is purged where it is ended, old enough and not purged yet, judged again in the statement that does
it. A row that is open then is left to a later pass. What was purged before is only passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from frontdesk.desk import inbox, outbox
from frontdesk.kernel import limits
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx

Purgeable = Callable[[Tx, str, str, int], tuple[list[str], str | None]]
Purge = Callable[[Tx, Sequence[str]], int]

_ROOMS: Final[tuple[tuple[str, str, Purgeable, Purge], ...]] = (
    ("receipts", "rcp", inbox.purgeable, inbox.purge),
    ("deliveries", "dlv", outbox.purgeable, outbox.purge),
)


@dataclass(frozen=True, slots=True)
class Purged:
    """Rows whose content was cleared (or, in a trial, would be)."""

    receipts: int = 0
    deliveries: int = 0

    @property
    def rows(self) -> int:
        """Both together."""
        return self.receipts + self.deliveries


class Retention:
    """One pass after the other over one database. Any number of processes may run it at once."""

    def __init__(self, database: Database, keep_us: int, *, trial: bool = False) -> None:
        """`keep_us` is how long content is kept after a row was made. With `trial` rows are counted and left."""
        self._database = database
        self._keep_us = keep_us
        self._trial = trial
        self._room = 0
        self._after = ""
        self._purged = Purged()

    async def step(self) -> Purged | None:
        """One page. None while the pass goes on; at its end what it changed, and the next step begins a new one."""
        name, prefix, purgeable, purge = _ROOMS[self._room]
        after, keep_us = self._after, self._keep_us

        def look(tx: Tx) -> tuple[list[str], str | None]:
            return purgeable(tx, after, _first_id(prefix, tx.now - keep_us), limits.RETENTION_PAGE)

        found, following = await self._database.read(look)
        changed = len(found)
        if found and not self._trial:
            changed = await self._database.write(lambda tx: purge(tx, found))
        self._purged = replace(self._purged, **{name: getattr(self._purged, name) + changed})
        if following is not None:
            self._after = following
            return None
        self._after, self._room = "", self._room + 1
        if self._room < len(_ROOMS):
            return None
        done, self._purged, self._room = self._purged, Purged(), 0
        return done

    async def run(self) -> Purged:
        """One whole pass."""
        while True:
            done = await self.step()
            if done is not None:
                return done


def _first_id(prefix: str, instant: int) -> str:
    """A text below every id of that instant or later: an id begins with its milliseconds in hex."""
    return f"{prefix}_{max(instant, 0) // 1000:012x}"
