"""Dead letters: what they list, what acknowledging does, and that neither shows content."""

from __future__ import annotations

from typing import Any

import pytest

from frontdesk.desk import operations, outbox
from frontdesk.desk.connections.channel import ConnectFailed, NotSent, RefusedFinal, Unknown
from frontdesk.desk.operations import DeadLetter, Filter
from frontdesk.kernel import limits
from frontdesk.kernel.clock import HOUR, MINUTE
from frontdesk.kernel.errors import Problem
from tests.contract.desk_world import DeskWorld, Seat

MARK = "planted-4711-text"


async def letters(desk: DeskWorld, limit: int = 100, **wanted: Any) -> list[DeadLetter]:
    found, _ = await desk.read(
        operations.list_dead_letters, desk.owner, desk.home, Filter(**wanted), limit=limit, after=None
    )
    return found


async def acknowledge(desk: DeskWorld, *ids: str, reason: str = "seen", actor: Any = None) -> tuple[int, int]:
    return await desk.write(operations.acknowledge, actor or desk.owner, desk.home, ids, reason)


async def dead_desk(desk: DeskWorld, seat: Seat) -> dict[str, str]:
    """One of each kind of dead letter and some that live, with their codes."""
    desk.channel.outcomes.extend([Unknown(), RefusedFinal("target_revoked", 230011)])
    await desk.ask(f"unknown {MARK}", seat)
    await desk.work()
    await desk.send()
    await desk.ask(f"refused {MARK}", seat)
    await desk.work()
    await desk.send()
    await desk.push(desk.message(MARK, sender="ou_8", chat="oc_8"))  # rejected: not bound
    await desk.ask(f"late {MARK}", seat)
    await desk.work()
    desk.clock.advance(5 * HOUR)
    await desk.write(outbox.expire_aged, 4 * HOUR, 100)
    await desk.ask(f"waits {MARK}", seat)
    return {"send_result_unknown": "indeterminate", "target_revoked": "failed", "principal_not_bound": "rejected",
            "delivery_expired": "failed"}  # fmt: skip


@pytest.mark.spec("DESK-366")
async def test_dead_letters_are_listed_by_code_and_age_and_acknowledging_only_hides(
    desk: DeskWorld, seat: Seat
) -> None:
    """Rejected and permanently failed receipts and failed, expired, exhausted and indeterminate deliveries are listed
    with code and age and without content; acknowledging keeps who, when and why, takes them off the list, and changes
    nothing else of any row.
    """
    expected = await dead_desk(desk, seat)
    exhausted = await exhausted_delivery(desk, seat)
    closed = await failed_receipt(desk, seat)
    found = await letters(desk)
    by_code = {letter.code: letter for letter in found}
    assert {code: by_code[code].status for code in expected} == expected
    assert (by_code["attempts_exhausted"].id, by_code["attempts_exhausted"].status) == (exhausted, "failed")
    assert (by_code["conversation_revision_changed"].id, closed) == (
        closed,
        by_code["conversation_revision_changed"].id,
    )
    dead = {row["id"] for row in await desk.rows("receipts") if row["status"] in ("rejected", "permanent_failed")}
    dead |= {row["id"] for row in await desk.rows("deliveries") if row["status"] in ("failed", "indeterminate")}
    assert {letter.id for letter in found} == dead
    assert all(letter.age_seconds == (desk.clock.now_us() - letter.created_at) // 1_000_000 for letter in found)
    places = [(letter.created_at, letter.id) for letter in found]
    assert places == sorted(places, reverse=True)
    for secret in (MARK, "ou_", "oc_", "om_"):
        assert secret not in repr(found)

    assert [letter.code for letter in await letters(desk, code="target_revoked")] == ["target_revoked"]
    assert {letter.kind for letter in await letters(desk, kind="receipt")} == {"receipt"}
    assert await letters(desk, installation_id="ins_" + "0" * 32) == []
    old = {letter.id for letter in await letters(desk, older_than_us=4 * HOUR)}
    assert old == {letter.id for letter in found if letter.age_seconds >= 4 * 3600}
    assert 0 < len(old) < len(found)

    before = await everything(desk)
    chosen = [by_code["send_result_unknown"].id, by_code["principal_not_bound"].id]
    assert await acknowledge(desk, *chosen, reason="the person was told") == (2, 0)
    assert await acknowledge(desk, *chosen, reason="another reason") == (0, 2), "the first reason stays"
    left = await letters(desk)
    assert {letter.id for letter in left} == dead - set(chosen)
    seen = await letters(desk, acknowledged=True)
    assert {letter.id for letter in seen} == set(chosen)
    assert {(letter.acknowledged_by, letter.acknowledged_reason) for letter in seen} == {
        (desk.owner.user_id, "the person was told")
    }
    assert all(letter.acknowledged_at == desk.clock.now_us() for letter in seen)
    after = await everything(desk)
    marks = {"acknowledged_at", "acknowledged_by", "acknowledged_reason"}
    for row_id, row in before.items():
        changed = {name for name in row if after[row_id][name] != row[name]}
        assert changed - {"updated_at"} == (marks if row_id in chosen else set()), row_id
    assert len(desk.channel.sent) == 2, "nothing was sent again"
    assert (await desk.read(operations.overview, desk.owner, desk.home)).unsettled_indeterminate == 1


async def everything(desk: DeskWorld) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for table in ("receipts", "deliveries") for row in await desk.rows(table)}


async def exhausted_delivery(desk: DeskWorld, seat: Seat) -> str:
    """A delivery that could never connect; its id."""
    await desk.work()
    (row,) = await desk.rows("deliveries", status="pending")
    for _ in range(limits.DELIVERY_ATTEMPTS_MAX):
        desk.channel.connects.append(ConnectFailed("connect_failed"))
        desk.clock.advance(11 * MINUTE)
        await desk.send()
    return str(row["id"])


async def failed_receipt(desk: DeskWorld, seat: Seat) -> str:
    """A receipt whose conversation was closed before its turn; its id."""
    receipt = await desk.ask(f"too late {MARK}", seat)
    await desk.close(seat.conversation_id)
    await desk.work()
    return str(receipt["id"])


@pytest.mark.spec("DESK-313")
@pytest.mark.parametrize("step", ["connect", "send"])
async def test_a_delivery_is_tried_so_often_and_then_is_a_dead_letter(desk: DeskWorld, seat: Seat, step: str) -> None:
    """After `delivery_attempts_max` claims a delivery whose attempts provably sent nothing is failed
    `attempts_exhausted`, is claimed no more, and stands among the dead letters.
    """
    await desk.ask("hello", seat)
    await desk.work()
    (row,) = await desk.rows("deliveries", status="pending")
    for attempt in range(1, limits.DELIVERY_ATTEMPTS_MAX + 1):
        assert await letters(desk) == []
        if step == "connect":
            desk.channel.connects.append(ConnectFailed("connect_failed"))
        else:
            desk.channel.outcomes.append(NotSent("not_sent_connection"))
        desk.clock.advance(11 * MINUTE)
        assert await desk.send() == 1
        assert (await desk.row("deliveries", row["id"]))["attempt_count"] == attempt
    (letter,) = await letters(desk)
    assert (letter.id, letter.status, letter.code) == (row["id"], "failed", "attempts_exhausted")
    assert letter.attempts == limits.DELIVERY_ATTEMPTS_MAX
    desk.clock.advance(11 * MINUTE)
    assert await desk.send() == 0


async def test_what_is_no_dead_letter_of_this_workspace_cannot_be_acknowledged(desk: DeskWorld, seat: Seat) -> None:
    """Living, foreign, absent and malformed ids answer alike, and with one of them nothing of the request is done."""
    await dead_desk(desk, seat)
    (good, *_) = await letters(desk)
    (living,) = await desk.rows("receipts", status="received")
    (sent, *_) = await desk.rows("deliveries", status="sent")
    for bad in (living["id"], sent["id"], "rcp_" + "0" * 32, "dlv_" + "0" * 32, "turn", seat.grant_id):
        with pytest.raises(Problem) as refused:
            await acknowledge(desk, good.id, bad)
        assert refused.value.code == "dead_letter_not_found"
    assert good.id in {letter.id for letter in await letters(desk)}
    viewer = await desk.people.person("vera", "viewer")
    with pytest.raises(Problem) as refused:
        await acknowledge(desk, good.id, actor=viewer)
    assert refused.value.code == "permission_required"


async def test_pages_of_dead_letters_hold_each_once(desk: DeskWorld, seat: Seat) -> None:
    """Receipts and deliveries of one instant and of several come page by page, each once, newest first."""
    await dead_desk(desk, seat)
    for number in range(5):
        await desk.push(desk.message("x", sender=f"ou_{number + 20}", chat=f"oc_{number + 20}"))
    whole = [letter.id for letter in await letters(desk)]
    for size in (1, 2, 3, len(whole)):
        seen: list[str] = []
        after: tuple[int, str] | None = None
        while True:
            page, after = await desk.read(
                operations.list_dead_letters, desk.owner, desk.home, Filter(), limit=size, after=after
            )
            seen += [letter.id for letter in page]
            if after is None:
                break
        assert seen == whole
