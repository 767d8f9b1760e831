"""The worker's half of receipts: claim (t1), begin (t1b), run (t2), commit (t3), deliver (t4), or fail (tF).

No transaction is open while a runner works. A heartbeat renews the lease each third of it; once a renewal touches no
row the work is lost: the runner is cancelled and whatever it returns is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog

from frontdesk.desk.conversations import answering
from frontdesk.desk.conversations.runner import Failed, Result
from frontdesk.desk.inbox import claiming, working
from frontdesk.desk.inbox.claiming import Claim
from frontdesk.desk.inbox.model import Receipt
from frontdesk.desk.inbox.ports import Parts
from frontdesk.desk.inbox.working import Begun
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.errors import DatabaseBusy, StaleFence
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.storage import patience
from frontdesk.storage.database import CommitUnknown, Database
from frontdesk.storage.patience import write_patiently

log = structlog.get_logger("frontdesk.inbox")


@dataclass(slots=True)
class _Hold:
    """What the heartbeat tells the work: cancel, because the lease is lost or because a person said stop."""

    cancel: asyncio.Event
    lost: bool = False


class ReceiptWorker:
    """Works on receipts until stopped. One instance per process; `owner` is unique to its start."""

    def __init__(
        self,
        database: Database,
        parts: Parts,
        *,
        owner: str,
        lease_us: int,
        capacity: int,
        failpoints: Failpoints,
        on_lost: Callable[[], None] = lambda: None,
        on_retry: Callable[[], None] = lambda: None,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._parts = parts
        self._owner = owner
        self._lease_us = lease_us
        self._capacity = capacity
        self._failpoints = failpoints
        self._on_lost = on_lost
        self._on_retry = on_retry
        self._on_room = on_room
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancels: set[asyncio.Event] = set()
        self._accepting = True
        self._cut_off = False

    @property
    def accepting(self) -> bool:
        """True while new work is claimed."""
        return self._accepting

    @property
    def busy(self) -> int:
        """Receipts being worked on by this process."""
        return len(self._tasks)

    async def step(self) -> int:
        """Claim what fits and start it. Returns how many were started; 0 means: nothing due or no room."""
        room = self._capacity - len(self._tasks)
        if not self._accepting or room <= 0:
            return 0
        order = Claim(self._owner, self._lease_us, room)
        claimed = await self._database.write(
            lambda tx: claiming.claim(tx, order, self._parts, lambda: self._failpoints.hit("t1.before"))
        )
        if claimed:
            self._failpoints.hit("t1.after")
        for receipt in claimed:
            if receipt.attempt_count > 1:
                self._on_retry()
            self._spawn(self._work(receipt), receipt.id)
        return len(claimed)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"receipt {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        full = len(self._tasks) == self._capacity
        self._tasks.discard(task)
        if full:  # what was due meanwhile found no room, and nothing else would tell that there is some
            self._on_room()

    async def stop(self, grace_s: float) -> None:
        """Claim nothing more; work that ends within the grace ends normally, then turns are cancelled and end by tF.

        What has no turn by then is given back. Idempotent.
        """
        self._accepting = False
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=grace_s)
        self._cut_off = True  # for what begins only now
        for cancel in list(self._cancels):
            cancel.set()
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _work(self, receipt: Receipt) -> None:
        try:
            await self._turn(receipt)
        except StaleFence:
            self._on_lost()
            log.info("inbox.lease_lost", operation="desk.inbox.work", id=receipt.id)
        except DatabaseBusy:
            log.warning("inbox.database_busy", operation="desk.inbox.work", id=receipt.id)
        except CommitUnknown:  # recovery judges by the rows, once the lease has lapsed
            log.warning("inbox.commit_unknown", operation="desk.inbox.work", id=receipt.id)
        except Exception as error:  # noqa: BLE001 - the top of one receipt's work: a defect must not end the others
            _log_defect("inbox.defect", receipt.id, error)

    async def _turn(self, receipt: Receipt) -> None:
        begun = await self._begin(receipt)
        if begun is None:
            return
        result = await self._run(begun)
        if result is None:
            self._on_lost()
            return
        if isinstance(result, Failed):
            failed = result
            self._failpoints.hit("tF.before")
            await write_patiently(
                self._database,
                lambda tx: working.fail_turn(tx, begun, failed, self._parts),
                patience_s=patience.END_PATIENCE_S,
            )
            self._failpoints.hit("tF.after")
            return
        answered = result
        self._failpoints.hit("t3.before")
        turn = await write_patiently(
            self._database,
            lambda tx: working.commit_answer(tx, begun, answered),
            patience_s=patience.END_PATIENCE_S,
        )
        self._failpoints.hit("t3.after")
        if turn is None:
            return
        self._failpoints.hit("t4.before")
        await write_patiently(self._database, lambda tx: working.deliver(tx, begun, turn, self._parts))
        self._failpoints.hit("t4.after")

    async def _begin(self, receipt: Receipt) -> Begun | None:
        self._failpoints.hit("t1b.before")
        if self._cut_off:
            await write_patiently(self._database, lambda tx: working.release(tx, receipt))
            return None
        try:
            begun = await write_patiently(self._database, lambda tx: working.begin(tx, receipt, self._parts))
        except (StaleFence, DatabaseBusy, CommitUnknown):
            raise
        except Exception as error:  # noqa: BLE001 - as above
            # Nothing of the turn exists, so another try is safe; the cap makes a poisonous receipt end visibly.
            _log_defect("inbox.begin_failed", receipt.id, error)
            await write_patiently(self._database, lambda tx: working.retry(tx, receipt, "connector_processing_failed"))
            return None
        if begun is not None:
            self._failpoints.hit("t1b.after")
        return begun

    async def _run(self, begun: Begun) -> Result | None:
        """t2. None: the lease was lost meanwhile and the result is dropped."""
        hold = _Hold(asyncio.Event())
        self._cancels.add(hold.cancel)
        if self._cut_off:
            hold.cancel.set()
        heart = asyncio.get_running_loop().create_task(self._beat(begun.receipt, hold), name="heartbeat")
        self._failpoints.hit("t2.before")
        try:
            result = await answering.answer(self._parts.runners, begun.runner_name, begun.request, hold.cancel)
        finally:
            # Stopped and awaited before anything releases the lease: no renewal follows the release commit (DESK-379).
            heart.cancel()
            await asyncio.wait({heart})
            self._cancels.discard(hold.cancel)
        self._failpoints.hit("t2.after")
        return None if hold.lost else result

    async def _beat(self, receipt: Receipt, hold: _Hold) -> None:
        pause_s = self._lease_us / 3 / SECOND
        while True:
            await asyncio.sleep(pause_s)
            try:
                ours, stop = await self._database.write(lambda tx: working.renew(tx, receipt, self._lease_us))
            except (DatabaseBusy, CommitUnknown):
                continue
            except Exception as error:  # noqa: BLE001 - the lease may lapse now: the fence decides, not we
                _log_defect("inbox.renewal_failed", receipt.id, error)
                continue
            if not ours:
                hold.lost = True
                hold.cancel.set()
                return
            if stop:
                hold.cancel.set()


def _log_defect(event: str, receipt_id: str, error: Exception) -> None:
    # The type alone: an exception's text may hold what a person or a model wrote.
    log.error(event, operation="desk.inbox.work", id=receipt_id, code=type(error).__name__)
