"""The provider's own history of a chat: complete or not at all (desk.md 6.7). Reading an answer is pure."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from frontdesk.channels.feishu import codes
from frontdesk.channels.transport import Answer
from frontdesk.desk.connections.channel import Complete, History, HistoryItem, Incomplete
from frontdesk.kernel.limits import HISTORY_ITEMS_MAX, PROVIDER_ID_CHARS_MAX


class Reader:
    """Collects pages; the only way to a `Complete` is through every page."""

    def __init__(self, chat_id: str, since_ms: int, until_ms: int) -> None:
        self._chat_id = chat_id
        self._since_ms = since_ms
        self._until_ms = until_ms
        self._items: list[HistoryItem] = []
        self._tokens: set[str] = set()
        self._now_ms: int | None = None
        self.next_token: str | None = None

    def take(self, answer: Answer | None, connected: bool) -> History | None:
        """Add one page. Returns the end of the reading, or None: ask for the page of `next_token`."""
        reading = codes.read(answer)
        if answer is None or reading is None:
            return Incomplete("page_unreadable" if connected else "connect_failed")
        if not reading.accepted:
            return Incomplete(reading.means.value if reading.means is not None else "page_refused")
        self._now_ms = date_ms(answer.headers) or self._now_ms
        rows, more, token = (reading.data.get(name) for name in ("items", "has_more", "page_token"))
        if not isinstance(rows, list) or not isinstance(more, bool):
            return Incomplete("page_unreadable")
        for row in rows:
            item = _item(row, self._chat_id)
            if item is None:
                return Incomplete("row_unreadable")
            self._items.append(item)
        if len(self._items) > HISTORY_ITEMS_MAX or (more and len(self._items) == HISTORY_ITEMS_MAX):
            return Incomplete("too_many_items")
        if not more:
            return self._complete()
        if not isinstance(token, str) or not token:
            return Incomplete("page_unreadable")
        if token in self._tokens:
            return Incomplete("page_token_repeated")
        self._tokens.add(token)
        self.next_token = token
        return None

    def _complete(self) -> Complete:
        # The provider's window has whole seconds; ours is exact. The sort is stable, so equal times keep its order.
        inside = [item for item in self._items if self._since_ms <= item.created_at_ms <= self._until_ms]
        return Complete(tuple(sorted(inside, key=lambda item: item.created_at_ms)), self._now_ms)


def date_ms(headers: Mapping[str, str]) -> int | None:
    """The provider's `Date` in milliseconds, where it is one."""
    try:
        return int(parsedate_to_datetime(headers["date"]).timestamp() * 1000)
    except (KeyError, ValueError, TypeError, OverflowError):
        return None


def _item(row: object, chat_id: str) -> HistoryItem | None:
    if not isinstance(row, dict):
        return None
    sender, body = row.get("sender"), row.get("body")
    sender = sender if isinstance(sender, dict) else {}
    content = body.get("content") if isinstance(body, dict) else None
    created = row.get("create_time")
    message_id = _id(row.get("message_id"))
    if message_id is None or not isinstance(created, str) or not (created.isascii() and created.isdigit()):
        return None
    if len(created) > 15 or row.get("chat_id", chat_id) != chat_id:
        return None
    return HistoryItem(
        message_id=message_id,
        sender_id=_id(sender.get("id")) or "",
        sender_type=_id(sender.get("sender_type")) or "",
        message_type=_id(row.get("msg_type")) or "",
        created_at_ms=int(created),
        parent_id=_id(row.get("parent_id")),
        root_id=_id(row.get("root_id")),
        deleted=row.get("deleted") is True,
        updated=row.get("updated") is True,
        content=content if isinstance(content, str) else "",
    )


def _id(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= PROVIDER_ID_CHARS_MAX else None
