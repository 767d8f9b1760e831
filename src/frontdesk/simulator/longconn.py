"""The long connection: the endpoint that names an address, the WebSocket, events over it and their acknowledgements."""

from __future__ import annotations

import asyncio
import hmac
import json
import random
import secrets
from dataclasses import dataclass, field

from starlette.websockets import WebSocket, WebSocketDisconnect

from frontdesk.simulator import frames, shapes
from frontdesk.simulator.answers import Answer
from frontdesk.simulator.faults import FaultList
from frontdesk.simulator.frames import Frame
from frontdesk.simulator.messages import CODE_BAD_SECRET
from frontdesk.simulator.model import Connection
from frontdesk.simulator.provider import Exchange
from frontdesk.simulator.state import World

CODE_TOO_MANY = 1000040350
CLIENT_CONFIG = {"ReconnectCount": -1, "ReconnectInterval": 2, "ReconnectNonce": 1, "PingInterval": 10}
TICKETS_KEPT = 1_000
CONNECTIONS_KEPT = 1_000
ACKNOWLEDGEMENTS_KEPT = 1_000
SERVICE_ID = 1


@dataclass(slots=True, eq=False)
class _Open:
    """An open connection and the acknowledgements it still owes."""

    socket: WebSocket
    record: Connection
    owed: dict[str, asyncio.Future[tuple[int, str]]] = field(default_factory=dict)


class Hub:
    """All long connections."""

    def __init__(self, world: World, faults: FaultList) -> None:
        self.world = world
        self._faults = faults
        self._tickets: dict[str, str] = {}
        self._open: list[_Open] = []
        self.records: list[Connection] = []

    async def endpoint(self, exchange: Exchange) -> Answer:
        """App id and secret for the address of a WebSocket; the ticket in it works once."""
        app = self.world.apps.get(str(exchange.json.get("AppID")))
        secret = str(exchange.json.get("AppSecret"))
        if app is None or not hmac.compare_digest(secret.encode(), app.app_secret.encode()):
            return Answer(payload={"code": CODE_BAD_SECRET, "msg": "app secret invalid"})
        if len(self._live(app.app_id)) >= shapes.CONNECTIONS_PER_APP_MAX:
            return Answer(payload={"code": CODE_TOO_MANY, "msg": "the number of connections exceeded the limit"})
        ticket = secrets.token_hex(16)
        while len(self._tickets) >= TICKETS_KEPT:
            self._tickets.pop(next(iter(self._tickets)))
        self._tickets[ticket] = app.app_id
        host = exchange.request.headers.get("host", "127.0.0.1")
        query = f"device_id={secrets.token_hex(8)}&service_id={SERVICE_ID}"
        query += f"&access_key={secrets.token_hex(16)}&ticket={ticket}"
        data = {"URL": f"ws://{host}/ws?{query}", "ClientConfig": CLIENT_CONFIG}
        return Answer(payload={"code": 0, "msg": "", "data": data})

    async def socket(self, websocket: WebSocket) -> None:
        """One WebSocket from handshake to close."""
        app_id = self._tickets.pop(websocket.query_params.get("ticket", ""), None)
        if app_id is None:
            await websocket.close()
            return
        await websocket.accept()
        record = Connection(websocket.query_params.get("device_id", ""), app_id, self.world.clock.now_ms())
        line = _Open(websocket, record)
        self._open.append(line)
        self.records.append(record)
        del self.records[:-CONNECTIONS_KEPT]
        try:
            while True:
                await self._received(line, await websocket.receive_bytes())
        except (WebSocketDisconnect, frames.FrameError, KeyError, RuntimeError):
            pass  # gone, or not speaking the protocol: either way the connection is over
        finally:
            self._open.remove(line)
            record.closed_ms = self.world.clock.now_ms()
            for future in line.owed.values():
                if not future.done():
                    future.set_exception(ConnectionError("the long connection closed"))

    async def _received(self, line: _Open, data: bytes) -> None:
        frame = frames.decode(data)
        if frame.method == frames.METHOD_CONTROL:
            if frame.headers.get("type") == "ping":
                await self._pong(line, frame)
            return
        future = line.owed.get(frame.headers.get("message_id", ""))
        if future is None or future.done():
            return
        try:
            code = int(json.loads(frame.payload)["code"])
        except (ValueError, KeyError, TypeError):
            code = 0
        future.set_result((code, frame.payload[:200].decode("utf-8", "replace")))

    async def _pong(self, line: _Open, ping: Frame) -> None:
        line.record.pings += 1
        line.record.last_ping_ms = self.world.clock.now_ms()
        if self._faults.take("pong", line.record.app_id, None) is not None:
            return  # a silent provider: the client has to notice
        payload = json.dumps(CLIENT_CONFIG).encode()
        pong = Frame(frames.METHOD_CONTROL, ping.service, ping.seq_id, ping.log_id, {"type": "pong"}, payload)
        await line.socket.send_bytes(frames.encode(pong))

    def _live(self, app_id: str) -> list[_Open]:
        return [line for line in self._open if line.record.app_id == app_id]

    def connected(self, app_id: str) -> bool:
        """Whether the app has an open long connection."""
        return bool(self._live(app_id))

    async def deliver(self, app_id: str, payload: bytes, fragments: int, timeout_ms: int) -> tuple[int, str]:
        """Sends an event over one of the app's connections, chosen at random, and returns its acknowledgement.

        Raises ``TimeoutError`` after ``timeout_ms`` of silence and ``ConnectionError`` when the connection ends.
        """
        line = random.choice(self._live(app_id))
        message_id = secrets.token_hex(16)
        future: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        line.owed[message_id] = future
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                for data in _event_frames(payload, message_id, fragments):
                    await line.socket.send_bytes(data)
                line.record.events_sent += 1
                code, answer = await future
        except (WebSocketDisconnect, RuntimeError) as error:
            raise ConnectionError("the long connection closed") from error
        finally:
            line.owed.pop(message_id, None)
        line.record.acknowledgements.append({"code": code, "at_ms": self.world.clock.now_ms()})
        del line.record.acknowledgements[:-ACKNOWLEDGEMENTS_KEPT]
        return code, answer

    async def close(self, app_id: str | None) -> int:
        """Cuts the open connections of one app, or all; returns how many."""
        lines = [line for line in self._open if app_id in (None, line.record.app_id)]
        for line in lines:
            await line.socket.close(1001)
        return len(lines)


def _event_frames(payload: bytes, message_id: str, fragments: int) -> list[bytes]:
    size = max(1, -(-len(payload) // max(1, fragments)))
    parts = [payload[at : at + size] for at in range(0, len(payload), size)]
    trace_id = secrets.token_hex(16)
    out = []
    for seq, part in enumerate(parts):
        headers = {
            "type": "event",
            "message_id": message_id,
            "trace_id": trace_id,
            "sum": str(len(parts)),
            "seq": str(seq),
        }
        out.append(frames.encode(Frame(frames.METHOD_DATA, SERVICE_ID, seq, 0, headers, part)))
    return out
