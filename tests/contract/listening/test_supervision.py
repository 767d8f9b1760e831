"""What ends a listener, what does not, and what everybody else can see of it meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from frontdesk.app.listener import Ending
from frontdesk.app.listener.endings import CAUSES, SENTENCES, sentence
from frontdesk.desk import connections
from frontdesk.desk.connections import ListeningRefused
from frontdesk.kernel import limits
from frontdesk.kernel.clock import MINUTE, SECOND
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.listening.world import QUICK, ListeningWorld, until

# Where one of the two bounds is looked at, the other is out of the way.
LONG_LEASE = dataclasses.replace(QUICK, lease_us=60 * MINUTE)
LONG_SILENCE = dataclasses.replace(QUICK, silence_us=60 * MINUTE)
WITHHELD = {"match": {"route": "pong"}, "drop_before_accept": True}


def refused(code: int) -> dict[str, Any]:
    """The endpoint answers with this code from now on."""
    return {"match": {"route": "endpoint"}, "status": 200, "code": code}


async def pinged(world: ListeningWorld) -> None:
    """Wait until the newest connection's first ping has come (and was answered, where pongs are given)."""

    async def has_come() -> bool:
        lines = await world.lines()
        return bool(lines) and lines[-1]["pings"] >= 1

    await until("a ping", has_come)


# ---------------------------------------------------------------------------------------------- ends


@pytest.mark.engine("sqlite")
async def test_a_provider_that_answers_no_ping_ends_it(world: ListeningWorld) -> None:
    """The socket stays open and events keep coming; only the pongs are missing."""
    await world.call(world.sim.faults, WITHHELD)
    async with world.listening(patience=LONG_LEASE) as running:
        await pinged(world)
        world.pulse.advance(limits.LISTENER_SILENCE_US)
        said = await world.say("still delivered", wait=True)
        assert await world.statuses(said) == [200]
        assert not running.task.done()
        assert await world.state() == "connected"
        world.pulse.advance(1)
        assert await running.ended() is Ending.SILENT
    assert await world.state() == "stopped"
    found = await world.installation()
    assert found.last_error_code == "connect_failed"
    assert (await world.events())[-1] == ("stopped", "connect_failed")


@pytest.mark.engine("sqlite")
async def test_a_pong_starts_the_time_anew(world: ListeningWorld) -> None:
    async with world.listening(patience=LONG_LEASE) as running:
        await pinged(world)
        world.pulse.advance(limits.LISTENER_SILENCE_US - SECOND)
        assert await world.call(world.sim.post, "connections/close", app_id=world.app_id) == {"closed": 1}

        async def pinged_anew() -> bool:  # a ping follows each reconnect at once
            lines = await world.lines()
            return len(lines) == 2 and lines[1]["pings"] >= 1

        await until("a ping on the new connection", pinged_anew)
        said = await world.say("hello", wait=True)  # behind the pong on the same socket
        assert await world.statuses(said) == [200]
        world.pulse.advance(limits.LISTENER_SILENCE_US - SECOND)
        assert await world.statuses(await world.say("hello", wait=True)) == [200]
        assert not running.task.done()
        world.pulse.advance(SECOND + 1)
        assert await running.ended() is Ending.SILENT


@pytest.mark.engine("sqlite")
@pytest.mark.parametrize(
    ("code", "ending"), [(10014, Ending.REJECTED), (1000040350, Ending.REFUSED), (99, Ending.REFUSED)]
)
async def test_an_endpoint_that_refuses_ends_it_at_once(world: ListeningWorld, code: int, ending: Ending) -> None:
    await world.call(world.sim.faults, refused(code))
    async with world.listening(connected=False) as running:
        assert await running.ended() is ending
        assert running.listener.provider_code == code
        assert not running.ready.is_set()
    found = await world.installation()
    assert found.last_error_code == CAUSES[ending]
    assert found.last_error_at == world.desk.clock.now_us()
    assert (await world.state(), found.lease_owner) == ("stopped", None)
    assert await world.lines() == []


@pytest.mark.engine("sqlite")
async def test_a_wrong_app_secret_is_named(world: ListeningWorld) -> None:
    wrong = world.desk.keyring.encrypt("wrong")
    await world.desk.force("installations", world.installation_id, app_secret_ct=wrong)
    async with world.listening(connected=False) as running:
        assert await running.ended() is Ending.REJECTED
    assert (await world.installation()).last_error_code == "provider_credentials_rejected"


@pytest.mark.engine("sqlite")
@pytest.mark.parametrize("fault", [{"status": 503}, {"redirect": "/elsewhere"}])
async def test_an_endpoint_that_is_down_is_asked_again_and_ends_it_in_time(
    world: ListeningWorld, fault: dict[str, Any]
) -> None:
    """A redirect is no answer: it is not followed, since the app secret is in the request."""
    await world.call(world.sim.faults, {"match": {"route": "endpoint"}, **fault})
    async with world.listening(connected=False) as running:

        async def asked() -> bool:
            return bool(await world.call(world.sim.requests, "endpoint"))

        await until("the endpoint to be asked", asked)
        assert await world.state() == "connecting"
        assert not running.task.done()
        world.pulse.advance(limits.LISTENER_SILENCE_US + 1)
        assert await running.ended() is Ending.SILENT
        assert not running.ready.is_set()
    assert {row["path"] for row in await world.call(world.sim.requests, "endpoint")} == {"/callback/ws/endpoint"}
    assert await world.call(world.sim.requests, "unknown") == []


@pytest.mark.engine("sqlite")
async def test_a_dead_receiver_ends_it_although_the_client_calls_itself_ready(world: ListeningWorld) -> None:
    """After a refused reconnect the SDK's receive task is gone, and its `start` goes on blocking."""
    async with world.listening() as running:
        await world.call(world.sim.faults, refused(1000040350))
        await world.call(world.sim.post, "connections/close", app_id=world.app_id)
        assert await running.ended() is Ending.REFUSED
        assert running.listener.provider_code == 1000040350
    assert (await world.state(), (await world.installation()).last_error_code) == ("stopped", "connect_failed")


@pytest.mark.engine("sqlite")
async def test_a_receive_task_that_dies_with_its_socket_open_ends_it(
    world: ListeningWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lark_channel.ws.client import Client

    async def dies(*_: Any) -> None:
        raise asyncio.CancelledError

    async with world.listening() as running:
        monkeypatch.setattr(Client, "_schedule_handle_message", dies)
        await world.say("the last straw")
        assert await running.ended() is Ending.DEAF
    assert await world.state() == "stopped"


@pytest.mark.engine("sqlite")
async def test_a_cut_connection_is_opened_again(world: ListeningWorld) -> None:
    async with world.listening() as running:
        await world.call(world.sim.post, "connections/close", app_id=world.app_id)

        async def reopened() -> bool:
            lines = await world.lines()
            return len(lines) == 2 and lines[1]["closed_ms"] is None

        await until("the second connection", reopened)
        await pinged(world)
        said = await world.say("hello again", wait=True)
        assert await world.statuses(said) == [200]
        assert not running.task.done()


async def test_every_ending_but_the_asked_one_is_explained() -> None:
    assert set(SENTENCES) == set(Ending)
    assert sentence(Ending.REFUSED, 7).endswith("(the provider's number 7)")
    # From the last sign of life to the end: silence, the look that sees it, the line's close, the last write.
    assert limits.LISTENER_SILENCE_US + limits.LISTENER_LOOK_US + limits.LISTENER_CLOSE_US < MINUTE
    assert limits.LISTENER_SILENCE_US > 3 * limits.LISTENER_PING_US
    assert 2 * limits.LISTENER_RENEW_US < limits.LISTENER_LEASE_US


# ---------------------------------------------------------------------------------------------- the lease


async def test_a_second_listener_is_refused_while_the_first_ones_lease_is_live(world: ListeningWorld) -> None:
    async with world.listening() as first:
        with pytest.raises(ListeningRefused) as refusal:
            async with world.listening(connected=False) as second:
                await second.ended()
        assert (refusal.value.reason, refusal.value.until) == (
            "busy",
            world.desk.clock.now_us() + limits.LISTENER_LEASE_US,
        )
        assert not first.task.done()
    async with world.listening():  # freed by the first one's orderly end
        assert await world.state() == "connected"


async def test_the_lease_is_renewed_and_a_lost_one_ends_it(world: ListeningWorld) -> None:
    async with world.listening() as running:
        before = await world.installation()
        world.desk.clock.advance(limits.LISTENER_RENEW_US)
        world.pulse.advance(limits.LISTENER_RENEW_US)

        async def renewed() -> bool:
            found = await world.installation()
            return found.lease_expires_at == world.desk.clock.now_us() + limits.LISTENER_LEASE_US

        await until("the renewal", renewed)
        found = await world.installation()
        assert (found.lease_owner, found.lease_generation) == (before.lease_owner, before.lease_generation)
        assert found.updated_at == before.updated_at  # of the configuration, not of who listens

        # Somebody else's by now, as after a pause longer than the lease.
        await world.desk.force(
            "installations", world.installation_id, lease_owner="connected:other", lease_generation=9
        )
        world.pulse.advance(limits.LISTENER_RENEW_US)
        assert await running.ended() is Ending.LEASE_LOST
    found = await world.installation()
    assert (found.lease_owner, found.lease_generation) == ("connected:other", 9)
    assert (await world.state(), found.last_error_code) == ("connected", None)


class Failing:
    """A database that stops answering writes."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.down = False
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, fn: Callable[[Tx], Any], **named: Any) -> Any:
        if self.down:
            self.refused += 1
            raise DatabaseBusy
        return await self._inner.write(fn, **named)


@pytest.mark.engine("sqlite")
async def test_a_database_that_is_away_is_asked_again_until_the_lease_is_over(world: ListeningWorld) -> None:
    database = Failing(world.desk.database)
    async with world.listening(patience=LONG_SILENCE, database=database) as running:  # type: ignore[arg-type]
        database.down = True
        world.pulse.advance(limits.LISTENER_LEASE_US - 1)
        await until("a renewal that fails, and another", lambda: database.refused >= 2)
        assert not running.task.done()
        world.desk.clock.advance(SECOND)
        database.down = False

        async def renewed() -> bool:
            found = await world.installation()
            return found.lease_expires_at == world.desk.clock.now_us() + limits.LISTENER_LEASE_US

        await until("the renewal", renewed)
        database.down = True
        world.pulse.advance(limits.LISTENER_LEASE_US)
        assert await running.ended() is Ending.LEASE_LOST


async def test_revoking_the_connection_ends_it(world: ListeningWorld) -> None:
    async with world.listening() as running:
        await world.desk.revoke_installation(world.installation_id)
        world.pulse.advance(limits.LISTENER_RENEW_US)
        assert await running.ended() is Ending.REVOKED
    found = await world.installation()
    assert (found.lease_owner, found.last_error_code) == (None, None)
    with pytest.raises(ListeningRefused, match="revoked"):
        async with world.listening(connected=False) as again:
            await again.ended()


@pytest.mark.engine("sqlite")
async def test_connecting_counts_as_reaching_the_provider(world: ListeningWorld) -> None:
    await world.desk.write(connections.note_connect_result, world.installation_id, ok=False, code="connect_failed")
    async with world.listening():
        found = await world.installation()
        assert (found.last_ready_at, found.last_error_code) == (world.desk.clock.now_us(), None)
        assert await world.state() == "connected"
