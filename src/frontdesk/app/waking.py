"""Wake hints: a committed transaction says that there may be work. A lost one delays work to the next poll."""

from __future__ import annotations

import asyncio


class WakeHub:
    """Topics with an event each. `wake` may be called from any thread; `wait` belongs to the loop it was made on."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._events: dict[str, asyncio.Event] = {}

    def bind(self) -> None:
        """Take the running loop as the one that waits."""
        self._loop = asyncio.get_running_loop()

    def wake(self, topics: list[str]) -> None:
        """Hint; does nothing before `bind` or after the loop closed."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        try:
            if asyncio.get_running_loop() is loop:
                self._set(topics)
                return
        except RuntimeError:
            pass
        try:
            loop.call_soon_threadsafe(self._set, topics)
        except RuntimeError:
            return

    def _set(self, topics: list[str]) -> None:
        for topic in topics:
            self._events.setdefault(topic, asyncio.Event()).set()

    async def wait(self, topic: str, timeout_s: float) -> None:
        """Return at the next hint or after `timeout_s`, whichever comes first."""
        event = self._events.setdefault(topic, asyncio.Event())
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            pass
        event.clear()
