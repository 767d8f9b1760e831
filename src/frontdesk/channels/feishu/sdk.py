"""The one place that imports `lark_channel`: pinned version, silenced loggers, our request seam, nothing else.

The SDK keeps process-wide state (a logger with its own stdout handler whose level every construction resets, a token
cache, a sync requester). It is set once here, before the first use, and `drift` says what no longer stands.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any, Final

from frontdesk.channels.feishu import transport

DISTRIBUTION: Final = "lark-channel-sdk"
VERSION: Final = "1.4.0"
LOGGER: Final = "Lark"
_SEAM: Final = "_sync_requester"

_lock = threading.Lock()
_loaded = threading.Event()


class SdkUnusable(RuntimeError):
    """The installed SDK is not the one whose behaviour was tested, or could not be imported."""


def load() -> None:
    """Import the SDK once, silence it and put our transport in. Cheap from the second call on; safe from any thread."""
    if _loaded.is_set():
        return
    with _lock:
        if _loaded.is_set():
            return
        installed = metadata.version(DISTRIBUTION)
        if installed != VERSION:
            raise SdkUnusable(f"{DISTRIBUTION} {installed} is installed, {VERSION} is the version that was tested")
        silence()
        _import_aside()
        silence()
        setattr(_transport_module(), _SEAM, transport.requester)
        _loaded.set()


def _import_aside() -> None:
    # The package binds a module-global event loop at import. On a thread of its own it can't get hold of ours; the loop
    # it makes there is for the long connection alone, whose process gives it another one, so it is closed.
    failures: list[BaseException] = []

    def work() -> None:
        try:
            importlib.import_module("lark_channel")
            importlib.import_module("lark_channel.ws.client").loop.close()
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            failures.append(error)

    thread = threading.Thread(target=work, name="frontdesk-feishu-import")
    thread.start()
    thread.join()
    if failures:
        raise SdkUnusable("the SDK could not be imported") from failures[0]


def silence() -> None:
    """Make the SDK's logger say nothing at all: its records carry payloads, tickets and exception texts.

    The filter holds even where a construction resets the level; what goes wrong is reported by our own codes.
    """
    logger = logging.getLogger(LOGGER)
    for handler in list(logger.handlers):
        if _is_the_sdks(handler):
            logger.removeHandler(handler)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    logger.propagate = False
    logger.setLevel(logging.CRITICAL)
    if _mute not in logger.filters:
        logger.addFilter(_mute)


def _is_the_sdks(handler: logging.Handler) -> bool:
    return type(handler) is logging.StreamHandler  # a plain one on stdout; tools that watch logs use kinds of their own


def _mute(_record: logging.LogRecord) -> bool:
    return False


def drift() -> tuple[str, ...]:
    """What of the SDK's process-wide state is not as `load` left it; empty before `load` and after orderly use."""
    if not _loaded.is_set():
        return ()
    logger = logging.getLogger(LOGGER)
    findings = {
        "request_seam": getattr(_transport_module(), _SEAM) is not transport.requester,
        "token_cache": bool(_token_cache()),
        "logger_level": logger.level < logging.WARNING,
        "logger_handlers": any(_is_the_sdks(handler) for handler in logger.handlers),
        "logger_filter": _mute not in logger.filters,
    }
    return tuple(name for name, found in findings.items() if found)


def _transport_module() -> Any:
    return importlib.import_module("lark_channel.core.http.transport")


def _token_cache() -> Any:
    from lark_channel.core.token import TokenManager

    return TokenManager.cache.cache


# ---------------------------------------------------------------------------------------------- outbound


def client(domain: str) -> Any:
    """A typed client that holds no app id and no secret: it can use a token it is given and never ask for one."""
    load()
    from lark_channel import Client
    from lark_channel.core.enum import LogLevel

    built = (
        Client.builder()
        .domain(domain)
        .enable_set_token(True)
        .trust_env_proxy(False)
        .log_level(LogLevel.CRITICAL)
        .build()
    )
    silence()
    return built


def execute(config: Any, method: str, path: str, body: dict[str, str] | None, token: str | None) -> None:
    """One untyped request through the SDK's transport; the answer is on the current `transport.Call`."""
    from lark_channel.core.enum import HttpMethod
    from lark_channel.core.http import Transport
    from lark_channel.core.model import BaseRequest, RequestOption

    request = BaseRequest()
    request.http_method = HttpMethod[method]
    request.uri = path
    request.body = body
    option = RequestOption()
    option.headers = {"Content-Type": "application/json; charset=utf-8"} if body is not None else {}
    if token is not None:
        option.headers["Authorization"] = f"Bearer {token}"
    Transport.execute(config, request, option)


def with_token(token: str) -> Any:
    """The request option that carries `token` explicitly."""
    from lark_channel.core.model import RequestOption

    option = RequestOption()
    option.tenant_access_token = token
    return option


def create_request(chat_id: str, msg_type: str, content: str, uuid: str) -> Any:
    """A fresh message into a chat."""
    from lark_channel.api.im.v1.model.create_message_request import CreateMessageRequest
    from lark_channel.api.im.v1.model.create_message_request_body import CreateMessageRequestBody

    body = CreateMessageRequestBody.builder().receive_id(chat_id).msg_type(msg_type).content(content).uuid(uuid).build()
    return CreateMessageRequest.builder().receive_id_type("chat_id").request_body(body).build()


def reply_request(message_id: str, msg_type: str, content: str, uuid: str) -> Any:
    """An answer to one message."""
    from lark_channel.api.im.v1.model.reply_message_request import ReplyMessageRequest
    from lark_channel.api.im.v1.model.reply_message_request_body import ReplyMessageRequestBody

    body = ReplyMessageRequestBody.builder().msg_type(msg_type).content(content).uuid(uuid).build()
    return ReplyMessageRequest.builder().message_id(message_id).request_body(body).build()


def file_request(name: str, content: bytes, media_type: str) -> Any:
    """An upload. The tuple keeps the file's name on the wire; the SDK drops it for file objects."""
    from lark_channel.api.im.v1.model.create_file_request import CreateFileRequest
    from lark_channel.api.im.v1.model.create_file_request_body import CreateFileRequestBody

    body = CreateFileRequestBody.builder().file_type("stream").file_name(name).file((name, content, media_type)).build()
    # The SDK encodes None as an empty part; the field only means something for media.
    del body.duration
    return CreateFileRequest.builder().request_body(body).build()


def list_request(chat_id: str, start_s: int, end_s: int, page_size: int, page_token: str | None) -> Any:
    """One page of a chat's history, ascending."""
    from lark_channel.api.im.v1.model.list_message_request import ListMessageRequest

    builder = (
        ListMessageRequest.builder()
        .container_id_type("chat")
        .container_id(chat_id)
        .start_time(str(start_s))
        .end_time(str(end_s))
        .sort_type("ByCreateTimeAsc")
        .page_size(page_size)
    )
    return (builder if page_token is None else builder.page_token(page_token)).build()


# ---------------------------------------------------------------------------------------------- inbound


class _NoAudit:
    """The SDK's audit hook, deaf: its own recorder keeps request details."""

    def record(self, _reason: str, *, mode: str, action: str, details: dict[str, Any]) -> None:
        """Keep nothing."""


@cache
def security(mode: str, allow_unsigned: bool) -> Any:
    """The SDK's security settings; immutable by convention, so one object serves every dispatcher."""
    load()
    from lark_channel import SecurityConfig

    return SecurityConfig(mode=mode, allow_unsigned_encrypted_webhook=allow_unsigned, audit_recorder=_NoAudit())


@cache
def capturing_dispatcher() -> Any:
    """A dispatcher class which hands the decrypted payload to `capture`, whatever its event type.

    Made by `type()` because a class statement over an untyped base could not be checked; the builder is no use, since
    it returns the base class.
    """
    load()
    from lark_channel import EventContext, EventDispatcherHandler

    def construct(self: Any, key: str, token: str, settings: Any, capture: Callable[[str], object]) -> None:
        EventDispatcherHandler.__init__(self, settings)
        self._encrypt_key = key
        self._verification_token = token
        self._capture = capture

    def dispatch(self: Any, plaintext: str, _context: Any) -> dict[str, str]:
        self._capture(plaintext)
        return {"msg": "success"}

    def parse_context(self: Any, plaintext: str) -> Any:
        # The SDK's model breaks on fields of odd types before it compares the token. Such an event is authentic if its
        # token is, and must be acknowledged, or the provider pushes it again for hours.
        try:
            return EventDispatcherHandler._parse_context(self, plaintext)  # noqa: SLF001 - the method overridden here
        except Exception:  # noqa: BLE001 - anything but the token check that follows in the SDK would be a guess
            context = EventContext()
            context.token = _token_of(plaintext)
            return context

    names = {"__init__": construct, "_dispatch": dispatch, "_parse_context": parse_context}
    return type("CapturingDispatcher", (EventDispatcherHandler,), names)


def _token_of(plaintext: str) -> str | None:
    import json

    payload = json.loads(plaintext)
    header = payload.get("header") if isinstance(payload, dict) else None
    holder = header if isinstance(header, dict) else payload if isinstance(payload, dict) else {}
    token = holder.get("token")
    return token if isinstance(token, str) else None


def challenge_dispatcher(key: str, token: str, settings: Any) -> Any:
    """The SDK's own dispatcher with nothing registered: it answers a correct challenge and refuses every event."""
    load()
    from lark_channel import EventDispatcherHandler

    return EventDispatcherHandler.builder(key, token, security=settings).build()


def raw_request(headers: dict[str, str], body: bytes) -> Any:
    """The SDK's request object; header names must be in its canonical case."""
    from lark_channel.core.model import RawRequest

    request = RawRequest()
    request.uri = ""
    request.headers = headers
    request.body = body
    return request
