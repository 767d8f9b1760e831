"""Seats that nobody shares, and every single thing that a grant's use rests on taken away from one of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from frontdesk.desk import connections, conversations, grants, inbox, runs
from frontdesk.identity.members import add_member, remove_member, update_member
from frontdesk.identity.model import ProjectChanges, UserChanges, WorkflowChanges, WorkspaceChanges
from frontdesk.identity.projects import create_project, create_workflow, update_project, update_workflow
from frontdesk.identity.users import insert_local_user, update_user
from frontdesk.identity.workspaces import update_workspace
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import SECRETS, TENANT, DeskWorld, Seat, confirm_activation
from tests.contract.world import UNUSABLE_HASH, logged_in


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """A seat with a user, installation, project, workflow and run of its own."""

    seat: Seat
    project_id: str
    workflow_id: str
    run_id: str


async def scene(desk: DeskWorld) -> Scene:
    """A new scene, made by the product's verbs in one commit."""
    number = desk.number()
    chat, sender, app = f"oc_s{number}", f"ou_s{number}", f"cli_s{number}"
    owner, home = desk.owner, desk.home

    def make(tx: Tx) -> Scene:
        user = insert_local_user(tx, username=f"person-{number}", display_name="P", password_hash=UNUSABLE_HASH)
        add_member(tx, owner, home, role="operator", user_id=user.id)
        person = logged_in(tx, user.id)
        project = create_project(tx, owner, home, name="P", slug=f"project-{number}").id
        workflow = create_workflow(tx, owner, home, project, name="W").id
        run = runs.start_run(tx, owner, home, project, workflow, request_id="r", input_data={}).run.id
        context = {"project_id": project, "workflow_id": workflow, "run_id": run}
        conversation = conversations.create_conversation(
            tx, person, home, title=f"talk {number}", context=context, find_run=runs.find_run_scope
        ).id
        installation = connections.create_installation(
            tx,
            owner,
            workspace_id=home,
            channel="feishu",
            name="Bot",
            app_id=app,
            tenant_key=TENANT,
            secrets=SECRETS,
            **desk.keys,
        ).id
        issued = connections.create_challenge(tx, person, workspace_id=home, installation_id=installation, **desk.keys)
        bind = desk.message(issued.command_text, sender=sender, chat=chat, app_id=app)
        inbox.receive(tx, installation, bind, transport="webhook")
        binding = connections.my_binding(tx, person, workspace_id=home, installation_id=installation)
        assert binding is not None
        order = desk.order(binding.id, conversation, installation_id=installation, project_id=project)
        grant = grants.create(tx, person, order, reply_ready=True, **desk.keys).grant.id
        activation = f"om_act_s{number}"
        confirm_activation(tx, grant, activation)
        seat = Seat(person, installation, binding.id, sender, chat, conversation, grant, activation)
        return Scene(seat, project, workflow, run)

    made = await desk.database.write(make)
    desk.apps[made.seat.installation_id] = app
    return made


Change = Callable[[DeskWorld, Scene], Awaitable[Any]]


async def revoke_grant(desk: DeskWorld, found: Scene) -> None:
    seat = found.seat
    await desk.write(grants.revoke, seat.actor, desk.home, found.project_id, seat.grant_id, **desk.keys)


async def expire_grant(desk: DeskWorld, found: Scene) -> None:
    # By its row: moving the clock would end the other things that have a time.
    await desk.force("reply_grants", found.seat.grant_id, expires_at=desk.clock.now_us())


async def disable_installation(desk: DeskWorld, found: Scene) -> None:
    await desk.enable(False, found.seat.installation_id)


async def revoke_installation(desk: DeskWorld, found: Scene) -> None:
    await desk.revoke_installation(found.seat.installation_id)


async def unbind(desk: DeskWorld, found: Scene) -> None:
    await desk.unbind(found.seat.binding_id)


async def rebind(desk: DeskWorld, found: Scene) -> None:
    seat = found.seat
    await desk.unbind(seat.binding_id)
    await desk.bind(seat.actor, sender=seat.sender, chat=seat.chat, installation_id=seat.installation_id)


async def move_chat(desk: DeskWorld, found: Scene) -> None:
    seat = found.seat
    await desk.bind(seat.actor, sender=seat.sender, chat=f"{seat.chat}_new", installation_id=seat.installation_id)


async def disable_user(desk: DeskWorld, found: Scene) -> None:
    await desk.write(update_user, desk.owner, found.seat.actor.user_id, UserChanges(disabled=True))


async def stop_workspace(desk: DeskWorld, found: Scene) -> None:
    await desk.write(update_workspace, desk.owner, desk.home, WorkspaceChanges(active=False))


async def start_workspace(desk: DeskWorld) -> None:
    await desk.write(update_workspace, desk.owner, desk.home, WorkspaceChanges(active=True))


async def _member(desk: DeskWorld, found: Scene) -> str:
    (member,) = await desk.rows("workspace_members", user=found.seat.actor.user_id)
    return str(member["id"])


async def remove_membership(desk: DeskWorld, found: Scene) -> None:
    await desk.write(remove_member, desk.owner, desk.home, await _member(desk, found))


async def lose_export(desk: DeskWorld, found: Scene) -> None:
    await desk.write(update_member, desk.owner, desk.home, await _member(desk, found), role="viewer")


async def close_conversation(desk: DeskWorld, found: Scene) -> None:
    await desk.close(found.seat.conversation_id, found.seat.actor)


async def change_owner(desk: DeskWorld, found: Scene) -> None:
    await desk.force("conversations", found.seat.conversation_id, owner_user=desk.owner.user_id)


async def change_context(desk: DeskWorld, found: Scene) -> None:
    await desk.write(
        conversations.update_conversation,
        found.seat.actor,
        desk.home,
        found.seat.conversation_id,
        context={"project_id": found.project_id},
        find_run=runs.find_run_scope,
    )


async def archive(desk: DeskWorld, found: Scene, what: str, *, archived: bool = True) -> None:
    """Archive or restore the project, workflow or run."""
    if what == "project":
        changes = ProjectChanges(archived=archived)
        await desk.write(update_project, desk.owner, desk.home, found.project_id, changes)
    elif what == "workflow":
        await desk.write(
            update_workflow,
            desk.owner,
            desk.home,
            found.project_id,
            found.workflow_id,
            changes=WorkflowChanges(archived=archived),
        )
    else:  # no verb archives a run yet
        await desk.force("runs", found.run_id, archived_at=desk.clock.now_us() if archived else None)


async def archive_project(desk: DeskWorld, found: Scene) -> None:
    await archive(desk, found, "project")


async def archive_workflow(desk: DeskWorld, found: Scene) -> None:
    await archive(desk, found, "workflow")


async def archive_run(desk: DeskWorld, found: Scene) -> None:
    await archive(desk, found, "run")


async def misplace_run(desk: DeskWorld, found: Scene) -> None:
    other = await desk.workflow(f"other-{desk.number()}", found.project_id)
    await desk.force("runs", found.run_id, workflow=other)


async def move_revision(desk: DeskWorld, found: Scene) -> None:
    """The conversation moves on without the grant."""
    row = await desk.row("conversations", found.seat.conversation_id)
    await desk.force("conversations", row["id"], revision=row["revision"] + 1)


async def receipts_of(desk: DeskWorld, found: Scene) -> list[dict[str, Any]]:
    return await desk.rows("receipts", reply_grant=found.seat.grant_id)


async def change_sender(desk: DeskWorld, found: Scene) -> None:
    for row in await receipts_of(desk, found):
        await desk.force("receipts", row["id"], sender_id="ou_someone_else")


async def change_chat(desk: DeskWorld, found: Scene) -> None:
    for row in await receipts_of(desk, found):
        await desk.force("receipts", row["id"], chat_id="oc_elsewhere")


async def change_target(desk: DeskWorld, found: Scene) -> None:
    for row in await receipts_of(desk, found):
        await desk.force("receipts", row["id"], parent_message_id="om_of_nobody")


AUTHORITY: dict[str, Change] = {
    "grant revoked": revoke_grant,
    "grant expired": expire_grant,
    "installation disabled": disable_installation,
    "installation revoked": revoke_installation,
    "unbound": unbind,
    "bound anew": rebind,
    "bound in another chat": move_chat,
    "user disabled": disable_user,
    "workspace inactive": stop_workspace,
    "membership removed": remove_membership,
    "EXPORT lost": lose_export,
}
RECEIPT: dict[str, Change] = {
    "another sender": change_sender,
    "another chat": change_chat,
    "another target": change_target,
}
CONVERSATION: dict[str, Change] = {
    "closed": close_conversation,
    "another owner": change_owner,
    "another context": change_context,
    "project archived": archive_project,
    "workflow archived": archive_workflow,
    "run archived": archive_run,
    "run elsewhere": misplace_run,
}
REVISION: dict[str, Change] = {"moved on": move_revision}

LOST, MOVED = "authorization_revoked_before_delivery", "conversation_revision_changed"
ALL: dict[str, tuple[Change, str]] = {
    **{name: (change, LOST) for name, change in (AUTHORITY | RECEIPT).items()},
    **{name: (change, MOVED) for name, change in (CONVERSATION | REVISION).items()},
}
# One of each query; the rows themselves are judged by the same code on both engines.
SAMPLE = (
    "grant revoked",
    "installation disabled",
    "unbound",
    "user disabled",
    "membership removed",
    "another sender",
    "another target",
    "closed",
    "run archived",
    "moved on",
)


def changes(desk: DeskWorld) -> dict[str, tuple[Change, str]]:
    """Every change on SQLite, one of each kind on PostgreSQL, whose locks test_racing.py proves."""
    if desk.database.engine_name == "sqlite":
        return ALL
    return {name: ALL[name] for name in SAMPLE}
