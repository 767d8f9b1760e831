"""What `doctor` says where work waits and nothing was written for a while: the provider need not answer for that."""

from __future__ import annotations

from frontdesk.app.doctor_restored import STANDSTILL_US, standstill
from frontdesk.app.finding import NOTE
from frontdesk.kernel.clock import HOUR, SECOND, to_rfc3339
from tests.contract.desk_world import DeskWorld, Seat


async def test_work_that_waits_in_a_silent_database_is_told_with_its_time(desk: DeskWorld, seat: Seat) -> None:
    """Waiting work and a newest entry that is old give one note with that time and the stale-send limit; a fresh entry,
    or nothing that waits, gives none.
    """
    desk.clock.advance(HOUR)
    assert await standstill(desk.database, 4 * HOUR) == [], "silent, and nothing waits"
    await desk.ask("hello", seat)
    newest = desk.clock.now_us()
    desk.clock.advance(STANDSTILL_US)
    assert await standstill(desk.database, 4 * HOUR) == [], "not for long enough"
    desk.clock.advance(SECOND)
    (finding,) = await standstill(desk.database, 4 * HOUR)
    assert finding.status == NOTE
    for words in ("1 messages and 0 deliveries wait", to_rfc3339(newest), "14400 s"):
        assert words in finding.says
    assert f"check the deliveries made since {to_rfc3339(newest)}" in str(finding.advice)
