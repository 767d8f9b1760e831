"""How long a request may still be begun on the lease of its `sending` commit."""

from __future__ import annotations

from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND
from tests.contract.desk_world import LEASE_US, DeskWorld, Seat


async def test_a_request_is_told_until_when_its_lease_covers_it(desk: DeskWorld, seat: Seat) -> None:
    """The channel is handed the last moment, on the clock that never steps, from which request and close still fit."""
    await desk.ask("hello", seat)
    await desk.work()
    begun_us = desk.clock.monotonic_us() + SECOND  # `send` moves the clock on before it claims
    await desk.send()
    (message,) = desk.channel.sent
    assert message.start_before_us == begun_us + LEASE_US - limits.SEND_TIMEOUT_US - limits.CLOSE_TIMEOUT_US
