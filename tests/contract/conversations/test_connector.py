"""The chat's entry: the type that opens it, and its two transactions."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest

from frontdesk.desk import conversations
from frontdesk.desk.conversations.connector import ConnectorAccess
from frontdesk.desk.conversations.model import Conversation, ConversationBusy, ConversationMoved, Turn, TurnExists
from frontdesk.desk.conversations.runner import Answer, Proposal, ProposalDraft
from frontdesk.kernel.errors import Problem
from tests.contract.conversations.world import CONVERSATIONS, MEMBERS, PROPOSALS, TURNS, FakeCursor, World

DRAFT = ProposalDraft(
    tool="roster_tasks_submit",
    arguments={"title": "Report"},
    summary="Create the task “Report”",
    target_kind="project",
    target_id="prj_1",
    target_version=0,
)


async def send(world: World, access: Any, request_id: str = "feishu:1", content: str = "hi") -> Turn:
    _, turn = await world.write(conversations.send_connector_message, access, request_id, content)
    return turn


async def finish(world: World, access: Any, turn: Turn, result: Any = None, **named: Any) -> Turn | None:
    return await world.write(
        conversations.finish_connector_turn, access, turn.id, result or Answer("yes"), runner_name="fake", **named
    )


async def state(world: World, conversation: Conversation) -> tuple[int, list[str]]:
    (row,) = await world.rows(CONVERSATIONS, CONVERSATIONS.c.id == conversation.id)
    return row["revision"], [each["status"] for each in await world.rows(TURNS)]


# ---------------------------------------------------------------------------------------------- the type


async def test_no_access_comes_about_without_the_authoritys_key(world: World) -> None:
    access = await world.access(await world.converse(project_id=world.project))
    values = {field.name: getattr(access, field.name) for field in dataclasses.fields(access)}
    with pytest.raises(TypeError):
        ConnectorAccess()
    with pytest.raises(TypeError):
        ConnectorAccess(**values)
    for key in (None, "key", object()):
        with pytest.raises(TypeError):
            ConnectorAccess.build(key, **values)
    with pytest.raises(TypeError):
        dataclasses.replace(access, user_id="usr_2")
    with pytest.raises(TypeError):
        json.dumps(access)
    with pytest.raises(dataclasses.FrozenInstanceError):
        access.user_id = "usr_2"  # type: ignore[misc]


async def test_the_entries_take_exactly_that_type(world: World) -> None:
    conversation = await world.converse(project_id=world.project)
    access = await world.access(conversation)
    values = {field.name: getattr(access, field.name) for field in dataclasses.fields(access)}

    class Alike:
        def __init__(self) -> None:
            self.__dict__.update(values)

    class Below(ConnectorAccess):
        pass

    below = object.__new__(Below)
    for name, value in values.items():
        object.__setattr__(below, name, value)
    for wrong in (Alike(), below, values, None):
        with pytest.raises(TypeError):
            await send(world, wrong)
    turn = await send(world, access)
    for wrong in (Alike(), below, values, None):
        with pytest.raises(TypeError):
            await finish(world, wrong, turn)


# ---------------------------------------------------------------------------------------------- t1b


async def test_a_message_opens_a_turn_without_a_lease_of_its_own(world: World) -> None:
    conversation = await world.converse(project_id=world.project)
    turn = await send(world, await world.access(conversation))
    assert (turn.surface, turn.status, turn.lease_owner, turn.lease_expires_at) == ("channel", "running", None, None)
    assert await world.read(conversations.find_connector_turn, conversation.id, "feishu:1") == turn


async def test_a_derived_request_id_that_made_a_turn_never_runs_again(world: World) -> None:
    conversation = await world.converse(project_id=world.project)
    access = await world.access(conversation)
    turn = await send(world, access)
    with pytest.raises(TurnExists) as caught:
        await send(world, access)
    assert caught.value.turn == turn
    await world.write(conversations.fail_turn, turn.id, "runner_refused")
    with pytest.raises(TurnExists) as caught:
        await send(world, access)
    assert caught.value.turn.status == "failed"


async def test_the_turn_of_another_surface_is_not_the_chats(world: World) -> None:
    """A person who guesses the derived id blocks their own message and cannot pass another answer off as its own."""
    conversation = await world.converse(project_id=world.project)
    await world.write(conversations.begin_turn, conversation, "feishu:1", "guessed", surface="api")
    with pytest.raises(TurnExists):
        await send(world, await world.access(conversation))
    assert await world.read(conversations.find_connector_turn, conversation.id, "feishu:1") is None


@pytest.mark.parametrize("moved", ["revision", "context_hash", "user_id", "workspace_id", "conversation_id", "closed"])
async def test_a_conversation_that_is_not_as_believed_gets_no_turn(world: World, moved: str) -> None:
    conversation = await world.converse(project_id=world.project)
    wrong: dict[str, Any] = {
        "revision": {"expected_revision": 1},
        "context_hash": {"context_hash": "0" * 64},
        "user_id": {"user_id": world.people["mate"].user_id},
        "workspace_id": {"workspace_id": world.other},
        "conversation_id": {"conversation_id": "cnv_" + "0" * 32},
        "closed": {"expected_revision": 1},
    }[moved]
    if moved == "closed":
        await world.write(conversations.close_conversation, world.people["owner"], world.home, conversation.id)
    with pytest.raises(ConversationMoved):
        await send(world, await world.access(conversation, **wrong))
    assert await world.rows(TURNS) == []


async def test_an_open_console_turn_is_reported_as_busy(world: World) -> None:
    conversation = await world.converse(project_id=world.project)
    await world.write(conversations.begin_turn, conversation, "r-1", "hi", surface="console")
    with pytest.raises(ConversationBusy):
        await send(world, await world.access(conversation))


# ---------------------------------------------------------------------------------------------- t3


async def test_the_final_commit_advances_revision_and_cursor_together(world: World) -> None:
    conversation = await world.converse(project_id=world.project)
    cursor = FakeCursor()
    access = await world.access(conversation, cursor)
    turn = await finish(world, access, await send(world, access))
    assert turn is not None
    assert (turn.status, turn.answer_text, turn.committed_revision, cursor.value) == ("completed", "yes", 1, 1)
    assert await state(world, conversation) == (1, ["completed"])


@pytest.mark.parametrize("obstacle", ["cursor", "revision", "context", "closed", "cancelled", "final", "other_turn"])
async def test_an_obstacle_leaves_turn_and_revision_untouched(world: World, obstacle: str) -> None:
    conversation = await world.converse(project_id=world.project)
    cursor = FakeCursor(refuses=obstacle == "cursor")
    access = await world.access(conversation, cursor)
    turn = await send(world, access)
    if obstacle == "revision":
        await world.change(CONVERSATIONS, conversation.id, revision=5)
    elif obstacle == "context":
        await world.change(CONVERSATIONS, conversation.id, context_hash="0" * 64)
    elif obstacle == "closed":
        await world.write(conversations.close_conversation, world.people["owner"], world.home, conversation.id)
    elif obstacle == "cancelled":
        await world.write(conversations.request_cancel, turn.id)
    elif obstacle == "final":
        await world.write(conversations.fail_turn, turn.id, "agent_execution_indeterminate")
    elif obstacle == "other_turn":
        access = await world.access(await world.converse(project_id=world.project), cursor)
    before = await state(world, conversation)
    assert await finish(world, access, turn) is None
    assert await finish(world, access, turn, Proposal(DRAFT)) is None
    assert await state(world, conversation) == before
    assert await world.rows(PROPOSALS) == []


async def test_a_cursor_that_breaks_takes_everything_back(world: World) -> None:
    conversation = await world.converse(project_id=world.project)
    access = await world.access(conversation, FakeCursor(breaks=True))
    turn = await send(world, access)
    with pytest.raises(RuntimeError):
        await finish(world, access, turn)
    assert await state(world, conversation) == (0, ["running"])


# ---------------------------------------------------------------------------------------------- proposals


async def test_a_proposal_ends_the_turn_as_one_with_its_provenance(world: World) -> None:
    conversation = await world.converse(project_id=world.project)
    access = await world.access(conversation)
    turn = await finish(world, access, await send(world, access), Proposal(DRAFT))
    assert turn is not None
    assert (turn.status, turn.answer_text, turn.committed_revision) == ("proposal", DRAFT.summary, 1)
    proposal = await world.read(conversations.find_proposal_of_turn, turn.id)
    assert proposal is not None
    assert (proposal.status, proposal.tool, proposal.arguments) == ("open", DRAFT.tool, {"title": "Report"})
    assert (proposal.actor_method, proposal.required_permission) == ("connector", "agents.run")
    assert (proposal.conversation_id, proposal.workspace_id) == (conversation.id, world.home)


async def test_an_exchange_kept_for_audit_opens_no_proposal(world: World) -> None:
    conversation = await world.converse(project_id=world.project)
    access = await world.access(conversation)
    turn = await finish(world, access, await send(world, access), Proposal(DRAFT), advance_only_audit=True)
    assert turn is not None
    assert (turn.status, turn.answer_text) == ("completed", DRAFT.summary)
    assert await world.rows(PROPOSALS) == []


async def test_a_proposal_needs_a_running_turn_its_owner_and_a_present_member(world: World) -> None:
    conversation = await world.converse(project_id=world.project)
    access = await world.access(conversation)
    turn = await send(world, access)
    owner, mate = world.people["owner"], world.people["mate"]
    assert await world.write(conversations.store_proposal, turn.id, DRAFT, mate) is None
    assert await world.write(conversations.store_proposal, "trn_" + "0" * 32, DRAFT, owner) is None
    (member,) = await world.rows(MEMBERS, MEMBERS.c.user == owner.user_id)
    await world.database.write(lambda tx: tx.execute(MEMBERS.delete().where(MEMBERS.c.id == member["id"])) and None)
    with pytest.raises(Problem) as caught:
        await world.write(conversations.store_proposal, turn.id, DRAFT, access.actor)
    assert caught.value.code == "membership_required"
    await world.insert(MEMBERS, "mbr", workspace=world.home, user=owner.user_id, role="operator")
    stored = await world.write(conversations.store_proposal, turn.id, DRAFT, access.actor)
    again = await world.write(conversations.store_proposal, turn.id, DRAFT, access.actor)
    assert stored is not None
    assert stored == again
    assert len(await world.rows(PROPOSALS)) == 1
    await world.write(conversations.fail_turn, turn.id, "runner_refused")
    assert await world.write(conversations.store_proposal, turn.id, DRAFT, access.actor) is None


async def test_a_copy_of_an_access_gains_nothing_past_the_next_reading(world: World) -> None:
    conversation = await world.converse(project_id=world.project)
    access = await world.access(conversation)
    copied = copy.copy(access)
    await finish(world, access, await send(world, access))
    with pytest.raises(ConversationMoved):
        await send(world, copied, "feishu:2")
