"""Revocation against use, and creation against the end of what it rests on: separate sessions, real locks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from frontdesk.desk import connections, conversations, grants, inbox
from frontdesk.desk.conversations.runner import Answer
from frontdesk.desk.grants import service as grant_service
from frontdesk.desk.inbox import claiming, working
from frontdesk.desk.sending import steps
from frontdesk.identity.members import update_member
from frontdesk.identity.model import ProjectChanges, UserChanges
from frontdesk.identity.projects import update_project
from frontdesk.identity.users import update_user
from frontdesk.kernel.clock import HOUR, SECOND
from frontdesk.kernel.errors import Problem
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import LEASE_US, DeskWorld
from tests.contract.grants.scenes import LOST, Scene, scene

DEADLINE_S = 10.0
Work = Callable[[Tx], Any]

# ------------------------------------------------------------------------------------------------ a race of two


class Pause:
    """A transaction that has done its work and does not commit until it is let go."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.let_go = threading.Event()

    def after(self, work: Work) -> Work:
        def run(tx: Tx) -> Any:
            result = work(tx)
            self.done.set()
            assert self.let_go.wait(DEADLINE_S)
            return result

        return run


async def reached(happened: threading.Event) -> None:
    assert await asyncio.to_thread(happened.wait, DEADLINE_S)


async def somebody_waits_for_a_lock(desk: DeskWorld) -> None:
    """Return once a session of this database is held up by a lock."""
    query = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    async with asyncio.timeout(DEADLINE_S):
        while not await desk.read(lambda tx: tx.count(query)):
            pass


def revocation(desk: DeskWorld, found: Scene, kind: str) -> Work:
    seat = found.seat
    if kind == "grant":
        return lambda tx: grants.revoke(tx, seat.actor, desk.home, found.project_id, seat.grant_id, **desk.keys)
    if kind == "binding":
        return lambda tx: connections.unbind(tx, seat.actor, workspace_id=desk.home, binding_id=seat.binding_id)
    if kind == "installation":
        return lambda tx: connections.update_installation(
            tx,
            desk.owner,
            workspace_id=desk.home,
            installation_id=seat.installation_id,
            changes={"enabled": False},
            **desk.keys,
        )
    if kind == "user":
        return lambda tx: update_user(tx, desk.owner, seat.actor.user_id, UserChanges(disabled=True))

    def demote(tx: Tx) -> Any:
        member = tx.find(sa.text('SELECT id FROM workspace_members WHERE "user" = :user'), {"user": seat.actor.user_id})
        assert member is not None
        return update_member(tx, desk.owner, desk.home, member["id"], role="viewer")

    return demote


async def prepared(desk: DeskWorld, found: Scene, step: str) -> tuple[str, Work, Callable[[Any], bool]]:
    """Bring a receipt up to `step`: its id, the step's transaction, and whether what it returned means: allowed."""
    row = await desk.ask("question", found.seat)
    if step == "t7":
        await desk.work()
        order = steps.Order("sender", LEASE_US, 4 * HOUR, 1)
        (attempt,) = await desk.write(steps.claim_due, order, desk.parts)
        return row["id"], lambda tx: steps.begin_sending(tx, attempt, LEASE_US), lambda result: result is not None
    (receipt,) = await desk.write(claiming.claim, claiming.Claim("worker", 30 * SECOND, 1), desk.parts)
    begun = await desk.write(working.begin, receipt, desk.parts)
    assert begun is not None
    if step == "t3":
        return row["id"], lambda tx: working.commit_answer(tx, begun, Answer("done")), lambda turn: turn is not None
    turn = await desk.write(working.commit_answer, begun, Answer("done"))
    assert turn is not None
    work: Work = lambda tx: working.deliver(tx, begun, turn, desk.parts)  # noqa: E731
    return row["id"], work, lambda status: status == "completed"


KINDS = ("grant", "binding", "installation", "user", "membership")


@pytest.mark.engine("postgresql")
@pytest.mark.parametrize("step", ["t3", "t4", "t7"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_revocation_under_way_is_waited_for_and_seen(
    desk: DeskWorld, open_session: Any, step: str, kind: str
) -> None:
    """A step that meets an uncommitted revocation waits for its commit and then finds the authority gone."""
    found = await scene(desk)
    receipt_id, work, allowed = await prepared(desk, found, step)
    pause = Pause()
    revoking = asyncio.create_task(open_session().write(pause.after(revocation(desk, found, kind))))
    await reached(pause.done)
    stepping = asyncio.create_task(open_session().write(work))
    await somebody_waits_for_a_lock(desk)
    assert not stepping.done()
    pause.let_go.set()
    await revoking
    assert not allowed(await stepping)
    row = await desk.row("receipts", receipt_id)
    assert (row["status"], row["error_code"]) == ("permanent_failed", LOST)
    delivery = await desk.delivery_of(receipt_id)
    assert (None if delivery is None else delivery.status) == ("failed" if step == "t7" else None)


@pytest.mark.engine("postgresql")
@pytest.mark.parametrize("step", ["t3", "t4", "t7"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_revocation_waits_for_a_step_that_was_allowed(
    desk: DeskWorld, open_session: Any, step: str, kind: str
) -> None:
    """Once a step has read its authority, a revocation does not commit before that step has committed."""
    found = await scene(desk)
    receipt_id, work, allowed = await prepared(desk, found, step)
    pause = Pause()
    stepping = asyncio.create_task(open_session().write(pause.after(work)))
    await reached(pause.done)
    revoking = asyncio.create_task(open_session().write(revocation(desk, found, kind)))
    await somebody_waits_for_a_lock(desk)
    assert not revoking.done()
    pause.let_go.set()
    assert allowed(await stepping)
    await revoking
    if step == "t7":
        delivery = await desk.delivery_of(receipt_id)
        assert delivery is not None
        assert delivery.status == "sending"


# ------------------------------------------------------------------------------------------------ creating


def ending(desk: DeskWorld, what: str, person: Any, binding_id: str, conversation_id: str) -> Work:
    """One thing that a grant rests on ends."""
    home = desk.home
    if what == "unbinding":
        return lambda tx: connections.unbind(tx, person, workspace_id=home, binding_id=binding_id)
    if what == "re-binding":

        def rebind(tx: Tx) -> Any:
            connections.unbind(tx, person, workspace_id=home, binding_id=binding_id)
            where = {"workspace_id": home, "installation_id": desk.installation_id, **desk.keys}
            issued = connections.create_challenge(tx, person, **where)
            bind = desk.message(issued.command_text, sender="ou_2", chat="oc_2")
            assert inbox.receive(tx, desk.installation_id, bind, transport="webhook").outcome == "completed"

        return rebind
    if what == "closing":
        return lambda tx: conversations.close_conversation(tx, person, home, conversation_id)
    if what == "disabling":
        return lambda tx: connections.update_installation(
            tx,
            desk.owner,
            workspace_id=home,
            installation_id=desk.installation_id,
            changes={"enabled": False},
            **desk.keys,
        )
    if what == "archiving":
        changes = ProjectChanges(archived=True)
        return lambda tx: update_project(tx, desk.owner, home, desk.project, changes)

    def demote(tx: Tx) -> Any:
        member = tx.find(sa.text('SELECT id FROM workspace_members WHERE "user" = :user'), {"user": person.user_id})
        assert member is not None
        return update_member(tx, desk.owner, home, member["id"], role="viewer")

    return demote


@pytest.mark.spec("DESK-377")
@pytest.mark.parametrize("first", ["creating", "ending"])
@pytest.mark.parametrize("what", ["unbinding", "re-binding", "closing", "disabling", "archiving", "losing EXPORT"])
async def test_a_create_that_races_an_end_leaves_nothing_usable(
    desk: DeskWorld, open_session: Any, monkeypatch: pytest.MonkeyPatch, what: str, first: str
) -> None:
    """Whoever is first: zero rows, or a grant that reads unusable at once; no turn and no wire request comes of it.

    On PostgreSQL the create has read everything before the end begins to write, or the end has written and not
    committed when the create begins to read. SQLite's writers are serial: there both orders are run.
    """
    person = await desk.people.person("mate", "operator")
    binding = await desk.bind(person, sender="ou_2", chat="oc_2")
    conversation = await desk.converse(person)
    order = desk.order(binding, conversation)
    end = ending(desk, what, person, binding, conversation)
    postgres = desk.database.engine_name == "postgresql"
    read, started, wrote = threading.Event(), threading.Event(), threading.Event()

    parts = grant_service._parts

    def having_read(*arguments: Any) -> Any:
        result = parts(*arguments)
        read.set()
        if postgres and first == "creating" and what == "losing EXPORT":
            assert wrote.wait(DEADLINE_S)  # this one takes no lock that the create holds: let it be first to commit
        return result

    def create(tx: Tx) -> Any:
        started.set()
        if postgres and first == "ending":
            assert wrote.wait(DEADLINE_S)
        return grants.create(tx, person, order, reply_ready=True, **desk.keys)

    def finish(tx: Tx) -> Any:
        if postgres and first == "creating":
            assert read.wait(DEADLINE_S)
        result = end(tx)
        wrote.set()
        if postgres and first == "ending":
            assert started.wait(DEADLINE_S)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(grant_service, "_parts", having_read)
        creating, finishing = open_session(), open_session()
        if first == "creating":
            works = [creating.write(create), finishing.write(finish)]
        else:
            works = [finishing.write(finish), creating.write(create)]
        if postgres:
            outcomes = await asyncio.gather(*works, return_exceptions=True)
        else:
            outcomes = [*await asyncio.gather(works[0], return_exceptions=True)]
            outcomes += await asyncio.gather(works[1], return_exceptions=True)
    created, ended = outcomes if first == "creating" else outcomes[::-1]
    assert not isinstance(ended, BaseException)

    if isinstance(created, Problem):
        assert created.code in {
            "binding_not_active",
            "conversation_closed",
            "installation_not_active",
            "conversation_context_mismatch",
            "permission_required",
        }
        assert await desk.count("reply_grants") == await desk.count("deliveries") == 0
    elif what == "re-binding" and not isinstance(created, BaseException) and created.grant.binding_revision == 3:
        assert first == "ending"  # made after the new binding was: that is no race lost, and it is usable
        return
    else:
        assert not isinstance(created, BaseException), created
        (grant,) = await desk.rows("reply_grants")
        reason = (await desk.view(grant["id"], person)).unusable_reason
        assert (
            reason
            == {
                "unbinding": "binding_revoked",
                "re-binding": "binding_revoked",
                "closing": "conversation_closed",
                "disabling": "installation_disabled",
                "archiving": "conversation_context_changed",
                "losing EXPORT": "authority_lost",
            }[what]
        )
    await desk.push(desk.message("hi", sender="ou_2", chat="oc_2"))
    await desk.work()
    await desk.send()
    assert await desk.rows("turns") == []
    assert desk.channel.sent == []
    assert all(row["status"] in ("failed", "pending") for row in await desk.rows("deliveries"))
