"""Ways to break the product that the simulation must notice. Each is a patch in memory, undone afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import sqlalchemy as sa

from frontdesk.app.reception import Reception
from frontdesk.app.schema import METADATA
from frontdesk.desk import inbox, outbox
from frontdesk.desk.connections.channel import RefusedRetry
from frontdesk.desk.conversations import store as conversation_store
from frontdesk.desk.inbox import claiming, endings, reception, store, working
from frontdesk.desk.inbox.worker import ReceiptWorker
from frontdesk.desk.outbox.model import delivery_of
from frontdesk.desk.sending import steps
from frontdesk.kernel import limits
from frontdesk.kernel.machine import Fence
from frontdesk.storage import guarded
from tests.sim import world

PERSONS: Final = (1, 2, 3)
Patch = contextlib.AbstractContextManager[Any]

DELIVERIES: Final = METADATA.tables["deliveries"]
RECEIPTS: Final = METADATA.tables["receipts"]


def no_fence_in_confirm() -> Patch:
    """A late answer of the provider is written whoever holds the delivery by now, and whatever became of it."""

    def confirm(tx: Any, delivery: Any, message_id: str, created_ms: int | None) -> Any:
        values = {"status": "sent", "provider_message_id": message_id, "error_code": None}
        free = {"lease_owner": None, "lease_expires_at": None}
        statement = sa.update(DELIVERIES).where(DELIVERIES.c.id == delivery.id).values({**values, **free})
        return delivery_of(tx.find(statement.returning(DELIVERIES)))

    return mock.patch.object(outbox, "confirm", confirm)


def no_authority_at_t7() -> Patch:
    """What was allowed when the delivery was claimed is sent."""

    def begin(tx: Any, attempt: Any, lease_us: int) -> Any:
        return outbox.begin(tx, attempt.delivery, lease_us)

    return mock.patch.object(steps, "begin_sending", begin)


@contextlib.contextmanager
def receipts_not_unique() -> Iterator[None]:
    """A message pushed twice is two receipts: neither looked for nor refused by the database."""
    read = reception.read_around

    def blind(tx: Any, installation_id: str, message: Any) -> Any:
        around = read(tx, installation_id, message)
        return None if around is None else dataclasses.replace(around, known=None)

    templates = {path: path.read_bytes() for path in (world.settled(persons).path for persons in PERSONS)}
    for template in templates:
        _forget_uniqueness(template)
    try:
        with _both(
            mock.patch.object(reception, "read_around", blind),
            mock.patch.object(
                store, "insert", lambda tx, values: tx.execute(sa.insert(RECEIPTS).values(values)) and True
            ),
        ):
            yield
    finally:
        for template, whole in templates.items():
            template.write_bytes(whole)


def _forget_uniqueness(template: Path) -> None:
    with sqlite3.connect(template) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'receipts'").fetchone()
        unique = re.compile(r",\s*CONSTRAINT uq_receipts_installation_provider_message_id UNIQUE \([^)]*\)")
        changed, times = unique.subn("", sql)
        assert times == 1
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'receipts'", (changed,))
        connection.execute("DELETE FROM sqlite_master WHERE name = 'sqlite_autoindex_receipts_2'")
    connection.close()


def takeover_keeps_generation() -> Patch:
    """Whoever takes a lapsed lease over writes under the same fence as the one it took it from."""
    made = guarded._statement

    def statement(table: Any, machine: Any, event: str, takes: bool) -> Any:
        update = made(table, machine, event, takes)
        lapsed = machine.edges[event].fence is Fence.LAPSED
        return update.values(lease_generation=table.c.lease_generation) if lapsed else update

    return mock.patch.object(guarded, "_statement", statement)


def recovery_sends_again() -> Patch:
    """A delivery found in `sending` is taken for one that was not sent."""

    def settle(tx: Any, limit: int) -> int:
        changed = 0
        for found in outbox.service.store.lapsed_ids(tx, limit):
            where = DELIVERIES.c.id == found["id"]
            values = {"status": "retryable_failed", "not_before": tx.now, "lease_owner": None, "lease_expires_at": None}
            bumped = {**values, "lease_generation": DELIVERIES.c.lease_generation + 1}
            tx.execute(sa.update(DELIVERIES).where(where).values(bumped))
            changed += 1
        return changed

    return mock.patch.object(outbox, "settle_lapsed", settle)


def unknown_is_retried() -> Patch:
    """A request without an answer counts as not sent."""

    def lose(tx: Any, delivery: Any, provider_code: int | None = None) -> Any:
        return outbox.not_sent(tx, delivery, RefusedRetry("rate_limited").code, provider_code=provider_code)

    return mock.patch.object(outbox, "lose", lose)


def running_turn_runs_again() -> Patch:
    """Recovery takes a turn that was running for one that never began."""
    settle = claiming.settle

    def forgetful(tx: Any, receipt: Any, parts: Any) -> bool:
        row = store.find(tx, receipt.id)
        if row is not None and row["turn"] is not None:
            turns = METADATA.tables["turns"]
            tx.execute(sa.update(RECEIPTS).where(RECEIPTS.c.id == receipt.id).values(turn=None))
            tx.execute(sa.delete(turns).where(turns.c.id == row["turn"], turns.c.status == "running"))
        return settle(tx, receipt, parts)

    return _both(mock.patch.object(claiming, "settle", forgetful), mock.patch.object(working, "settle", forgetful))


def acknowledged_before_commit() -> Patch:
    """The push is answered 200 while its receipt is still on its way."""
    receive = Reception.receive

    async def hasty(self: Reception, target: Any, events: Any) -> None:
        asyncio.get_running_loop().create_task(receive(self, target, events))

    return mock.patch.object(Reception, "receive", hasty)


def newest_first() -> Patch:
    """A receipt is claimed while an earlier one of its grant waits."""

    def heads(tx: Any, limit: int) -> Any:
        column = RECEIPTS.c
        waiting = column.status.in_(("received", "retryable_failed")), column.not_before <= tx.now
        return tx.rows(
            sa.select(column.id, column.attempt_count, column.reply_grant)
            .where(*waiting)
            .order_by(column.created_at.desc())
            .limit(limit)
        )

    return mock.patch.object(store, "heads", heads)


def no_heartbeat() -> Patch:
    """Nothing renews the lease of a receipt in work."""

    async def still(self: Any, receipt: Any, hold: Any) -> None:
        return None

    return mock.patch.object(ReceiptWorker, "_beat", still)


def no_authority_at_t4() -> Patch:
    """The answer's delivery is made without asking again, and sent without asking either."""
    judge = endings.grants.judge

    def lenient(tx: Any, grant: Any, **named: Any) -> Any:
        return dataclasses.replace(judge(tx, grant, **named), reason=None)

    return mock.patch.object(endings, "grants", mock.Mock(wraps=endings.grants, judge=lenient))


def cursor_before_revision() -> Patch:
    """The revision stays where it is while the cursor moves."""
    return mock.patch.object(conversation_store, "try_advance_revision", return_value=True)


def receipt_stays_completed() -> Patch:
    """An answer that lost its authority leaves its receipt answered."""
    return mock.patch.object(inbox, "revoke_completed", return_value=None)


def start_is_never_late() -> Patch:
    """The lease need not cover the request that is begun on it."""
    return mock.patch.object(steps, "message_of", lambda d, k, _: _message(d, k))


_message_of = steps.message_of


def _message(delivery: Any, upload_key: str | None) -> Any:
    return _message_of(delivery, upload_key, None)


def attempts_without_end() -> Patch:
    """A delivery is tried for ever."""
    return mock.patch.object(limits, "DELIVERY_ATTEMPTS_MAX", 10_000)


@contextlib.contextmanager
def _both(*patches: Patch) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


MUTANTS: Final[tuple[Callable[[], Patch], ...]] = (
    no_fence_in_confirm,
    no_authority_at_t7,
    receipts_not_unique,
    takeover_keeps_generation,
    recovery_sends_again,
    unknown_is_retried,
    running_turn_runs_again,
    acknowledged_before_commit,
    newest_first,
    no_heartbeat,
    no_authority_at_t4,
    cursor_before_revision,
    receipt_stays_completed,
    start_is_never_late,
)


def seeds_until_red(mutant: Callable[[], Patch], seeds_max: int) -> tuple[int, str] | None:
    """How many seeds it took, and what was said; None where all were green."""
    for persons in PERSONS:  # made by the whole product
        world.settled(persons)
    for seed in range(seeds_max):
        with mutant():
            try:
                world.run_seed(seed)
            except Exception as error:  # noqa: BLE001 - any red counts, and is told
                return seed + 1, f"{type(error).__name__}: {error}"
    return None
