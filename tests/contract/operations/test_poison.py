"""Work that kills its process again and again ends at the cap, and holds up nobody else (DESK-305 without a claim)."""

from __future__ import annotations

from typing import Any

import pytest

from frontdesk.desk import operations, outbox
from frontdesk.desk.connections.channel import Installed
from frontdesk.desk.inbox import working
from frontdesk.desk.operations import Filter
from frontdesk.kernel import limits
from frontdesk.kernel.clock import MINUTE
from tests.contract.desk_world import DeskWorld

POISON = "this one kills"
SEATS, EACH = 4, 5


class Killed(BaseException):
    """The process died here: nothing in it runs on."""


async def test_what_kills_its_worker_every_time_is_a_dead_letter_at_the_cap(
    desk: DeskWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply whose process dies before its turn exists and a delivery whose process dies while it connects end as
    `attempts_exhausted` after their attempts, with no turn and no wire request; the others beside them all finish.
    """
    own_app = await desk.install("Poison", app_id="cli_poison")
    reply = await desk.seat(sender="ou_poison", chat="oc_poison")
    people = [await desk.people.person(f"p{number}", "operator") for number in range(SEATS + 1)]
    delivery = await desk.seat(people[-1], sender="ou_q", chat="oc_q", installation_id=own_app)
    seats = [
        await desk.seat(person, sender=f"ou_{number}0", chat=f"oc_{number}0")
        for number, person in enumerate(people[:-1])
    ]
    begin = working.begin

    def dying(tx: Any, claimed: Any, parts: Any) -> Any:
        if claimed.content_text == POISON:
            raise Killed
        return begin(tx, claimed, parts)

    async def dies(installed: Installed) -> None:
        if installed.installation_id == own_app:
            raise Killed

    monkeypatch.setattr(working, "begin", dying)
    desk.channel.on_connect = dies
    poisoned = await desk.ask(POISON, reply)
    stuck = await desk.ask("its answer kills", delivery)
    for number in range(EACH):
        for seat in seats:
            await desk.ask(f"good {number}", seat)
    for _ in range(limits.RECEIPT_ATTEMPTS_MAX + 2):
        await desk.work()
        await desk.send()
        desk.clock.advance(MINUTE)  # past the lease of the dead
        await desk.write(outbox.settle_lapsed, 100)

    receipt = await desk.row("receipts", poisoned["id"])
    assert (receipt["status"], receipt["error_code"]) == ("permanent_failed", "attempts_exhausted")
    assert (receipt["attempt_count"], receipt["turn"]) == (limits.RECEIPT_ATTEMPTS_MAX, None)
    answer = await desk.delivery_of(stuck["id"])
    assert answer is not None
    assert (answer.status, answer.error_code) == ("failed", "attempts_exhausted")
    assert (answer.attempt_count, answer.sending_at) == (limits.DELIVERY_ATTEMPTS_MAX, None)
    good = [row for seat in seats for row in await desk.rows("receipts", reply_grant=seat.grant_id)]
    assert len(good) == SEATS * EACH
    assert {row["status"] for row in good} == {"completed"}
    assert len(desk.channel.sent) == len(good)
    found, _ = await desk.read(operations.list_dead_letters, desk.owner, desk.home, Filter(), limit=10, after=None)
    assert {letter.id for letter in found} == {receipt["id"], answer.id}
