"""Runs: started once a request id, with an origin that only the server writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from frontdesk.desk import conversations, runs
from frontdesk.desk.runs.model import Origin
from frontdesk.storage.database import Database
from tests.contract.conversations.world import PROJECTS, RUNS, WORKFLOWS, World, code_of


@pytest.mark.spec("DESK-339")
async def test_one_request_id_starts_one_run_and_covers_the_conversation(
    world: World, open_session: Callable[[], Database]
) -> None:
    """Also from two sessions at once; the same id with another conversation is `idempotency_key_reused`."""
    conversation = await world.converse(project_id=world.project, workflow_id=world.workflow)
    other = await world.converse(project_id=world.project, workflow_id=world.workflow)
    path = world.path(f"/projects/{world.project}/workflows/{world.workflow}/runs")
    body = {"request_id": "r-1", "input": {"question": "为什么"}, "conversation_id": conversation.id}
    async with world.http("owner") as client:
        first, again = [await client.post(path, json=body) for _ in range(2)]
        assert (first.status_code, again.status_code) == (201, 201)
        assert (first.json().pop("created"), again.json().pop("created")) == (True, False)
        assert {**first.json(), "created": None} == {**again.json(), "created": None}
        for changed in ({"conversation_id": other.id}, {"conversation_id": None}, {"input": {}}):
            refused = await client.post(path, json={**body, **changed})
            assert (refused.status_code, refused.json()["code"]) == (409, "idempotency_key_reused")

    def start(tx: Any) -> runs.Started:
        return runs.start_run(
            tx,
            world.people["owner"],
            world.home,
            world.project,
            world.workflow,
            request_id="r-2",
            input_data={},
            conversation_id=conversation.id,
        )

    raced = await asyncio.gather(*(open_session().write(start) for _ in range(4)))
    assert sorted(each.created for each in raced) == [False, False, False, True]
    assert len({each.run.id for each in raced}) == 1
    assert len(await world.rows(RUNS)) == 2
    # another person's same id is another run
    assert (await world.start_run("mate", "r-1")).created


@pytest.mark.spec("DESK-203")
async def test_no_client_sets_the_origin_of_a_run(world: World) -> None:
    """A body that names one is refused, headers and request ids are not looked at, and a replay adds none."""
    conversation = await world.converse(project_id=world.project, workflow_id=world.workflow)
    path = world.path(f"/projects/{world.project}/workflows/{world.workflow}/runs")
    origin = {"conversation_id": conversation.id, "revision": 0, "user_id": world.people["owner"].user_id}
    async with world.http("owner") as client:
        for key, value in (
            ("origin", origin),
            ("origin_conversation", conversation.id),
            ("origin_revision", 0),
            ("origin_user", origin["user_id"]),
        ):
            refused = await client.post(path, json={"request_id": "r-1", key: value})
            assert refused.status_code == 422
        headers = {"X-Origin-Conversation": conversation.id, "Idempotency-Key": f"origin:{conversation.id}"}
        request_id = f"origin:{conversation.id}"[:64]
        body = {"request_id": request_id, "input": {"origin": origin, "conversation_id": conversation.id}}
        made = await client.post(path, json=body, headers=headers)
        assert (made.status_code, made.json()["origin"]) == (201, None)
        late = await client.post(path, json={**body, "conversation_id": conversation.id})
        assert late.json()["code"] == "idempotency_key_reused"
        again = await client.get(world.path(f"/projects/{world.project}/runs/{made.json()['id']}"))
        assert again.json()["origin"] is None
    (row,) = await world.rows(RUNS)
    assert (row["origin_conversation"], row["origin_revision"], row["origin_user"]) == (None, None, None)


async def test_an_origin_is_proven_from_the_conversation_as_it_is(world: World) -> None:
    conversation = await world.converse(project_id=world.project, workflow_id=world.workflow)
    await world.exchange(conversation, "a question")
    run = (await world.start_run(conversation_id=conversation.id)).run
    assert run.origin == Origin(conversation.id, 1, world.people["owner"].user_id)
    loose = await world.converse(project_id=world.project)
    assert (await world.start_run(request_id="r-2", conversation_id=loose.id)).run.origin is not None
    elsewhere = await world.add_project("second")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"workflow_id": world.other_workflow, "project_id": world.project}, "conversation_context_mismatch"),
        ({"project_id": elsewhere}, "conversation_context_mismatch"),
        ({}, "conversation_context_mismatch"),
        (
            {"project_id": world.project, "workflow_id": world.workflow, "run_id": run.id},
            "conversation_context_mismatch",
        ),
    ]
    for context, code in wrong:
        other = await world.converse(**context)
        assert await code_of(world.start_run(request_id="r-3", conversation_id=other.id)) == code
    assert await code_of(world.start_run("mate", "r-3", conversation_id=conversation.id)) == "conversation_not_found"
    nothing = world.start_run(request_id="r-3", conversation_id="cnv_" + "0" * 32)
    assert await code_of(nothing) == "conversation_not_found"
    await world.write(conversations.close_conversation, world.people["owner"], world.home, conversation.id)
    assert await code_of(world.start_run(request_id="r-3", conversation_id=conversation.id)) == "conversation_closed"
    # a replay is answered whatever became of the conversation
    replay = await world.start_run(conversation_id=conversation.id)
    assert (replay.created, replay.run) == (False, run)


async def test_a_child_has_its_parents_origin(world: World) -> None:
    conversation = await world.converse(project_id=world.project)
    other = await world.converse(project_id=world.project)
    parent = (await world.start_run(conversation_id=conversation.id)).run
    await world.exchange(conversation, "meanwhile")
    child = (await world.start_run("mate", "r-2", workflow=world.other_workflow, parent_run_id=parent.id)).run
    assert child.origin == parent.origin
    both = await world.start_run(request_id="r-3", parent_run_id=parent.id, conversation_id=conversation.id)
    assert both.run.origin == parent.origin
    conflicting = world.start_run(request_id="r-4", parent_run_id=parent.id, conversation_id=other.id)
    assert await code_of(conflicting) == "conversation_context_mismatch"
    orphan = (await world.start_run(request_id="r-5")).run
    assert (await world.start_run(request_id="r-6", parent_run_id=orphan.id)).run.origin is None
    adopted = world.start_run(request_id="r-7", parent_run_id=orphan.id, conversation_id=conversation.id)
    assert await code_of(adopted) == "conversation_context_mismatch"
    elsewhere = await world.add_project("second")
    workflow = await world.insert(WORKFLOWS, "wfl", project=elsewhere, name="theirs")
    foreign = world.start_run(request_id="r-8", project=elsewhere, workflow=workflow, parent_run_id=parent.id)
    assert await code_of(foreign) == "run_not_found"


async def test_runs_are_listed_newest_first_before_the_gate(world: World) -> None:
    made = [(await world.start_run(request_id=f"r-{number}")).run.id for number in range(3)]
    async with world.http("viewer") as client:
        listing = world.path(f"/projects/{world.project}/runs")
        first = (await client.get(listing + "?limit=2")).json()
        rest = (await client.get(listing + f"?limit=2&cursor={first['next_cursor']}")).json()
        assert [each["id"] for each in first["items"] + rest["items"]] == sorted(made, reverse=True)
        one = await client.get(f"{listing}/{made[0]}")
        assert one.json()["started_by"] == world.people["owner"].user_id
        refused = await client.post(
            world.path(f"/projects/{world.project}/workflows/{world.workflow}/runs"), json={"request_id": "x"}
        )
        assert refused.json()["code"] == "permission_required"
        elsewhere = await world.add_project("second")
        absent = await client.get(world.path(f"/projects/{elsewhere}/runs/{made[0]}"))
        nothing = await client.get(world.path(f"/projects/{elsewhere}/runs/run_{'0' * 32}"))
        assert (absent.status_code, absent.content) == (404, nothing.content)
        await world.change(PROJECTS, world.project, access="administrators")
        for answer in (await client.get(listing), await client.get(f"{listing}/{made[0]}")):
            assert (answer.status_code, answer.json()["code"]) == (403, "administrators_only")


async def test_an_input_is_canonical_bounded_and_the_workflow_open(world: World) -> None:
    whole = {"a": "x" * (256 * 1024 - len('{"a":""}'))}
    assert (await world.start_run(input_data=whole)).created
    too_much = {"a": whole["a"] + "x"}
    assert await code_of(world.start_run(request_id="r-2", input_data=too_much)) == "request_invalid"
    assert await code_of(world.start_run(request_id="r-2", input_data={"a": 2**60})) == "request_invalid"
    elsewhere = await world.add_project("second")
    foreign = world.start_run(request_id="r-2", project=elsewhere, workflow=world.workflow)
    assert await code_of(foreign) == "workflow_not_found"
    await world.change(WORKFLOWS, world.workflow, archived_at=world.clock.now_us())
    assert await code_of(world.start_run(request_id="r-2")) == "workflow_not_found"
    assert not (await world.start_run(input_data=whole)).created
