"""A restored backup: nothing old is sent from it, and the person who restored it is told what to check."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable

import pytest
from sqlalchemy import make_url

from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.rig import House, until
from tests.support.engines import database_name
from tests.support.postgres import SharedPostgres

DAY_S = 86_400


def back_up(house: House, shared: SharedPostgres | None) -> Callable[[], None]:
    """Keep the stopped house's database as it is now; the result puts it back."""
    if shared is not None:
        name = database_name("backup")
        url = shared.create_database(name, template=str(make_url(house.database_url).database))

        def use() -> None:
            house.database_url = url

        return use
    live, kept = house.data / "frontdesk.db", house.data / "backup.db"
    with contextlib.closing(sqlite3.connect(live)) as source, contextlib.closing(sqlite3.connect(kept)) as target:
        source.backup(target)

    def put_back() -> None:
        for name in ("frontdesk.db-wal", "frontdesk.db-shm"):
            (house.data / name).unlink(missing_ok=True)
        live.write_bytes(kept.read_bytes())

    return put_back


@pytest.mark.spec("DESK-375")
async def test_a_restored_backup_sends_nothing_old_and_doctor_says_what_to_check(
    copy_house: Copy, request: pytest.FixtureRequest
) -> None:
    """After yesterday's backup was restored, a delivery that waited in it and is older than `delivery_age_max` fails
    `delivery_expired` without a wire request, although it was sent meanwhile; and `frontdesk doctor` says that the
    chats hold messages which this database does not know, since when, and to check the deliveries made since.
    """
    async with copy_house() as house:
        shared = request.getfixturevalue("postgres") if house.engine == "postgresql" else None
        example = house.example
        server = await house.serve(failpoint="t4.after")
        await house.listen()
        waiting = await rig.say(example, "What is Frontdesk?", None)
        await server.ended()
        assert house.delivery_is(waiting, "pending")
        assert "restored backup" not in await doctor(house)
        restore = back_up(house, shared)

        server = await house.serve()
        await house.answered(waiting)
        forgotten = await rig.say(example, "And who may answer?", None)
        await house.answered(forgotten)
        assert await server.terminate() == 0
        assert "restored backup" not in await doctor(house)
        wires = await house.wires()

        restore()
        assert house.delivery_is(waiting, "pending")
        assert house.rows("receipts", provider_message_id=forgotten) == []
        told = await doctor(house)
        (line,) = [each for each in told.splitlines() if "restored backup" in each]
        assert line.startswith(f"note  connection {example.installation['id']}")
        assert "2 messages of the bot since 20" in line
        assert "check the deliveries made since 20" in line

        await house.step_clock(DAY_S)
        await house.serve()
        await until("it to be too old", lambda: house.delivery_is(waiting, "failed"))
        assert house.delivery(waiting)["error_code"] == "delivery_expired"
        assert house.delivery(waiting)["attempt_count"] == 0
        assert await house.wires() == wires


async def doctor(house: House) -> str:
    """What `frontdesk doctor` prints about this house."""
    program = await rig.run("doctor", ["doctor", "--data", str(house.data)], house.logs, house.settings())
    assert "nothing is wrong" in program.text, program.text
    return program.text
