"""Column shapes used by every room's `tables.py`: ids, references, instants, states and leases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, Column, ForeignKey, Integer, String, Table

from frontdesk.kernel.machine import Machine
from frontdesk.storage.metadata import METADATA

ID_LENGTH = 36


def room_table(name: str, *items: Any) -> Table:
    """A table with `id`, `created_at` and `updated_at`, registered on the one MetaData."""
    return Table(name, METADATA, Column("id", String(ID_LENGTH), primary_key=True), *times(), *items)


def times() -> tuple[Column[int], Column[int]]:
    """Creation and last change, microseconds UTC."""
    return instant("created_at"), instant("updated_at")


def instant(name: str, *, nullable: bool = False) -> Column[int]:
    """Microseconds UTC."""
    return Column(name, BigInteger, nullable=nullable)


def ref(name: str, target: str, *, nullable: bool = False, index: bool = False) -> Column[str]:
    """A foreign key to `target`.id; rows are never cascaded away."""
    return Column(name, String(ID_LENGTH), ForeignKey(f"{target}.id"), nullable=nullable, index=index)


def text_column(name: str, length: int, *, nullable: bool = False) -> Column[str]:
    """Bounded text. SQLite does not enforce lengths, so the service checks them first."""
    return Column(name, String(length), nullable=nullable)


def one_of(column: str, values: Iterable[str], *, nullable: bool = False) -> CheckConstraint:
    """CHECK that an enumerated column holds one of `values` (null allowed only where the column allows it)."""
    listed = ", ".join(f"'{value}'" for value in values)
    rule = f"{column} IN ({listed})"
    return CheckConstraint(f"{column} IS NULL OR {rule}" if nullable else rule, name=f"{column}_known")


def state_column(machine: Machine) -> tuple[Column[str], CheckConstraint]:
    """The `status` column of a machine with its derived CHECK."""
    return Column("status", String(24), nullable=False), one_of("status", machine.states)


def lease_columns() -> tuple[Column[Any] | CheckConstraint, ...]:
    """Owner, generation and expiry of the row's lease."""
    return (
        Column("lease_owner", String(64), nullable=True),
        Column("lease_generation", Integer, nullable=False, default=0, server_default="0"),
        Column("lease_expires_at", BigInteger, nullable=True),
        CheckConstraint("lease_generation >= 0", name="lease_generation_not_negative"),
    )
