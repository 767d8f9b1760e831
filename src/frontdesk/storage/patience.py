"""Writing what must not be given up at the first busy moment: the end of a turn, what became of a wire request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx

T = TypeVar("T")

WRITE_TRIES: Final = 4
PAUSE_S = 0.5


async def write_patiently(database: Database, fn: Callable[[Tx], T]) -> T:
    """A fenced write, repeated a few times while the database is busy: nothing was done, and the fence still decides.

    Raises `DatabaseBusy` after the last try. Not for a write without a fence or key: another may have taken its place.
    """
    for _ in range(WRITE_TRIES - 1):
        try:
            return await database.write(fn)
        except DatabaseBusy:
            await asyncio.sleep(PAUSE_S)
    return await database.write(fn)
