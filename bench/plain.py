"""The plain handler that the ingest bench compares with: FastAPI, the SDK in strict mode, one SQLite commit a push."""

import asyncio
import socket
import sqlite3
import threading

import uvicorn
import uvloop
from fastapi import FastAPI, Request, Response
from lark_channel import EventDispatcherHandler, SecurityConfig
from lark_channel.api.im.v1.model.p2_im_message_receive_v1 import P2ImMessageReceiveV1
from lark_channel.core.model import RawRequest
from starlette.concurrency import run_in_threadpool

NAMES = ("X-Lark-Request-Timestamp", "X-Lark-Request-Nonce", "X-Lark-Signature", "X-Request-Id")


def serve_plain(path: str, sock: socket.socket, encrypt_key: str, token: str, tuned: bool) -> None:
    """Serve `POST /events` on `sock` until terminated.

    `tuned` uses the server parts that Frontdesk uses (uvloop, httptools); without it uvicorn runs as the SDK's own
    `fastapi` extra installs it (asyncio, h11).
    """
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE inbox (message_id TEXT PRIMARY KEY, sender TEXT, body TEXT)")
    lock = threading.Lock()

    def keep(event: P2ImMessageReceiveV1) -> None:
        message = event.event.message
        row = (message.message_id, event.event.sender.sender_id.open_id, message.content)
        with lock:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR IGNORE INTO inbox VALUES (?, ?, ?)", row)
            connection.execute("COMMIT")

    handler = (
        EventDispatcherHandler.builder(encrypt_key, token, security=SecurityConfig(mode="strict"))
        .register_p2_im_message_receive_v1(keep)
        .build()
    )
    app = FastAPI()

    @app.post("/events")
    async def events(request: Request) -> Response:
        raw = RawRequest()
        raw.uri = str(request.url.path)
        raw.headers = {name: value for name in NAMES if (value := request.headers.get(name))}
        raw.body = await request.body()
        answer = await run_in_threadpool(handler.do, raw)
        return Response(answer.content, answer.status_code)

    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", http="httptools" if tuned else "h11"
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if tuned else None) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[sock]))
