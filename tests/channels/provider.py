"""A provider made of plain sockets: it counts requests, and answers with whatever bytes a test wants, at its pace."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

TOKEN_PATH = "/open-apis/auth/v3/tenant_access_token/internal"
BOT_PATH = "/open-apis/bot/v3/info"


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def json(self) -> Any:
        return json.loads(self.body)


Reply = bytes | Callable[[socket.socket, Request], None]


def answer(
    fields: Any,
    status: int = 200,
    headers: dict[str, str] | None = None,
    *,
    reason: str = "X",
    raw: bytes | None = None,
) -> bytes:
    body = raw if raw is not None else json.dumps(fields, ensure_ascii=False).encode()
    lines = {"Content-Type": "application/json; charset=utf-8", "Content-Length": str(len(body))} | (headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} {reason}\r\n{head}\r\n".encode() + body


def code(number: int, status: int = 400, headers: dict[str, str] | None = None) -> bytes:
    return answer({"code": number, "msg": "PROVIDER-TEXT-MARKER", "data": {}}, status, headers)


def sent(message_id: str = "om_sent") -> bytes:
    return answer({"code": 0, "msg": "success", "data": {"message_id": message_id, "create_time": "1767225601000"}})


def token(value: str = "t-token", expire: Any = 7200) -> bytes:
    return answer({"code": 0, "msg": "ok", "tenant_access_token": value, "expire": expire})


def reset(sock: socket.socket, _request: Request) -> None:
    """Close with RST instead of an orderly end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@dataclass
class Provider:
    """`replies[path]` is used up in order, its last entry for ever; the token endpoint answers by itself."""

    replies: dict[str, list[Reply]] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    accepted: int = 0
    default: Reply = field(default_factory=sent)

    def __enter__(self) -> Provider:
        self.replies.setdefault(TOKEN_PATH, [token()])
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, name="fake-provider")]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._end_listening()
        with self._lock:
            still_open = list(self._open)
        for sock in still_open:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(10)

    def _end_listening(self) -> None:
        with contextlib.suppress(OSError):  # it may be hushed
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def hush(self) -> None:
        """Refuse every connection from now on; the port stays taken, so that nobody else can answer there."""
        self._end_listening()
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.port))

    @property
    def origin(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def on(self, path: str, *replies: Reply) -> None:
        self.replies[path] = list(replies)

    def paths(self) -> list[str]:
        with self._lock:
            return [request.path for request in self.requests]

    def wire(self) -> list[Request]:
        """Requests other than the token's."""
        with self._lock:
            return [request for request in self.requests if request.path != TOKEN_PATH]

    def stopped(self, seconds: float) -> bool:
        """Wait, but no longer than the test lasts."""
        return self._stopping.wait(seconds)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.accepted += 1
            thread = threading.Thread(target=self._serve, args=(sock,), name="fake-provider-connection")
            self._threads.append(thread)
            thread.start()

    def _serve(self, plain: socket.socket) -> None:
        plain.settimeout(30)
        sock = plain
        try:
            if self.tls is not None:
                sock = self.tls.wrap_socket(plain, server_side=True)
            with self._lock:
                self._open.add(sock)
            request = _read_request(sock)
            if request is None:
                return
            with self._lock:
                self.requests.append(request)
                queue = self.replies.get(request.path, [self.default])
                reply = queue.pop(0) if len(queue) > 1 else queue[0]
            if isinstance(reply, bytes):
                sock.sendall(reply)
            else:
                reply(sock, request)
        except OSError:
            return
        finally:
            with self._lock:
                self._open.discard(sock)
            sock.close()


def _read_request(sock: socket.socket) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        piece = sock.recv(65536)
        if not piece:
            return None
        body += piece
    method, target, _ = first.split(" ")
    return Request(method, target, headers, body)
