"""Why the provider is not reached: kept with the attempt that found it, cleared by the next that finds otherwise.

DESK-381 but for the console's card, which does not exist yet.
"""

from __future__ import annotations

from typing import Any

import pytest

from frontdesk.desk import connections, outbox
from frontdesk.desk.connections.channel import ConnectFailed, ProbeReport
from frontdesk.desk.sending import steps
from frontdesk.kernel.clock import MINUTE, SECOND
from frontdesk.kernel.errors import StaleFence
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import DeskWorld
from tests.contract.whole.house import House, Interrupted


async def told(house: House) -> tuple[Any, ...]:
    found = await house.get(house.installation(rest="/health"))
    listed = await house.get(house.installation())
    assert (found["last_error_code"], found["last_ready_at"]) == (listed["last_error_code"], listed["last_ready_at"])
    assert (found["status"], found["callback_ready"], listed["status"]) == ("active", True, "active")
    return found["last_error_code"], found["last_ready_at"]


async def waiting(desk: DeskWorld) -> dict[str, Any]:
    """A delivery that is due."""
    seat = await desk.seat(title=f"Talk {desk.number()}", binding_id=await binding_of(desk))
    row = await desk.ask("question", seat)
    await desk.work()
    (delivery,) = await desk.rows("deliveries", receipt=row["id"])
    return delivery


async def binding_of(desk: DeskWorld) -> str:
    rows = await desk.rows("bindings", active=True)
    return str(rows[0]["id"]) if rows else await desk.bind()


@pytest.mark.parametrize("code", ["connect_failed", "provider_credentials_rejected"])
async def test_a_cause_is_kept_with_the_attempt_and_cleared_by_the_next_success(
    house: House, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commit ends the attempt and names the cause; the next connect or probe that succeeds takes it away again."""
    desk = house.desk
    assert await told(house) == (None, None)
    delivery = await waiting(desk)
    # The attempt's end can't be committed without its cause, nor the cause without the end.
    desk.channel.connects.append(ConnectFailed(code))
    with monkeypatch.context() as patch:

        def broken(*_: Any, **__: Any) -> None:
            raise Interrupted

        patch.setattr(connections, "note_connect_result", broken)
        assert await desk.send() == 1
    assert (await desk.row("deliveries", delivery["id"]))["status"] == "connecting"
    assert await told(house) == (None, None)

    desk.clock.advance(MINUTE)
    await desk.write(connections_recovered)
    desk.channel.connects.append(ConnectFailed(code))
    worker = desk.delivery_worker()
    assert await worker.step() == 1
    await worker.stop(60)
    ended = await desk.row("deliveries", delivery["id"])
    assert (ended["status"], ended["error_code"]) == ("retryable_failed", "connect_failed")
    failed_at = desk.clock.now_us()
    assert await told(house) == (code, None)
    row = await desk.row("installations", desk.installation_id)
    assert row["last_error_at"] == failed_at

    # Failing again in the same way does not move its beginning.
    desk.clock.advance(10 * MINUTE)
    desk.channel.connects.append(ConnectFailed(code))
    assert await one_attempt(desk) == 1
    assert (await desk.row("installations", desk.installation_id))["last_error_at"] == failed_at

    desk.clock.advance(20 * MINUTE)
    assert await one_attempt(desk) == 1
    assert (await desk.row("deliveries", delivery["id"]))["status"] == "sent"
    reached = (await told(house))[1]
    assert await told(house) == (None, reached)
    assert reached is not None
    # Reached again within the minute: nothing is written. After it, the time moves on.
    for wait, moved in ((30 * SECOND, False), (31 * SECOND, True)):
        await waiting(desk)
        desk.clock.advance(wait)
        assert await one_attempt(desk) == 1
        assert ((await told(house))[1] != reached) == moved


async def one_attempt(desk: DeskWorld) -> int:
    worker = desk.delivery_worker()
    started = await worker.step()
    await worker.stop(60)
    return started


def connections_recovered(tx: Tx) -> int:
    """What recovery does with an attempt whose process went away."""
    return outbox.settle_lapsed(tx, 100)


async def test_a_probe_clears_a_cause_and_leaves_others_alone(house: House) -> None:
    """A probe that reaches the provider clears what a connect left; unreadable secrets are no business of its."""
    desk = house.desk
    await desk.write(connections.note_connect_result, desk.installation_id, ok=False, code="connect_failed")
    assert (await told(house))[0] == "connect_failed"
    assert (await house.api.post(house.installation(rest="/probe"))).status_code == 200
    code, reached = await told(house)
    assert (code, reached is not None) == (None, True)

    async def refused(_: Any) -> ProbeReport:
        return ProbeReport("provider_credentials_rejected", "provider_credentials_rejected", 10_003)

    desk.channel.probe = refused  # type: ignore[method-assign]
    assert (await house.api.post(house.installation(rest="/probe"))).status_code == 200
    assert await told(house) == ("provider_credentials_rejected", reached)


async def test_a_late_failure_of_a_lost_attempt_names_no_cause(house: House) -> None:
    """Who lost the lease meanwhile ends nothing and says nothing of the provider."""
    desk = house.desk
    await waiting(desk)
    order = steps.Order("sender", 30 * SECOND, 4 * 60 * MINUTE, 8)
    (attempt,) = await desk.write(steps.claim_due, order, desk.parts)
    desk.clock.advance(31 * SECOND)
    await desk.write(connections_recovered)
    with pytest.raises(StaleFence):
        await desk.write(steps.connect_failed, attempt, "connect_failed", wait_us=None, provider_code=None, final=False)
    assert await told(house) == (None, None)
