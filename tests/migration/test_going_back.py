"""Going back: what a downgrade refuses, what it needs to be told, and what it leaves exactly as it was."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from cryptography.fernet import Fernet, MultiFernet

from frontdesk.app import migrating
from frontdesk.app.commands.migrate import migrate
from frontdesk.app.schema import CIPHERTEXTS, DESK_TABLES, METADATA
from frontdesk.desk import connections, grants
from frontdesk.kernel.clock import SECOND, ManualClock
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.storage.opening import open_database
from frontdesk.storage.tx import Tx
from tests.contract.conftest import TimedDatabase
from tests.contract.desk_world import DeskWorld, Seat, open_desk
from tests.contract.whole.house import beat, patient
from tests.migration.catalogue import catalogue
from tests.migration.rows import contents, row
from tests.migration.test_migrations import open_engine
from tests.support.engines import Engine

HEAD = migrating.head_revision()
LATER = f'''"""A later release: one more table, one more column."""
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{HEAD}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("installations", sa.Column("later_note", sa.String(20), nullable=True))
    op.create_table("later_things", sa.Column("id", sa.String(36), primary_key=True))


def downgrade() -> None:
    op.drop_table("later_things")
    op.drop_column("installations", "later_note")
'''


@pytest.fixture
def made(engine: Engine) -> Iterator[sa.Engine]:
    """A migrated database of each engine."""
    opened = patient(open_engine(engine))
    migrating.upgrade(opened)
    yield opened
    opened.dispose()


@pytest.fixture
async def desk(engine: Engine, made: sa.Engine) -> AsyncIterator[DeskWorld]:
    """A desk in it, at a clock of its own."""
    clock = ManualClock()
    database = TimedDatabase(open_database(engine.url, clock, SystemEntropy()), clock)
    yield await open_desk(database, clock)
    await database.close()


def everything(engine: sa.Engine) -> tuple[Any, ...]:
    with engine.connect() as connection:
        return catalogue(engine), contents(connection), migrating.current_revision(engine)


def refusal(engine: sa.Engine, clock: ManualClock, *, drop_desk: bool) -> str:
    """Why going back to the base is refused; nothing may have changed."""
    before = everything(engine)
    with pytest.raises(migrating.DowngradeRefused) as refused:
        migrating.downgrade(engine, "base", drop_desk=drop_desk, clock=clock)
    assert everything(engine) == before
    return str(refused.value)


async def offer(desk: DeskWorld, seat: Seat, expires_at: int) -> None:
    """An active artifact grant, which no verb makes yet."""
    (conversation,) = await desk.rows("conversations", id=seat.conversation_id)
    workflow = await desk.workflow()
    run = await desk.run(workflow)

    def write(tx: Tx) -> None:
        parents: dict[str, Any] = {"workspaces": {"id": desk.home}, "users": {"id": seat.actor.user_id}}
        parents |= {"projects": {"id": desk.project}, "workflows": {"id": workflow}, "runs": {"id": run}}
        parents |= {"conversations": conversation, "reply_grants": {"id": seat.grant_id}}
        for name in ("artifacts", "artifact_grants"):
            table = METADATA.tables[name]
            values = {"status": "active", "expires_at": expires_at} if name == "artifact_grants" else {}
            parents[name] = row(table, parents, **values)
            tx.execute(sa.insert(table).values(parents[name]))

    await desk.database.write(write)


@pytest.mark.spec("DESK-382")
async def test_the_desks_tables_go_only_when_nobody_uses_them_and_somebody_says_so(
    desk: DeskWorld, made: sa.Engine, engine: Engine
) -> None:
    """A worker seen within 30 s, an active reply or artifact grant: refused whatever is said. Else only with the flag.

    Each refusal changes nothing, on both engines; a grant or worker that has had its time no longer counts.
    """
    clock = desk.clock
    assert {"receipts", "deliveries", "installations", "reply_grants"} <= DESK_TABLES
    assert not DESK_TABLES & {"users", "workspaces", "events", "projects"}
    seat = await desk.seat(expires_in_seconds=300)
    await beat(desk)
    for said in (False, True):
        assert "worker" in refusal(made, clock, drop_desk=said)
    clock.advance(30 * SECOND - 1)
    assert "worker" in refusal(made, clock, drop_desk=True)
    clock.advance(1)
    for said in (False, True):
        assert "1 reply grant(s) are active" in refusal(made, clock, drop_desk=said)
    await desk.revoke(seat.grant_id)
    second = await desk.seat(binding_id=seat.binding_id, conversation_id=seat.conversation_id, expires_in_seconds=300)
    clock.advance(300 * SECOND - 1)
    assert "reply grant" in refusal(made, clock, drop_desk=True)
    clock.advance(1)  # expired by the clock; no sweep has said so yet
    assert (await desk.row("reply_grants", second.grant_id))["status"] == "active"
    await offer(desk, second, clock.now_us() + 1)
    for said in (False, True):
        assert "1 artifact grant(s) are active" in refusal(made, clock, drop_desk=said)
    clock.advance(1)
    told = refusal(made, clock, drop_desk=False)
    assert "--drop-desk-tables" in told
    assert all(name in told for name in DESK_TABLES)

    migrating.downgrade(made, "base", drop_desk=True, clock=clock)
    assert (migrating.current_revision(made), catalogue(made)) == (None, {})


@pytest.mark.engine("postgresql")
@pytest.mark.parametrize("what", ["a grant", "a worker"])
async def test_who_is_about_to_use_the_desk_is_waited_for(desk: DeskWorld, made: sa.Engine, what: str) -> None:
    """A grant or heartbeat that is written but not yet committed holds the downgrade up, and is then seen by it."""
    binding, conversation = await desk.bind(), await desk.converse()
    order = desk.order(binding, conversation)
    inside, go = threading.Event(), threading.Event()

    def write(tx: Tx) -> None:
        if what == "a grant":
            grants.create(tx, desk.owner, order, reply_ready=True, **desk.keys)
        else:
            beat_of = {"accepting": True, "outbound_started": True, "artifact_configured": False, "version": "0"}
            connections.beat(tx, "worker", started_at=1, **beat_of)  # type: ignore[arg-type]
        inside.set()
        assert go.wait(60)

    writing = asyncio.ensure_future(desk.database.write(write))
    assert await asyncio.to_thread(inside.wait, 60)
    going = asyncio.ensure_future(
        asyncio.to_thread(migrating.downgrade, made, "base", drop_desk=True, clock=desk.clock)
    )
    waiting = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    async with asyncio.timeout(60):
        while not await desk.read(lambda tx: tx.count(waiting)):
            assert not going.done(), await going
    go.set()
    await writing
    with pytest.raises(migrating.DowngradeRefused, match="worker" if what == "a worker" else "reply grant"):
        await going
    assert migrating.current_revision(made) == HEAD


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A later release of the program, until its patches are undone."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrating.HERE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "v9999_later.py").write_text(LATER)
    monkeypatch.setattr(migrating, "HERE", folder)
    return monkeypatch


def ciphertexts(engine: sa.Engine) -> list[Any]:
    with engine.connect() as connection:
        return [
            connection.execute(sa.text(f"SELECT id, {name} FROM {table.name} ORDER BY id")).all()
            for table, names in CIPHERTEXTS
            for name in names
        ]


@pytest.mark.spec("DESK-383")
async def test_going_back_keeps_every_row_and_ciphertext_and_opens_none(
    desk: DeskWorld, made: sa.Engine, engine: Engine, later: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Back by a migration, with work under way: all that stays is byte for byte what it was, and nothing is decrypted.

    No statement copies a row, no socket is opened. The earlier release, met with the later database, touches nothing;
    met with what was taken back, it finds its own head and reads the secrets as before.
    """
    seat = await desk.seat()
    await offer(desk, seat, desk.clock.now_us() + SECOND)
    await desk.ask("waiting", seat)
    await beat(desk)
    before, secrets, columns = everything(made), ciphertexts(made), catalogue(made)
    assert sum(value is not None for rows in secrets for _, value in rows) == 4

    migrating.upgrade(made)
    assert migrating.current_revision(made) == "9999"
    ahead = everything(made)
    for command in (["status"], ["up"], ["down", "base", "--drop-desk-tables"], ["down", HEAD]):
        with later.context() as release:
            release.setattr(migrating, "HERE", Path(migrating.__file__).parent / "migrations")
            ended = said(command, engine, tmp_path)
            assert (command, ended.exit_code) == (command, 0 if command == ["status"] else 1)
            assert "newer release" in ended.output or command == ["status"]
        assert everything(made) == ahead

    statements: list[str] = []
    sa.event.listen(made, "before_cursor_execute", lambda *given: statements.append(given[2]))
    with later.context() as patch:
        for ring in (Fernet, MultiFernet):
            for name in ("encrypt", "decrypt", "rotate"):
                patch.setattr(ring, name, forbidden, raising=False)
        patch.setattr(socket.socket, "connect", forbidden)
        patch.setattr(socket.socket, "sendto", forbidden)
        migrating.downgrade(made, HEAD, clock=desk.clock)
    writes = [each.split()[0].upper() for each in statements if "alembic_version" not in each]
    assert "DROP" in writes
    assert not {"INSERT", "UPDATE", "DELETE", "COPY", "CREATE"} & set(writes)
    assert everything(made) == before
    assert ciphertexts(made) == secrets
    assert catalogue(made) == columns

    later.undo()
    assert migrating.current_revision(made) == migrating.head_revision()
    installation = await desk.read(connections.find_installation, desk.installation_id)
    assert installation is not None
    assert connections.usable(installation, desk.channel, desk.keyring, callback=True)
    await desk.work()
    assert desk.runner.requests[0].text == "waiting"


def forbidden(*_: Any, **__: Any) -> None:
    raise AssertionError("a downgrade opened a secret or a connection")


def said(arguments: list[str], engine: Engine, folder: Path) -> Result:
    """`frontdesk migrate …` on this database."""
    environment = {"FRONTDESK_DATABASE_URL": engine.url}
    return CliRunner().invoke(migrate, [*arguments, "--data", str(folder)], env=environment)


async def test_the_command_says_what_it_did_or_why_not(
    desk: DeskWorld, made: sa.Engine, engine: Engine, tmp_path: Path
) -> None:
    """`migrate down` ends with 1 and a sentence where it may not, and names the revision it led to where it may."""
    seat = await desk.seat()
    # The command asks the real clock, which is far past this desk's; so the grant is given time.
    await desk.force("reply_grants", seat.grant_id, expires_at=2**61)

    def down(*arguments: str) -> tuple[int, str]:
        ended = said(["down", *arguments], engine, tmp_path)
        return ended.exit_code, ended.output.strip()

    status, output = down("base", "--drop-desk-tables")
    assert (status, output) == (
        1,
        "frontdesk: 1 reply grant(s) are active: revoke them or wait until they expire; nothing was changed",
    )
    await desk.force("reply_grants", seat.grant_id, expires_at=1)
    status, output = down("base")
    assert status == 1
    assert output.startswith("frontdesk: it would drop artifact_grants, artifact_producers, artifacts, ")
    assert down(HEAD) == (1, f"frontdesk: the database is at {HEAD}, which is not after {HEAD}")
    assert down("9999")[0] == 1
    assert "no such revision" in down("9999")[1]
    assert down("base", "--drop-desk-tables") == (0, "database is at base")
    assert down("base", "--drop-desk-tables") == (
        1,
        "frontdesk: the database is at no revision, which is not after base",
    )
    assert said(["up"], engine, tmp_path).output.strip() == f"database is at {HEAD}"
