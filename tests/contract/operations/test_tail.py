"""The live tail: who sees which events, none missed whatever order commits come in, the right asked for again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from frontdesk.api.desk.event_stream import EventStreamResponse, EventStreams, Follower
from frontdesk.desk import conversations, runs
from frontdesk.desk.operations import Tail, TailEvent
from frontdesk.identity import record_event
from frontdesk.identity.members import remove_member
from frontdesk.identity.model import Actor
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.errors import Problem
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import DeskWorld, Seat

BOUND_S = 60.0


async def read(desk: DeskWorld, tail: Tail, actor: Actor | None = None) -> list[TailEvent]:
    pages = [page async for page in tail.read(desk.database, lambda: actor or desk.owner)]
    return [event for page in pages for event in page]


async def all_of(desk: DeskWorld, actor: Actor) -> set[tuple[str, str, str]]:
    """What a fresh tail shows of the last seconds."""
    return {(event.kind, event.id, event.status) for event in await read(desk, Tail(desk.home), actor)}


def plain(rows: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(row["object_kind"], row["object_id"], row["kind"].partition(".")[2]) for row in rows}


async def test_a_reader_sees_the_objects_they_may_read(desk: DeskWorld, seat: Seat) -> None:
    """Projects, connections and members are everybody's; receipts, deliveries and grants those of who works the inbox;
    conversations, turns and bindings their owner's; a project for administrators is nobody else's, nor is its grant.
    """
    await desk.ask("hello", seat)
    await desk.work()
    await desk.send()
    hidden = await desk.people.project("secret", "administrators")
    viewer, operator = await desk.people.person("vera", "viewer"), await desk.people.person("olaf", "operator")
    owner = await desk.people.person("ann", "operator")
    mine = await desk.seat(owner, sender="ou_2", chat="oc_2")
    await desk.write(
        conversations.create_conversation,
        desk.owner,
        desk.home,
        title="Secret",
        context={"project_id": hidden.id},
        find_run=runs.find_run_scope,
    )
    await desk.write(_under_hidden_grant, desk, hidden.id)
    rows = await desk.rows("events", workspace=desk.home)
    everything = plain(rows)
    assert await all_of(desk, desk.owner) >= {each for each in everything if each[0] in {"delivery", "project"}}

    seen = {
        name: await all_of(desk, actor)
        for name, actor in {"viewer": viewer, "operator": operator, "ann": owner}.items()
    }
    common = {"workspace", "project", "member", "installation"}
    assert {kind for kind, _, _ in seen["viewer"]} == common
    assert {kind for kind, _, _ in seen["operator"]} == common | {"delivery", "reply_grant"}
    assert ("delivery", "dlv_hidden", "sent") in await all_of(desk, desk.owner)
    for name, shown in seen.items():
        assert not [each for each in shown if each[1] in {hidden.id, "dlv_hidden", "grt_hidden"}], name
        assert ("installation", desk.installation_id, "challenged") not in seen["viewer"]
        assert shown <= everything
    assert {(kind, each) for kind, each, _ in seen["ann"]} >= {
        ("conversation", mine.conversation_id), ("binding", mine.binding_id), ("reply_grant", mine.grant_id),
    }  # fmt: skip
    assert ("conversation", seat.conversation_id) not in {(kind, each) for kind, each, _ in seen["ann"]}
    with pytest.raises(Problem) as refused:
        await all_of(desk, await desk.people.person("eve"))
    assert refused.value.code == "membership_required"


def _under_hidden_grant(tx: Tx, desk: DeskWorld, project_id: str) -> None:
    """A grant of the administrators' project, and a delivery whose event names no project, only that grant."""
    common = {"workspace_id": desk.home, "reply_grant_id": "grt_hidden"}
    record_event(
        tx,
        kind="reply_grant.created",
        object_kind="reply_grant",
        object_id="grt_hidden",
        project_id=project_id,
        **common,
    )
    record_event(tx, kind="delivery.sent", object_kind="delivery", object_id="dlv_hidden", **common)


async def test_an_event_that_commits_late_is_not_missed(desk: DeskWorld) -> None:
    """Events become visible in another order than that of their ids: a reader who has read past them still gets them,
    once, for as long as the tail goes back; a reader who comes back with a last id gets what it has not seen.
    """
    tail = Tail(desk.home)
    await read(desk, tail)
    started = desk.clock.now_us()
    desk.clock.advance(3 * SECOND)
    await desk.write(_note, desk.home, "prj_early")
    assert [event.id for event in await read(desk, tail)] == ["prj_early"]
    mark = tail.mark
    for seconds in (9, 5, 1):  # committed now, begun so long ago
        await desk.database.write(
            lambda tx, ago=seconds: _at(tx, started + (10 - ago) * SECOND, desk.home, f"prj_{ago}")
        )  # type: ignore[misc]
        assert [event.id for event in await read(desk, tail)] == [f"prj_{seconds}"]
    assert await read(desk, tail) == []
    again = [event.id for event in await read(desk, Tail(desk.home, mark))]
    assert {"prj_9", "prj_5", "prj_1"} <= set(again)
    desk.clock.advance(limits.STREAM_REREAD_US + SECOND)
    assert await read(desk, tail) == []
    await desk.write(_note, desk.home, "prj_new")
    assert [event.id for event in await read(desk, tail)] == ["prj_new"]


async def test_a_clock_that_is_set_back_hides_nothing(desk: DeskWorld) -> None:
    """After the clock was set back new events have lower ids than shown ones, and are shown all the same."""
    tail = Tail(desk.home)
    await read(desk, tail)
    desk.clock.step(-600 * SECOND)
    await desk.write(_note, desk.home, "prj_back")
    assert "prj_back" in [event.id for event in await read(desk, tail)]


async def test_a_long_backlog_comes_in_pages_and_whole(desk: DeskWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """More events than a page holds come page by page, oldest first, each once."""
    monkeypatch.setattr(limits, "STREAM_PAGE", 4)
    for number in range(11):
        desk.clock.advance(SECOND // 10)
        await desk.write(_note, desk.home, f"prj_{number:02}")
    pages = [page async for page in Tail(desk.home).read(desk.database, lambda: desk.owner)]
    assert [event.id for page in pages for event in page if event.id.startswith("prj_0") or event.id == "prj_10"][
        -11:
    ] == [f"prj_{number:02}" for number in range(11)]
    assert len(pages) > 2


def _note(tx: Tx, workspace_id: str, object_id: str) -> None:
    record_event(tx, workspace_id=workspace_id, kind="project.changed", object_kind="project", object_id=object_id)


def _at(tx: Tx, instant: int, workspace_id: str, object_id: str) -> None:
    tx.now = instant
    _note(tx, workspace_id, object_id)


# ---------------------------------------------------------------------------------------------- as a stream


class Reader:
    """One open stream over the product's own parts: what it was told, and hints and time in the test's hand."""

    def __init__(self, desk: DeskWorld, actor: Actor, *, follow: bool = True, after: str | None = None) -> None:
        self.streams = EventStreams(self._wait)
        self.text = ""
        self.ended = asyncio.Event()
        self._told = asyncio.Event()
        self._hint = asyncio.Semaphore(0)
        self.rounds = 0
        self._round = asyncio.Event()
        self._gone = asyncio.Event()
        self.reauthenticated = 0
        self.refuse = False
        self._actor = actor
        self.follower = Follower(
            Tail(desk.home, after),
            desk.database,
            desk.clock,
            actor,
            reauthenticate=self._reauthenticate,
            wait=self._wait,
            follow=follow,
        )

    async def _wait(self, _seconds: float) -> None:
        self.rounds += 1
        self._round.set()
        await self._hint.acquire()

    async def _reauthenticate(self) -> Actor:
        self.reauthenticated += 1
        if self.refuse:
            raise Problem("unauthenticated")
        return self._actor

    async def run(self) -> None:
        leave = self.streams.admit(self._actor.user_id)
        response = EventStreamResponse(self.follower, await self.follower.first(), self.streams, leave)
        try:
            await response({"type": "http"}, self._receive, self._send)
        finally:
            self.ended.set()
            self._round.set()

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.text += message.get("body", b"").decode()

    def leave(self) -> None:
        self._gone.set()

    async def next_round(self) -> None:
        """Let it read once more; returns when it waits again, or has ended."""
        before = self.rounds
        self._hint.release()
        async with asyncio.timeout(BOUND_S):
            while self.rounds == before and not self.ended.is_set():
                self._round.clear()
                await self._round.wait()

    async def waiting(self) -> None:
        async with asyncio.timeout(BOUND_S):
            while not self.rounds and not self.ended.is_set():
                self._round.clear()
                await self._round.wait()

    def ids(self) -> list[str]:
        """Ids of objects told of, in order."""
        return [
            line.partition('"id":"')[2].partition('"')[0] for line in self.text.split("\n") if line.startswith("data:")
        ]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAM_READS_APART_US", 0)


@pytest.mark.spec("DESK-373")
async def test_the_stream_and_polling_tell_the_same_and_the_right_is_asked_for_again(
    desk: DeskWorld, seat: Seat
) -> None:
    """An open stream sends content-free events of objects its reader may read, also those whose commits come out of id
    order; polling with the last id comes to the same set; membership counts with every reading, the credential within
    30 s, and either's end ends the stream.
    """
    operator, member = await desk.people.person_and_member("olaf", "operator")
    desk.clock.advance(20 * SECOND)
    started = desk.clock.now_us()
    reader = Reader(desk, operator)
    async with asyncio.TaskGroup() as group:
        group.create_task(reader.run())
        await reader.waiting()
        polled: set[str] = set()
        last: str | None = None
        await desk.ask("planted-4711", seat)
        for number in range(3):
            desk.clock.advance(2 * SECOND)
            await desk.write(_note, desk.home, f"prj_on_time_{number}")
            await desk.write(_at, started + number * SECOND, desk.home, f"prj_late_{number}")
            await desk.work()
            await desk.send()
            await reader.next_round()
            found, last = await poll(desk, operator, last)
            polled |= found
        streamed = reader.ids()
        assert len(streamed) == len(set(zip(streamed, reader.text.split("data:")[1:], strict=True)))
        assert set(streamed) == polled
        assert {f"prj_{kind}_{number}" for kind in ("late", "on_time") for number in range(3)} <= set(streamed)
        assert any(each.startswith("dlv_") for each in streamed)
        assert not any(each.startswith(("trn_", "cnv_")) for each in streamed), "another person's conversation"
        for content in ("planted-4711", "ou_1", "oc_1", "om_"):
            assert content not in reader.text

        assert limits.STREAM_RECHECK_US <= 30 * SECOND
        asked = reader.reauthenticated
        desk.clock.advance(limits.STREAM_RECHECK_US)
        await reader.next_round()
        assert reader.reauthenticated == asked + 1
        desk.clock.advance(limits.STREAM_RECHECK_US)
        reader.refuse = True
        await desk.write(_note, desk.home, "prj_after_logout")
        await reader.next_round()
        assert reader.ended.is_set()
        assert "prj_after_logout" not in reader.ids()
        assert reader.streams.readers == 0

    second = Reader(desk, operator)
    async with asyncio.TaskGroup() as group:
        group.create_task(second.run())
        await second.waiting()
        assert member is not None
        await desk.write(remove_member, desk.owner, desk.home, member.id)
        await desk.write(_note, desk.home, "prj_after_removal")
        await second.next_round()
        assert second.ended.is_set()
        assert "prj_after_removal" not in second.ids()


async def poll(desk: DeskWorld, actor: Actor, last: str | None) -> tuple[set[str], str | None]:
    """One polling request, as a browser's EventSource makes it after the stream ended: its objects and last id."""
    reader = Reader(desk, actor, follow=False, after=last)
    async with asyncio.timeout(BOUND_S):
        await reader.run()
    ids = [line.removeprefix("id: ") for line in reader.text.split("\n") if line.startswith("id: ")]
    return set(reader.ids()), ids[-1]


async def test_readers_are_bounded_and_give_their_place_back(desk: DeskWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many at once for a person and for a process; who leaves makes room; at stop every stream ends."""
    monkeypatch.setattr(limits, "STREAM_CLIENTS_MAX", 3)
    monkeypatch.setattr(limits, "STREAM_CLIENTS_MAX_PER_USER", 2)
    streams = EventStreams(lambda _seconds: asyncio.sleep(0))
    mine = [streams.admit("usr_1"), streams.admit("usr_1")]
    for full, user in (("person", "usr_1"), ("process", "usr_3")):
        if full == "process":
            streams.admit("usr_2")
        with pytest.raises(Problem) as refused:
            streams.admit(user)
        assert refused.value.code == "rate_limited"
    mine[0]()
    streams.admit("usr_1")

    reader = Reader(desk, desk.owner)
    async with asyncio.TaskGroup() as group:
        group.create_task(reader.run())
        await reader.waiting()
        reader.streams.close()
        async with asyncio.timeout(BOUND_S):
            await reader.ended.wait()
    with pytest.raises(Problem) as refused:
        reader.streams.admit("usr_1")
    assert refused.value.code == "unavailable"
    gone = Reader(desk, desk.owner)
    async with asyncio.TaskGroup() as group:
        group.create_task(gone.run())
        await gone.waiting()
        assert gone.streams.readers == 1
        gone.leave()
    assert gone.streams.readers == 0


async def test_an_idle_stream_breathes_and_says_where_to_go_on(desk: DeskWorld) -> None:
    """A heartbeat comes after so long without an event, with an id to resume from."""
    reader = Reader(desk, desk.owner)
    async with asyncio.TaskGroup() as group:
        group.create_task(reader.run())
        await reader.waiting()
        beats = reader.text.count(": alive")
        await reader.next_round()
        assert reader.text.count(": alive") == beats
        desk.clock.advance(limits.STREAM_HEARTBEAT_US)
        await reader.next_round()
        assert reader.text.count(": alive") == beats + 1
        reader.leave()
