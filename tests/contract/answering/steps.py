"""What the tests of turns and leases share: what a message leaves, crashes, and races between sessions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from frontdesk.desk.inbox import Receipt, claiming
from frontdesk.desk.inbox.claiming import Claim
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import LEASE_US, DeskWorld, Gate, Seat

R = TypeVar("R")
W = TypeVar("W")
RACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Revision, cursor, and (status, code) of the receipt, its turn and its delivery; None where there is none."""

    revision: int
    cursor: int
    receipt: tuple[str, str | None]
    turn: tuple[str, str | None] | None
    delivery: tuple[str, str | None] | None


async def look(desk: DeskWorld, seat: Seat, receipt_id: str) -> Seen:
    """What is committed of one message."""
    receipt = await desk.row("receipts", receipt_id)
    conversation = await desk.row("conversations", seat.conversation_id)
    grant = await desk.row("reply_grants", seat.grant_id)
    turn = await desk.row("turns", receipt["turn"]) if receipt["turn"] else None
    deliveries = await desk.rows("deliveries", receipt=receipt_id)
    assert len(deliveries) <= 1
    return Seen(
        conversation["revision"],
        grant["cursor"],
        (receipt["status"], receipt["error_code"]),
        None if turn is None else (turn["status"], turn["error_code"]),
        None if not deliveries else (deliveries[0]["status"], deliveries[0]["error_code"]),
    )


async def during(desk: DeskWorld, seat: Seat, change: Callable[[], Awaitable[Any]], **named: Any) -> str:
    """Ask, let `change` happen while the runner works, then let it answer; the receipt's id."""
    gate = Gate()
    desk.runner.behaviour = gate
    receipt = await desk.ask("What now?", seat)
    worker = desk.receipt_worker(**named)
    assert await worker.step() == 1
    await gate.reached.wait()
    await change()
    gate.opened.set()
    await worker.stop(60)
    desk.runner.behaviour = None
    return str(receipt["id"])


async def claimed(
    desk: DeskWorld, *, owner: str = "dead", limit: int = 8, database: Database | None = None
) -> list[Receipt]:
    """t1 and nothing more: what a process leaves that dies right after it."""
    order = Claim(owner, LEASE_US, limit)
    return await (database or desk.database).write(lambda tx: claiming.claim(tx, order, desk.parts))


async def crashed(desk: DeskWorld, point: str, **named: Any) -> None:
    """One step of a worker whose work ends at a failpoint, and the time until its lease is over."""
    worker = desk.receipt_worker(failpoints=Failpoints({point: "raise"}), **named)
    await worker.step()
    await worker.stop(60)
    desk.clock.advance(LEASE_US)


async def recover(desk: DeskWorld, *, database: Database | None = None) -> int:
    """The receipts' half of recovery."""
    return await (database or desk.database).write(
        lambda tx: claiming.recover(tx, "recoverer", LEASE_US, 1000, desk.parts)
    )


async def race_after_reading(
    sessions: Sequence[Database], read: Callable[[Tx, int], R], write: Callable[[Tx, int, R], W]
) -> list[W]:
    """Each session reads, then writes; on PostgreSQL all have read before one writes.

    SQLite's writers are serial, a second one cannot read before the first has committed: there they start together.
    """
    meet = sessions[0].engine_name == "postgresql"
    barrier = threading.Barrier(len(sessions))
    met: set[int] = set()

    def transaction(index: int) -> Callable[[Tx], W]:
        def run(tx: Tx) -> W:
            found = read(tx, index)
            if meet and index not in met:  # a transaction that is run again does not wait again
                met.add(index)
                barrier.wait(RACE_SECONDS)
            return write(tx, index, found)

        return run

    return list(await asyncio.gather(*(session.write(transaction(index)) for index, session in enumerate(sessions))))
