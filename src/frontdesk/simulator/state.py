"""The world as the provider sees it: records in memory, every change written through to the store.

Rules about messages live in ``messages.py``; this module only holds, finds, keeps and bounds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from frontdesk.simulator import shapes
from frontdesk.simulator.clock import SimClock
from frontdesk.simulator.config import SimulatorError
from frontdesk.simulator.model import (
    App,
    Attempt,
    Kind,
    Message,
    Person,
    Push,
    PushOptions,
    StoredFile,
    Token,
    UuidUse,
    WireRequest,
)
from frontdesk.simulator.store import Store

_KINDS_CLEARED_BY_RESET = ("message", "token", "uuid", "file", "request", "push", "meta")


class World:
    """Everything that exists, for one event loop. Not thread-safe by design: nothing here awaits."""

    def __init__(self, clock: SimClock, path: Path | None = None) -> None:
        self.clock = clock
        self.store = Store(path)
        self.apps: dict[str, App] = {}
        self.people: dict[str, Person] = {}
        self.chats: dict[str, Person] = {}
        self.messages: dict[str, Message] = {}
        self.chat_messages: dict[str, list[Message]] = defaultdict(list)
        self.tokens: dict[str, Token] = {}
        self.uuids: dict[tuple[str, str], UuidUse] = {}
        self.files: dict[str, StoredFile] = {}
        self.requests: dict[int, WireRequest] = {}
        self.request_counts: Counter[str] = Counter()
        self.request_number = 0
        self.pushes: dict[str, Push] = {}
        self.chat_buckets: dict[str, tuple[float, int]] = {}
        self.sequence = 0
        self.revision = 0  # grows with every visible change; the chat page polls it
        self._load()

    # -- loading -----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        for record in self.store.records("app"):
            self.apps[record["app_id"]] = App(**record)
        for record in self.store.records("person"):
            self._index_person(Person(**record))
        for record in self.store.records("message"):
            message = Message(**record)
            self.messages[message.message_id] = message
            self.chat_messages[message.chat_id].append(message)
            self.sequence = max(self.sequence, message.seq)
        for record in self.store.records("token"):
            self.tokens[record["value"]] = Token(**record)
        for record in self.store.records("uuid"):
            use = UuidUse(**record)
            self.uuids[use.app_id, use.uuid] = use
        for record in self.store.records("file"):
            self.files[record["file_key"]] = StoredFile(**record)
        for record in self.store.records("request"):
            self.requests[record["id"]] = WireRequest(**record)
            self.request_number = max(self.request_number, record["id"])
        for record in self.store.records("push"):
            self.pushes[record["push_id"]] = _push_from(record)
        for record in self.store.records("meta"):
            self.request_counts.update(record["request_counts"])

    def _index_person(self, person: Person) -> None:
        self.people[person.open_id] = person
        self.chats[person.chat_id] = person

    # -- apps and people ---------------------------------------------------------------------------------------------

    def save_app(self, app: App) -> None:
        """Keeps a new or changed app."""
        self.apps[app.app_id] = app
        self.store.put("app", app.app_id, asdict(app))
        self.revision += 1

    def find_app(self, name_or_id: str) -> App | None:
        """The app with this id or, failing that, this name."""
        found = self.apps.get(name_or_id)
        if found is not None:
            return found
        return next((app for app in self.apps.values() if app.name == name_or_id), None)

    def get_app(self, app_id: str) -> App:
        """The app with this id; raises :class:`SimulatorError`."""
        app = self.apps.get(app_id)
        if app is None:
            raise SimulatorError(f"there is no app {app_id!r}")
        return app

    def add_person(self, app: App, name: str) -> Person:
        """The person of this name with ``app``, made with a private chat where new."""
        clean = name.strip()
        if not 1 <= len(clean) <= shapes.NAME_CHARS_MAX:
            raise SimulatorError(f"a name has 1 to {shapes.NAME_CHARS_MAX} characters")
        found = self.find_person(app.app_id, clean)
        if found is not None:
            return found
        person = Person(
            open_id=shapes.new_id("ou_"),
            union_id=shapes.new_id("on_"),
            app_id=app.app_id,
            name=clean,
            chat_id=shapes.new_id("oc_"),
            created_ms=self.clock.now_ms(),
        )
        self._index_person(person)
        self.store.put("person", person.open_id, asdict(person))
        self.revision += 1
        return person

    def find_person(self, app_id: str, name_or_open_id: str) -> Person | None:
        """A person of this app by open id or name."""
        found = self.people.get(name_or_open_id)
        if found is not None and found.app_id == app_id:
            return found
        return next((p for p in self.people.values() if p.app_id == app_id and p.name == name_or_open_id), None)

    def people_of(self, app_id: str) -> list[Person]:
        """The people who know this app's bot, oldest first."""
        return [person for person in self.people.values() if person.app_id == app_id]

    # -- messages ----------------------------------------------------------------------------------------------------

    def save_message(self, message: Message) -> None:
        """Keeps a new or changed message; the oldest go once there are too many."""
        if message.message_id not in self.messages:
            self.messages[message.message_id] = message
            self.chat_messages[message.chat_id].append(message)
            while len(self.messages) > shapes.MESSAGES_KEPT:
                self._forget_message(next(iter(self.messages)))
        self.store.put("message", message.message_id, asdict(message))
        self.revision += 1

    def _forget_message(self, message_id: str) -> None:
        message = self.messages.pop(message_id)
        self.chat_messages[message.chat_id].remove(message)
        self.store.delete("message", message_id)

    def next_sequence(self) -> int:
        """A number that orders messages of the same millisecond."""
        self.sequence += 1
        return self.sequence

    def newest_of_bot(self, chat_id: str) -> Message | None:
        """The bot's newest message in the chat that was not recalled."""
        for message in reversed(self.chat_messages.get(chat_id, [])):
            if message.sender_type == "app" and not message.deleted:
                return message
        return None

    # -- tokens, uuids, files ----------------------------------------------------------------------------------------

    def save_token(self, token: Token) -> None:
        """Keeps a token and forgets the ones that ended."""
        now = self.clock.now_ms()
        for value in [v for v, old in self.tokens.items() if old.expires_ms <= now]:
            self.drop_token(value)
        self.tokens[token.value] = token
        self.store.put("token", token.value, asdict(token))

    def drop_token(self, value: str) -> None:
        """Makes a token invalid at once."""
        if self.tokens.pop(value, None) is not None:
            self.store.delete("token", value)

    def save_uuid(self, use: UuidUse) -> None:
        """Remembers a uuid and forgets the ones whose hour is over."""
        for key, old in list(self.uuids.items()):
            if old.at_ms + shapes.UUID_WINDOW_MS > use.at_ms:
                break  # in order of first use, so all later ones are younger
            del self.uuids[key]
            self.store.delete("uuid", "\0".join(key))
        self.uuids[use.app_id, use.uuid] = use
        self.store.put("uuid", f"{use.app_id}\0{use.uuid}", asdict(use))

    def save_file(self, file: StoredFile, data: bytes) -> None:
        """Keeps an uploaded file; the oldest go once there are too many."""
        self.files[file.file_key] = file
        self.store.put_bytes(file.file_key, data)
        self.store.put("file", file.file_key, asdict(file))
        while len(self.files) > shapes.FILES_KEPT:
            oldest = next(iter(self.files))
            del self.files[oldest]
            self.store.delete("file", oldest)
            self.store.delete_bytes(oldest)

    # -- observation -------------------------------------------------------------------------------------------------

    def record_request(self, kind: Kind, method: str, path: str, query: str) -> WireRequest:
        """Counts a wire request as it arrives, before its body is read and before any fault."""
        self.request_number += 1
        request = WireRequest(self.request_number, self.clock.now_ms(), kind, method, path, query, request_bytes=0)
        self.requests[request.id] = request
        self.request_counts[kind] += 1
        self.store.put("meta", "counts", {"request_counts": dict(self.request_counts)})
        self.save_request(request)
        while len(self.requests) > shapes.REQUESTS_KEPT:
            oldest = next(iter(self.requests))
            del self.requests[oldest]
            self.store.delete("request", str(oldest))
        return request

    def save_request(self, request: WireRequest) -> None:
        """Writes a request's record again after something about it became known."""
        if request.id in self.requests:
            self.store.put("request", str(request.id), asdict(request))

    def save_push(self, push: Push) -> None:
        """Keeps a new or changed push; the oldest finished ones go once there are too many."""
        self.pushes[push.push_id] = push
        self.store.put("push", push.push_id, asdict(push))
        self.revision += 1
        if len(self.pushes) > shapes.PUSHES_KEPT:
            oldest = next((p for p in self.pushes.values() if p.state not in ("held", "waiting")), None)
            if oldest is not None:
                del self.pushes[oldest.push_id]
                self.store.delete("push", oldest.push_id)

    def reset(self, *, keep_apps: bool) -> None:
        """Forgets messages, pushes, requests, tokens and files; apps and people too unless ``keep_apps``."""
        for file_key in self.files:
            self.store.delete_bytes(file_key)
        kinds = _KINDS_CLEARED_BY_RESET if keep_apps else (*_KINDS_CLEARED_BY_RESET, "app", "person")
        for kind in kinds:
            self.store.delete_kind(kind)
        cleared: list[dict[Any, Any]] = [self.messages, self.chat_messages, self.tokens, self.uuids, self.files]
        cleared += [self.requests, self.pushes, self.chat_buckets, self.request_counts]
        if not keep_apps:
            cleared += [self.apps, self.people, self.chats]
        for holder in cleared:
            holder.clear()
        self.request_number = 0
        self.revision += 1


def _push_from(record: dict[str, Any]) -> Push:
    options = PushOptions(**record.pop("options"))
    attempts = [Attempt(**attempt) for attempt in record.pop("attempts")]
    return Push(**record, options=options, attempts=attempts)
