"""The provider's HTTP side: one pipeline for every route, fault knobs included. The routes are in ``openapis.py``.

Order: count the request → read its body → choose the fault → delay/drop before acceptance → handle → bend the answer
→ record → delay/drop after acceptance → send. A handler runs to its end even when the client has already gone away.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect, Request

from frontdesk.simulator import messages, shapes
from frontdesk.simulator.answers import JSON_TYPE, Answer, Lines, WireAnswer
from frontdesk.simulator.clock import http_date
from frontdesk.simulator.faults import Fault, FaultList
from frontdesk.simulator.messages import Refusal
from frontdesk.simulator.model import SEND_KINDS, App, Kind, Message, WireRequest
from frontdesk.simulator.state import World

_PAGE_TOKEN = re.compile(r"p(-?[0-9]{1,18})\.([0-9]{1,18})")
HTML = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"


@dataclass(slots=True)
class Exchange:
    """One request while it is worked on."""

    request: Request
    record: WireRequest
    body: bytes = b""
    json: dict[str, Any] = field(default_factory=dict)
    token: str = ""
    app: App | None = None
    fault: Fault | None = None

    def query(self, name: str) -> str | None:
        """A query parameter."""
        return self.request.query_params.get(name)

    def path(self, name: str) -> str:
        """A path parameter."""
        return str(self.request.path_params[name])


Handler = Callable[[Exchange], Awaitable[Answer]]


class Pipeline:
    """Carries requests through faults and handlers."""

    def __init__(self, world: World, faults: FaultList, lines: Lines) -> None:
        self.world = world
        self.faults = faults
        self.lines = lines

    def endpoint(self, kind: Kind, handler: Handler) -> Callable[[Request], Awaitable[WireAnswer]]:
        """The Starlette endpoint for one route."""

        async def run(request: Request) -> WireAnswer:
            started = time.monotonic()
            record = self.world.record_request(kind, request.method, request.url.path, request.url.query)
            exchange = Exchange(request, record)
            answer = await self._carry(exchange, handler)
            record.duration_ms = round((time.monotonic() - started) * 1_000)
            self.world.save_request(record)
            return WireAnswer(answer, self.lines)

        return run

    async def _carry(self, exchange: Exchange, handler: Handler) -> Answer:
        record = exchange.record
        limit = shapes.UPLOAD_REQUEST_BYTES_MAX if record.kind == "upload" else shapes.REQUEST_BYTES_MAX
        try:
            exchange.body = await read_body(exchange.request, limit)
        except ClientDisconnect:
            record.outcome = "incomplete"
            return Answer(mode="cut")
        except BodyTooLarge:
            record.outcome = "refused"
            record.status = 413
            return self._dated(Answer(413, {"code": 99991672, "msg": "request body too large"}), None)
        identify(self.world, exchange)
        fault = exchange.fault = self.faults.take(record.kind, record.app_id, record.chat_id)
        record.fault = fault.label if fault else None
        self.world.save_request(record)  # a wire request is visible before its fault plays out
        early = await self._before_acceptance(exchange, fault)
        if early is not None:
            return early
        answer = await self._handle(exchange, handler, fault)
        return await self._after_acceptance(exchange, answer, fault)

    async def _before_acceptance(self, exchange: Exchange, fault: Fault | None) -> Answer | None:
        if fault is None:
            return None
        if fault.delay_ms and fault.delay_at == "accept":
            await asyncio.sleep(fault.delay_ms / 1_000)
        if fault.drop_before_accept:
            exchange.record.outcome = "dropped"
            return Answer(mode="cut")
        if fault.stall and fault.accept is not True:
            exchange.record.outcome = "stalled"
            return Answer(mode="stall")
        if fault.token_expired:
            self.world.drop_token(exchange.token)
        return None

    async def _handle(self, exchange: Exchange, handler: Handler, fault: Fault | None) -> Answer:
        record = exchange.record
        if fault is not None and not fault.handles_request():
            record.outcome = "fault"
            answer = Answer(payload={"code": 0, "msg": "success", "data": {}})
        else:
            try:
                answer = await handler(exchange)
                if record.outcome == "arrived":
                    record.outcome = "answered"
            except Refusal as refusal:
                record.outcome = "refused"
                answer = Answer(refusal.status, {"code": refusal.code, "msg": refusal.msg, "data": {}})
        if fault is not None:
            bend(exchange, answer, fault)
        return self._dated(answer, fault)

    async def _after_acceptance(self, exchange: Exchange, answer: Answer, fault: Fault | None) -> Answer:
        record = exchange.record
        record.status = answer.status
        record.code = answer.code
        record.response_bytes = len(answer.body())
        if fault is None:
            return answer
        if fault.accept_then_drop:
            record.outcome = f"{record.outcome}_dropped"
            record.status = record.code = None
            record.response_bytes = 0
            self._mark_dropped(record)
            answer.mode = "cut"
        if fault.stall:
            answer.mode = "stall"
            self._mark_dropped(record)
        self.world.save_request(record)
        if fault.delay_ms and fault.delay_at == "answer":
            await asyncio.sleep(fault.delay_ms / 1_000)
        if fault.then is not None:
            self._between_reads(exchange, fault.then)
        return answer

    def _mark_dropped(self, record: WireRequest) -> None:
        message = self.world.messages.get(record.message_id or "")
        if message is not None and record.kind in SEND_KINDS:
            message.answer_dropped = True
            self.world.save_message(message)

    def _between_reads(self, exchange: Exchange, then: dict[str, Any]) -> None:
        """Recalls or edits a message after this read was prepared, so that the next read differs."""
        wanted = str(then.get("recall") or then.get("edit"))
        message = self.world.messages.get(wanted)
        if message is None and wanted == "newest_person":
            rows = self.world.chat_messages.get(exchange.record.chat_id or "", [])
            message = next((row for row in reversed(rows) if row.sender_type == "user" and not row.deleted), None)
        if message is None:
            return
        if "recall" in then:
            messages.recall(self.world, message)
        else:
            messages.edit(self.world, message, messages.text_content(str(then.get("text", "edited"))))

    def _dated(self, answer: Answer, fault: Fault | None) -> Answer:
        if fault is None or not fault.no_date:
            answer.date = http_date(self.world.clock.now_ms() + (fault.date_offset_ms if fault else 0))
        return answer


class BodyTooLarge(Exception):
    """The request's body is over its route's limit."""


async def read_body(request: Request, limit: int) -> bytes:
    """The body, counted while it streams."""
    chunks: list[bytes] = []
    total = 0
    async for chunk in request.stream():
        total += len(chunk)
        if total > limit:
            raise BodyTooLarge
        chunks.append(chunk)
    return b"".join(chunks)


def unicode_json(raw: bytes) -> Any:
    """The JSON value of ``raw``; None where it is none, nested too deeply, or holds half a surrogate pair."""
    try:
        value = json.loads(raw)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value


def identify(world: World, exchange: Exchange) -> None:
    """Fills in what the observer and the fault list need: app, chat, target, uuid. Judges nothing."""
    record = exchange.record
    record.request_bytes = len(exchange.body)
    value = unicode_json(exchange.body) if record.kind != "upload" and exchange.body else {}
    exchange.json = value if isinstance(value, dict) else {}
    scheme, _, token = exchange.request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        exchange.token = token.strip()
        known = world.tokens.get(exchange.token)
        record.app_id = known.app_id if known else None
    if record.kind in ("token", "endpoint"):
        record.app_id = _short(exchange.json.get("app_id") or exchange.json.get("AppID"))
    record.uuid = _short(exchange.json.get("uuid"))
    record.target_id = _short(exchange.request.path_params.get("message_id"))
    target = world.messages.get(record.target_id or "")
    if target is not None:
        record.chat_id = target.chat_id
    elif record.kind == "create":
        record.chat_id = _short(exchange.json.get("receive_id"))
    elif record.kind == "list":
        record.chat_id = _short(exchange.query("container_id"))


def _short(value: object) -> str | None:
    return value[:255] if isinstance(value, str) and value else None


# -- bent answers ----------------------------------------------------------------------------------------------------


def bend(exchange: Exchange, answer: Answer, fault: Fault) -> None:
    """Changes an answer as the fault says. The request itself has been carried out, or not, before."""
    if fault.status is not None or fault.code is not None:
        answer.status = fault.status if fault.status is not None else (200 if fault.code == 0 else 400)
        code = fault.code if fault.code is not None else (0 if answer.status < 300 else answer.status)
        answer.payload, answer.raw, answer.content_type = {"code": code, "msg": fault.msg, "data": {}}, None, JSON_TYPE
    answer.headers.update(fault.headers)
    if fault.redirect is not None:
        _bend_redirect(exchange, answer, fault.redirect)
    data = answer.payload.get("data") if isinstance(answer.payload, dict) else None
    if isinstance(data, dict):
        if fault.message_id is not None and "message_id" in data:
            data["message_id"] = fault.message_id
        _bend_rows(data, exchange, fault)
    _bend_body(answer, fault)


def _bend_redirect(exchange: Exchange, answer: Answer, target: str) -> None:
    status, _, url = target.partition(" ") if target[:3].isdigit() else ("307", "", target)
    answer.status = int(status)
    answer.headers["Location"] = url or exchange.record.path
    answer.payload, answer.raw, answer.content_type = None, b"", "text/plain"


def _bend_rows(data: dict[str, Any], exchange: Exchange, fault: Fault) -> None:
    items = data.get("items")
    if not isinstance(items, list):
        return
    if fault.reorder == "reverse":
        items.reverse()
    elif fault.reorder == "shuffle":
        random.Random(exchange.record.id).shuffle(items)
    if fault.repeat_page:
        data["has_more"] = True
        data["page_token"] = exchange.query("page_token") or page_token((-1, 0))
    if fault.rewrite is not None:
        wanted = fault.rewrite.get("message_id")
        for item in items:
            if wanted is None or item["message_id"] == wanted:
                _rewrite(item, fault.rewrite)


def _rewrite(item: dict[str, Any], rewrite: dict[str, Any]) -> None:
    for name, value in rewrite.items():
        if name == "text":
            item["body"] = {"content": messages.text_content(str(value))}
        elif name == "content":
            item["body"] = {"content": value}
        elif name == "sender_id":
            item["sender"]["id"] = value
        elif name == "sender_type":
            item["sender"]["sender_type"] = value
        elif name != "message_id":
            item[name] = value


def _bend_body(answer: Answer, fault: Fault) -> None:
    answer.drip_ms = fault.drip_ms
    if fault.body == "html":
        answer.raw, answer.content_type = HTML, "text/html"
    elif fault.body == "empty":
        answer.raw = b""
    elif fault.body == "{}":
        answer.raw = b"{}"
    elif fault.body in ("truncated", "drip", "drip_head"):
        answer.mode = fault.body
    if answer.raw is not None and fault.body in ("html", "empty", "{}"):
        answer.payload = None


def page_token(position: tuple[int, int]) -> str:
    """An opaque page token for a position in a list."""
    return f"p{position[0]}.{position[1]}"


def page_position(token: str | None) -> tuple[int, int] | None:
    """The position of a page token; None without one; raises :class:`Refusal` for a made-up one."""
    if not token:
        return None
    found = _PAGE_TOKEN.fullmatch(token)
    if found is None:
        raise Refusal(messages.CODE_FIELD_INVALID, "field validation failed: page_token")
    return int(found[1]), int(found[2])


def sent_data(app: App, message: Message) -> dict[str, Any]:
    """The ``data`` of a create or reply answer."""
    return messages.provider_item(app, message)
