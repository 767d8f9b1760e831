"""What people do in their chats, as the observer and the chat page both offer it: send, recall, edit, push again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from frontdesk.simulator import events, messages, shapes
from frontdesk.simulator.config import SimulatorError
from frontdesk.simulator.messages import PersonMessage
from frontdesk.simulator.model import App, Message, Person, Push, PushOptions
from frontdesk.simulator.pushing import Draft, Pusher
from frontdesk.simulator.state import World

TEXT_CHARS_MAX = 150_000
NEWEST_BOT = "newest_bot"


@dataclass(frozen=True, slots=True)
class NewApp:
    """Values for a new app; None means generated in the provider's shape."""

    name: str
    app_id: str | None = None
    app_secret: str | None = None
    encrypt_key: str | None = None
    verification_token: str | None = None
    tenant_key: str | None = None
    header_case: str | None = None
    transport: str | None = None
    resign_redeliveries: bool | None = None


class Desk:
    """The verbs of people and of whoever sets the stand-in up. Raises :class:`SimulatorError` with a sentence."""

    def __init__(self, world: World, pusher: Pusher) -> None:
        self.world = world
        self.pusher = pusher

    def add_app(self, new: NewApp) -> App:
        """Makes an app; one with the same id or name is returned as it is, apart from its switches."""
        name = new.name.strip()
        if not 1 <= len(name) <= shapes.NAME_CHARS_MAX:
            raise SimulatorError(f"a name has 1 to {shapes.NAME_CHARS_MAX} characters")
        if new.app_id is not None and not shapes.APP_ID.fullmatch(new.app_id):
            raise SimulatorError("an app id is cli_ followed by letters and digits")
        if new.header_case not in (None, "canonical", "lower") or new.transport not in (None, "auto", "webhook", "ws"):
            raise SimulatorError("header_case is canonical or lower; transport is auto, webhook or ws")
        app = self.world.apps.get(new.app_id) if new.app_id else self.world.find_app(name)
        if app is None:
            app = App(
                app_id=new.app_id or shapes.new_app_id(),
                name=name,
                app_secret=new.app_secret or shapes.new_secret(),
                encrypt_key=new.encrypt_key or shapes.new_secret(),
                verification_token=new.verification_token or shapes.new_secret(),
                tenant_key=new.tenant_key or shapes.new_tenant_key(),
                bot_open_id=shapes.new_id("ou_"),
                created_ms=self.world.clock.now_ms(),
            )
        if new.header_case is not None:
            app.header_case = cast(Literal["canonical", "lower"], new.header_case)
        if new.transport is not None:
            app.transport = cast(Literal["auto", "webhook", "ws"], new.transport)
        if new.resign_redeliveries is not None:
            app.resign_redeliveries = new.resign_redeliveries
        self.world.save_app(app)
        return app

    def get_person(self, app: App, name_or_open_id: str) -> Person:
        """A person of this app; raises when unknown."""
        person = self.world.find_person(app.app_id, name_or_open_id)
        if person is None:
            raise SimulatorError(f"no person {name_or_open_id!r} knows app {app.name!r}")
        return person

    def find_target(self, person: Person, reply_to: str | None) -> Message | None:
        """The message a reply aims at: by id, the bot's newest, or none."""
        if reply_to is None or reply_to == "":
            return None
        if reply_to == NEWEST_BOT:
            found = self.world.newest_of_bot(person.chat_id)
            if found is None:
                raise SimulatorError("the bot has not written in this chat yet")
            return found
        message = self.world.messages.get(reply_to)
        if message is None or message.chat_id != person.chat_id:
            raise SimulatorError("the message replied to is not in this chat")
        return message

    def send(self, app: App, person: Person, sent: PersonMessage) -> tuple[Message, list[Push]]:
        """Puts a person's message into the chat and its event on the way."""
        if len(sent.content) > TEXT_CHARS_MAX:
            raise SimulatorError(f"a message has at most {TEXT_CHARS_MAX} characters")
        message = messages.person_sends(self.world, app, person, sent)
        pushes = self.push_message(app, message, PushOptions())
        message.push_id = pushes[0].push_id
        self.world.save_message(message)
        return message, pushes

    def push_message(self, app: App, message: Message, options: PushOptions, **draft: Any) -> list[Push]:
        """Pushes the event of an existing message, again if need be."""
        person = self.world.chats[message.chat_id]
        event = events.message_received(app, person, message)
        return self.pusher.submit(
            Draft(app, events.RECEIVED, event, message.chat_id, message.message_id, options=options, **draft)
        )

    def recall(self, person: Person, message_id: str) -> list[Push]:
        """Takes a person's own message back and pushes the recall event."""
        message = self._own(person, message_id)
        messages.recall(self.world, message)
        app = self.world.get_app(message.app_id)
        event = events.message_recalled(message, message.updated_ms or self.world.clock.now_ms())
        return self.pusher.submit(Draft(app, events.RECALLED, event, message.chat_id, message.message_id))

    def edit(self, person: Person, message_id: str, text: str) -> Message:
        """Changes a person's own text. The provider pushes no event for that; only history shows it."""
        message = self._own(person, message_id)
        if not 1 <= len(text) <= TEXT_CHARS_MAX:
            raise SimulatorError(f"a message has 1 to {TEXT_CHARS_MAX} characters")
        messages.edit(self.world, message, messages.text_content(text))
        return message

    def _own(self, person: Person, message_id: str) -> Message:
        message = self.world.messages.get(message_id)
        if message is None or message.sender_id != person.open_id:
            raise SimulatorError("people recall and edit their own messages only")
        if message.deleted:
            raise SimulatorError("the message was recalled")
        return message
