"""What the workers of every process say of themselves, and what a process without one reads from it.

A row is a heartbeat, not a lease: nothing is claimed through it and a wrong one only makes readiness wrong for 30 s.
"""

from __future__ import annotations

from sqlalchemy import delete, func, select, update

from frontdesk.desk.connections.model import NO_WORKER, Readiness, WorkerSnapshot
from frontdesk.desk.connections.tables import WORKERS
from frontdesk.kernel import limits
from frontdesk.kernel.clock import DAY
from frontdesk.storage.conflict import try_insert
from frontdesk.storage.tx import Tx


def beat(
    tx: Tx,
    owner: str,
    *,
    started_at: int,
    accepting: bool,
    outbound_started: bool,
    artifact_configured: bool,
    version: str,
) -> None:
    """Say that the worker `owner` lives and what it can do: every `WORKER_BEAT_US`, and at once on a change."""
    values = {
        "started_at": started_at,
        "last_seen_at": tx.now,
        "accepting_claims": accepting,
        "outbound_started": outbound_started,
        "artifact_configured": artifact_configured,
        "version": version,
        "updated_at": tx.now,
    }
    known = update(WORKERS).where(WORKERS.c.owner == owner).values(values)
    if tx.execute(known).rowcount == 1:
        return
    if not try_insert(tx, WORKERS, {"owner": owner, "created_at": tx.now, **values}):
        tx.execute(known)


def forget(tx: Tx, owner: str) -> None:
    """Take a stopped worker's row away, and rows nobody renewed for a day."""
    column = WORKERS.c
    tx.execute(delete(WORKERS).where((column.owner == owner) | (column.last_seen_at <= tx.now - DAY)))


def last_seen(tx: Tx) -> int | None:
    """When any worker was last seen; None where none is known."""
    row = tx.find(select(func.max(WORKERS.c.last_seen_at).label("seen")))
    return row["seen"] if row is not None else None


def live_workers(tx: Tx) -> int:
    """Workers seen within `WORKER_SEEN_US`."""
    seen = WORKERS.c.last_seen_at > tx.now - limits.WORKER_SEEN_US
    return tx.count(select(func.count()).select_from(WORKERS).where(seen))


def snapshot(tx: Tx) -> WorkerSnapshot:
    """What the most able live worker can do; `NO_WORKER` where none was seen within `WORKER_SEEN_US`.

    Abilities of two workers are never added up: one that claims but can't send and one that sends but doesn't claim
    answer nothing together.
    """
    column = WORKERS.c
    row = tx.find(
        select(WORKERS)
        .where(column.last_seen_at > tx.now - limits.WORKER_SEEN_US)
        .order_by(
            (column.accepting_claims & column.outbound_started).desc(),
            column.artifact_configured.desc(),
            column.accepting_claims.desc(),
            column.owner,
        )
        .limit(1)
    )
    if row is None:
        return NO_WORKER
    return WorkerSnapshot(
        configured=True,
        started=True,
        accepting_claims=row["accepting_claims"],
        outbound_started=row["outbound_started"],
        artifact_configured=row["artifact_configured"],
    )


def readiness_of(worker: WorkerSnapshot, *, reply_enabled: bool, artifact_enabled: bool) -> Readiness:
    """Readiness of a process (desk.md 8.2). The flags are arguments; nothing here reads settings or environment."""
    replies = reply_enabled and worker.started and worker.accepting_claims and worker.outbound_started
    return Readiness(replies, replies and artifact_enabled and worker.artifact_configured)


def process_readiness(
    tx: Tx, *, reply_enabled: bool, artifact_enabled: bool, worker: WorkerSnapshot | None = None
) -> Readiness:
    """As `readiness_of` for the process's own worker; without one (None) the workers of other processes count."""
    able = snapshot(tx) if worker is None else worker
    return readiness_of(able, reply_enabled=reply_enabled, artifact_enabled=artifact_enabled)
