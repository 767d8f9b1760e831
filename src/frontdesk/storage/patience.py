"""Writing what must not be given up at the first busy moment: the end of a turn, what became of a wire request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.storage.database import CommitUnknown, Database
from frontdesk.storage.tx import Tx

T = TypeVar("T")

WRITE_TRIES: Final = 4
PAUSE_S = 0.5
# A database that restarts is away for seconds, and so is a full disk until somebody makes room. Shorter than the
# shortest lease: past that another process judges what was left.
END_PATIENCE_S = 20.0


async def write_patiently(
    database: Database, fn: Callable[[Tx], T], *, patience_s: float = 0.0, again_if_unknown: bool = False
) -> T:
    """A fenced write, repeated while the database is busy: nothing was done, and the fence still decides.

    Raises `DatabaseBusy` after `WRITE_TRIES` tries and `patience_s` seconds, whichever comes last. With
    `again_if_unknown` also repeated where the commit's connection broke; only for what its own fence refuses once it
    has taken effect. Not for a write without a fence or key: another may have taken its place.
    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + patience_s
    tries = 0
    while True:
        try:
            return await database.write(fn)
        except (DatabaseBusy, CommitUnknown) as error:
            tries += 1
            if isinstance(error, CommitUnknown) and not again_if_unknown:
                raise
            if tries >= WRITE_TRIES and loop.time() >= give_up_at:
                raise
        await asyncio.sleep(PAUSE_S)
