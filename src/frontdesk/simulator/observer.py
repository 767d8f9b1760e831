"""The control routes ``/_sim/*``: set up, act, observe, break things. All of them demand the simulator token."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, fields
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from frontdesk.simulator import messages, shapes
from frontdesk.simulator.access import token_matches
from frontdesk.simulator.callback import OLD_TIMESTAMP_MS
from frontdesk.simulator.clock import rfc3339
from frontdesk.simulator.config import SimulatorError
from frontdesk.simulator.faults import FaultList, parse_faults
from frontdesk.simulator.longconn import Hub
from frontdesk.simulator.messages import PersonMessage
from frontdesk.simulator.model import SEND_KINDS, App, Message, Push, PushOptions
from frontdesk.simulator.people import Desk, NewApp
from frontdesk.simulator.provider import BodyTooLarge, read_body, unicode_json
from frontdesk.simulator.pushing import Draft

LIMIT_DEFAULT = 1_000
LIMIT_MAX = 10_000
_SEND_FIELDS = {"app_id", "person", "text", "reply_to", "root", "raw_content", "message_type", "chat_type"}
_SEND_FIELDS |= {"created_ms", "wait"}

Control = Callable[[Request, dict[str, Any]], Awaitable[Any]]


class Observer:
    """Handlers for ``/_sim/*``."""

    def __init__(self, desk: Desk, faults: FaultList, hub: Hub, token: str) -> None:
        self.desk = desk
        self.world = desk.world
        self._faults = faults
        self._hub = hub
        self._token = token

    def routes(self) -> list[Route]:
        """All control routes."""
        table: list[tuple[str, str, Control]] = [
            ("POST", "apps", self.add_app),
            ("GET", "apps", self.list_apps),
            ("PUT", "apps/{app_id}/callback", self.set_callback),
            ("POST", "people", self.add_person),
            ("GET", "people", self.list_people),
            ("POST", "send", self.send),
            ("POST", "recall", self.recall),
            ("POST", "edit", self.edit),
            ("POST", "push", self.push),
            ("GET", "requests", self.list_requests),
            ("GET", "messages", self.list_messages),
            ("GET", "pushes", self.list_pushes),
            ("GET", "pushes/{push_id}", self.get_push),
            ("GET", "files", self.list_files),
            ("GET", "files/{file_key}", self.get_file),
            ("GET", "connections", self.list_connections),
            ("POST", "connections/close", self.close_connections),
            ("GET", "faults", self.list_faults),
            ("POST", "faults", self.set_faults),
            ("GET", "clock", self.get_clock),
            ("POST", "clock", self.set_clock),
            ("POST", "reset", self.reset),
        ]
        return [Route(f"/_sim/{path}", self._guarded(handler), methods=[method]) for method, path, handler in table]

    def _guarded(self, handler: Control) -> Callable[[Request], Awaitable[Response]]:
        async def run(request: Request) -> Response:
            if not token_matches(request, self._token):
                return problem(401, "unauthorized", "Send the simulator token as Authorization: Bearer.")
            try:
                answer = await handler(request, await _json_body(request))
            except SimulatorError as error:
                return problem(400, "bad_request", str(error))
            except BodyTooLarge:
                return problem(413, "too_large", "The body is over 256 KiB.")
            return answer if isinstance(answer, Response) else JSONResponse(answer)

        return run

    # -- setting up --------------------------------------------------------------------------------------------------

    async def add_app(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """POST /_sim/apps: an app with all its values."""
        del request
        known = {entry.name for entry in fields(NewApp)}
        _only(body, known)
        texts = {name: _text(body, name) for name in known - {"name", "resign_redeliveries"}}
        resign = _flag(body, "resign_redeliveries") if "resign_redeliveries" in body else None
        new = NewApp(name=_need_text(body, "name"), resign_redeliveries=resign, **texts)
        return asdict(self.desk.add_app(new))

    async def list_apps(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """GET /_sim/apps."""
        del request, body
        return {"items": [asdict(app) for app in self.world.apps.values()]}

    async def set_callback(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """PUT /_sim/apps/{app_id}/callback: keep the address, check it."""
        _only(body, {"url"})
        app = self.world.get_app(request.path_params["app_id"])
        return await self.desk.pusher.set_callback(app, _need_text(body, "url"))

    async def add_person(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """POST /_sim/people: a person and their private chat with the app's bot."""
        del request
        _only(body, {"name", "app_id"})
        return asdict(self.world.add_person(self._app(body), _need_text(body, "name")))

    async def list_people(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """GET /_sim/people."""
        del body
        app_id = request.query_params.get("app_id")
        return {"items": [asdict(p) for p in self.world.people.values() if app_id in (None, p.app_id)]}

    def _app(self, body: dict[str, Any]) -> App:
        return self.world.get_app(_need_text(body, "app_id"))

    # -- acting as a person ------------------------------------------------------------------------------------------

    async def send(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """POST /_sim/send: a person's message and its push."""
        del request
        _only(body, _SEND_FIELDS)
        app = self._app(body)
        person = self.desk.get_person(app, _need_text(body, "person"))
        sent = PersonMessage(
            content=_content(body),
            message_type=_text(body, "message_type") or "text",
            chat_type=_text(body, "chat_type") or "p2p",
            parent=self.desk.find_target(person, _text(body, "reply_to")),
            root_id=_text(body, "root"),
            created_ms=_number(body, "created_ms", None),
        )
        message, pushes = self.desk.send(app, person, sent)
        await self._wait(body, pushes)
        return {"message_id": message.message_id, "push": pushes[0].push_id, **_pushes_view(pushes)}

    async def recall(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """POST /_sim/recall: the sender takes a message back."""
        del request
        _only(body, {"message_id", "wait"})
        message = self._message(body)
        if message.sender_type == "app":
            messages.recall(self.world, message)
            return {"message_id": message.message_id, "push": None, "pushes": []}
        pushes = self.desk.recall(self.world.chats[message.chat_id], message.message_id)
        await self._wait(body, pushes)
        return {"message_id": message.message_id, "push": pushes[0].push_id, **_pushes_view(pushes)}

    async def edit(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """POST /_sim/edit: the sender changes a message's text (no event follows)."""
        del request
        _only(body, {"message_id", "text", "raw_content"})
        message = self._message(body)
        messages.edit(self.world, message, _content(body))
        return {"message_id": message.message_id}

    def _message(self, body: dict[str, Any]) -> Message:
        message = self.world.messages.get(_need_text(body, "message_id"))
        if message is None:
            raise SimulatorError("there is no such message")
        return message

    async def push(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """POST /_sim/push: a message's event again, or any event, bent as asked."""
        del request
        names = {"message_id", "app_id", "event_type", "event", "payload", "event_id", "duplicate", "delay_ms", "wait"}
        _only(body, names | {entry.name for entry in fields(PushOptions)} | {"old_timestamp"})
        options = _push_options(body)
        draft = {
            "duplicate": _number(body, "duplicate", 0) or 0,
            "delay_ms": _number(body, "delay_ms", 0) or 0,
            "new_event_id": _flag(body, "new_event_id"),
        }
        if not 0 <= draft["duplicate"] <= 1_000 or draft["delay_ms"] < 0:
            raise SimulatorError("duplicate is 0 to 1000, delay_ms not negative")
        if "message_id" in body:
            message = self._message(body)
            first = self.world.pushes.get(message.push_id or "")
            event_id = _text(body, "event_id")
            if event_id is None and first is not None and not draft["new_event_id"]:
                event_id = first.event_id
            app = self.world.get_app(message.app_id)
            pushes = self.desk.push_message(app, message, options, event_id=event_id, **draft)
        else:
            pushes = self.desk.pusher.submit(self._raw_draft(body, options, draft))
        await self._wait(body, pushes)
        return {"push": pushes[0].push_id, **_pushes_view(pushes)}

    def _raw_draft(self, body: dict[str, Any], options: PushOptions, draft: dict[str, Any]) -> Draft:
        app = self._app(body)
        raw, event = _text(body, "payload"), body.get("event")
        if raw is None and not isinstance(event, dict):
            raise SimulatorError("name a message_id, an event object, or a payload text")
        event_type = _text(body, "event_type") or ""
        if isinstance(event, dict) and "header" in event:
            raw = json.dumps(event, ensure_ascii=False)
            event_type = event_type or str(event["header"].get("event_type", ""))
            event = None
        return Draft(
            app,
            event_type or "im.message.receive_v1",
            event or {},
            raw=raw,
            event_id=_text(body, "event_id"),
            options=options,
            **draft,
        )

    async def _wait(self, body: dict[str, Any], pushes: list[Push]) -> None:
        if _flag(body, "wait"):
            for push in pushes:
                await self.desk.pusher.first_attempt(push)

    # -- observing ---------------------------------------------------------------------------------------------------

    async def list_requests(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """GET /_sim/requests: wire requests, oldest first, with counts by kind over everything since the last reset."""
        del body
        query = request.query_params
        rows = [
            asdict(row) | {"at": rfc3339(row.at_ms)}
            for row in self.world.requests.values()
            if query.get("kind") in (None, row.kind)
            and query.get("app_id") in (None, row.app_id)
            and query.get("chat_id") in (None, row.chat_id)
            and query.get("uuid") in (None, row.uuid)
        ]
        counts = dict(self.world.request_counts)
        sends = sum(counts.get(kind, 0) for kind in SEND_KINDS)
        return _paged(request, rows, "id") | {"counts": counts, "sends": sends}

    async def list_messages(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """GET /_sim/messages: every message with its text, oldest first."""
        del body
        query = request.query_params
        rows = [
            asdict(row) | {"text": messages.shown_text(row), "at": rfc3339(row.created_ms)}
            for row in self.world.messages.values()
            if query.get("app_id") in (None, row.app_id)
            and query.get("chat_id") in (None, row.chat_id)
            and query.get("sender_type") in (None, row.sender_type)
        ]
        return _paged(request, rows, "seq")

    async def list_pushes(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """GET /_sim/pushes: pushes with their attempts and answers, oldest first."""
        del body
        query = request.query_params
        rows = [
            _push_view(row) | {"seq": index}
            for index, row in enumerate(self.world.pushes.values(), 1)
            if query.get("app_id") in (None, row.app_id)
            and query.get("message_id") in (None, row.message_id)
            and query.get("state") in (None, row.state)
        ]
        return _paged(request, rows, "seq")

    async def get_push(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """GET /_sim/pushes/{push_id}."""
        del body
        push = self.world.pushes.get(request.path_params["push_id"])
        if push is None:
            raise SimulatorError("there is no such push")
        return _push_view(push)

    async def list_files(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """GET /_sim/files: uploads with name, media type, size and digest."""
        del request, body
        return {"items": [asdict(file) for file in self.world.files.values()]}

    async def get_file(self, request: Request, body: dict[str, Any]) -> Response:
        """GET /_sim/files/{file_key}: the bytes."""
        del body
        data = self.world.store.get_bytes(request.path_params["file_key"])
        if data is None:
            raise SimulatorError("there is no such file")
        return Response(data, media_type="application/octet-stream")

    async def list_connections(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """GET /_sim/connections: long connections, open and closed."""
        del request, body
        rows = [asdict(record) | {"open": record.closed_ms is None} for record in self._hub.records]
        return {"items": rows, "open": sum(row["open"] for row in rows)}

    async def close_connections(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """POST /_sim/connections/close: cut an app's long connections, or all."""
        del request
        _only(body, {"app_id"})
        return {"closed": await self._hub.close(_text(body, "app_id"))}

    # -- faults, time, reset -----------------------------------------------------------------------------------------

    async def list_faults(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """GET /_sim/faults: the list in force with its counters."""
        del request, body
        return {"items": [asdict(fault) for fault in self._faults.items]}

    async def set_faults(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """POST /_sim/faults: a new list; pushes held by a reorder window are let go."""
        _only(body, {"faults"})
        self._faults.replace(parse_faults(body))
        self.desk.pusher.release_held()
        return await self.list_faults(request, body)

    async def get_clock(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """GET /_sim/clock."""
        del request, body
        clock = self.world.clock
        return {
            "now_ms": clock.now_ms(),
            "now": rfc3339(clock.now_ms()),
            "manual": clock.manual,
            "offset_ms": clock.offset_ms,
        }

    async def set_clock(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """POST /_sim/clock: move time and wait for the pushes that became due."""
        _only(body, {"advance_ms", "set_ms", "offset_ms"})
        if len(body) != 1:
            raise SimulatorError("give exactly one of advance_ms, set_ms, offset_ms")
        clock = self.world.clock
        advance, to, offset = (_number(body, name, None) for name in ("advance_ms", "set_ms", "offset_ms"))
        if offset is not None and clock.manual:
            raise SimulatorError("a manual clock has no offset; use set_ms")
        target = to if to is not None else clock.now_ms() + (advance or 0)
        if offset is not None:
            target = clock.now_ms() - clock.offset_ms + offset
        if target < 0:
            raise SimulatorError("time is not negative")
        await self.desk.pusher.move_clock(target)
        return await self.get_clock(request, body)

    async def reset(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """POST /_sim/reset: an empty world, faults gone; ``keep_apps`` keeps apps and people."""
        del request
        _only(body, {"keep_apps"})
        self._faults.replace([])
        self.desk.pusher.forget()
        self.world.reset(keep_apps=_flag(body, "keep_apps"))
        return {"apps": len(self.world.apps)}


# -- bodies and views ------------------------------------------------------------------------------------------------


def problem(status: int, code: str, detail: str) -> JSONResponse:
    """An error of a control route."""
    body = {"type": f"urn:frontdesk:simulator:{code}", "title": code, "status": status, "code": code, "detail": detail}
    return JSONResponse(body, status, media_type="application/problem+json")


async def _json_body(request: Request) -> dict[str, Any]:
    raw = await read_body(request, shapes.REQUEST_BYTES_MAX)
    if not raw:
        return {}
    value = unicode_json(raw)
    if isinstance(value, list):
        return {"faults": value}
    if not isinstance(value, dict):
        raise SimulatorError("the body is not a JSON object")
    return value


def _only(body: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(set(body) - known)
    if unknown:
        raise SimulatorError(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}")


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise SimulatorError(f"{name} is a text")
    return value


def _need_text(body: dict[str, Any], name: str) -> str:
    value = _text(body, name)
    if not value:
        raise SimulatorError(f"{name} is missing")
    return value


def _content(body: dict[str, Any]) -> str:
    """The content string of a message: ``raw_content`` as given, or a text message's."""
    raw = _text(body, "raw_content")
    return messages.text_content(_need_text(body, "text")) if raw is None else raw


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise SimulatorError(f"{name} is true or false")
    return value


def _number(body: dict[str, Any], name: str, default: int | None) -> int | None:
    value = body.get(name, default)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise SimulatorError(f"{name} is a whole number")
    return value


def _push_options(body: dict[str, Any]) -> PushOptions:
    old = body.get("old_timestamp", body.get("old_timestamp_ms", 0))
    if not isinstance(old, int):
        raise SimulatorError("old_timestamp is true or milliseconds")
    via = _text(body, "via") or ""
    if via not in ("", "webhook", "ws"):
        raise SimulatorError("via is webhook or ws")
    other = body.get("other_type")
    if other is not None and not isinstance(other, (str, bool)):
        raise SimulatorError("other_type is an event type or true")
    names = ("bad_signature", "unsigned", "plaintext", "wrong_tenant", "wrong_app", "wrong_token", "lower_headers")
    flags = {name: _flag(body, name) for name in names}
    return PushOptions(
        **flags,
        old_timestamp_ms=OLD_TIMESTAMP_MS if old is True else int(old),
        other_type="im.chat.updated_v1" if other is True else (other or None),
        fragments=max(1, min(100, _number(body, "fragments", 1) or 1)),
        via=via,  # type: ignore[arg-type]
        redeliver=_flag(body, "redeliver") if "redeliver" in body else True,
        attempts=_number(body, "attempts", 0) or 0,
    )


def _push_view(push: Push) -> dict[str, Any]:
    view = asdict(push)
    for name in ("signed_body", "signed_nonce", "signed_timestamp", "payload"):
        view.pop(name)
    view["due"] = None if push.due_ms is None else rfc3339(push.due_ms)
    return view


def _pushes_view(pushes: list[Push]) -> dict[str, Any]:
    return {"pushes": [_push_view(push) for push in pushes]}


def _paged(request: Request, rows: list[dict[str, Any]], cursor: str) -> dict[str, Any]:
    try:
        after = int(request.query_params.get("after", "0"))
        limit = int(request.query_params.get("limit", str(LIMIT_DEFAULT)))
    except ValueError:
        raise SimulatorError("after and limit are whole numbers") from None
    if not 1 <= limit <= LIMIT_MAX:
        raise SimulatorError(f"limit is 1 to {LIMIT_MAX}")
    rows = [row for row in rows if row[cursor] > after]
    page = rows[:limit]
    return {"items": page, "next_after": page[-1][cursor] if len(rows) > len(page) else None}
