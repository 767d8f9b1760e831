"""The one event table."""

from __future__ import annotations

import pytest

from frontdesk.identity.events import events_since, list_events, list_events_of_grant, record_event
from frontdesk.identity.model import Actor
from frontdesk.kernel.clock import MINUTE, SECOND, ManualClock
from frontdesk.kernel.errors import Defect
from frontdesk.storage.tx import Tx
from tests.contract.world import World, refusal

GRANT = "grt_00000000000000000000000000000001"


def note(world: World, kind: str, **more: object) -> object:
    def run(tx: Tx) -> str:
        values = {"workspace_id": world.workspace_id, "object_kind": "thing", "object_id": "x_1", **more}
        return record_event(tx, kind=kind, **values)  # type: ignore[arg-type]

    return world.database.write(run)


async def test_the_audit_view_filters_pages_and_leaves_hidden_projects_out(world: World, clock: ManualClock) -> None:
    database, home, owner = world.database, world.workspace_id, world.owner
    secret = await world.project("secret", access="administrators")
    maintainer = await world.person("maintainer", "maintainer")
    operator = await world.person("operator", "operator")
    for number in range(5):
        clock.advance(SECOND)
        await note(world, "thing.done", object_id=f"x_{number}", actor_id="usr_a", data={"n": number, "ok": True})
    await note(world, "thing.hidden", project_id=secret.id)
    asked = database.read(lambda tx: list_events(tx, operator, home, limit=10))
    assert await refusal(asked) == "permission_required"

    seen: list[str] = []
    after: tuple[int, str] | None = None
    while True:
        rows, after = await database.read(
            lambda tx, after=after: list_events(tx, maintainer, home, kind="thing.done", limit=2, after=after)
        )
        seen += [row.object_id for row in rows]
        if after is None:
            break
    assert seen == ["x_4", "x_3", "x_2", "x_1", "x_0"]
    rows, _ = await database.read(
        lambda tx: list_events(tx, maintainer, home, object_id="x_3", actor_id="usr_a", limit=9)
    )
    assert [(row.data, row.at == clock.now_us() - SECOND) for row in rows] == [({"n": 3, "ok": True}, True)]
    mine, _ = await database.read(lambda tx: list_events(tx, maintainer, home, limit=100))
    all_of_it, _ = await database.read(lambda tx: list_events(tx, owner, home, limit=100))
    assert "thing.hidden" not in {row.kind for row in mine}
    assert {row.project_id for row in mine}.isdisjoint({secret.id})
    assert "thing.hidden" in {row.kind for row in all_of_it}


async def test_what_names_a_hidden_project_by_its_grant_alone_is_hidden_too(world: World) -> None:
    """A delivery's or a receipt's event has no project of its own; that of its grant's decides."""
    secret = await world.project("secret", access="administrators")
    maintainer = await world.person("maintainer", "maintainer")
    await note(world, "reply_grant.created", project_id=secret.id, reply_grant_id=GRANT)
    await note(world, "delivery.sent", reply_grant_id=GRANT)
    other = {"reply_grant_id": GRANT[:-1] + "2"}
    await note(world, "reply_grant.created", project_id=world.project_id, **other)
    await note(world, "receipt.permanent_failed", **other)

    async def kinds(actor: Actor) -> list[str]:
        rows, _ = await world.database.read(lambda tx: list_events(tx, actor, world.workspace_id, limit=100))
        return [row.kind for row in rows if row.object_kind == "thing"]

    assert sorted(await kinds(maintainer)) == ["receipt.permanent_failed", "reply_grant.created"]
    assert len(await kinds(world.owner)) == 4


async def test_a_tail_reads_from_an_instant_on(world: World, clock: ManualClock) -> None:
    database, home = world.database, world.workspace_id
    clock.advance(MINUTE)
    await note(world, "thing.early")
    clock.advance(SECOND)
    since = clock.now_us()
    ids = [await note(world, f"thing.n{number}") for number in range(3)]
    await note(world, "thing.hidden", project_id="prj_h")

    async def tail(after: str | None = None, hidden: frozenset[str] = frozenset()) -> list[str]:
        found = await database.read(
            lambda tx: events_since(tx, home, since=since, hidden=hidden, after=after, limit=10)
        )
        return [event.kind for event in found]

    assert sorted(await tail()) == ["thing.hidden", "thing.n0", "thing.n1", "thing.n2"]
    assert sorted(await tail(hidden=frozenset({"prj_h"}))) == ["thing.n0", "thing.n1", "thing.n2"]
    assert ids[0] not in await tail(after=str(max(map(str, ids))))
    assert await database.read(lambda tx: events_since(tx, "wsp_x", since=0, hidden=(), limit=10)) == []


async def test_the_events_of_a_grant(world: World, clock: ManualClock) -> None:
    for kind in ("thing.one", "thing.two", "thing.three"):
        clock.advance(SECOND)
        await note(world, kind, reply_grant_id=GRANT)
    rows, after = await world.database.read(lambda tx: list_events_of_grant(tx, GRANT, limit=2))
    assert [row.kind for row in rows] == ["thing.three", "thing.two"]
    rows, after = await world.database.read(lambda tx: list_events_of_grant(tx, GRANT, limit=2, after=after))
    assert ([row.kind for row in rows], after) == (["thing.one"], None)


@pytest.mark.parametrize("data", [{"text": "x" * 1024}, {"nested": {"a": 1}}, {"list": [1]}])
async def test_an_event_holds_little_and_flat_data(world: World, data: dict[str, object]) -> None:
    with pytest.raises(Defect):
        await note(world, "thing.done", data=data)
