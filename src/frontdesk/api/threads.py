"""Where blocking work of a surface runs: a small pool of its own, which holds up neither loop nor database."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

BATCH_MAX: Final = 32


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


class BatchThread:
    """`Threads` on one thread that takes what has queued up and answers it together.

    For many short functions: the loop is woken once for a batch, and the two threads hand the interpreter over once
    instead of once a call. A long function holds up those behind it.
    """

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=f"frontdesk-{name}", daemon=True)
        self._thread.start()

    async def run(self, fn: Callable[..., T], *arguments: Any) -> T:
        """See `Threads.run`."""
        work = _Work(asyncio.get_running_loop().create_future(), fn, arguments)
        self._queue.put(work)
        result: T = await work.future
        return result

    def close(self) -> None:
        """End the thread once what is queued was run."""
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while True:
            batch = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while len(batch) < BATCH_MAX:
                    batch.append(self._queue.get_nowait())
            ended = [work for work in batch if work is not None]
            for work in ended:
                work.call()
            for loop in {work.future.get_loop() for work in ended}:
                mine = [work for work in ended if work.future.get_loop() is loop]
                with contextlib.suppress(RuntimeError):  # a closed loop waits for nothing
                    loop.call_soon_threadsafe(_answer, mine)
            if None in batch:
                return


class _Work:
    """One call and what became of it."""

    __slots__ = ("arguments", "error", "fn", "future", "value")

    def __init__(self, future: asyncio.Future[Any], fn: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.future = future
        self.fn = fn
        self.arguments = arguments
        self.value: Any = None
        self.error: BaseException | None = None

    def call(self) -> None:
        """Run it, keeping whatever it raises."""
        try:
            self.value = self.fn(*self.arguments)
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            self.error = error


def _answer(batch: list[_Work]) -> None:
    for work in batch:
        if work.future.done():
            continue
        if work.error is not None:
            work.future.set_exception(work.error)
        else:
            work.future.set_result(work.value)
