"""The listener's lease on an installation: one holder, fenced writes, and a state that everybody can read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from frontdesk.desk import connections
from frontdesk.desk.connections import ListeningRefused
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.machine import Lease
from frontdesk.kernel.secretbox import KeyRing
from tests.contract.conftest import TimedDatabase
from tests.contract.connections.world import EVENTS, INSTALLATIONS, World
from tests.contract.desk_world import together

LEASE = 30 * SECOND


async def installed(world: World, app_id: str = "cli_long") -> str:
    made = await world.install(app_id=app_id, inbound="long_connection", secrets={"app_secret": "planted"})
    return made.id


async def begin(world: World, one: str, name: str = "first") -> Lease:
    return await world.write(connections.begin_listening, one, name=name, lease_us=LEASE)


async def keep(world: World, one: str, lease: Lease, state: str = "connected", revision: int = 1) -> Lease | None:
    return await world.write(
        connections.keep_listening, one, lease, state=state, lease_us=LEASE, config_revision=revision
    )


async def state(world: World, one: str) -> tuple[str | None, int | None]:
    """What health says, and since when nobody listens."""
    found = await world.read(connections.find_installation, one)
    assert found is not None
    now = world.clock.now_us()
    flags = {"reply_enabled": False, "artifact_enabled": False}
    health = await world.read(
        connections.get_health, world.people["viewer"], installation_id=one, **world.scope, **flags
    )
    return health.long_connection, connections.stopped_since(found, now)


async def test_the_state_is_read_from_the_row_alone(world: World) -> None:
    one = await installed(world)
    assert await state(world, one) == ("stopped", None)
    lease = await begin(world, one)
    assert await state(world, one) == ("connecting", None)
    kept = await keep(world, one, lease)
    assert kept is not None
    assert await state(world, one) == ("connected", None)
    kept = await keep(world, one, kept, "connecting")
    assert kept is not None
    assert await state(world, one) == ("connecting", None)
    world.clock.advance(5 * SECOND)
    assert await world.write(connections.end_listening, one, kept)
    ended = world.clock.now_us()
    world.clock.advance(SECOND)
    assert await state(world, one) == ("stopped", ended)
    rows = await world.rows(EVENTS, EVENTS.c.kind == "installation.long_connection_changed")
    assert [row["data"]["state"] for row in rows] == ["connecting", "connected", "connecting", "stopped"]


async def test_a_killed_listener_reads_as_stopped_from_its_expiry_on(world: World) -> None:
    one = await installed(world)
    lease = await begin(world, one)
    world.clock.advance(LEASE - 1)
    assert await state(world, one) == ("connecting", None)
    world.clock.advance(1)
    assert await state(world, one) == ("stopped", lease.expires_at)


async def test_a_live_lease_is_never_taken_and_a_passed_one_raises_the_generation(world: World) -> None:
    one = await installed(world)
    first = await begin(world, one)
    world.clock.advance(LEASE - 1)
    with pytest.raises(ListeningRefused) as refused:
        await begin(world, one, "second")
    assert (refused.value.reason, refused.value.until) == ("busy", first.expires_at)
    world.clock.advance(1)
    second = await begin(world, one, "second")
    assert (first.generation, second.generation) == (1, 2)
    before = await world.row(one)
    # Whatever the first one still writes touches nothing.
    assert await keep(world, one, first) is None
    assert not await world.write(connections.end_listening, one, first, code="connect_failed")
    assert await world.row(one) == before


async def test_a_lapsed_lease_is_not_renewed_even_where_nobody_took_it(world: World) -> None:
    one = await installed(world)
    lease = await begin(world, one)
    world.clock.advance(LEASE)
    before = await world.row(one)
    assert await keep(world, one, lease) is None
    assert await world.row(one) == before


async def test_the_same_name_again_is_another_holder(world: World) -> None:
    one = await installed(world)
    first = await begin(world, one)
    assert await world.write(connections.end_listening, one, first)
    await begin(world, one)
    assert await keep(world, one, first) is None


async def test_of_many_that_begin_at_once_one_gets_the_place(
    world: World, open_session: Callable[..., TimedDatabase]
) -> None:
    one = await installed(world)
    sessions = [open_session() for _ in range(4)]
    found = await together(
        *(
            session.write(lambda tx, name=f"n{number}": connections.begin_listening(tx, one, name=name, lease_us=LEASE))
            for number, session in enumerate(sessions)
        )
    )
    assert sum(isinstance(each, Lease) for each in found) == 1
    assert all(isinstance(each, Lease | ListeningRefused) for each in found)
    assert (await world.row(one))["lease_generation"] == 1


async def test_listening_leaves_the_rows_own_times_and_revision_alone(world: World) -> None:
    one = await installed(world)
    before = await world.row(one)
    world.clock.advance(SECOND)
    lease = await begin(world, one)
    kept = await keep(world, one, lease, "connecting")
    assert kept is not None
    await world.write(connections.end_listening, one, kept)
    after = await world.row(one)
    assert (after["updated_at"], after["config_revision"]) == (before["updated_at"], before["config_revision"])


async def test_causes_are_kept_and_cleared_by_the_next_connection(world: World) -> None:
    one = await installed(world)
    lease = await begin(world, one)
    await world.write(connections.end_listening, one, lease, code="provider_credentials_rejected", config_revision=1)
    row = await world.row(one)
    assert (row["last_error_code"], row["last_error_at"]) == ("provider_credentials_rejected", world.clock.now_us())
    lease = await begin(world, one)
    await keep(world, one, lease, "connecting")
    assert (await world.row(one))["last_error_code"] == "provider_credentials_rejected"
    again = await world.read(connections.find_installation, one)
    assert again is not None
    await keep(world, one, Lease(str(again.lease_owner), lease.generation, 0))
    row = await world.row(one)
    assert (row["last_error_code"], row["last_ready_at"]) == (None, world.clock.now_us())


async def test_what_was_found_under_older_secrets_is_dropped(world: World) -> None:
    one = await installed(world)
    lease = await begin(world, one)
    await world.patch(one, app_secret="another")
    assert await keep(world, one, lease, "connecting", revision=1) is not None
    assert await world.write(
        connections.end_listening, one, lease, code="provider_credentials_rejected", config_revision=1
    )
    assert (await world.row(one))["last_error_code"] is None


async def target(world: World, one: str) -> str:
    """Why nobody may listen to it, or `ok`."""
    try:
        found = await world.read(connections.listening_target, one, channels=world.channels, keyring=world.keyring)
    except ListeningRefused as refused:
        return refused.reason
    assert found.installed.credentials.app_secret == "planted"
    return "ok"


async def test_what_may_be_listened_to(world: World) -> None:
    one = await installed(world)
    assert await target(world, one) == "ok"
    assert await target(world, "ins_" + "0" * 32) == "absent"
    assert await target(world, (await world.install(app_id="cli_hook")).id) == "webhook"
    await world.patch(one, enabled=False)
    assert await target(world, one) == "ok"  # its messages are recorded as refused, as by webhook
    world.keyring, ring = KeyRing(""), world.keyring
    assert await target(world, one) == "credential_unavailable"
    world.keyring = ring
    await world.change(INSTALLATIONS, INSTALLATIONS.c.id == one, channel="gone")
    assert await target(world, one) == "no_channel"
    await world.change(INSTALLATIONS, INSTALLATIONS.c.id == one, channel="feishu")
    lease = await begin(world, one)
    await world.revoke(one)
    assert await target(world, one) == "revoked"
    assert await keep(world, one, lease) is None
    assert await world.write(connections.end_listening, one, lease)  # the place is given up all the same
    for absent in (one, "ins_" + "0" * 32):
        with pytest.raises(ListeningRefused, match="revoked" if absent == one else "absent"):
            await begin(world, absent)
