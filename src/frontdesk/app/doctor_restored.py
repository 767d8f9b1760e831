"""Whether this database may be a restored backup: what `frontdesk doctor` can honestly say of it.

A restored database has forgotten what was received and sent after the backup, and does not know it. Two things show it:
the provider's own history holds messages of our bot that no delivery here can have made; and, without the provider,
work waits while nothing was written for a while. Neither proves a restore, so each line says what else it may be.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from frontdesk.app.finding import Finding, note
from frontdesk.desk import connections, inbox, operations, outbox
from frontdesk.desk.connections.channel import Channel, Complete, ConnectFailed, History, Installed
from frontdesk.kernel import limits
from frontdesk.kernel.clock import DAY, MINUTE, SECOND, to_rfc3339
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx

STANDSTILL_US: Final = 10 * MINUTE
CHATS_MAX: Final = 5  # of each connection, those last written to
LOOKED_BACK_US: Final = 7 * DAY
LOOK_S: Final = 30.0
_ADVICE: Final = (
    "if a backup was restored, look at the chats and tell the people concerned; see `Back up and restore` in the guide"
)


async def standstill(database: Database, age_max_us: int) -> list[Finding]:
    """A note where something waits and nothing was written for `STANDSTILL_US`."""

    def look(tx: Tx) -> tuple[int, int, int | None]:
        numbers = operations.read_numbers(tx)
        receipts = sum(rows for (status, _), rows in numbers.receipts.items() if status in inbox.OPEN)
        deliveries = sum(rows for (status, _), rows in numbers.deliveries.items() if status in outbox.WAITING)
        written = (inbox.newest_arrival(tx), outbox.newest_birth(tx), connections.last_seen(tx))
        newest = max((each for each in written if each is not None), default=None)
        return receipts, deliveries, newest if newest is not None and newest < tx.now - STANDSTILL_US else None

    try:
        receipts, deliveries, newest = await database.read(look)
    except (SQLAlchemyError, DatabaseBusy) as error:
        return [note("standstill", f"not looked at: reading failed ({type(error).__name__})")]
    if newest is None or not receipts + deliveries:
        return []
    said = (
        f"{receipts} messages and {deliveries} deliveries wait, and nothing was written since {to_rfc3339(newest)}: "
        "no worker ran since, or this is a backup of that time and does not know what was sent after it; "
        f"a delivery that waits longer than {age_max_us // SECOND} s is not sent any more"
    )
    return [note("standstill", said, None, f"check the deliveries made since {to_rfc3339(newest)}: {_ADVICE}")]


async def strange_messages(
    name: str, database: Database, channel: Channel, installed: Installed, bot_open_id: str | None
) -> list[Finding]:
    """A note where the provider's history holds newer messages of our bot than this database can have sent."""
    bots = {installed.app_id, bot_open_id}
    now, chats = await database.read(lambda tx: (tx.now, outbox.newest_chats(tx, installed.installation_id, CHATS_MAX)))
    strange, oldest = 0, now
    for chat_id, newest in chats:
        since = max(newest, now - LOOKED_BACK_US)
        history = await _look(channel, installed, chat_id, since // 1000, (now + MINUTE) // 1000)
        if not isinstance(history, Complete):
            continue
        ids = [item.message_id for item in history.items if item.sender_type != "user" and item.sender_id in bots]
        found = await database.read(partial(outbox.count_strange, chat_id=chat_id, message_ids=ids))
        if found:
            strange, oldest = strange + found, min(oldest, since)
    if not strange:
        return []
    said = (
        f"its chats hold {strange} messages of the bot since {to_rfc3339(oldest)} that this database did not send: "
        "it is a restored backup, or another program uses this app"
    )
    return [note(name, said, None, f"check the deliveries made since {to_rfc3339(oldest)}: {_ADVICE}")]


async def _look(channel: Channel, installed: Installed, chat_id: str, since_ms: int, until_ms: int) -> History | None:
    """One bounded look; None where the provider does not answer. Sends nothing."""
    try:
        async with asyncio.timeout(LOOK_S):
            session = await channel.connect(installed)
            try:
                return await channel.history(session, chat_id, since_ms, until_ms)
            finally:
                async with asyncio.timeout(limits.CLOSE_TIMEOUT_US / SECOND):
                    await channel.close(session)
    except (ConnectFailed, TimeoutError):
        return None
