"""Changing the key: every ciphertext under the first key, resumable, and never over what somebody set meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from frontdesk.app import rotating
from frontdesk.app.rotating import Rotated, rotate
from frontdesk.app.schema import CIPHERTEXTS, METADATA
from frontdesk.desk import connections
from frontdesk.kernel.secretbox import CredentialUnavailable, KeyRing, new_key
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import SECRETS, DeskWorld

INSTALLED = 5
COLUMNS = ("app_secret_ct", "encrypt_key_ct", "verification_token_ct")


async def run(database: Any, keyring: KeyRing) -> dict[str, Rotated]:
    return {each.column: each async for each in rotate(database, keyring)}


async def stored(desk: DeskWorld) -> dict[tuple[str, str], str]:
    return {(row["id"], name): row[name] for row in await desk.rows("installations") for name in COLUMNS}


async def with_many(desk: DeskWorld) -> tuple[str, str]:
    """Several connections under one key; that key, and a new one."""
    old = new_key()
    desk.keyring = KeyRing(old)
    for row in await desk.rows("installations"):
        fresh = {name: desk.keyring.encrypt(SECRETS[name.removesuffix("_ct")]) for name in COLUMNS}
        await desk.force("installations", row["id"], **fresh)
    for number in range(INSTALLED - 1):
        await desk.install(f"Bot {number}", app_id=f"cli_{number + 10}")
    return old, new_key()


def test_every_ciphertext_column_is_named_by_its_room() -> None:
    """A column that ends in `_ct` is rotated; a room cannot forget one."""
    named = {(table.name, name) for table, names in CIPHERTEXTS for name in names}
    assert named == {(t.name, c.name) for t in METADATA.tables.values() for c in t.columns if c.name.endswith("_ct")}


@pytest.mark.spec("DESK-371")
async def test_rotation_goes_on_where_it_was_cut_off_and_counts_what_no_key_reads(
    desk: DeskWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted at any page, before or after its commit, the next run goes on with the rest, and a second run changes
    nothing; a value that no key reads is left, counted, and named by its column and not by its content. Every value
    then reads as before, under the new key alone.
    """
    monkeypatch.setattr(rotating, "KEY_ROTATION_PAGE", 2)
    old, new = await with_many(desk)
    ring = KeyRing(f"{new},{old}")
    broken = (await desk.rows("installations"))[3]["id"]
    lost = KeyRing(new_key()).encrypt("planted-lost-secret")
    await desk.force("installations", broken, encrypt_key_ct=lost)
    before = await stored(desk)
    writes = await _interrupted_everywhere(desk, ring, before)
    assert writes >= 6

    after = await stored(desk)
    found = await run(desk.database, ring)
    assert await stored(desk) == after, "a second run changes nothing"
    assert {name.partition(".")[2] for name in found} >= {*COLUMNS, "claim_ct"}
    assert found["installations.encrypt_key_ct"] == Rotated(
        "installations.encrypt_key_ct", current=INSTALLED - 1, unreadable=1
    )
    assert found["installations.app_secret_ct"] == Rotated("installations.app_secret_ct", current=INSTALLED)
    assert after[broken, "encrypt_key_ct"] == lost
    assert lost not in repr(found)
    alone = KeyRing(new)
    for (row_id, name), text in after.items():
        if (row_id, name) != (broken, "encrypt_key_ct"):
            assert alone.decrypt(text) == KeyRing(old).decrypt(before[row_id, name])


class Crash(Exception):
    """The process died here."""


class Dying:
    """A database whose process dies at its n-th write, before or after the commit."""

    def __init__(self, inner: Database, at: int, after_commit: bool) -> None:
        self._inner, self._left, self._after_commit = inner, at, after_commit

    async def read(self, fn: Any) -> Any:
        return await self._inner.read(fn)

    async def write(self, fn: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._after_commit:
            raise Crash
        result = await self._inner.write(fn)
        if self._left == 0:
            raise Crash
        return result


def _put_back(tx: Tx, before: dict[tuple[str, str], str]) -> None:
    table = METADATA.tables["installations"]
    for (row_id, name), text in before.items():
        tx.execute(sa.update(table).where(table.c.id == row_id).values({name: text}))


async def _interrupted_everywhere(desk: DeskWorld, ring: KeyRing, before: dict[tuple[str, str], str]) -> int:
    """From the same beginning, a run that dies at each write and one that finishes; how many writes there are."""
    at = 0
    while True:
        at += 1
        for after_commit in (False, True):
            await desk.database.write(lambda tx: _put_back(tx, before))
            try:
                await run(Dying(desk.database, at, after_commit), ring)
            except Crash:
                finished = await run(desk.database, ring)
                assert not any(each.moved for each in finished.values())
                assert sum(each.unreadable for each in finished.values()) == 1
            else:
                return at - 1
            now = await stored(desk)
            assert sum(ring.is_current(text) for text in now.values()) == INSTALLED * len(COLUMNS) - 1


async def test_a_secret_set_while_it_is_rotated_stands(desk: DeskWorld) -> None:
    """A PATCH between the reading and the writing of a page wins, and the value it set ends under the first key too."""
    old, new = await with_many(desk)
    ring = KeyRing(f"{new},{old}")

    class Patched:
        """Sets a secret, with the old ring of a server that was not restarted, before the first page is written."""

        done = False

        async def read(self, fn: Any) -> Any:
            return await desk.database.read(fn)

        async def write(self, fn: Any) -> Any:
            if not self.done:
                self.done = True
                await desk.write(
                    connections.update_installation,
                    desk.owner,
                    workspace_id=desk.home,
                    installation_id=desk.installation_id,
                    changes={"app_secret": "set-meanwhile"},
                    **desk.keys,
                )
            return await desk.database.write(fn)

    found = await run(Patched(), ring)
    assert found["installations.app_secret_ct"] == Rotated("installations.app_secret_ct", rotated=INSTALLED)
    text = (await desk.row("installations", desk.installation_id))["app_secret_ct"]
    assert ring.is_current(text)
    assert ring.decrypt(text) == "set-meanwhile"


async def test_without_a_usable_key_nothing_is_touched(desk: DeskWorld) -> None:
    """No key, or a malformed one, is refused before anything is read."""
    before = await stored(desk)
    for keys in ("", "no-key", f"{new_key()},no-key"):
        with pytest.raises(CredentialUnavailable):
            await run(desk.database, KeyRing(keys))
    assert await stored(desk) == before
