"""Where blocking work of a surface runs: a small pool of its own, which holds up neither loop nor database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Threads(Protocol):
    """Runs a blocking function on a thread."""

    async def run(self, fn: Callable[..., T], *arguments: Any) -> T:
        """The function's result, or what it raises."""
        ...


class ThreadPool:
    """`Threads` on a bounded pool. Reception has one to itself: a burst of logins must not delay a push."""

    def __init__(self, name: str, threads_max: int) -> None:
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix=f"frontdesk-{name}")

    async def run(self, fn: Callable[..., T], *arguments: Any) -> T:
        """See `Threads.run`."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, fn, *arguments)

    def close(self) -> None:
        """Wait for what is running; drop what is queued."""
        self._pool.shutdown(wait=True, cancel_futures=True)
