"""Pushes received together become what each would have become alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from frontdesk.app.schema import METADATA
from frontdesk.desk import inbox
from frontdesk.desk.connections import find_installation
from frontdesk.desk.connections.channel import Ignored
from frontdesk.desk.inbox import Push, Received
from frontdesk.kernel import limits
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import DeskWorld, Seat
from tests.contract.world import race

RECEIPTS = METADATA.tables["receipts"]
SECRET = "AKIA" + "ABCDEFGHIJKLMNOP"


def alone(tx: Tx, push: Push) -> Received:
    """One push on its own."""
    return inbox.receive(
        tx,
        push.installation_id,
        push.event,
        transport=push.transport,
        unaddressed_messages=push.unaddressed_messages,
        verified_with=push.verified_with,
    )


def told(outcome: Received | Exception | None) -> tuple[Any, ...]:
    """What a caller learns, without the id of a new row."""
    if isinstance(outcome, Received):
        return (outcome.outcome, outcome.code, outcome.fresh)
    return (type(outcome).__name__,)


class Undone(Exception):
    """Carries what a transaction saw out of it and undoes it."""

    def __init__(self, seen: Any) -> None:
        super().__init__("undone")
        self.seen = seen


async def tried(desk: DeskWorld, act: Callable[[Tx], Any]) -> tuple[Any, list[dict[str, Any]]]:
    """What `act` returns and the receipts it leaves, by message; all of it rolled back."""

    def run(tx: Tx) -> None:
        outcome = act(tx)
        found = tx.rows(sa.select(RECEIPTS).order_by(RECEIPTS.c.provider_message_id, RECEIPTS.c.installation))
        rows = [{**row, "id": None} for row in found]
        for row in rows:
            if row["intent"] == "binding":  # made anew each time
                row["binding"] = row["binding"] is not None
        raise Undone((outcome, rows))

    with pytest.raises(Undone) as caught:
        await desk.database.write(run)
    seen: tuple[Any, list[dict[str, Any]]] = caught.value.seen
    return seen


def each(tx: Tx, pushes: Sequence[Push]) -> list[tuple[Any, ...]]:
    outcomes: list[tuple[Any, ...]] = []
    for push in pushes:
        try:
            outcomes.append(told(alone(tx, push)))
        except (inbox.ReceiptConflict, inbox.SecretsChanged) as error:
            outcomes.append(told(error))
    return outcomes


def together(tx: Tx, pushes: Sequence[Push]) -> list[tuple[Any, ...]]:
    """As a database does it: together first, alone for those that were left."""
    outcomes = [told(outcome) for outcome in inbox.receive_together(tx, pushes)]
    left = [place for place, outcome in enumerate(outcomes) if outcome == ("NoneType",)]
    for place, outcome in zip(left, each(tx, [pushes[place] for place in left]), strict=True):
        outcomes[place] = outcome
    return outcomes


async def crowd(desk: DeskWorld, count: int) -> list[Seat]:
    """Many people, each bound and authorised in a chat of their own."""
    return [
        await desk.seat(await desk.people.person(f"person{n}", "operator"), sender=f"ou_{n}", chat=f"oc_{n}")
        for n in range(count)
    ]


async def a_bit_of_everything(desk: DeskWorld, seats: list[Seat]) -> list[Push]:
    """Pushes of many people, one for everything that reception can make of one."""
    here = desk.installation_id
    known = desk.message("asked before", seats[1])
    await desk.push(known)
    changed = desk.message("another text", seats[2], message_id=known.message_id)
    await desk.ask("waits", seats[3])
    own = await desk.challenge()
    stored = await desk.read(find_installation, here)
    await desk.force("installations", here, bot_open_id="ou_bot", app_secret_ct="changed meanwhile")
    events = [
        desk.message("an ordinary reply", seats[0]),
        known,
        changed,
        desk.message("one too many", seats[3]),
        desk.message("另一个人的回复", seats[4]),
        desk.message("other app", seats[5], app_id="cli_other"),
        desk.message("stranger", sender="ou_stranger", chat="oc_stranger", parent=seats[0].activation),
        desk.message(f"look: {SECRET}", seats[6]),
        desk.message("/claim fdc_" + "A" * 32, seats[7]),
        desk.message(None, seats[8]),
        desk.message("nothing there", seats[9], parent="om_nobody"),
        desk.message("somebody else's", seats[10], parent=seats[0].activation),
        desk.message("late", seats[11], signed_at_ms=1),
        desk.message("talking to myself", sender="ou_bot", chat="oc_bot"),
        desk.message("unaddressed", seats[12], reply=False),
        desk.message("and once more", seats[0]),
        desk.message(f"/bind {own}", sender="ou_new", chat="oc_new"),
        desk.recall(known.message_id),
        Ignored("unsupported_event"),
    ]
    pushes = [Push(here, event, "webhook") for event in events]
    pushes.append(Push(here, desk.message("old secrets", seats[13]), "webhook", verified_with=stored))
    pushes.append(Push("ins_" + "0" * 32, desk.message("no such place", seats[14]), "webhook"))
    return pushes


async def test_pushes_received_together_become_what_they_would_become_alone(
    desk: DeskWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of push, in one call and one by one on the same rows: the same outcomes, the same receipts."""
    monkeypatch.setattr(limits, "INBOX_PENDING_MAX_PER_GRANT", 1)
    seats = await crowd(desk, 15)
    pushes = await a_bit_of_everything(desk, seats)
    one_by_one, rows_of_each = await tried(desk, lambda tx: each(tx, pushes))
    at_once, rows_of_all = await tried(desk, lambda tx: together(tx, pushes))
    assert at_once == one_by_one
    assert rows_of_all == rows_of_each
    kinds = {outcome[:2] for outcome in one_by_one}
    assert {("accepted", None), ("known", None), ("completed", None), ("recalled", "message_recalled")} <= kinds
    assert {code for outcome in one_by_one if len(outcome) > 1 for code in [outcome[1]] if code} >= {
        "installation_identity_mismatch", "principal_not_bound", "credential_text_refused", "artifact_claim_invalid",
        "unsupported_message_shape", "reply_grant_unavailable", "timestamp_outside_window", "inbox_full",
        "installation_gone", "own_message", "unsupported_event",
    }  # fmt: skip
    assert {("ReceiptConflict",), ("SecretsChanged",)} <= set(one_by_one)


async def test_more_pushes_than_one_statement_takes_are_all_received(desk: DeskWorld) -> None:
    """Eighteen people write at once: as many receipts, each of its own person's grant, with one clock reading."""
    seats = await crowd(desk, 18)
    pushes = [Push(desk.installation_id, desk.message(f"text {n}", seat), "webhook") for n, seat in enumerate(seats)]
    outcomes = await desk.write(inbox.receive_together, pushes)
    rows = await desk.rows("receipts", intent="reply")
    assert [told(outcome) for outcome in outcomes] == [("accepted", None, True)] * 18
    assert {(row["content_text"], row["reply_grant"], row["sender_id"]) for row in rows} == {
        (f"text {n}", seat.grant_id, seat.sender) for n, seat in enumerate(seats)
    }
    assert await desk.write(inbox.receive_together, []) == []


async def test_only_the_first_message_of_a_person_is_received_together(desk: DeskWorld) -> None:
    """Their second waits for the first's row, so that arrival, budgets and dedupe count it."""
    seat, other = await crowd(desk, 2)
    pushes = [Push(desk.installation_id, desk.message(text, seat), "webhook") for text in ("one", "two")]
    again = Push(desk.installation_id, desk.message("one", other, message_id=pushes[0].event.message_id), "webhook")  # type: ignore[union-attr]
    outcomes = await desk.write(inbox.receive_together, [*pushes, again])
    assert [told(outcome) for outcome in outcomes] == [("accepted", None, True), ("NoneType",), ("NoneType",)]


async def test_a_message_recorded_while_the_batch_waited_is_known(desk: DeskWorld, open_session: Any) -> None:
    """Two sessions receive the same pushes in opposite order: each is accepted once, and neither waits for ever."""
    seats = await crowd(desk, 12)
    pushes = [Push(desk.installation_id, desk.message(f"text {n}", seat), "webhook") for n, seat in enumerate(seats)]
    first, second = await race(
        [open_session(), open_session()],
        lambda tx: inbox.receive_together(tx, pushes),
        lambda tx: inbox.receive_together(tx, list(reversed(pushes))),
    )
    outcomes = [told(outcome)[0] for outcome in (*first, *second)]  # type: ignore[misc]
    assert sorted(outcomes) == ["accepted"] * 12 + ["known"] * 12
    assert await desk.count("receipts", intent="reply") == 12
