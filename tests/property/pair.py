"""Two databases that are given the same commands, and how long and how randomly they are tried."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from hypothesis import HealthCheck, settings

from frontdesk.kernel.clock import ManualClock
from frontdesk.storage.tx import Tx
from tests.contract.conftest import TimedDatabase

T = TypeVar("T")

EXAMPLES: Final = os.environ.get("EXAMPLES")


def profile(examples: int, steps: int) -> settings:
    """The same examples in every run of `make test`; others, and more of them, with `EXAMPLES=…`."""
    return settings(
        max_examples=int(EXAMPLES) if EXAMPLES else examples,
        stateful_step_count=steps,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


class Loop:
    """An event loop for tests that are no coroutines."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`."""
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        """End it with everything that hangs on it."""
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


class Log(Protocol):
    """What was written to a database, in order."""

    def read(self, since: int) -> list[tuple[int, str, str, str | None]]:
        """What was logged after this number."""
        ...

    def close(self) -> None:
        """Give it back."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Side:
    """One of the two."""

    engine: str
    database: TimedDatabase
    log: Log


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """Both, at one clock."""

    clock: ManualClock
    loop: Loop
    sides: list[Side]

    def write(self, fn: Callable[[Tx], T]) -> list[T]:
        """Run one transaction on each."""
        return [self.loop.run(side.database.write(fn)) for side in self.sides]
