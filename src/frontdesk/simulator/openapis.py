"""The provider's routes: tokens, bot info, messages, files. Each handler judges one request and answers or refuses."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message as AsgiMessage

from frontdesk.simulator import messages, shapes
from frontdesk.simulator.answers import Answer, WireAnswer
from frontdesk.simulator.messages import ListQuery, Outgoing, Refusal
from frontdesk.simulator.model import App, Kind, Message, StoredFile, Token
from frontdesk.simulator.provider import Exchange, Handler, Pipeline, page_position, page_token, sent_data
from frontdesk.simulator.state import World

IM = "/open-apis/im/v1/messages"


class OpenApis:
    """Handlers for ``/open-apis/*``."""

    def __init__(self, world: World, pipeline: Pipeline) -> None:
        self.world = world
        self._pipeline = pipeline

    def routes(self) -> list[Route]:
        """All routes; an unknown path under ``/open-apis`` is counted and answered 404."""
        table: list[tuple[str, str, Kind, Handler]] = [
            ("POST", "/open-apis/auth/v3/tenant_access_token/internal", "token", self.token),
            ("GET", "/open-apis/bot/v3/info", "bot_info", self.bot_info),
            ("POST", IM, "create", self.create),
            ("POST", IM + "/{message_id}/reply", "reply", self.reply),
            ("GET", IM, "list", self.list_messages),
            ("GET", IM + "/{message_id}", "get", self.get_message),
            ("GET", IM + "/{message_id}/resources/{file_key}", "resource", self.resource),
            ("DELETE", IM + "/{message_id}", "recall", self.recall),
            ("PUT", IM + "/{message_id}", "edit", self.edit),
            ("POST", "/open-apis/im/v1/files", "upload", self.upload),
            ("GET", "/open-apis/im/v1/files/{file_key}", "resource", self.own_file),
        ]
        routes = [self._route(path, method, kind, handler) for method, path, kind, handler in table]
        every = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        routes.append(Route("/open-apis/{rest:path}", self._pipeline.endpoint("unknown", self.unknown), methods=every))
        return routes

    def _route(self, path: str, method: str, kind: Kind, handler: Handler) -> Route:
        endpoint: Callable[[Request], Awaitable[WireAnswer]] = self._pipeline.endpoint(kind, handler)
        return Route(path, endpoint, methods=[method])

    # -- who is asking -----------------------------------------------------------------------------------------------

    async def token(self, exchange: Exchange) -> Answer:
        """App id and secret for a tenant token of two hours; whatever the content type."""
        app = self.world.apps.get(str(exchange.json.get("app_id")))
        secret = str(exchange.json.get("app_secret"))
        if app is None or not hmac.compare_digest(secret.encode(), app.app_secret.encode()):
            raise Refusal(messages.CODE_BAD_SECRET, "app secret invalid", status=200)
        now = self.world.clock.now_ms()
        token = Token(shapes.new_token(), app.app_id, now + shapes.TOKEN_SECONDS * 1_000)
        self.world.save_token(token)
        return Answer(
            payload={"code": 0, "msg": "ok", "tenant_access_token": token.value, "expire": shapes.TOKEN_SECONDS}
        )

    def _authorised(self, exchange: Exchange) -> App:
        token = self.world.tokens.get(exchange.token)
        if token is None or token.expires_ms <= self.world.clock.now_ms() or token.app_id not in self.world.apps:
            raise Refusal(messages.CODE_BAD_TOKEN, "Invalid access token for authorization.")
        exchange.app = self.world.apps[token.app_id]
        return exchange.app

    async def bot_info(self, exchange: Exchange) -> Answer:
        """The bot's identity, at the top level of the answer as the provider has it."""
        app = self._authorised(exchange)
        bot = {"activate_status": 2, "app_name": app.name, "avatar_url": "", "open_id": app.bot_open_id}
        return Answer(payload={"code": 0, "msg": "ok", "bot": bot})

    # -- sending -----------------------------------------------------------------------------------------------------

    async def create(self, exchange: Exchange) -> Answer:
        """A message into a chat, without a target."""
        app = self._authorised(exchange)
        if exchange.query("receive_id_type") != "chat_id":
            raise Refusal(messages.CODE_FIELD_INVALID, "field validation failed: receive_id_type (only chat_id here)")
        receive_id = exchange.json.get("receive_id")
        outgoing = self._outgoing(exchange)
        message, replayed = messages.bot_creates(self.world, app, str(receive_id), outgoing)
        return self._sent(exchange, app, message, replayed)

    async def reply(self, exchange: Exchange) -> Answer:
        """A message that answers another one."""
        app = self._authorised(exchange)
        outgoing = self._outgoing(exchange)
        message, replayed = messages.bot_replies(self.world, app, exchange.path("message_id"), outgoing)
        return self._sent(exchange, app, message, replayed)

    def _outgoing(self, exchange: Exchange) -> Outgoing:
        msg_type, content, uuid = (exchange.json.get(name) for name in ("msg_type", "content", "uuid"))
        if not isinstance(msg_type, str) or not isinstance(content, str) or not isinstance(uuid, str | None):
            raise Refusal(messages.CODE_PARAMETER, "Your request contains an invalid request parameter.")
        return Outgoing(msg_type, content, uuid or None, len(exchange.body))

    def _sent(self, exchange: Exchange, app: App, message: Message, replayed: bool) -> Answer:
        record = exchange.record
        record.outcome = "replayed" if replayed else "accepted"
        record.accepted = True
        record.message_id = message.message_id
        record.chat_id = message.chat_id
        return Answer(payload={"code": 0, "msg": "success", "data": sent_data(app, message)})

    # -- reading -----------------------------------------------------------------------------------------------------

    async def list_messages(self, exchange: Exchange) -> Answer:
        """One page of a chat's history."""
        app = self._authorised(exchange)
        query = self._list_query(exchange)
        rows, position = messages.list_page(self.world, app, query)
        data: dict[str, Any] = {"has_more": position is not None, "items": []}
        data["page_token"] = page_token(position) if position is not None else ""
        data["items"] = [messages.provider_item(app, row) for row in rows]
        return Answer(payload={"code": 0, "msg": "success", "data": data})

    def _list_query(self, exchange: Exchange) -> ListQuery:
        if exchange.query("container_id_type") != "chat":
            raise Refusal(messages.CODE_FIELD_INVALID, "field validation failed: container_id_type (only chat here)")
        sort = exchange.query("sort_type") or "ByCreateTimeAsc"
        size = _number(exchange, "page_size")
        size = shapes.PAGE_SIZE_DEFAULT if size is None else size
        if sort not in ("ByCreateTimeAsc", "ByCreateTimeDesc") or not 1 <= size <= shapes.PAGE_SIZE_MAX:
            raise Refusal(messages.CODE_FIELD_INVALID, "field validation failed: sort_type or page_size")
        return ListQuery(
            chat_id=exchange.query("container_id") or "",
            start_s=_number(exchange, "start_time"),
            end_s=_number(exchange, "end_time"),
            descending=sort == "ByCreateTimeDesc",
            page_size=size,
            after=page_position(exchange.query("page_token")),
        )

    async def get_message(self, exchange: Exchange) -> Answer:
        """One message by its id, recalled ones with ``deleted``."""
        app = self._authorised(exchange)
        message = messages.readable_message(self.world, app, exchange.path("message_id"))
        return Answer(payload={"code": 0, "msg": "success", "data": {"items": [messages.provider_item(app, message)]}})

    async def resource(self, exchange: Exchange) -> Answer:
        """The bytes of a file that a message carries."""
        app = self._authorised(exchange)
        message = messages.readable_message(self.world, app, exchange.path("message_id"))
        key = exchange.path("file_key")
        if message.deleted or f'"{key}"' not in message.content:
            raise Refusal(messages.CODE_NO_MESSAGE, "The resource is not found in the message.")
        return self._file_answer(app, key)

    async def own_file(self, exchange: Exchange) -> Answer:
        """The bytes of a file the app uploaded."""
        return self._file_answer(self._authorised(exchange), exchange.path("file_key"))

    def _file_answer(self, app: App, key: str) -> Answer:
        file = self.world.files.get(key)
        data = self.world.store.get_bytes(key)
        if file is None or data is None or file.app_id != app.app_id:
            raise Refusal(messages.CODE_NO_MESSAGE, "The file is not found.")
        disposition = f"attachment; filename*=UTF-8''{quote(file.file_name, safe='')}"
        return Answer(raw=data, content_type=file.media_type, headers={"Content-Disposition": disposition})

    # -- changing, uploading -----------------------------------------------------------------------------------------

    async def recall(self, exchange: Exchange) -> Answer:
        """Withdraws the bot's own message."""
        app = self._authorised(exchange)
        messages.recall(self.world, messages.own_message(self.world, app, exchange.path("message_id")))
        return Answer(payload={"code": 0, "msg": "success", "data": {}})

    async def edit(self, exchange: Exchange) -> Answer:
        """Replaces the bot's own text."""
        app = self._authorised(exchange)
        message = messages.own_message(self.world, app, exchange.path("message_id"))
        msg_type, content = exchange.json.get("msg_type"), exchange.json.get("content")
        if not isinstance(msg_type, str) or not isinstance(content, str):
            raise Refusal(messages.CODE_PARAMETER, "Your request contains an invalid request parameter.")
        messages.edit(self.world, message, content, msg_type)
        return Answer(payload={"code": 0, "msg": "success", "data": sent_data(app, message)})

    async def upload(self, exchange: Exchange) -> Answer:
        """Takes a file of 1 byte to 30 MB and names its key. Uploading twice makes two keys."""
        app = self._authorised(exchange)
        file_type, name, upload, data = await _read_upload(exchange)
        if not data:
            raise Refusal(messages.CODE_FILE_EMPTY, "File's size can't be 0.")
        if len(data) > shapes.FILE_BYTES_MAX:
            raise Refusal(messages.CODE_FILE_TOO_BIG, "The file size exceed the max value.")
        file = StoredFile(
            file_key=shapes.new_file_key(),
            app_id=app.app_id,
            file_name=name,
            media_type=_media_type(upload.content_type),
            file_type=file_type,
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            created_ms=self.world.clock.now_ms(),
        )
        self.world.save_file(file, data)
        exchange.record.outcome = "accepted"
        exchange.record.accepted = True
        exchange.record.file_key = file.file_key
        return Answer(payload={"code": 0, "msg": "success", "data": {"file_key": file.file_key}})

    async def unknown(self, exchange: Exchange) -> Answer:
        """Anything else under ``/open-apis``: the stand-in does not have it, and says so."""
        del exchange
        return Answer(404, {"code": 404, "msg": "the simulator does not have this operation"})


async def _read_upload(exchange: Exchange) -> tuple[str, str, UploadFile, bytes]:
    body = exchange.body

    async def replay() -> AsgiMessage:
        return {"type": "http.request", "body": body, "more_body": False}

    bad = Refusal(messages.CODE_PARAMETER, "Your request contains an invalid request parameter: multipart form.")
    if not exchange.request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise bad
    try:
        form = await Request(exchange.request.scope, replay).form(max_files=1, max_fields=10)
    except (MultiPartException, ValueError):
        raise bad from None
    file_type, name, upload = form.get("file_type"), form.get("file_name"), form.get("file")
    if not isinstance(file_type, str) or not isinstance(name, str) or not name or not isinstance(upload, UploadFile):
        raise bad
    return file_type, name, upload, await upload.read()


def _media_type(value: str | None) -> str:
    if value and value.isascii() and value.isprintable() and "/" in value:
        return value[:120]
    return "application/octet-stream"


def _number(exchange: Exchange, name: str) -> int | None:
    value = exchange.query(name)
    if value is None or value == "":
        return None
    if not value.isascii() or not value.isdigit() or len(value) > 12:
        raise Refusal(messages.CODE_FIELD_INVALID, f"field validation failed: {name}")
    return int(value)
