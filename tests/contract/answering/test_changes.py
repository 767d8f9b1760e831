"""What changes while the runner works decides what its answer is worth (desk.md 5.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from frontdesk.desk import conversations, outbox, runs
from frontdesk.desk.conversations.runner import Answer, Failed, Proposal, ProposalDraft
from frontdesk.desk.inbox import claiming, store, working
from frontdesk.desk.inbox.claiming import Claim
from frontdesk.desk.inbox.model import receipt_of
from frontdesk.identity.members import remove_member, update_member
from frontdesk.identity.model import ProjectChanges, UserChanges, WorkspaceChanges
from frontdesk.identity.projects import update_project
from frontdesk.identity.users import update_user
from frontdesk.identity.workspaces import update_workspace
from frontdesk.kernel.clock import DAY, SECOND
from frontdesk.kernel.errors import StaleFence
from frontdesk.storage.tx import Tx
from tests.contract.answering.steps import Seen, claimed, during, look
from tests.contract.desk_world import LEASE_US, DeskWorld, Gate, Seat

Change = Callable[[DeskWorld, Seat], Awaitable[Any]]
DRAFT = ProposalDraft("roster_tasks_submit", {}, "Close it", "task", "t-1", 3)


async def ann(desk: DeskWorld) -> Seat:
    """A person who may lose everything without taking the desk's owner along."""
    return await desk.seat(await desk.people.person("ann", "operator"), sender="ou_ann", chat="oc_ann")


async def member_of(desk: DeskWorld, seat: Seat) -> str:
    (member,) = await desk.rows("workspace_members", user=seat.actor.user_id)
    return str(member["id"])


async def revoke_grant(desk: DeskWorld, seat: Seat) -> None:
    await desk.revoke(seat.grant_id, seat.actor)


async def expire_grant(desk: DeskWorld, seat: Seat) -> None:
    desk.clock.advance(7 * DAY)


async def revoke_binding(desk: DeskWorld, seat: Seat) -> None:
    await desk.unbind(seat.binding_id)


async def revoke_installation(desk: DeskWorld, seat: Seat) -> None:
    await desk.revoke_installation()


async def disable_installation(desk: DeskWorld, seat: Seat) -> None:
    await desk.enable(False)


async def disable_user(desk: DeskWorld, seat: Seat) -> None:
    await desk.write(update_user, desk.owner, seat.actor.user_id, UserChanges(disabled=True))


async def remove_membership(desk: DeskWorld, seat: Seat) -> None:
    await desk.write(remove_member, desk.owner, desk.home, await member_of(desk, seat))


async def lose_export(desk: DeskWorld, seat: Seat) -> None:
    await desk.write(update_member, desk.owner, desk.home, await member_of(desk, seat), role="viewer")


async def lose_read(desk: DeskWorld, seat: Seat) -> None:
    await desk.write(update_workspace, desk.owner, desk.home, WorkspaceChanges(active=False))


LOST: dict[str, Change] = {
    each.__name__: each
    for each in (
        revoke_grant,
        expire_grant,
        revoke_binding,
        revoke_installation,
        disable_installation,
        disable_user,
        remove_membership,
        lose_export,
        lose_read,
    )
}


@pytest.mark.spec("DESK-112")
@pytest.mark.parametrize("name", LOST)
async def test_authority_lost_meanwhile_keeps_the_exchange_and_sends_nothing(desk: DeskWorld, name: str) -> None:
    """The turn stays with its answer, revision and cursor advance, the receipt fails and nothing goes out."""
    seat = await ann(desk)
    receipt_id = await during(desk, seat, lambda: LOST[name](desk, seat), lease_us=30 * DAY)
    await desk.send()
    assert await look(desk, seat, receipt_id) == Seen(
        1, 1, ("permanent_failed", "authorization_revoked_before_delivery"), ("completed", None), None
    )
    (turn,) = await desk.rows("turns")
    assert (turn["response"]["text"], turn["committed_revision"]) == ("answer to What now?", 1)
    assert desk.channel.sent == []
    grant = await desk.row("reply_grants", seat.grant_id)
    assert (grant["active_slot"] is None) == (grant["status"] != "active")
    if name != "revoke_grant":
        return
    assert grant["active_slot"] is None
    # The next grant's history is truthful.
    again = await desk.seat(
        seat.actor,
        sender=seat.sender,
        chat=seat.chat,
        binding_id=seat.binding_id,
        conversation_id=seat.conversation_id,
    )
    await desk.ask("And then?", again)
    await desk.work()
    history = [(pair.question, pair.answer) for pair in desk.runner.requests[-1].history]
    assert history == [("What now?", "answer to What now?")]


@pytest.mark.spec("DESK-112")
@pytest.mark.parametrize("name", ["revoke_grant", "revoke_binding", "lose_export"])
@pytest.mark.parametrize("kind", ["answer", "proposal"])
async def test_the_commit_that_keeps_the_exchange_is_the_one_that_ends_its_receipt(
    desk: DeskWorld, name: str, kind: str
) -> None:
    """t3 alone, before any t4: exchange, revision, cursor and the receipt's end are there; no proposal is opened."""
    seat = await ann(desk)
    row = await desk.ask("What now?", seat)
    (receipt,) = await desk.write(claiming.claim, Claim("worker", LEASE_US, 1), desk.parts)
    begun = await desk.write(working.begin, receipt, desk.parts)
    assert begun is not None
    await LOST[name](desk, seat)
    result = Answer("done") if kind == "answer" else Proposal(DRAFT)
    assert await desk.write(working.commit_answer, begun, result) is None
    assert await look(desk, seat, row["id"]) == Seen(
        1, 1, ("permanent_failed", "authorization_revoked_before_delivery"), ("completed", None), None
    )
    assert await desk.count("proposals") == 0
    await desk.work()
    await desk.send()
    assert (desk.channel.sent, await desk.count("proposals")) == ([], 0)


async def close(desk: DeskWorld, seat: Seat) -> None:
    await desk.close(seat.conversation_id, seat.actor)


async def change_context(desk: DeskWorld, seat: Seat) -> None:
    other = await desk.people.project("elsewhere")
    await desk.write(
        conversations.update_conversation,
        seat.actor,
        desk.home,
        seat.conversation_id,
        title=None,
        context={"project_id": other.id},
        find_run=runs.find_run_scope,
    )


async def advance_revision(desk: DeskWorld, seat: Seat) -> None:
    await desk.force("conversations", seat.conversation_id, revision=1)


async def take_over(desk: DeskWorld, seat: Seat) -> None:
    desk.clock.advance(LEASE_US)
    assert await claimed(desk, owner="the next") == []  # settled at once: the turn may have acted


async def archive(desk: DeskWorld, seat: Seat) -> None:
    await desk.write(update_project, desk.owner, desk.home, desk.project, ProjectChanges(archived=True))


async def close_and_revoke(desk: DeskWorld, seat: Seat) -> None:
    await close(desk, seat)
    await desk.revoke(seat.grant_id, seat.actor)


CHANGED: dict[str, tuple[Change, str, int]] = {
    "close": (close, "conversation_revision_changed", 1),
    "change_context": (change_context, "conversation_revision_changed", 1),
    "advance_revision": (advance_revision, "conversation_revision_changed", 1),
    "archive": (archive, "conversation_revision_changed", 0),
    "close_and_revoke": (close_and_revoke, "conversation_revision_changed", 1),
    "take_over": (take_over, "agent_execution_indeterminate", 0),
}


@pytest.mark.spec("DESK-113")
@pytest.mark.parametrize("name", CHANGED)
async def test_a_conversation_that_moved_or_a_lease_that_went_takes_no_answer(
    desk: DeskWorld, seat: Seat, name: str
) -> None:
    """No response, no cursor step and nothing outbound; what the late worker still has is dropped."""
    change, code, revision = CHANGED[name]
    before = ""

    async def changing() -> None:
        nonlocal before
        await change(desk, seat)
        before = await desk.everything()

    receipt_id = await during(desk, seat, changing)
    await desk.send()
    assert await look(desk, seat, receipt_id) == Seen(revision, 0, ("permanent_failed", code), ("failed", code), None)
    (turn,) = await desk.rows("turns")
    assert (turn["response"], turn["committed_revision"]) == (None, None)
    assert desk.channel.sent == []
    if name == "take_over":
        assert await desk.everything() == before


# ---------------------------------------------------------------------------------------------- late writes


@pytest.mark.spec("DESK-117")
@pytest.mark.parametrize("had_begun", [True, False])
async def test_a_late_worker_writes_nothing(desk: DeskWorld, seat: Seat, had_begun: bool) -> None:
    """Each write of a worker carries owner and generation: after a takeover none of them touches anything."""
    await desk.ask("hello", seat)
    await desk.ask("the next", seat)
    (late,) = await claimed(desk)
    begun = None
    if had_begun:
        begun = await desk.write(working.begin, late, desk.parts)
        assert begun is not None
    desk.clock.advance(LEASE_US)
    order = Claim("the new one", 10 * LEASE_US, 1)
    taken = await desk.database.write(lambda tx: claiming.claim(tx, order, desk.parts))
    if had_begun:  # the old turn was settled; make the new one hold a receipt with a running turn of its own
        assert [receipt.id for receipt in taken] != [late.id]
        late = receipt_of({**await desk.row("receipts", taken[0].id), "lease_owner": "dead", "lease_generation": 1})
    else:
        assert [receipt.id for receipt in taken] == [late.id]
    new = await desk.write(working.begin, taken[0], desk.parts)
    assert new is not None
    stale = working.Begun(late, new.access, new.turn, new.runner_name, new.request)
    lease = late.lease
    before = await desk.everything()

    failed = Failed("runner_unavailable")
    fenced: dict[str, Callable[[Tx], Any]] = {
        "t1b": lambda tx: working.begin(tx, late, desk.parts),
        "t3": lambda tx: working.commit_answer(tx, stale, Answer("late")),
        "t4": lambda tx: working.deliver(tx, stale, new.turn, desk.parts),
        "tF": lambda tx: working.fail_turn(tx, stale, failed, desk.parts),
        "give back": lambda tx: working.give_back(tx, late, "conversation_busy"),
        "retry": lambda tx: working.retry(tx, late, "connector_processing_failed"),
        "release": lambda tx: working.release(tx, late),
    }
    for name, write in fenced.items():
        with pytest.raises(StaleFence):
            await desk.database.write(write)
        assert await desk.everything() == before, name
    assert await desk.write(working.renew, late, LEASE_US) == (False, False)
    assert not await desk.write(store.set_turn, late.id, lease, new.turn.id)
    for event in ("give_back", "retry", "complete", "propose", "fail"):
        assert await desk.database.write(lambda tx, event=event: store.move(tx, event, late.id, lease=lease)) is None
    # Neither half of the fence is enough alone: the right owner of an earlier claim, another owner of this one.
    holder = taken[0].lease
    for wrong in (replace(holder, generation=holder.generation - 1), replace(holder, owner="dead")):
        for event in ("give_back", "retry", "complete", "propose", "fail"):
            move = lambda tx, event=event, wrong=wrong: store.move(tx, event, late.id, lease=wrong)  # noqa: E731
            assert await desk.database.write(move) is None, (event, wrong)
        assert not await desk.write(store.renew_lease, late.id, wrong, desk.clock.now_us() + LEASE_US)
        assert not await desk.write(store.set_turn, late.id, wrong, new.turn.id)
    assert await desk.everything() == before


@pytest.mark.spec("DESK-304")
async def test_the_same_owner_is_fenced_from_its_own_earlier_claim(desk: DeskWorld, seat: Seat) -> None:
    """One owner string claims, gives back and claims again: what belongs to the first claim touches zero rows.

    FC-17, FC-18.
    """
    await desk.ask("hello", seat)
    (first,) = await claimed(desk, owner="same")
    await desk.write(working.retry, first, "credential_unavailable")
    desk.clock.advance(LEASE_US)
    (second,) = await claimed(desk, owner="same")
    assert (second.id, second.lease.owner) == (first.id, first.lease.owner)
    assert second.lease.generation == first.lease.generation + 1
    before = await desk.everything()
    assert not await desk.write(store.renew_lease, first.id, first.lease, desk.clock.now_us() + LEASE_US)
    for event in ("complete", "propose", "fail", "give_back", "retry"):
        assert (
            await desk.database.write(lambda tx, event=event: store.move(tx, event, first.id, lease=first.lease))
            is None
        )
    with pytest.raises(StaleFence):
        await desk.write(working.begin, first, desk.parts)
    assert await desk.everything() == before
    assert await desk.write(store.renew_lease, second.id, second.lease, desk.clock.now_us() + 9 * LEASE_US)


@pytest.mark.spec("DESK-134")
async def test_a_lost_lease_is_noticed_and_both_kinds_of_late_result_are_dropped(desk: DeskWorld, seat: Seat) -> None:
    """A renewal that touches no row tells the work to end; what runner or channel still bring changes nothing."""
    lost: list[str] = []
    gate = Gate()
    cancelled: list[bool] = []

    async def behave(request: Any, cancel: Any) -> Any:
        gate.reached.set()
        await cancel.wait()
        cancelled.append(True)
        return Answer("too late")

    desk.runner.behaviour = behave
    receipt = await desk.ask("hello", seat)
    worker = desk.receipt_worker(lease_us=SECOND // 10, on_lost=lambda: lost.append("receipt"))
    await worker.step()
    await gate.reached.wait()
    desk.clock.advance(LEASE_US)
    await claimed(desk, owner="the next")
    before = await desk.everything()
    await worker.stop(60)  # ends without the runner's gate: the heartbeat cancelled it
    assert (cancelled, lost) == ([True], ["receipt"])
    assert await desk.everything() == before
    assert (await look(desk, seat, receipt["id"])).receipt[1] == "agent_execution_indeterminate"

    desk.runner.behaviour = None
    other = await desk.ask("once more", seat)
    await desk.work()

    async def lapse(message: Any) -> None:
        nonlocal before
        desk.clock.advance(LEASE_US)
        assert await desk.write(outbox.settle_lapsed, 100) == 1
        before = await desk.everything()

    desk.channel.on_send = lapse
    sender = desk.delivery_worker(on_lost=lambda: lost.append("delivery"))
    await sender.step()
    await sender.stop(60)
    assert lost == ["receipt", "delivery"]
    assert await desk.everything() == before
    assert (await look(desk, seat, other["id"])).delivery == ("indeterminate", "send_result_unknown")
