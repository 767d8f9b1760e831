"""A Feishu long connection: the SDK's client on a thread with a loop of its own, looked at from outside.

There is no signature on this way: an event is trusted because the connection was opened with the app secret, and whom
it is for is still compared (desk.md 6.4).
"""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any, Final

import structlog

from frontdesk.channels.feishu import codes, line_client
from frontdesk.channels.feishu.line_client import Handler, Notes
from frontdesk.channels.feishu.normalise import normalise
from frontdesk.channels.feishu.outbound import checked_domain
from frontdesk.desk.connections.channel import Accept, Inbound, Installed, LineLook
from frontdesk.kernel.clock import SECOND, Clock
from frontdesk.kernel.limits import CALLBACK_BODY_BYTES_MAX, LISTENER_CLOSE_US

OPERATION: Final = "desk.inbox.listen"
ENDED: Final = "connect_failed"
_CANCELS: Final = 4
_TASKS_S: Final = 0.2
_CLOSE_S: Final = LISTENER_CLOSE_US / SECOND / 2

log = structlog.get_logger("frontdesk.listener")


class EventUnreadable(ValueError):
    """Not an event: too large, or not JSON. Nothing of it is in the text."""


class FeishuLine:
    """Implements `desk.connections.channel.Line`."""

    def __init__(self, domain: str, clock: Clock, proxy_url: str | None, installed: Installed, accept: Accept) -> None:
        self._domain = checked_domain(domain)
        self._proxy_url = proxy_url
        self._installed = installed
        self._accept = accept
        self._notes = Notes(clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._ended: tuple[str, int | None] | None = None
        self._thread = threading.Thread(target=self._run, name="frontdesk-feishu-line", daemon=True)

    def start(self) -> None:
        """See `Line.start`."""
        self._thread.start()

    def look(self) -> LineLook:
        """See `Line.look`. The socket and the last pong tell; the client's ready flag is never asked."""
        conn = getattr(self._client, "_conn", None)
        standing = getattr(getattr(conn, "state", None), "name", None) == "OPEN"
        code, number = self._ended or (None, None)
        if code is None and self._notes.dead:
            code, number = _told(self._notes.failure)
        receiving = not self._notes.dead and self._ended is None
        return LineLook(standing, receiving, self._notes.quiet_us(), code, number)

    def stop(self, wait_s: float) -> None:
        """See `Line.stop`."""
        self._notes.stopping = True
        loop, thread = self._loop, self._thread
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._begin_close)
            except RuntimeError:
                return  # its loop is closed: it has ended by itself
        if thread.is_alive():
            thread.join(wait_s)

    # ------------------------------------------------------------------------------------------ its thread

    def _run(self) -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        self._loop = loop
        try:
            if not self._notes.stopping:
                self._client = self._built(loop)
                self._client.start()
        except BaseException as error:  # noqa: BLE001 - its text may hold the socket's address
            self._ended = (ENDED, None) if self._notes.stopping else _told(error)
        finally:
            self._ended = self._ended or (ENDED, None)
            _end(loop)

    def _built(self, loop: asyncio.AbstractEventLoop) -> Any:
        secret = self._installed.credentials.app_secret
        handler = Handler(self._take, self._notes)
        return line_client.build(
            self._installed.app_id,
            secret,
            domain=self._domain,
            proxy_url=self._proxy_url,
            handler=handler,
            notes=self._notes,
            loop=loop,
        )

    def _take(self, payload: bytes) -> None:
        """One event, whole, as the webhook's is taken: read, normalised, accepted. Raises where it is not."""
        if self._notes.stopping:
            raise EventUnreadable("ending")
        try:
            event = _read(payload)
        except Exception as error:
            # Its text may quote the message.
            log.warning(OPERATION, code="callback_not_accepted", phase=f"unreadable {type(error).__name__}")
            raise
        self._accept(event)

    def _begin_close(self) -> None:
        assert self._loop is not None
        self._loop.create_task(self._close())

    async def _close(self) -> None:
        client = self._client
        try:
            if client is not None:
                client._auto_reconnect = False  # noqa: SLF001 - the SDK has no way to end
                async with asyncio.timeout(_CLOSE_S):
                    await client._disconnect()  # noqa: SLF001
        except Exception:  # noqa: BLE001, S110 - it is given up either way
            pass
        finally:
            asyncio.get_running_loop().stop()


def _read(payload: bytes) -> Inbound:
    if len(payload) > CALLBACK_BODY_BYTES_MAX:
        raise EventUnreadable("too large")
    return normalise(json.loads(payload.decode("utf-8")), None)


def _told(error: BaseException | None) -> tuple[str, int | None]:
    """A code of ours and the provider's number, where it gave one. Nothing of the exception's text."""
    number = line_client.refusal_number(error)
    rejected = number is not None and codes.is_credentials_rejected(number)
    return (codes.Means.CREDENTIALS_REJECTED.value if rejected else ENDED), number


def _end(loop: asyncio.AbstractEventLoop) -> None:
    # More than once: the SDK's ping task answers the first cancellation with its next pause.
    for _ in range(_CANCELS):
        tasks = asyncio.all_tasks(loop)
        if not tasks:
            break
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks, timeout=_TASKS_S))
    loop.close()
