"""Whose a conversation is, who else sees it, and how it is listed and closed."""

from __future__ import annotations

import pytest

from frontdesk.desk import conversations, runs
from tests.contract.conversations.world import EVENTS, PROJECTS, World, code_of


async def test_a_conversation_of_another_person_answers_exactly_as_an_absent_one(world: World) -> None:
    own = await world.converse(project_id=world.project)
    absent = "cnv_" + "0" * 32
    for name in ("mate", "viewer", "root"):
        async with world.http(name) as client:
            for rest in ("", "/turns"):
                foreign = await client.get(world.path(f"/conversations/{own.id}{rest}"))
                nothing = await client.get(world.path(f"/conversations/{absent}{rest}"))
                assert (foreign.status_code, foreign.content) == (404, nothing.content)
            for verb in ("close", "messages"):
                body = {"request_id": "r", "content": "hi"} if verb == "messages" else None
                answer = await client.post(world.path(f"/conversations/{own.id}/{verb}"), json=body)
                assert answer.status_code in (403, 404, 503)
            assert (await client.get(world.path("/conversations"))).json()["items"] == []
    async with world.http("stranger") as client:
        assert (await client.get(world.path("/conversations"))).status_code == 403


async def test_what_is_bound_to_an_administrators_project_stands_behind_the_gate(world: World) -> None:
    assert await code_of(world.converse(project_id=world.closed_project)) == "administrators_only"
    inside = await world.converse("root", project_id=world.closed_project)
    own = await world.converse(project_id=world.project)
    async with world.http("root") as client:
        listed = (await client.get(world.path("/conversations"))).json()["items"]
        assert [each["id"] for each in listed] == [inside.id]
    await world.change(PROJECTS, world.project, access="administrators")
    async with world.http("owner") as client:
        assert (await client.get(world.path("/conversations"))).json()["items"] == []
        answers = [
            await client.get(world.path(f"/conversations/{own.id}")),
            await client.get(world.path(f"/conversations/{own.id}/turns")),
            await client.patch(world.path(f"/conversations/{own.id}"), json={"context": {}}),
            await client.post(world.path(f"/conversations/{own.id}/close")),
        ]
        assert [(each.status_code, each.json()["code"]) for each in answers] == [(403, "administrators_only")] * 4
    # and into one: the gate of the new project counts as well as that of the old
    free = await world.converse()
    moving = world.write(
        conversations.update_conversation,
        world.people["owner"],
        world.home,
        free.id,
        context={"project_id": world.closed_project},
        find_run=runs.find_run_scope,
    )
    assert await code_of(moving) == "administrators_only"


async def test_lists_are_paged_newest_first_and_filtered(world: World) -> None:
    made = [await world.converse(project_id=world.project) for _ in range(3)]
    loose = await world.converse()
    await world.write(conversations.close_conversation, world.people["owner"], world.home, made[0].id)
    async with world.http("owner") as client:
        first = (await client.get(world.path("/conversations?limit=3"))).json()
        rest = (await client.get(world.path(f"/conversations?limit=3&cursor={first['next_cursor']}"))).json()
        ids = [each["id"] for each in first["items"] + rest["items"]]
        assert ids == sorted([each.id for each in (*made, loose)], reverse=True)
        assert rest["next_cursor"] is None
        closed = (await client.get(world.path("/conversations?status=closed"))).json()["items"]
        assert [each["id"] for each in closed] == [made[0].id]
        here = (await client.get(world.path(f"/conversations?project_id={world.project}"))).json()["items"]
        assert {each["id"] for each in here} == {each.id for each in made}
        assert (await client.get(world.path("/conversations?owner=x"))).status_code == 422


async def test_closing_again_changes_nothing(world: World) -> None:
    conversation = await world.converse()
    once = await world.write(conversations.close_conversation, world.people["owner"], world.home, conversation.id)
    world.clock.advance(1_000_000)
    twice = await world.write(conversations.close_conversation, world.people["owner"], world.home, conversation.id)
    assert once == twice
    assert (once.status, once.revision, once.closed_at) == ("closed", 1, once.updated_at)
    kinds = [event["kind"] for event in await world.rows(EVENTS, EVENTS.c.object_id == conversation.id)]
    assert sorted(kinds) == ["conversation.closed", "conversation.created"]


async def test_turns_are_read_in_the_order_they_were_asked(world: World) -> None:
    conversation = await world.converse()
    for number in range(5):
        await world.exchange(conversation, f"question {number}")
    async with world.http("owner") as client:
        path = world.path(f"/conversations/{conversation.id}/turns")
        first = (await client.get(path + "?limit=3")).json()
        rest = (await client.get(path + f"?limit=3&cursor={first['next_cursor']}")).json()
    turns = first["items"] + rest["items"]
    assert [turn["user_content"] for turn in turns] == [f"question {number}" for number in range(5)]
    assert [turn["committed_revision"] for turn in turns] == [1, 2, 3, 4, 5]
    assert turns[0]["response"] == {"text": "yes", "finish": "complete"}
    assert turns[0]["runner"]["usage"] == "unknown"
    assert rest["next_cursor"] is None


@pytest.mark.parametrize("number", [1, 2])
async def test_a_session_begins_once_for_one_that_was_seen(world: World, number: int) -> None:
    """A replay of the step that began session 2 does not end it."""
    conversation = await world.converse()
    seen = conversation
    for _ in range(number):
        await world.write(conversations.start_session, seen, 123)
    present = await world.get(conversation)
    assert (present.session_number, present.session_start_ms, present.revision) == (2, 123, 0)
