"""Authority is read anew at every use, by one query, for one capability that only one module can make."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grimp
import pytest
from pydantic import TypeAdapter

import frontdesk
from frontdesk.app.routes import ROUTES
from frontdesk.desk import grants
from frontdesk.desk.conversations.connector import ConnectorAccess, finish_connector_turn, send_connector_message
from frontdesk.desk.conversations.runner import Answer
from frontdesk.desk.inbox import claiming, working
from frontdesk.identity.model import ProjectChanges, UserChanges
from frontdesk.identity.projects import update_project
from frontdesk.identity.users import update_user
from frontdesk.kernel.clock import SECOND
from tests.contract.desk_world import DeskWorld, Gate
from tests.contract.grants.scenes import LOST, MOVED, Scene, archive, changes, scene, start_workspace

SOURCE = Path(frontdesk.__file__).parent

# ------------------------------------------------------------------------------------------------ each thing once
# DESK-98 is not claimed: two rows of its table speak of artifact grants, which do not exist yet.


async def _undone(desk: DeskWorld, name: str) -> None:
    if name == "workspace inactive":
        await start_workspace(desk)


async def test_before_the_runner_everything_is_read_again(desk: DeskWorld) -> None:
    """t1b: a receipt whose grant lost any one thing since reception ends without a turn, and no runner is called."""
    for name, (change, code) in changes(desk).items():
        found = await scene(desk)
        row = await desk.ask("question", found.seat)
        assert row["status"] == "received", name
        await change(desk, found)
        await desk.work()
        ended = await desk.row("receipts", row["id"])
        assert (name, ended["status"], ended["error_code"]) == (name, "permanent_failed", code)
        assert await desk.count("turns", conversation=found.seat.conversation_id) == 0, name
        await _undone(desk, name)
    assert desk.runner.requests == []
    assert desk.channel.sent == []


async def test_what_changed_while_the_runner_worked_is_seen_at_the_commit(desk: DeskWorld) -> None:
    """t3: lost authority keeps the exchange for audit, a changed conversation drops it; nothing is delivered."""
    for name, (change, code) in changes(desk).items():
        found = await scene(desk)
        row = await desk.ask("question", found.seat)
        desk.runner.behaviour = gate = Gate()
        worker = desk.receipt_worker()
        assert await worker.step() == 1
        await asyncio.wait_for(gate.reached.wait(), 10)
        await change(desk, found)
        revision = (await desk.row("conversations", found.seat.conversation_id))["revision"]
        gate.opened.set()
        await worker.stop(30)
        ended = await desk.row("receipts", row["id"])
        assert (name, ended["status"], ended["error_code"]) == (name, "permanent_failed", code)
        (turn,) = await desk.rows("turns", conversation=found.seat.conversation_id)
        after = (await desk.row("conversations", found.seat.conversation_id))["revision"]
        cursor = (await desk.row("reply_grants", found.seat.grant_id))["cursor"]
        if code == LOST:
            assert (name, turn["status"], turn["response"] is not None) == (name, "completed", True)
            assert (name, after, cursor) == (name, revision + 1, 1)
        else:
            assert (name, turn["status"], turn["response"]) == (name, "failed", None)
            assert (name, after, cursor) == (name, revision, 0)
        assert await desk.delivery_of(row["id"]) is None, name
        await _undone(desk, name)
    await desk.send()
    assert desk.channel.sent == []


async def test_between_commit_and_delivery_everything_is_read_again(desk: DeskWorld) -> None:
    """t4: what was lost after the turn's commit leaves the answer in the conversation and inserts no delivery."""
    for name, (change, code) in changes(desk).items():
        found = await scene(desk)
        row = await desk.ask("question", found.seat)
        begun, turn = await _committed(desk)
        await change(desk, found)
        await desk.write(working.deliver, begun, turn, desk.parts)
        ended = await desk.row("receipts", row["id"])
        assert (name, ended["status"], ended["error_code"]) == (name, "permanent_failed", code)
        assert await desk.delivery_of(row["id"]) is None, name
        await _undone(desk, name)


async def _begun(desk: DeskWorld) -> working.Begun:
    order = claiming.Claim("worker", 30 * SECOND, 1)
    (receipt,) = await desk.write(claiming.claim, order, desk.parts)
    begun = await desk.write(working.begin, receipt, desk.parts)
    assert begun is not None
    return begun


async def _committed(desk: DeskWorld) -> tuple[working.Begun, Any]:
    begun = await _begun(desk)
    turn = await desk.write(working.commit_answer, begun, Answer("done"))
    assert turn is not None
    return begun, turn


@pytest.mark.parametrize("when", ["before connect", "after connect"])
async def test_before_the_send_everything_is_read_again(desk: DeskWorld, when: str) -> None:
    """t5 and t7: an answer whose grant lost any one thing fails; before connect nothing is built, after it not sent."""
    for name, (change, code) in changes(desk).items():
        found = await scene(desk)
        row = await desk.ask("question", found.seat)
        await desk.work()
        assert (await desk.row("receipts", row["id"]))["status"] == "completed", name
        connected = len(desk.channel.connected)
        if when == "before connect":
            await change(desk, found)
        else:

            async def connecting(_: Any, change: Any = change, found: Scene = found) -> None:
                await change(desk, found)

            desk.channel.on_connect = connecting
        await desk.send()
        desk.channel.on_connect = None
        delivery = await desk.delivery_of(row["id"])
        assert delivery is not None
        assert (name, delivery.status, delivery.error_code) == (name, "failed", code)
        ended = await desk.row("receipts", row["id"])
        assert (name, ended["status"], ended["error_code"]) == (name, "permanent_failed", code)
        assert len(desk.channel.connected) - connected == (0 if when == "before connect" else 1), name
        await _undone(desk, name)
    assert desk.channel.sent == []


async def test_an_activation_rests_on_the_same_things(desk: DeskWorld) -> None:
    """A grant that lost any one thing before its activation was sent sends none."""
    for name, (change, code) in changes(desk).items():
        if name.startswith("another ") and name not in ("another owner", "another context"):
            continue  # an activation answers no receipt
        found = await scene(desk)
        (activation,) = await desk.rows("deliveries", reply_grant=found.seat.grant_id)
        await desk.force("deliveries", activation["id"], status="pending", provider_message_id=None, sent_at=None)
        await change(desk, found)
        await desk.send()
        ended = await desk.row("deliveries", activation["id"])
        assert (name, ended["status"], ended["error_code"]) == (name, "failed", code)
        await _undone(desk, name)
    assert desk.channel.connected == []


# ------------------------------------------------------------------------------------------------ the capability


def _can_build(path: Path) -> bool:
    """True where a module names the key, or calls `build` on anything while it knows the type."""
    text = path.read_text(encoding="utf-8")
    if "_AUTHORITY_KEY" not in text and "ConnectorAccess" not in text:
        return False
    nodes = list(ast.walk(ast.parse(text)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return "_AUTHORITY_KEY" in names | attributes or ("ConnectorAccess" in names and "build" in attributes)


@pytest.mark.spec("DESK-99")
async def test_the_capability_is_the_authority_modules_alone(desk: DeskWorld) -> None:
    """Only `desk/grants/authority.py` can build an access, the entry takes nothing else, no wire model yields one."""
    holders = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if _can_build(path)}
    assert holders == {"desk/conversations/connector.py", "desk/grants/authority.py"}

    found = await scene(desk)
    await desk.ask("question", found.seat)
    access = (await _begun(desk)).access
    assert isinstance(access, ConnectorAccess)
    fields = {each.name: getattr(access, each.name) for each in dataclasses.fields(access)}
    with pytest.raises(TypeError):
        ConnectorAccess()
    for key in (None, object(), "key"):
        with pytest.raises(TypeError):
            ConnectorAccess.build(key, **fields)
    with pytest.raises(TypeError):
        dataclasses.replace(access)
    with pytest.raises(dataclasses.FrozenInstanceError):
        access.expected_revision = 7  # type: ignore[misc]

    class Lookalike:
        def __getattr__(self, name: str) -> Any:
            return fields[name]

    class Subclass(ConnectorAccess):
        pass

    others: list[Any] = [fields, Lookalike(), object.__new__(Subclass), None, found.seat.grant_id]
    for other in others:
        with pytest.raises(TypeError):
            await desk.write(send_connector_message, other, "feishu:x", "text")
        with pytest.raises(TypeError):
            await desk.write(finish_connector_turn, other, "trn_x", Answer("x"), runner_name="fake")
    plain = {name: value for name, value in fields.items() if name not in ("actor", "cursor")}
    with pytest.raises(Exception):  # noqa: B017 - however pydantic says no
        TypeAdapter(ConnectorAccess).validate_python({**plain, "actor": dataclasses.asdict(access.actor)})
    for operation, _ in ROUTES:
        for model in (operation.request, operation.response, operation.query):
            assert "ConnectorAccess" not in repr(getattr(model, "model_fields", "")), operation.id
    assert await desk.count("turns", conversation=found.seat.conversation_id) == 1


@pytest.mark.spec("DESK-100")
async def test_the_connector_acts_as_the_persisted_person_and_nobody_more(desk: DeskWorld) -> None:
    """The actor is the user's own subject by `connector`, no administrator, no token; nobody is created on the way."""
    seat = await desk.seat()  # the owner: platform administrator and admin of the workspace
    before = [await desk.rows(table) for table in ("users", "workspace_members", "access_tokens", "console_sessions")]
    await desk.ask("question", seat)
    actor = (await _begun(desk)).access.actor
    (user,) = await desk.rows("users", id=seat.actor.user_id)
    assert (actor.user_id, actor.subject) == (user["id"], user["subject"])
    assert (actor.auth_method, actor.is_platform_admin, actor.token, actor.session_id) == (
        "connector",
        False,
        None,
        None,
    )
    assert user["is_platform_admin"]
    desk.clock.advance(31 * SECOND)
    for text in ("second", "third"):
        await desk.ask(text, seat)
    await desk.receipt(await desk.push(desk.message("hi", sender="ou_new", chat="oc_new")))
    await desk.work()
    await desk.send()
    after = [await desk.rows(table) for table in ("users", "workspace_members", "access_tokens", "console_sessions")]
    assert after == before
    assert not {seat.chat, seat.sender, "oc_new", "ou_new"} & {row["subject"] for row in after[0]}


@pytest.mark.spec("DESK-102")
def test_conversations_do_not_know_grants() -> None:
    """No module of the conversations room imports one of the grants room, directly or through others."""
    graph = grimp.build_graph("frontdesk", exclude_type_checking_imports=False)
    room = "frontdesk.desk.conversations"
    assert graph.find_children(room)
    assert not graph.chain_exists(importer=room, imported="frontdesk.desk.grants", as_packages=True)
    assert graph.chain_exists(importer="frontdesk.desk.grants", imported=room, as_packages=True)  # the other way it is


# ------------------------------------------------------------------------------------------------ the gate


def _spy_on_the_gate(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every module's own name for the gate counts its calls."""
    calls: list[str] = []

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            calls.append(name)
            return real(*arguments, **named)

        return call

    for module in [module for name, module in sys.modules.items() if name.startswith("frontdesk.")]:
        for name in ("require_gate", "passes_gate", "require_project", "require_platform_admin", "hidden_project_ids"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    return calls


@pytest.mark.spec("DESK-78")
@pytest.mark.parametrize("change", ["the project's access", "the owner's standing"])
async def test_the_gate_binds_people_and_not_a_grant(
    desk: DeskWorld, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receipt under an existing grant runs and is answered behind the gate, and nothing on its way asks the gate."""
    root = await desk.people.person("root", "admin", platform_admin=True)
    person = await desk.people.person("person", "operator", platform_admin=change == "the owner's standing")
    if change == "the owner's standing":
        project = (await desk.people.project("inner", "administrators")).id
    else:
        project = (await desk.people.project("outer")).id
    conversation = await desk.converse(person, project_id=project)
    seat = await desk.seat(person, sender="ou_2", chat="oc_2", conversation_id=conversation, project_id=project)
    first = await desk.ask("before", seat)
    if change == "the owner's standing":
        await desk.write(update_user, root, person.user_id, UserChanges(is_platform_admin=False))
    else:
        access = {"access": "administrators", "active_reply_grants": "keep"}
        await desk.write(grants.set_project_access, root, desk.home, project, **access)

    calls = _spy_on_the_gate(monkeypatch)
    second = await desk.ask("after", seat)
    unaddressed = await desk.ask("after, to none", seat, reply=False)
    await desk.work()
    await desk.send()
    assert calls == []
    for row in (first, second, unaddressed):
        assert (await desk.row("receipts", row["id"]))["status"] == "completed"
    assert len(desk.channel.sent) == 3
    # The spy works, and the person stands before the gate.
    with pytest.raises(Exception, match="administrators_only"):
        await desk.read(grants.get, await _fresh(desk, person), desk.home, project, seat.grant_id, **desk.keys)
    assert calls


async def _fresh(desk: DeskWorld, person: Any) -> Any:
    (row,) = await desk.rows("users", id=person.user_id)
    return dataclasses.replace(person, is_platform_admin=row["is_platform_admin"])


# ------------------------------------------------------------------------------------------------ archiving


@pytest.mark.spec("DESK-378")
@pytest.mark.parametrize("what", ["project", "workflow", "run"])
async def test_an_archived_scope_strands_a_grant_until_it_is_restored(desk: DeskWorld, what: str) -> None:
    """Archiving reads unusable at once, ends the next receipt and every unsent delivery; restoring undoes it."""
    found = await scene(desk)
    seat = found.seat
    await desk.ask("answered", seat)
    await desk.work()  # an answer that is pending
    (activation,) = await desk.rows("deliveries", reply_grant=seat.grant_id, purpose="activation")
    waiting = await desk.ask("waiting", seat)

    async def reason() -> str | None:
        view = await desk.read(grants.get, seat.actor, desk.home, found.project_id, seat.grant_id, **desk.keys)
        return view.unusable_reason

    assert await reason() is None
    await archive(desk, found, what)
    assert await reason() == "conversation_context_changed"
    late = await desk.ask("late", seat)
    await desk.work()
    await desk.send()
    ended = await desk.row("receipts", waiting["id"])
    assert (ended["status"], ended["error_code"]) == ("permanent_failed", MOVED)
    late = await desk.row("receipts", late["id"])
    assert (late["status"], late["error_code"]) == ("permanent_failed", MOVED)
    (answer,) = await desk.rows("deliveries", reply_grant=seat.grant_id, purpose="agent_reply")
    assert (answer["status"], answer["error_code"]) == ("failed", MOVED)
    assert (len(desk.runner.requests), desk.channel.connected) == (1, [])
    assert (await desk.row("deliveries", activation["id"]))["status"] == "sent"

    await archive(desk, found, what, archived=False)
    assert await reason() is None
    # A delivery that is connecting when it happens does not reach `sending` either.
    await desk.ask("again", seat)
    await desk.work()

    async def archive_now(_: Any) -> None:
        await archive(desk, found, what)

    desk.channel.on_connect = archive_now
    await desk.send()
    desk.channel.on_connect = None
    answers = await desk.rows("deliveries", reply_grant=seat.grant_id, purpose="agent_reply")
    assert [(row["status"], row["error_code"]) for row in answers] == [("failed", MOVED)] * 2
    assert desk.channel.sent == []

    await archive(desk, found, what, archived=False)
    assert await reason() is None
    row = await desk.ask("restored", seat)
    await desk.work()
    await desk.send()
    assert (await desk.row("receipts", row["id"]))["status"] == "completed"
    assert [message.reply_to for message in desk.channel.sent] == [row["provider_message_id"]]


async def test_archiving_another_scope_changes_nothing(desk: DeskWorld) -> None:
    found = await scene(desk)
    other = await desk.people.project("elsewhere")
    await desk.write(update_project, desk.owner, desk.home, other.id, ProjectChanges(archived=True))
    await desk.ask("question", found.seat)
    await desk.work()
    assert len(desk.runner.requests) == 1
