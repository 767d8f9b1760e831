"""What the chat page shows, worked out from the world. No HTML here: the templates escape everything they are given."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import PurePosixPath

from frontdesk.simulator import events
from frontdesk.simulator.messages import shown_text
from frontdesk.simulator.model import App, Message, Person, Push
from frontdesk.simulator.state import World
from frontdesk.simulator.texts import Texts

SHOWN_DEFAULT = 200
SHOWN_MAX = 2_000
PREVIEW_CHARS = 90
TONES = 6


@dataclass(frozen=True, slots=True)
class Avatar:
    """Initials and one of six colours, both from the name."""

    initials: str
    tone: int


@dataclass(frozen=True, slots=True)
class State:
    """How far a message has come: a sentence, its colour, and the push to try again where that makes sense."""

    text: str
    level: str
    retry: str | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """The message replied to, shortened."""

    name: str
    text: str
    anchor: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One message on the page."""

    id: str
    mine: bool
    name: str
    avatar: Avatar
    text: str
    kind: str
    file_name: str | None
    file_size: str | None
    file_kind: str
    quote: Quote | None
    time: str
    stamp: str
    edited: bool
    deleted: bool
    long: bool
    day: str | None = None
    states: list[State] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ChatEntry:
    """One line of the list of chats."""

    app: App
    person: Person
    avatar: Avatar
    preview: str
    time: str
    current: bool


def avatar(name: str) -> Avatar:
    """Initials: two letters of a spelled name, one character of another."""
    words = name.split()
    initials = words[0][0] + words[-1][0] if len(words) > 1 and words[0][0].isascii() else name[:1]
    return Avatar(initials.upper(), zlib.crc32(name.encode()) % TONES)


def preview(text: str, chars: int = PREVIEW_CHARS) -> str:
    """The text on one line, shortened."""
    line = " ".join(text[: chars * 4].split())
    return line if len(line) <= chars else line[: chars - 1] + "…"


def chat_entries(world: World, texts: Texts, current: Person | None) -> list[ChatEntry]:
    """All chats, the one with the newest message first."""
    people = sorted(world.people.values(), key=lambda p: _last_ms(world, p), reverse=True)
    entries = []
    for person in people[:SHOWN_DEFAULT]:
        rows = world.chat_messages.get(person.chat_id, [])
        last = rows[-1] if rows else None
        shown = texts("no_messages") if last is None else _preview_of(world, texts, last)
        time = "" if last is None else _local(last.created_ms).strftime("%H:%M")
        entries.append(
            ChatEntry(world.apps[person.app_id], person, avatar(person.name), shown, time, person is current)
        )
    return entries


def _last_ms(world: World, person: Person) -> int:
    rows = world.chat_messages.get(person.chat_id, [])
    return rows[-1].created_ms if rows else person.created_ms


def chat_rows(world: World, texts: Texts, app: App, person: Person, shown_max: int) -> tuple[list[Row], bool]:
    """The newest messages of a chat in order, and whether there are earlier ones."""
    messages = world.chat_messages.get(person.chat_id, [])
    recalls = {p.message_id: p for p in world.pushes.values() if p.event_type == events.RECALLED}
    rows: list[Row] = []
    day = ""
    for message in messages[-shown_max:]:
        row = _row(world, texts, app, person, message)
        new_day = row.stamp[:10]
        states = _states(world, texts, message, recalls.get(message.message_id))
        rows.append(replace(row, day=new_day if new_day != day else None, states=states))
        day = new_day
    return rows, len(messages) > shown_max


def _row(world: World, texts: Texts, app: App, person: Person, message: Message) -> Row:
    mine = message.sender_type == "user"
    name = person.name if mine else app.name
    file_name, file_size = _file_of(world, message)
    text = texts("recalled") if message.deleted else shown_text(message)
    when = _local(message.created_ms)
    return Row(
        id=message.message_id,
        mine=mine,
        name=texts("you") if mine else name,
        avatar=avatar(name),
        text=text,
        kind=message.message_type,
        file_name=None if message.deleted else file_name,
        file_size=file_size,
        file_kind=PurePosixPath(file_name or "").suffix[1:5].upper(),
        quote=quote_of(world, texts, app, person, message.parent_id),
        time=when.strftime("%H:%M"),
        stamp=when.isoformat(timespec="milliseconds"),
        edited=message.updated and not message.deleted,
        deleted=message.deleted,
        long=len(text) > 2_000,
    )


def _file_of(world: World, message: Message) -> tuple[str | None, str | None]:
    if message.message_type != "file":
        return None, None
    try:
        key = json.loads(message.content).get("file_key")
    except (ValueError, AttributeError):
        return None, None
    file = world.files.get(str(key))
    return (None, None) if file is None else (file.file_name, human_size(file.size_bytes))


def human_size(size_bytes: int) -> str:
    """A size for people."""
    if size_bytes < 1_024:
        return f"{size_bytes} B"
    if size_bytes < 1_024 * 1_024:
        return f"{size_bytes / 1_024:.1f} KB"
    return f"{size_bytes / 1_024 / 1_024:.1f} MB"


def quote_of(world: World, texts: Texts, app: App, person: Person, message_id: str | None) -> Quote | None:
    """The quoted message, also when it is gone or in another chat."""
    if message_id is None:
        return None
    target = world.messages.get(message_id)
    if target is None or target.chat_id != person.chat_id:
        return Quote("", texts("quote_gone"), None)
    name = texts("you") if target.sender_type == "user" else app.name
    return Quote(name, _preview_of(world, texts, target), target.message_id)


def _preview_of(world: World, texts: Texts, message: Message) -> str:
    if message.deleted:
        return texts("recalled")
    file_name, _ = _file_of(world, message)
    return file_name or preview(shown_text(message))


def _states(world: World, texts: Texts, message: Message, recall: Push | None) -> list[State]:
    states = []
    if message.answer_dropped:
        states.append(State(texts("state_answer_dropped"), "warn"))
    push = world.pushes.get(message.push_id or "")
    if push is not None:
        states.append(push_state(texts, push))
    if recall is not None:
        state = push_state(texts, recall)
        states.append(State(f"{texts('recall_pushed')} {state.text}", state.level, state.retry))
    return states


def push_state(texts: Texts, push: Push) -> State:
    """One sentence on where a push stands."""
    tries = len(push.attempts)
    if push.state == "delivered":
        key = "state_delivered_one" if tries == 1 else "state_delivered_many"
        return State(texts(key, tries=tries), "good")
    if push.state in ("dropped", "held"):
        return State(texts(f"state_{push.state}"), "warn", push.push_id if push.state == "dropped" else None)
    if push.state == "failed":
        return State(texts("state_failed", tries=tries, why=_why(texts, push)), "bad", push.push_id)
    if tries == 0 or push.due_ms is None:
        return State(texts("state_sending"), "idle")
    due = _local(push.due_ms).strftime("%H:%M:%S")
    return State(texts("state_waiting", why=_why(texts, push), time=due), "warn", push.push_id)


def _why(texts: Texts, push: Push) -> str:
    last = push.attempts[-1]
    if last.status is not None:
        return texts("why_status", status=last.status)
    return texts("why_unreachable") if last.via == "none" else last.error


def _local(at_ms: int) -> datetime:
    """Local time: the browser is on this machine, so the simulator's zone is the reader's."""
    return datetime.fromtimestamp(at_ms / 1_000).astimezone()
