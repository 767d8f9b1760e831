"""The live tail of `events`: what happened to which object, without content, to who may read that object.

An event that commits late has an early id, so each reading goes `STREAM_REREAD_US` back and drops what was shown. An
event whose transaction took longer than that is missed here; the lists still show its object.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from frontdesk.desk import grants
from frontdesk.identity import events_since, hidden_project_ids, require
from frontdesk.identity.model import Actor, Event, Right
from frontdesk.kernel import limits
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx

# Who may read an object of a kind: everybody with `workspace.read` (the gate's objects are left out before), who works
# the inbox, or only the person it belongs to. A kind that is not here is shown to nobody.
_EVERYONE: Final = frozenset(
    {"workspace", "project", "workflow", "run", "member", "installation", "artifact", "proposal"}
)
_INBOX: Final = frozenset({"receipt", "delivery", "reply_grant", "artifact_grant"})
_OWN: Final = frozenset({"conversation", "turn", "binding"}) | _INBOX
# Named for an installation, and the business of the person who made the code.
_PRIVATE_EVENTS: Final = frozenset({"binding.challenged"})


@dataclass(frozen=True, slots=True)
class TailEvent:
    """One event as it is shown. `event_id` is where to go on."""

    event_id: str
    kind: str
    id: str
    status: str


def read_tail(
    tx: Tx, actor: Actor, workspace_id: str, *, since: int, after: str | None, limit: int
) -> tuple[list[TailEvent], str | None]:
    """One page from the instant `since` on, oldest first, and where to go on (None: that was all).

    The right is asked for in the same transaction, so nothing is shown that was committed after it ended. Raises
    `membership_required`, `permission_required`.
    """
    member = require(tx, actor, workspace_id, Right.READ)
    hidden = hidden_project_ids(tx, actor, workspace_id)
    events = events_since(tx, workspace_id, since=since, hidden=hidden, after=after, limit=limit)
    works_inbox = Right.INBOX_WORK in member.rights
    own_grants = _own_grants(tx, actor, events) if not works_inbox else frozenset()
    shown = [_shown(event) for event in events if _may_see(actor, event, works_inbox, own_grants)]
    return shown, events[-1].id if len(events) == limit else None


def _own_grants(tx: Tx, actor: Actor, events: Iterable[Event]) -> frozenset[str]:
    named = {event.reply_grant_id for event in events if event.reply_grant_id is not None}
    found = (grants.find_grant(tx, grant_id) for grant_id in sorted(named))
    return frozenset(grant.id for grant in found if grant is not None and grant.bound_user_id == actor.user_id)


def _may_see(actor: Actor, event: Event, works_inbox: bool, own_grants: frozenset[str]) -> bool:
    kind = event.object_kind
    if event.kind not in _PRIVATE_EVENTS and (kind in _EVERYONE or (works_inbox and kind in _INBOX)):
        return True
    own = event.owner_user_id == actor.user_id or event.reply_grant_id in own_grants
    return own and (kind in _OWN or event.kind in _PRIVATE_EVENTS)


def _shown(event: Event) -> TailEvent:
    return TailEvent(event.id, event.object_kind, event.object_id, event.kind.partition(".")[2])


def instant_of(event_id: str) -> int:
    """The instant in an event's id, to the millisecond below. Raises ValueError for what is no such id."""
    return int(event_id.removeprefix("evt_")[:12], 16) * 1000


def mark_of(instant: int) -> str:
    """An event id of that instant that no event has: where a reader goes on who has seen all before it."""
    return f"evt_{max(instant, 0) // 1000:012x}{'0' * 20}"


class Tail:
    """One reader's place. Shows each event once, but after the clock was set back, or for a reader that begins anew."""

    def __init__(self, workspace_id: str, after: str | None = None) -> None:
        """`after` is the last event id (or mark) the reader has; without one the tail begins a re-reading ago."""
        self._workspace_id = workspace_id
        self._read_until = None if after is None else instant_of(after)
        self._seen: set[str] = set()

    @property
    def mark(self) -> str | None:
        """Where to go on without missing anything; None before the first reading."""
        return None if self._read_until is None else mark_of(self._read_until)

    async def read(self, database: Database, actor: Callable[[], Actor]) -> AsyncIterator[list[TailEvent]]:
        """What is new, page by page, each in a transaction of its own. Raises as `read_tail`, and `DatabaseBusy`."""
        began: int | None = None
        since, after = 0, None
        while True:
            now, since, page, after = await database.read(self._page(actor(), began, since, after))
            began = now if began is None else began
            fresh = [event for event in page if event.event_id not in self._seen]
            self._seen.update(event.event_id for event in fresh)
            if fresh:
                yield fresh
            if after is None:
                break
        self._read_until = began
        # Twice what is read again: what lies before is not asked for any more.
        kept = mark_of(began - 2 * limits.STREAM_REREAD_US)
        self._seen = {event_id for event_id in self._seen if event_id >= kept}

    def _page(
        self, actor: Actor, began: int | None, since: int, after: str | None
    ) -> Callable[[Tx], tuple[int, int, list[TailEvent], str | None]]:
        def read(tx: Tx) -> tuple[int, int, list[TailEvent], str | None]:
            start = since if began is not None else self._since(tx.now)
            page, following = read_tail(
                tx, actor, self._workspace_id, since=start, after=after, limit=limits.STREAM_PAGE
            )
            return tx.now, start, page, following

        return read

    def _since(self, now: int) -> int:
        """Where this reading begins: before the last one's end, also where the clock was set back meanwhile."""
        until = now if self._read_until is None else min(self._read_until, now)
        return max(until - limits.STREAM_REREAD_US, now - limits.STREAM_BACKLOG_US)
