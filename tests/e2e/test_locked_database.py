"""The database is locked by another and every worker is busy: the callback is answered all the same."""

from __future__ import annotations

import contextlib
import fcntl
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from frontdesk.simulator import signing
from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.people import listen, own
from tests.e2e.rig import House, until
from tests.e2e.test_forged_pushes import event, signed

WORKERS = 2


@contextlib.contextmanager
def locked(house: House, tables: str) -> Iterator[None]:
    """Hold what every write needs: the file's write lock and ours around it, or these tables of PostgreSQL."""
    if house.engine == "postgresql":
        url = house.database_url.replace("postgresql+psycopg", "postgresql")
        with psycopg.connect(url) as connection:
            connection.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")  # type: ignore[arg-type]
            yield
            connection.rollback()
        return
    with (house.data / "frontdesk.db.lock").open("r+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.closing(sqlite3.connect(house.data / "frontdesk.db", timeout=60)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.rollback()


async def ended_late(house: House) -> float:
    """How many pushes were answered because their commit took too long."""
    text = (await house.example.api.get("/metrics")).text
    found = re.search(r'^frontdesk_callbacks_total\{outcome="commit_late"\} (\S+)$', text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.spec("DESK-285")
async def test_a_push_is_answered_while_the_database_is_locked(copy_house: Copy, known: list[dict[str, Any]]) -> None:
    """With every worker busy and the database locked for as long as it takes, a push is answered 500 before the lock
    is let go, by the bounds of the callback itself, and accepted once it is: one receipt.
    """
    async with copy_house() as house:
        server = await house.serve(environment={"FRONTDESK_WORKER_RECEIPTS": str(WORKERS)})
        chats = [own(house, each) for each in known[1 : 1 + WORKERS]]
        for chat in (house.example, *chats):
            await listen(chat, house.address)
        house.hold()
        running = [await rig.say(chat, "What is Frontdesk?", None) for chat in chats]
        await house.held(WORKERS)
        anyone = house.client()
        anyone.timeout = 120
        path, key = house.example.installation["callback_path"], house.example.app["encrypt_key"]
        body = signing.encrypted_body(event(house), key)
        # First what the commit needs, then what even the look for the installation needs (no reader waits on SQLite).
        for tables in ("receipts", "receipts, installations"):
            with locked(house, tables):
                answer = await anyone.post(path, content=body, headers=signed(body, key))
                assert (answer.status_code, answer.json()["code"]) == (500, "callback_not_accepted")
            if tables == "receipts":
                # Its own two seconds ended the wait, not the database's longer bounds.
                assert await ended_late(house) == 1

        async def accepted() -> bool:
            return (await anyone.post(path, content=body, headers=signed(body, key))).status_code == 200

        await until("the next push to be accepted", accepted)
        house.release()
        for chat, message in zip(chats, running, strict=True):
            await until("the answer", lambda message=message: house.delivery_is(message, "sent"))
            assert len(await chat.answers_to(message)) == 1
        (receipt,) = house.rows("receipts", reply_grant=house.example.grant_id)
        # The simulator never sent it, so that there is nothing to reply to.
        await until("its end", lambda: house.delivery_is(receipt["provider_message_id"], "failed"))
        assert server.running
