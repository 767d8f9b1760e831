"""Re-encrypting every stored ciphertext under the first key, page by page.

A value is replaced only where it is still the one that was read: what somebody sets meanwhile stands. Interrupted
anywhere, the next run goes on with what is left, because a value that the first key reads is passed over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Column, Table, select, update

from frontdesk.app.schema import CIPHERTEXTS
from frontdesk.kernel.limits import KEY_ROTATION_PAGE
from frontdesk.kernel.secretbox import CredentialUnavailable, KeyRing
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx

PASSES_MAX: Final = 3  # a value set while it was read is looked at again; more than that is left to the next run

Page = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Rotated:
    """One column: re-encrypted now, under the first key before, read by no key, and changed by others meanwhile."""

    column: str
    rotated: int = 0
    current: int = 0
    unreadable: int = 0
    moved: int = 0


async def rotate(
    database: Database, keyring: KeyRing, tables: Sequence[tuple[Table, tuple[str, ...]]] = CIPHERTEXTS
) -> AsyncIterator[Rotated]:
    """Every ciphertext column in turn. Raises `CredentialUnavailable` without usable keys, before anything is read."""
    if not keyring.usable:
        raise CredentialUnavailable
    for table, names in tables:
        for name in names:
            yield await _column(database, keyring, table, table.c[name])


async def _column(database: Database, keyring: KeyRing, table: Table, column: Column[Any]) -> Rotated:
    found = await _pass(database, keyring, table, column)
    for _ in range(PASSES_MAX - 1):
        if not found.moved:
            break
        again = await _pass(database, keyring, table, column)
        rotated = found.rotated + again.rotated
        found = replace(again, rotated=rotated, current=again.current - found.rotated)
    return found


async def _pass(database: Database, keyring: KeyRing, table: Table, column: Column[Any]) -> Rotated:
    seen = Rotated(f"{table.name}.{column.name}")
    after = ""
    while True:
        page = await database.read(_reader(table, column, after))
        fresh: dict[str, tuple[str, str]] = {}
        for row_id, old in page:
            after = row_id
            if keyring.is_current(old):
                seen = replace(seen, current=seen.current + 1)
                continue
            try:
                fresh[row_id] = (old, keyring.rotate(old))
            except CredentialUnavailable:
                seen = replace(seen, unreadable=seen.unreadable + 1)
        if fresh:
            changed = await database.write(_writer(table, column, fresh))
            seen = replace(seen, rotated=seen.rotated + changed, moved=seen.moved + len(fresh) - changed)
        if len(page) < KEY_ROTATION_PAGE:
            return seen


def _reader(table: Table, column: Column[Any], after: str) -> Callable[[Tx], Page]:
    statement = select(table.c.id, column.label("text")).where(column.is_not(None), table.c.id > after)
    bounded = statement.order_by(table.c.id).limit(KEY_ROTATION_PAGE)
    return lambda tx: [(row["id"], row["text"]) for row in tx.rows(bounded)]


def _writer(table: Table, column: Column[Any], fresh: Mapping[str, tuple[str, str]]) -> Callable[[Tx], int]:
    def write(tx: Tx) -> int:
        return sum(
            tx.execute(update(table).where(table.c.id == row_id, column == old).values({column: new})).rowcount
            for row_id, (old, new) in fresh.items()
        )

    return write
