"""What a conversation is about: the rules of its context, its hash, and what a change of it means."""

from __future__ import annotations

from typing import Any

import pytest

from frontdesk.desk import conversations, runs
from frontdesk.desk.conversations.context import context_hash, normalise_context
from frontdesk.kernel.errors import Problem
from tests.contract.conversations.world import PROJECTS, RUNS, WORKFLOWS, World, code_of

V7 = "b3e92a65240178d4a2abb029a8146ca9eb425a393fdedb94861168efa3245ec0"


def test_the_hash_of_a_context_is_check_value_v7() -> None:
    """A null key is absent from the hashed object, and the value is the literal of the specification."""
    raw = {"project_id": "proj-é-项目", "surface": "console", "workflow_id": "w-1", "run_id": None}
    assert context_hash(normalise_context(raw)) == V7


@pytest.mark.parametrize(
    "raw",
    [
        {"unknown": "x"},
        {"surface": ""},
        {"surface": "x" * 256},
        {"surface": 7},
        {"surface": "a\x00b"},
        {"surface": "\ud800"},
        {"source_id": "s", "project_id": "p"},
        {"workflow_id": "w"},
        {"project_id": "p", "run_id": "r"},
    ],
)
def test_a_context_that_breaks_a_rule_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(Problem) as caught:
        normalise_context(raw)
    assert caught.value.code == "conversation_context_invalid"


@pytest.mark.spec("DESK-263")
async def test_only_a_context_that_is_well_formed_and_belongs_together_is_taken(world: World) -> None:
    """Unknown, empty and overlong keys, a source with a project, and a foreign workflow or run are refused: no row."""
    elsewhere = await world.add_project("second")
    foreign_workflow = await world.insert(WORKFLOWS, "wfl", project=elsewhere, name="other")
    foreign_run = (await world.start_run(workflow=world.other_workflow)).run.id
    own_run = (await world.start_run(request_id="r-2")).run.id
    project, workflow = world.project, world.workflow
    refused: list[tuple[dict[str, Any], int, str]] = [
        ({"unknown": "x"}, 422, "request_invalid"),
        ({"surface": ""}, 422, "request_invalid"),
        ({"surface": "x" * 256}, 422, "request_invalid"),
        ({"source_id": "s-1", "project_id": project}, 409, "conversation_context_invalid"),
        ({"project_id": project, "workflow_id": foreign_workflow}, 404, "workflow_not_found"),
        ({"project_id": project, "workflow_id": workflow, "run_id": foreign_run}, 404, "run_not_found"),
        ({"project_id": "prj_" + "0" * 32}, 404, "project_not_found"),
        ({"workflow_id": workflow}, 409, "conversation_context_invalid"),
    ]
    async with world.http("owner") as client:
        for context, status, code in refused:
            answer = await client.post(world.path("/conversations"), json={"title": "t", "context": context})
            assert (answer.status_code, answer.json()["code"]) == (status, code), context
        assert (await client.get(world.path("/conversations"))).json()["items"] == []
        whole = {"project_id": project, "workflow_id": workflow, "run_id": own_run, "surface": "x" * 255}
        for taken in (whole, {"source_id": "s-1"}, {}):
            answer = await client.post(world.path("/conversations"), json={"title": "t", "context": taken})
            assert (answer.status_code, answer.json()["context"]) == (201, taken)


async def test_a_project_of_another_workspace_reads_as_absent(world: World) -> None:
    foreign = await world.add_project("theirs", workspace=world.other)
    assert await code_of(world.converse(project_id=foreign)) == "project_not_found"


@pytest.mark.parametrize("archived", ["project", "workflow", "run"])
async def test_an_archived_scope_takes_no_new_conversation_and_no_longer_holds(world: World, archived: str) -> None:
    run = (await world.start_run()).run.id
    context = {"project_id": world.project, "workflow_id": world.workflow, "run_id": run}
    conversation = await world.converse(**context)
    assert await world.read(conversations.context_holds, conversation, runs.find_run_scope)
    table, row_id = {
        "project": (PROJECTS, world.project),
        "workflow": (WORKFLOWS, world.workflow),
        "run": (RUNS, run),
    }[archived]
    await world.change(table, row_id, archived_at=world.clock.now_us())
    assert await code_of(world.converse(**context)) == "conversation_context_invalid"
    assert not await world.read(conversations.context_holds, conversation, runs.find_run_scope)
    await world.change(table, row_id, archived_at=None)
    assert await world.read(conversations.context_holds, conversation, runs.find_run_scope)


async def test_another_context_is_another_hash_and_one_revision_more(world: World) -> None:
    conversation = await world.converse(project_id=world.project)
    async with world.http("owner") as client:
        path = world.path(f"/conversations/{conversation.id}")
        same = await client.patch(path, json={"context": {"project_id": world.project}, "title": "Renamed"})
        assert (same.json()["revision"], same.json()["title"]) == (0, "Renamed")
        other = await client.patch(path, json={"context": {"project_id": world.project, "surface": "console"}})
        assert other.json()["revision"] == 1
        bare = await client.patch(path, json={"context": {}})
        assert (bare.json()["revision"], bare.json()["project_id"]) == (2, None)
        for empty in ({}, {"title": None}, {"context": None}):
            assert (await client.patch(path, json=empty)).status_code == 422
        assert (await client.post(path + "/close", json=None)).json()["revision"] == 3
        assert (await client.patch(path, json={"title": "x"})).json()["code"] == "conversation_closed"
    assert (await world.get(conversation)).context_hash != conversation.context_hash
