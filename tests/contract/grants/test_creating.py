"""Who may create a reply grant, from what, and what is written with it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from frontdesk.desk import conversations, runs
from frontdesk.desk.conversations.context import context_hash
from frontdesk.desk.grants import CreateGrant
from frontdesk.desk.grants.model import create_hash
from frontdesk.identity.members import update_member
from frontdesk.identity.model import Actor, ProjectChanges, TokenScope, WorkflowChanges
from frontdesk.identity.projects import create_project, update_project, update_workflow
from frontdesk.identity.workspaces import create_workspace
from frontdesk.kernel.secretbox import KeyRing
from tests.contract.desk_world import DeskWorld
from tests.contract.grants.site import NO_WORKER, Site
from tests.contract.world import refusal

WRITTEN = ("reply_grants", "deliveries", "events")


@asynccontextmanager
async def nothing_written(desk: DeskWorld) -> AsyncIterator[None]:
    """The block leaves no grant, no delivery and no event."""
    before = [await desk.rows(table) for table in WRITTEN]
    yield
    assert [await desk.rows(table) for table in WRITTEN] == before


async def expect_refused(desk: DeskWorld, code: str, order: Any, actor: Actor | None = None, **named: Any) -> None:
    async with nothing_written(desk):
        assert await refusal(desk.create(order, actor, **named)) == code


@dataclasses.dataclass
class Ready:
    """A person with binding and conversation, who may create a grant."""

    actor: Actor
    binding_id: str
    conversation_id: str


async def ready(desk: DeskWorld, name: str, sender: str, *, role: str = "operator") -> Ready:
    actor = await desk.people.person(name, role)
    return Ready(actor, await desk.bind(actor, sender=sender, chat=f"oc_{sender}"), await desk.converse(actor, name))


# ------------------------------------------------------------------------------------------------ who and what


@pytest.mark.spec("DESK-72")
async def test_only_the_person_of_both_with_both_rights_creates(desk: DeskWorld) -> None:
    """The creator is the binding's user and the conversation's owner and has READ and EXPORT; else zero rows."""
    mine, theirs = await ready(desk, "mine", "ou_1"), await ready(desk, "theirs", "ou_2")
    await expect_refused(desk, "binding_not_found", desk.order(theirs.binding_id, mine.conversation_id), mine.actor)
    await expect_refused(
        desk, "conversation_not_found", desk.order(mine.binding_id, theirs.conversation_id), mine.actor
    )
    order = desk.order(mine.binding_id, mine.conversation_id)
    await expect_refused(desk, "binding_not_found", order, desk.owner)  # an administrator is nobody else
    for rights, code in (
        ({"artifacts.export"}, "permission_required"),
        ({"workspace.read"}, "permission_required"),
        (set(), "permission_required"),
    ):
        scope = TokenScope("tok_1", "access", None, frozenset(rights), None, platform_admin=False)
        await expect_refused(desk, code, order, dataclasses.replace(mine.actor, token=scope))
    (member,) = await desk.rows("workspace_members", user=mine.actor.user_id)
    await desk.write(update_member, desk.owner, desk.home, member["id"], role="viewer")
    await expect_refused(desk, "permission_required", order, mine.actor)  # a viewer reads but does not export
    stranger = await desk.people.person("stranger")
    await expect_refused(desk, "membership_required", order, stranger)

    await desk.write(update_member, desk.owner, desk.home, member["id"], role="operator")
    assert (await desk.create(order, mine.actor)).grant.bound_user_id == mine.actor.user_id


@pytest.mark.spec("DESK-73")
async def test_foreign_parts_are_refused_as_if_absent(desk: DeskWorld) -> None:
    """Workspace, project, workflow, run and conversation of others end with the outcomes of 4.4 and no row."""
    mine = await ready(desk, "mine", "ou_1")
    other = await desk.write(create_workspace, desk.owner, name="Other", slug="other")
    far_installation = await desk.install("Far", workspace_id=other.id)
    far_project = await desk.write(create_project, desk.owner, other.id, name="Far", slug="far")
    second = await desk.people.project("second")

    def order(**changes: Any) -> Any:
        return dataclasses.replace(desk.order(mine.binding_id, mine.conversation_id), **changes)

    absent = "_" + "0" * 32
    cases: list[tuple[str, dict[str, Any]]] = [
        ("membership_required", {"workspace_id": other.id, "project_id": far_project.id}),
        ("membership_required", {"workspace_id": "wsp" + absent}),
        ("project_not_found", {"project_id": far_project.id}),
        ("project_not_found", {"project_id": "prj" + absent}),
        ("conversation_context_mismatch", {"project_id": second.id}),
        ("installation_not_found", {"installation_id": far_installation}),
        ("installation_not_found", {"installation_id": "ins" + absent}),
        ("binding_not_found", {"binding_id": "bnd" + absent}),
        ("conversation_not_found", {"conversation_id": "cnv" + absent}),
        ("conversation_not_found", {"conversation_id": await desk.converse(desk.owner)}),
    ]
    for code, changes in cases:
        await expect_refused(desk, code, order(**changes), mine.actor)
    # A member of both workspaces who mixes them.
    theirs = await desk.bind(desk.owner, sender="ou_9", chat="oc_9")
    conversation = await desk.converse(desk.owner)
    mixed = desk.order(theirs, conversation, installation_id=far_installation)
    await expect_refused(desk, "installation_not_found", mixed)
    elsewhere = desk.order(theirs, conversation, workspace_id=other.id, project_id=far_project.id)
    await expect_refused(desk, "installation_not_found", elsewhere)
    # A workflow and a run that are another project's.
    workflow = await desk.workflow(project_id=second.id)
    run = await desk.run(workflow, second.id)
    for wrong in ({"workflow_id": workflow}, {"workflow_id": workflow, "run_id": run}):
        context = {"project_id": desk.project, **wrong}
        await desk.force("conversations", conversation, context=context, context_hash=context_hash(context))
        await expect_refused(desk, "conversation_context_mismatch", desk.order(theirs, conversation))


async def archive(desk: DeskWorld, what: str, scope: dict[str, str], *, archived: bool = True) -> None:
    """Archive or restore the project, the workflow or the run of a scope."""
    if what == "project":
        await desk.write(update_project, desk.owner, desk.home, scope["project_id"], ProjectChanges(archived=archived))
    elif what == "workflow":
        await desk.write(
            update_workflow,
            desk.owner,
            desk.home,
            scope["project_id"],
            scope["workflow_id"],
            changes=WorkflowChanges(archived=archived),
        )
    else:  # no verb archives a run yet
        await desk.force("runs", scope["run_id"], archived_at=desk.clock.now_us() if archived else None)


async def full_scope(desk: DeskWorld) -> dict[str, str]:
    """Project, workflow and run of one scope."""
    workflow = await desk.workflow()
    return {"project_id": desk.project, "workflow_id": workflow, "run_id": await desk.run(workflow)}


@pytest.mark.spec("DESK-74")
async def test_what_is_closed_off_or_archived_is_refused(desk: DeskWorld) -> None:
    """Nothing closed, disabled, revoked, unreadable, archived or mis-owned carries a grant, nor another context."""
    scope = await full_scope(desk)
    binding = await desk.bind()
    conversation = await desk.converse(**scope)
    order = desk.order(binding, conversation)
    stored = (await desk.row("conversations", conversation))["context"]

    closed = await desk.converse()
    await desk.close(closed)
    await expect_refused(desk, "conversation_closed", desk.order(binding, closed))
    await expect_refused(desk, "project_context_required", desk.order(binding, await desk.converse(surface="console")))
    await desk.enable(False)
    await expect_refused(desk, "installation_not_active", order)
    await desk.enable(True)
    kept, desk.keyring = desk.keyring, KeyRing("")
    await expect_refused(desk, "credential_unavailable", order)
    desk.keyring = kept
    await expect_refused(desk, "reply_execution_not_ready", order, ready=False)
    for what in ("project", "workflow", "run"):
        await archive(desk, what, scope)
        await expect_refused(desk, "conversation_context_mismatch", order)
        await archive(desk, what, scope, archived=False)
    second = await desk.workflow("second")
    for wrong in (
        {**scope, "workflow_id": second},
        {**scope, "run_id": "run_" + "0" * 32},
        {**scope, "surface": "chat"},
    ):
        await desk.force("conversations", conversation, context=wrong)
        await expect_refused(desk, "conversation_context_mismatch", order)  # the hash is that of the stored one
    for mixed in ({**scope, "workflow_id": second}, {**scope, "run_id": "run_" + "0" * 32}):
        await desk.force("conversations", conversation, context=mixed, context_hash=context_hash(mixed))
        await expect_refused(desk, "conversation_context_mismatch", order)
    await desk.force("conversations", conversation, context=stored, context_hash=context_hash(stored))
    await desk.unbind(binding)
    await expect_refused(desk, "binding_not_active", order)
    await desk.bind()
    assert (await desk.create(order)).created
    await desk.revoke_installation()
    await expect_refused(desk, "installation_revoked", desk.order(binding, await desk.converse()))


@pytest.mark.spec("DESK-77")
@pytest.mark.parametrize("access", ["administrators", "members"])
async def test_the_gate_asks_how_a_person_logged_in(desk: DeskWorld, access: str) -> None:
    """Behind the gate local and bootstrap administrators with membership succeed; elsewhere an OIDC member does too."""
    project = await desk.people.project("inner", access)
    persons: dict[str, Actor] = {}
    for number, method in enumerate(("local", "bootstrap", "oidc")):
        person = await desk.people.person(f"by-{method}", "operator", platform_admin=True)
        persons[method] = dataclasses.replace(person, auth_method=method)
        binding = await desk.bind(person, sender=f"ou_{number}", chat=f"oc_{number}")
        conversation = await desk.converse(person, project_id=project.id)
        order = desk.order(binding, conversation, project_id=project.id)
        if access == "administrators" and method == "oidc":
            await expect_refused(desk, "administrators_only", order, persons[method])
        else:
            assert (await desk.create(order, persons[method])).created
    outsider = await desk.people.person("outsider", platform_admin=True)
    order = desk.order("bnd_" + "0" * 32, "cnv_" + "0" * 32, project_id=project.id)
    await expect_refused(desk, "membership_required", order, outsider)


# ------------------------------------------------------------------------------------------------ the body


async def body_of(desk: DeskWorld) -> dict[str, Any]:
    return {
        "request_id": "r-1",
        "installation_id": desk.installation_id,
        "binding_id": await desk.bind(),
        "conversation_id": await desk.converse(),
    }


SERVERS = (
    "user user_id bound_user chat chat_id context context_hash revision cursor binding_revision created_by creator "
    "status active_slot slot version expires_at project_id workspace_id session artifact_key conversation media_path"
).split()


async def test_a_field_of_the_servers_is_refused(desk: DeskWorld) -> None:
    """A reply grant's create body with a field that the server sets is 422 and writes nothing."""
    site = Site(desk)
    body = await body_of(desk)
    async with nothing_written(desk):
        for field in SERVERS:
            status, answer = await site.call("POST", site.path(), json={**body, field: "x"})
            assert (status, answer["code"]) == (422, "request_invalid"), field


@pytest.mark.spec("DESK-80")
async def test_request_id_and_expiry_have_bounds(desk: DeskWorld) -> None:
    """The request id is trimmed and 1..64 characters long, the expiry 300..2,592,000 s and a week by default."""
    site = Site(desk)
    body = await body_of(desk)
    refused: list[dict[str, Any]] = [
        {"request_id": ""},
        {"request_id": "   "},
        {"request_id": "x" * 65},
        {"request_id": 5},
        {"expires_in_seconds": 299},
        {"expires_in_seconds": 2_592_001},
        {"expires_in_seconds": "300"},
        {"expires_in_seconds": 300.5},
        {"expires_in_seconds": None},
        {"expires_in_seconds": True},
    ]
    async with nothing_written(desk):
        for changes in refused:
            status, answer = await site.call("POST", site.path(), json={**body, **changes})
            assert (status, answer["code"]) == (422, "request_invalid"), changes
    accepted: list[tuple[dict[str, Any], str, int]] = [
        ({"request_id": "  padded  "}, "padded", 604_800),
        ({"request_id": "x" * 64, "expires_in_seconds": 300}, "x" * 64, 300),
        ({"request_id": f" {'y' * 64} ", "expires_in_seconds": 2_592_000}, "y" * 64, 2_592_000),
    ]
    for changes, request_id, seconds in accepted:
        conversation = await desk.converse(title=request_id)
        status, answer = await site.call("POST", site.path(), json={**body, **changes, "conversation_id": conversation})
        assert status == 201
        row = await desk.row("reply_grants", answer["id"])
        assert (row["create_request_id"], row["expires_at"] - row["created_at"]) == (request_id, seconds * 1_000_000)
    assert await desk.count("reply_grants") == len(accepted)


@pytest.mark.spec("DESK-84")
async def test_the_create_hash_is_a_known_value(desk: DeskWorld) -> None:
    """Key order, non-ASCII ids and a left-out expiry do not change the hash, which is the published one."""
    published = "d1249ffce005946b1d059647247d5409ba84d721f45efd5e30db2c0f0e74c233"
    parts = {
        "workspace_id": "ws-1",
        "project_id": "proj-é-项目",
        "installation_id": "i-1",
        "binding_id": "b-1",
        "conversation_id": "c-1",
    }
    assert create_hash(**parts, expires_in=604_800) == published
    order = CreateGrant(**parts, request_id="anything")
    assert order.hash == published
    assert dataclasses.replace(order, request_id="another").hash == published
    # Over HTTP: bodies that spell one request differently are one request.
    site = Site(desk)
    body = await body_of(desk)
    spellings = [
        body,
        dict(reversed(body.items())),
        {**body, "expires_in_seconds": 604_800},
        {"expires_in_seconds": 604_800, **body},
    ]
    answers = [await site.call("POST", site.path(), json=spelling) for spelling in spellings]
    assert [(status, answer["created"]) for status, answer in answers] == [(201, True)] + [(201, False)] * 3
    (row,) = await desk.rows("reply_grants")
    assert row["create_request_hash"] == create_hash(
        workspace_id=desk.home,
        project_id=desk.project,
        installation_id=desk.installation_id,
        binding_id=body["binding_id"],
        conversation_id=body["conversation_id"],
        expires_in=604_800,
    )


# ------------------------------------------------------------------------------------------------ what is written


@pytest.mark.spec("DESK-82")
async def test_cursor_and_context_are_the_conversations_own(desk: DeskWorld) -> None:
    """The cursor is the conversation's revision and the context hash the published hash of its normalised context."""
    context = {"project_id": "proj-é-项目", "surface": "console", "workflow_id": "w-1"}
    assert context_hash(context) == "b3e92a65240178d4a2abb029a8146ca9eb425a393fdedb94861168efa3245ec0"
    scope = await full_scope(desk)
    conversation = await desk.converse(surface="console", **scope)
    for surface in ("chat", "console"):  # two changes of context: revision 2
        await desk.write(
            conversations.update_conversation,
            desk.owner,
            desk.home,
            conversation,
            context={**scope, "surface": surface, "source_id": None},
            find_run=runs.find_run_scope,
        )
    row = await desk.row("conversations", conversation)
    view = await desk.create(desk.order(await desk.bind(), conversation))
    assert view.grant.cursor == row["revision"] == 2
    normalised = {**scope, "surface": "console"}
    assert view.grant.context_hash == context_hash(normalised) == row["context_hash"]
    assert (view.grant.workflow_id, view.grant.run_id) == (scope["workflow_id"], scope["run_id"])


@pytest.mark.spec("DESK-83")
async def test_grant_activation_and_event_are_one_commit(desk: DeskWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grant and activation become visible together or not at all, and the answer comes while nothing has been sent."""
    order = desk.order(await desk.bind(), await desk.converse(title="Plan"))

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("after the grant")

    for step in ("frontdesk.desk.grants.service.outbox.take_snapshot", "frontdesk.desk.grants.service.record_event"):
        with monkeypatch.context() as patch:
            patch.setattr(step, broken)
            async with nothing_written(desk):
                with pytest.raises(RuntimeError, match="after the grant"):
                    await desk.create(order)
    view = await desk.create(order)
    (delivery,) = await desk.rows("deliveries")
    assert (delivery["reply_grant"], delivery["purpose"], delivery["status"]) == (
        view.grant.id,
        "activation",
        "pending",
    )
    assert (delivery["dedupe_key"], delivery["chat_id"]) == (f"activation:{view.grant.id}", "oc_1")
    assert "Plan" in delivery["text"]
    assert (view.activation_status, view.unusable_reason, view.created) == ("pending", None, True)
    assert (desk.channel.sent, desk.channel.connected) == ([], [])


async def test_a_grant_is_the_persons_chat_and_scope(desk: DeskWorld) -> None:
    """User, chat, scope and binding revision are read from binding and conversation."""
    await desk.unbind(await desk.bind(chat="oc_old"))
    binding = await desk.bind(chat="oc_new")
    scope = await full_scope(desk)
    grant = (await desk.create(desk.order(binding, await desk.converse(**scope)))).grant
    row = await desk.row("bindings", binding)
    assert (grant.chat_id, grant.binding_revision) == ("oc_new", row["revision"])
    assert row["revision"] == 3
    assert (grant.bound_user_id, grant.created_by) == (desk.owner.user_id, desk.owner.user_id)
    assert (grant.project_id, grant.workflow_id, grant.run_id) == tuple(scope.values())


async def test_readiness_is_asked_over_http(desk: DeskWorld) -> None:
    """A process that cannot answer refuses a new grant with 503 and answers a replay all the same."""
    site = Site(desk)
    body = await body_of(desk)
    site.worker = NO_WORKER
    status, answer = await site.call("POST", site.path(), json=body)
    assert (status, answer["code"]) == (503, "reply_execution_not_ready")
    site.worker = Site(desk).worker
    assert (await site.call("POST", site.path(), json=body))[0] == 201
    site.worker = NO_WORKER
    status, answer = await site.call("POST", site.path(), json=body)
    assert (status, answer["created"]) == (201, False)
