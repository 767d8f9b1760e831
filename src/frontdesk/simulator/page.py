"""The chat page: plain forms with post-redirect-get, live where JavaScript runs; ``Host`` and ``Origin`` checked."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Message as AsgiMessage

from frontdesk.simulator import messages, views
from frontdesk.simulator.access import same_origin
from frontdesk.simulator.config import SimulatorError
from frontdesk.simulator.messages import PersonMessage
from frontdesk.simulator.model import App, Message, Person
from frontdesk.simulator.people import Desk, NewApp
from frontdesk.simulator.provider import BodyTooLarge, read_body
from frontdesk.simulator.texts import Texts, preferred

HERE = Path(__file__).parent
STATIC = HERE / "static"
FORM_BYTES_MAX = 256 * 1024
_POLICY = (
    "default-src 'none'",
    "style-src 'self'",
    "script-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
)
_HEADERS = {
    "Content-Security-Policy": "; ".join(_POLICY),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Page = Callable[[Request, Texts], Response]
Action = Callable[[dict[str, str]], Awaitable[str]]


class ChatPage:
    """Routes of the page."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.world = desk.world
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"), autoescape=True, trim_blocks=True, lstrip_blocks=True
        )

    def routes(self) -> list[Route]:
        """All page routes."""
        pages: list[tuple[str, Page]] = [
            ("/", self.chat),
            ("/live", self.live),
            ("/apps", self.apps),
            ("/message/{message_id}", self.message),
            ("/download/{message_id}", self.download),
        ]
        actions: list[tuple[str, Action]] = [
            ("/send", self.send),
            ("/recall", self.recall),
            ("/edit", self.edit),
            ("/push-again", self.push_again),
            ("/apps", self.add_app),
            ("/apps/callback", self.set_callback),
            ("/people", self.add_person),
        ]
        routes = [Route(path, self._page(page), methods=["GET"]) for path, page in pages]
        return routes + [Route(path, self._action(action), methods=["POST"]) for path, action in actions]

    # -- wrapping ----------------------------------------------------------------------------------------------------

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def run(request: Request) -> Response:
            texts = preferred(request.headers.get("accept-language", ""))
            try:
                response = page(request, texts)
            except SimulatorError as error:
                response = self._render("problem.html", texts, 404, error=str(error))
            return _secured(response)

        return run

    def _action(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def run(request: Request) -> Response:
            texts = preferred(request.headers.get("accept-language", ""))
            if not same_origin(request):
                return _secured(self._render("problem.html", texts, 403, error="The form came from another page."))
            try:
                form = await _form(request)
                response: Response = RedirectResponse(await action(form), 303)
            except BodyTooLarge:
                response = self._render("problem.html", texts, 413, error="The form is too large.")
            except SimulatorError as error:
                response = self._render("problem.html", texts, 400, error=str(error))
            return _secured(response)

        return run

    def _render(self, template: str, texts: Texts, status: int = 200, **values: Any) -> HTMLResponse:
        html = self._templates.get_template(template).render(t=texts, avatar=views.avatar, **values)
        return HTMLResponse(html, status)

    # -- showing -----------------------------------------------------------------------------------------------------

    def chat(self, request: Request, texts: Texts) -> Response:
        """GET /: a chat, or what to do to get one."""
        app, person = self._chosen(request)
        entries = views.chat_entries(self.world, texts, person)
        if app is None or person is None:
            return self._render("welcome.html", texts, app=app, entries=entries)
        query = request.query_params
        aimed, explicit = self._target(person, query.get("reply"))
        editing = self.world.messages.get(query.get("edit", ""))
        if editing is not None and (editing.sender_id != person.open_id or editing.deleted):
            editing = None
        values = self._chat_values(texts, app, person, _shown(query.get("show")))
        return self._render(
            "chat.html",
            texts,
            entries=entries,
            target=views.quote_of(self.world, texts, app, person, aimed.message_id if aimed else None),
            explicit=explicit,
            editing=editing,
            editing_text=messages.shown_text(editing) if editing else "",
            **values,
        )

    def live(self, request: Request, texts: Texts) -> Response:
        """GET /live: the message list and the reply box's aim, for the page's script; 304 while nothing changed."""
        app, person = self._chosen(request)
        if app is None or person is None:
            raise SimulatorError("there is no such chat")
        tag = f'"{self.world.revision}-{texts.language}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        aimed, _ = self._target(person, None)
        target = views.quote_of(self.world, texts, app, person, aimed.message_id if aimed else None)
        values = self._chat_values(texts, app, person, _shown(request.query_params.get("show")))
        html = self._templates.get_template("messages.html").render(t=texts, avatar=views.avatar, **values)
        entries = views.chat_entries(self.world, texts, person)
        chats = self._templates.get_template("entries.html").render(t=texts, entries=entries)
        body = {
            "html": html,
            "chats": chats,
            "target": aimed.message_id if aimed else "",
            "target_name": texts("replying_to", name=target.name) if target else "",
            "target_text": target.text if target else "",
        }
        return JSONResponse(body, headers={"ETag": tag})

    def _chat_values(self, texts: Texts, app: App, person: Person, shown: int) -> dict[str, Any]:
        rows, more = views.chat_rows(self.world, texts, app, person, shown)
        return {
            "app": app,
            "person": person,
            "rows": rows,
            "more": more,
            "link": _link(app, person),
            "me": views.avatar(person.name),
            "show_more": _link(app, person, show=str(views.SHOWN_MAX)),
        }

    def _chosen(self, request: Request) -> tuple[App | None, Person | None]:
        query = request.query_params
        if not query.get("app") and not query.get("person"):
            newest = max(self.world.people.values(), key=lambda p: p.created_ms, default=None)
            if newest is not None:
                return self.world.apps[newest.app_id], newest
            return next(iter(self.world.apps.values()), None), None
        app = self.world.find_app(query.get("app", ""))
        if app is None:
            raise SimulatorError("There is no such app.")
        people = self.world.people_of(app.app_id)
        if not query.get("person"):
            return app, people[0] if people else None
        person = self.world.find_person(app.app_id, query["person"])
        if person is None:
            raise SimulatorError("There is no such person.")
        return app, person

    def _target(self, person: Person, reply: str | None) -> tuple[Message | None, bool]:
        """What the reply box aims at, and whether someone chose it."""
        chosen = self.world.messages.get(reply or "")
        if chosen is not None and chosen.chat_id == person.chat_id and not chosen.deleted:
            return chosen, True
        return self.world.newest_of_bot(person.chat_id), False

    def apps(self, request: Request, texts: Texts) -> Response:
        """GET /apps: apps, credentials, callback addresses, people."""
        del request
        apps = [(app, self.world.people_of(app.app_id)) for app in self.world.apps.values()]
        return self._render("apps.html", texts, apps=apps, link=_link)

    def message(self, request: Request, texts: Texts) -> Response:
        """GET /message/{id}: one message in full."""
        message = self._message(request)
        person = self.world.chats[message.chat_id]
        app = self.world.apps[message.app_id]
        name = person.name if message.sender_type == "user" else app.name
        text = texts("recalled") if message.deleted else messages.shown_text(message)
        raw = None if message.deleted else message.content
        back = _link(app, person) + f"#{message.message_id}"
        return self._render("message.html", texts, message=message, name=name, text=text, raw=raw, back=back)

    def download(self, request: Request, texts: Texts) -> Response:
        """GET /download/{id}: the file a message carries, always as a download."""
        del texts
        message = self._message(request)
        try:
            key = str(json.loads(message.content)["file_key"])
        except (ValueError, KeyError, TypeError):
            raise SimulatorError("The message carries no file.") from None
        file, data = self.world.files.get(key), self.world.store.get_bytes(key)
        if message.deleted or file is None or data is None:
            raise SimulatorError("The file is not here any more.")
        name = quote(file.file_name, safe="")
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
        return Response(data, media_type="application/octet-stream", headers=headers)

    def _message(self, request: Request) -> Message:
        message = self.world.messages.get(request.path_params["message_id"])
        if message is None:
            raise SimulatorError("There is no such message.")
        return message

    # -- acting ------------------------------------------------------------------------------------------------------

    def _chat_of(self, form: dict[str, str]) -> tuple[App, Person]:
        app = self.world.get_app(form.get("app", ""))
        return app, self.desk.get_person(app, form.get("person", ""))

    async def send(self, form: dict[str, str]) -> str:
        """POST /send."""
        app, person = self._chat_of(form)
        text = form.get("text", "").replace("\r\n", "\n")
        if not text.strip():
            raise SimulatorError("Write something first.")
        target = None if form.get("as_new") else self.desk.find_target(person, form.get("target"))
        self.desk.send(app, person, PersonMessage(messages.text_content(text), parent=target))
        return _link(app, person) + "#latest"

    async def recall(self, form: dict[str, str]) -> str:
        """POST /recall."""
        app, person = self._chat_of(form)
        self.desk.recall(person, form.get("message", ""))
        return _link(app, person) + "#latest"

    async def edit(self, form: dict[str, str]) -> str:
        """POST /edit."""
        app, person = self._chat_of(form)
        text = form.get("text", "").replace("\r\n", "\n")
        if not text.strip():
            raise SimulatorError("Write something first.")
        message = self.desk.edit(person, form.get("message", ""), text)
        return _link(app, person) + f"#{message.message_id}"

    async def push_again(self, form: dict[str, str]) -> str:
        """POST /push-again."""
        app, person = self._chat_of(form)
        push = self.world.pushes.get(form.get("push", ""))
        if push is None or push.chat_id != person.chat_id:
            raise SimulatorError("There is no such push in this chat.")
        self.desk.pusher.push_now(push)
        await self.desk.pusher.first_attempt(push)
        return _link(app, person) + "#latest"

    async def add_app(self, form: dict[str, str]) -> str:
        """POST /apps."""
        self.desk.add_app(NewApp(form.get("name", "")))
        return "/apps"

    async def set_callback(self, form: dict[str, str]) -> str:
        """POST /apps/callback."""
        app = self.world.get_app(form.get("app", ""))
        await self.desk.pusher.set_callback(app, form.get("url", "").strip())
        return f"/apps#{app.app_id}"

    async def add_person(self, form: dict[str, str]) -> str:
        """POST /people."""
        app = self.world.get_app(form.get("app", ""))
        return _link(app, self.world.add_person(app, form.get("name", "")))


def _link(app: App, person: Person, **more: str) -> str:
    return "/?" + urlencode({"app": app.app_id, "person": person.open_id, **more})


def _shown(value: str | None) -> int:
    if value is None or not value.isascii() or not value.isdigit() or len(value) > 6:
        return views.SHOWN_DEFAULT
    return max(1, min(views.SHOWN_MAX, int(value)))


def _secured(response: Response) -> Response:
    response.headers.update(_HEADERS)
    return response


async def _form(request: Request) -> dict[str, str]:
    body = await read_body(request, FORM_BYTES_MAX)

    async def replay() -> AsgiMessage:
        return {"type": "http.request", "body": body, "more_body": False}

    try:
        form: FormData = await Request(request.scope, replay).form(max_files=0, max_fields=20)
    except (MultiPartException, ValueError):
        raise SimulatorError("The form cannot be read.") from None
    return {name: value for name, value in form.items() if not isinstance(value, UploadFile)}
