"""Guarded UPDATE … RETURNING, derived from a transition table (design.md §4.3).

Each statement names the legal source states and the fence in its WHERE; zero rows means that the caller may not write.
Source of the fencing rule: M. Kleppmann, "How to do distributed locking" (2016): the resource itself refuses an old
token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, Table, Update, bindparam, or_, select, update

from frontdesk.kernel.machine import Fence, Lease, Machine
from frontdesk.storage.tx import Tx

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Take:
    """A lease to be taken or renewed: who, and until when (microseconds UTC, in the future)."""

    owner: str
    expires_at: int


@lru_cache(maxsize=512)
def _statement(table: Table, machine: Machine, event: str, takes: bool) -> Update:
    edge = machine.edges[event]
    column = table.c
    guards: list[ColumnElement[bool]] = [
        column.id == bindparam("guard_id"),
        column.status.in_(sorted(edge.sources)),
    ]
    values: dict[str, Any] = {"status": edge.target, "updated_at": bindparam("guard_now")}
    if edge.fence is Fence.CLAIM:
        guards.append(column.not_before <= bindparam("guard_now"))
    if edge.fence in (Fence.HELD, Fence.LIVE):
        guards += [
            column.lease_owner == bindparam("guard_owner"),
            column.lease_generation == bindparam("guard_generation"),
        ]
    if edge.fence is Fence.LIVE:
        guards.append(column.lease_expires_at > bindparam("guard_now"))
    if edge.fence is Fence.LAPSED:
        guards.append(column.lease_expires_at <= bindparam("guard_now"))
    if edge.fence in (Fence.CLAIM, Fence.LAPSED):
        values["lease_generation"] = column.lease_generation + 1
    if takes:
        values |= {"lease_owner": bindparam("take_owner"), "lease_expires_at": bindparam("take_expires_at")}
    elif edge.fence is not Fence.NONE and not edge.keeps_lease:
        values |= {"lease_owner": None, "lease_expires_at": None}
    return update(table).where(*guards).values(values)


def transition(
    tx: Tx,
    table: Table,
    machine: Machine,
    event: str,
    row_id: str,
    *,
    lease: Lease | None = None,
    take: Take | None = None,
    values: Mapping[str, Any] | None = None,
    where: Sequence[ColumnElement[bool]] = (),
) -> RowMapping | None:
    """Apply `event` to one row and return the new row, or None where the guard refused.

    `lease` is required for HELD and LIVE edges, `take` for CLAIM ones. `values` may set other columns (not the state);
    `where` may narrow further. Raises KeyError for an event the table does not list.
    """
    edge = machine.edges[event]
    parameters: dict[str, Any] = {"guard_id": row_id, "guard_now": tx.now}
    if edge.fence in (Fence.HELD, Fence.LIVE):
        if lease is None:
            raise ValueError(f"{machine.name}.{event} needs the caller's lease")
        parameters |= {"guard_owner": lease.owner, "guard_generation": lease.generation}
    if edge.fence is Fence.CLAIM and take is None:
        raise ValueError(f"{machine.name}.{event} takes a lease")
    if take is not None:
        parameters |= {"take_owner": take.owner, "take_expires_at": take.expires_at}
    statement = _statement(table, machine, event, take is not None)
    if where:
        statement = statement.where(*where)
    if values:
        statement = statement.values(dict(values))
    return tx.find(statement.returning(table), parameters)


def take_free(
    tx: Tx, table: Table, states: Sequence[str], row_id: str, take: Take, *, values: Mapping[str, Any] = _NOTHING
) -> RowMapping | None:
    """Take the lease of a row that keeps its state: nobody ever held it, gave it up, or let it pass.

    Generation + 1. None where somebody's lease is live, the state is another, or the row is absent.
    """
    column = table.c
    statement = (
        update(table)
        .where(
            column.id == row_id,
            column.status.in_(states),
            or_(column.lease_expires_at.is_(None), column.lease_expires_at <= tx.now),
        )
        .values(
            {
                "lease_owner": take.owner,
                "lease_generation": column.lease_generation + 1,
                "lease_expires_at": take.expires_at,
                "updated_at": tx.now,
            }
            | dict(values)
        )
    )
    return tx.find(statement.returning(table))


def renew(
    tx: Tx,
    table: Table,
    states: Sequence[str],
    row_id: str,
    lease: Lease,
    *,
    expires_at: int,
    values: Mapping[str, Any] = _NOTHING,
) -> bool:
    """Extend a live lease; False means it is lost: stop, write nothing, drop the result."""
    statement = _update_held(table, states, row_id, lease).where(table.c.lease_expires_at > tx.now)
    changes = {"lease_expires_at": expires_at, "updated_at": tx.now} | dict(values)
    return tx.execute(statement.values(changes)).rowcount == 1


def note(tx: Tx, table: Table, states: Sequence[str], row_id: str, lease: Lease, *, values: Mapping[str, Any]) -> bool:
    """Set columns of a held row that are not its state; False where the fence is stale. Does not ask for the expiry."""
    statement = _update_held(table, states, row_id, lease).values({"updated_at": tx.now} | dict(values))
    return tx.execute(statement).rowcount == 1


def _update_held(table: Table, states: Sequence[str], row_id: str, lease: Lease) -> Update:
    column = table.c
    return update(table).where(
        column.id == row_id,
        column.status.in_(states),
        column.lease_owner == lease.owner,
        column.lease_generation == lease.generation,
    )


def held(row: Mapping[Any, Any], lease: Lease, *, now: int | None = None) -> bool:
    """True where a row just read still belongs to `lease` (and, with `now`, the expiry lies ahead)."""
    same = row["lease_owner"] == lease.owner and row["lease_generation"] == lease.generation
    if now is None:
        return bool(same)
    return bool(same and row["lease_expires_at"] is not None and row["lease_expires_at"] > now)


def lease_of(row: Mapping[Any, Any]) -> Lease:
    """The lease a claimed row carries."""
    return Lease(row["lease_owner"], row["lease_generation"], row["lease_expires_at"])


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a guarded write touched zero rows: absent | wrong_state | stale_fence | expired | guard."""

    reason: str
    status: str | None = None


def why_missed(tx: Tx, table: Table, machine: Machine, event: str, row_id: str, *, lease: Lease | None) -> Miss:
    """Explain a miss by reading the row again in the same transaction."""
    row = tx.find(select(table).where(table.c.id == row_id))
    if row is None:
        return Miss("absent")
    if not machine.legal(row["status"], event):
        return Miss("wrong_state", row["status"])
    if lease is not None and not held(row, lease):
        return Miss("stale_fence", row["status"])
    if machine.edges[event].fence is Fence.LIVE and not held(row, lease or lease_of(row), now=tx.now):
        return Miss("expired", row["status"])
    return Miss("guard", row["status"])
