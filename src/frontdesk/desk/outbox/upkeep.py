"""What operators and the clock do to ended deliveries: list and acknowledge dead ones, count, purge. Sends nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select

from frontdesk.desk.outbox import store
from frontdesk.desk.outbox.machine import DEAD, ENDED
from frontdesk.desk.outbox.model import Delivery, delivery_of
from frontdesk.desk.outbox.tables import DELIVERIES
from frontdesk.identity import record_event
from frontdesk.identity.model import Actor
from frontdesk.kernel.errors import Problem
from frontdesk.storage.dead_letters import mark, narrowed
from frontdesk.storage.tx import Tx


def list_dead(
    tx: Tx,
    workspace_id: str,
    *,
    code: str | None,
    installation_id: str | None,
    born_before: int | None,
    acknowledged: bool,
    limit: int,
    after: tuple[int, str] | None,
) -> tuple[list[Delivery], tuple[int, str] | None]:
    """One page of failed and indeterminate deliveries, newest first. Asks for no right."""
    conditions = narrowed(
        DELIVERIES,
        DEAD,
        workspace_id,
        code=code,
        installation_id=installation_id,
        born_before=born_before,
        acknowledged=acknowledged,
    )
    rows, following = store.list_page(tx, conditions, limit, after)
    return [delivery_of(row) for row in rows], following


def acknowledge(tx: Tx, actor: Actor, workspace_id: str, delivery_id: str, reason: str) -> bool:
    """Mark a dead delivery as seen. False: it was before, and keeps its first reason. Asks for no right.

    Raises `dead_letter_not_found` for an absent, a foreign and a living one, all alike. Does not settle: an unknown
    delivery stays unknown, and counts as unsettled.
    """
    row = store.find(tx, delivery_id, lock=True)
    if row is None or row["workspace"] != workspace_id or row["status"] not in DEAD:
        raise Problem("dead_letter_not_found")
    marked = mark(tx, DELIVERIES, DEAD, delivery_id, user_id=actor.user_id, reason=reason)
    if marked is None:
        return False
    record_event(
        tx,
        workspace_id=workspace_id,
        kind="delivery.acknowledged",
        object_kind="delivery",
        object_id=delivery_id,
        reply_grant_id=row["reply_grant"],
        actor_id=actor.user_id,
        code=row["error_code"],
        data={"purpose": row["purpose"]},
    )
    return True


def census(workspace_id: str | None) -> Select[Any]:
    """Rows by status and code with the earliest birth of each, as one part of a statement over several rooms."""
    return store.census(workspace_id)


def newest_birth(tx: Tx) -> int | None:
    """When the newest delivery was made, whoever asks; None where there is none."""
    return store.newest_birth(tx)


def newest_chats(tx: Tx, installation_id: str, limit: int) -> list[tuple[str, int]]:
    """(chat, birth of its newest delivery) of the chats last written to; for the provider's history, never shown."""
    return [(row["chat_id"], row["newest"]) for row in store.newest_chats(tx, installation_id, limit)]


def count_strange(tx: Tx, chat_id: str, message_ids: Sequence[str]) -> int:
    """How many of these messages of our bot no delivery can have made.

    One that may have been sent and holds no id explains one of them, whichever.
    """
    unknown = len(set(message_ids)) - len(set(store.known_message_ids(tx, message_ids))) if message_ids else 0
    return max(0, unknown - store.count_perhaps_sent(tx, chat_id)) if unknown else 0


def purgeable(tx: Tx, after: str, before: str, limit: int) -> tuple[list[str], str | None]:
    """Of the next `limit` deliveries after an id: those to purge, and where to go on (None: nothing is left)."""
    rows = store.ids_between(tx, after, before, limit)
    found = [row["id"] for row in rows if row["status"] in ENDED and row["purged_at"] is None]
    return found, rows[-1]["id"] if len(rows) == limit else None


def purge(tx: Tx, delivery_ids: Sequence[str]) -> int:
    """Clear text and bytes of those that are still ended and not purged; how many rows changed."""
    return store.purge(tx, delivery_ids)
