"""What may happen to messages, by the provider's rules: sending, replying, recalling, editing, listing.

Every verb either changes the world and returns, or raises :class:`Refusal` with a provider code and changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from frontdesk.simulator import shapes
from frontdesk.simulator.model import App, Message, Person, UuidUse
from frontdesk.simulator.state import World

CODE_BAD_SECRET = 10014
CODE_BAD_TOKEN = 99991663
CODE_FIELD_INVALID = 99992402
CODE_PARAMETER = 230001
CODE_NOT_IN_CHAT = 230002
CODE_RECALLED = 230011
CODE_CHAT_RATE = 230020
CODE_TOO_LONG = 230025
CODE_NOT_YOURS = 230026
CODE_NO_MESSAGE = 231003
CODE_FILE_TOO_BIG = 234006
CODE_FILE_EMPTY = 234010
CODE_APP_RATE = 99991400

RECALLED_TEXT = "This message was recalled"


class Refusal(Exception):
    """The provider says no: ``code`` and ``msg`` go into the body, ``status`` is the HTTP status."""

    def __init__(self, code: int, msg: str, status: int = 400) -> None:
        super().__init__(f"{code} {msg}")
        self.code = code
        self.msg = msg
        self.status = status


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What an app asked to have sent."""

    msg_type: str
    content: str
    uuid: str | None
    body_bytes: int


def text_content(text: str) -> str:
    """The content string of a text message."""
    return json.dumps({"text": text}, ensure_ascii=False)


def shown_text(message: Message) -> str:
    """A message's text for people: the text of a text message, else the raw content."""
    try:
        value = json.loads(message.content)
    except ValueError:
        return message.content
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return str(value["text"])
    return message.content


# -- the app's side --------------------------------------------------------------------------------------------------


def bot_creates(world: World, app: App, chat_id: str, outgoing: Outgoing) -> tuple[Message, bool]:
    """Sends to a chat without a target. Returns the message and whether the uuid had made it before."""
    _check_size_and_uuid(outgoing)
    chat = world.chats.get(chat_id)
    if chat is None or chat.app_id != app.app_id:
        raise Refusal(CODE_NOT_IN_CHAT, "Bot/User can NOT be out of the chat.")
    return _accept(world, app, chat_id, outgoing, parent=None)


def bot_replies(world: World, app: App, target_id: str, outgoing: Outgoing) -> tuple[Message, bool]:
    """Replies to a message. A recalled target refuses; an unknown one is not found."""
    _check_size_and_uuid(outgoing)
    target = world.messages.get(target_id)
    if target is None or target.app_id != app.app_id:
        raise Refusal(CODE_NO_MESSAGE, "The message is not found.")
    return _accept(world, app, target.chat_id, outgoing, parent=target)


def _check_size_and_uuid(outgoing: Outgoing) -> None:
    if outgoing.uuid is not None and len(outgoing.uuid) > shapes.UUID_CHARS_MAX:
        raise Refusal(CODE_FIELD_INVALID, "field validation failed: uuid max length is 50")
    text_like = outgoing.msg_type in ("text", "file")
    limit = shapes.TEXT_BODY_BYTES_MAX if text_like else shapes.CARD_BODY_BYTES_MAX
    if outgoing.body_bytes > limit:
        raise Refusal(CODE_TOO_LONG, "The length of the message content reaches its limit.")


def _accept(world: World, app: App, chat_id: str, outgoing: Outgoing, parent: Message | None) -> tuple[Message, bool]:
    now = world.clock.now_ms()
    if outgoing.uuid:
        use = world.uuids.get((app.app_id, outgoing.uuid))
        if use is not None and now < use.at_ms + shapes.UUID_WINDOW_MS and use.message_id in world.messages:
            return world.messages[use.message_id], True
    if parent is not None and parent.deleted:
        raise Refusal(CODE_RECALLED, "The message was withdrawn.")
    _check_content(world, app, outgoing)
    if not _take_from_bucket(world, chat_id, now):
        raise Refusal(CODE_CHAT_RATE, "This operation triggers the frequency limit of the chat.")
    message = Message(
        message_id=shapes.new_id("om_"),
        chat_id=chat_id,
        app_id=app.app_id,
        sender_id=app.app_id,
        sender_type="app",
        message_type=outgoing.msg_type,
        content=outgoing.content,
        created_ms=now,
        seq=world.next_sequence(),
        parent_id=parent.message_id if parent else None,
        root_id=(parent.root_id or parent.message_id) if parent else None,
        uuid=outgoing.uuid,
    )
    world.save_message(message)
    if outgoing.uuid:
        world.save_uuid(UuidUse(app.app_id, outgoing.uuid, message.message_id, now))
    return message, False


def _check_content(world: World, app: App, outgoing: Outgoing) -> None:
    try:
        content = json.loads(outgoing.content)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise Refusal(CODE_PARAMETER, "Your request contains an invalid request parameter: content")
    if outgoing.msg_type == "text" and not (isinstance(content.get("text"), str) and content["text"]):
        raise Refusal(CODE_PARAMETER, "Your request contains an invalid request parameter: text")
    if outgoing.msg_type == "file":
        file = world.files.get(str(content.get("file_key")))
        if file is None or file.app_id != app.app_id:
            raise Refusal(CODE_PARAMETER, "Your request contains an invalid request parameter: file_key")


def _take_from_bucket(world: World, chat_id: str, now_ms: int) -> bool:
    """A bucket of five, refilled five a second: bursts over five are refused, even pacing survives network jitter."""
    level, at_ms = world.chat_buckets.get(chat_id, (float(shapes.CHAT_PER_SECOND), now_ms))
    level = min(shapes.CHAT_PER_SECOND, level + max(0, now_ms - at_ms) * shapes.CHAT_PER_SECOND / 1_000)
    allowed = level >= 1
    world.chat_buckets[chat_id] = (level - 1 if allowed else level, now_ms)
    return allowed


def own_message(world: World, app: App, message_id: str) -> Message:
    """The app's own message for recall or edit; raises for another's, an unknown or a recalled one."""
    message = world.messages.get(message_id)
    if message is None or message.app_id != app.app_id:
        raise Refusal(CODE_NO_MESSAGE, "The message is not found.")
    if message.sender_type != "app":
        raise Refusal(CODE_NOT_YOURS, "No permission to operate this message.")
    if message.deleted:
        raise Refusal(CODE_RECALLED, "The message was withdrawn.")
    return message


def readable_message(world: World, app: App, message_id: str) -> Message:
    """A message in one of the app's chats, recalled ones included."""
    message = world.messages.get(message_id)
    if message is None or message.app_id != app.app_id:
        raise Refusal(CODE_NO_MESSAGE, "The message is not found.")
    return message


def recall(world: World, message: Message) -> None:
    """Marks a message recalled; its content stays for the observer but is no longer handed to readers."""
    message.deleted = True
    message.updated_ms = world.clock.now_ms()
    world.save_message(message)


def edit(world: World, message: Message, content: str, message_type: str | None = None) -> None:
    """Replaces a message's content and marks it updated."""
    message.content = content
    message.message_type = message_type or message.message_type
    message.updated = True
    message.updated_ms = world.clock.now_ms()
    world.save_message(message)


# -- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A list request after checking. Times are whole seconds, both ends included; ``after`` is the last row seen."""

    chat_id: str
    start_s: int | None
    end_s: int | None
    descending: bool
    page_size: int
    after: tuple[int, int] | None


def list_page(world: World, app: App, query: ListQuery) -> tuple[list[Message], tuple[int, int] | None]:
    """One page of a chat and the position to go on from, None at the end."""
    chat = world.chats.get(query.chat_id)
    if chat is None or chat.app_id != app.app_id:
        raise Refusal(CODE_NOT_IN_CHAT, "Bot/User can NOT be out of the chat.")
    rows = sorted(world.chat_messages.get(query.chat_id, []), key=position, reverse=query.descending)
    rows = [row for row in rows if _in_range(row, query)]
    if query.after is not None:
        after = query.after
        rows = [row for row in rows if (position(row) < after if query.descending else position(row) > after)]
    page = rows[: query.page_size]
    return page, position(page[-1]) if len(rows) > len(page) else None


def position(message: Message) -> tuple[int, int]:
    """What orders messages: creation time, then arrival."""
    return message.created_ms, message.seq


def _in_range(message: Message, query: ListQuery) -> bool:
    second = message.created_ms // 1_000
    return (query.start_s is None or second >= query.start_s) and (query.end_s is None or second <= query.end_s)


def provider_item(app: App, message: Message) -> dict[str, Any]:
    """A message as the provider's read and send endpoints show it."""
    content = RECALLED_TEXT if message.deleted else message.content
    item: dict[str, Any] = {
        "message_id": message.message_id,
        "msg_type": message.message_type,
        "create_time": str(message.created_ms),
        "update_time": str(message.updated_ms or message.created_ms),
        "deleted": message.deleted,
        "updated": message.updated,
        "chat_id": message.chat_id,
        "sender": {
            "id": message.sender_id,
            "id_type": "app_id" if message.sender_type == "app" else "open_id",
            "sender_type": message.sender_type,
            "tenant_key": app.tenant_key,
        },
        "body": {"content": content},
    }
    if message.root_id:
        item["root_id"] = message.root_id
    if message.parent_id:
        item["parent_id"] = message.parent_id
    return item


# -- the person's side -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PersonMessage:
    """What a person sends. ``parent`` is the message replied to; ``root_id`` overrides the thread's root."""

    content: str
    message_type: str = "text"
    chat_type: str = "p2p"
    parent: Message | None = None
    root_id: str | None = None
    created_ms: int | None = None


def person_sends(world: World, app: App, person: Person, sent: PersonMessage) -> Message:
    """Stores a person's message in their private chat with the app's bot."""
    parent = sent.parent
    message = Message(
        message_id=shapes.new_id("om_"),
        chat_id=person.chat_id,
        app_id=app.app_id,
        sender_id=person.open_id,
        sender_type="user",
        message_type=sent.message_type,
        content=sent.content,
        created_ms=world.clock.now_ms() if sent.created_ms is None else sent.created_ms,
        seq=world.next_sequence(),
        parent_id=parent.message_id if parent else None,
        root_id=sent.root_id or ((parent.root_id or parent.message_id) if parent else None),
        chat_type=sent.chat_type,
    )
    world.save_message(message)
    return message
