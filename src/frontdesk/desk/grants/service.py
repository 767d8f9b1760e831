"""Verbs on reply grants: create, read, revoke, expire, and a project's access."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from frontdesk.desk import connections, conversations, outbox, runs
from frontdesk.desk.connections.channel import Channels
from frontdesk.desk.connections.model import Binding, Installation
from frontdesk.desk.conversations.model import Conversation
from frontdesk.desk.grants import store
from frontdesk.desk.grants.authority import judge
from frontdesk.desk.grants.model import GrantView, ReplyGrant, create_hash, grant_of, reply_slot
from frontdesk.identity import (
    find_project,
    list_events_of_grant,
    record_event,
    require_behind,
    require_project,
    set_access_row,
)
from frontdesk.identity.model import Actor, Event, Membership, Project, Right
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class CreateGrant:
    """A create request, normalised: defaults filled in, request id trimmed."""

    workspace_id: str
    project_id: str
    request_id: str
    installation_id: str
    binding_id: str
    conversation_id: str
    expires_in_seconds: int = limits.REPLY_GRANT_TTL_SECONDS_DEFAULT

    @property
    def hash(self) -> str:
        """See `model.create_hash`."""
        return create_hash(
            workspace_id=self.workspace_id,
            project_id=self.project_id,
            installation_id=self.installation_id,
            binding_id=self.binding_id,
            conversation_id=self.conversation_id,
            expires_in=self.expires_in_seconds,
        )


class CreateRaced(Exception):
    """A uniqueness rule refused the insert: roll back, then call `resolve_race` in a new transaction."""


def create(
    tx: Tx, actor: Actor, command: CreateGrant, *, keyring: KeyRing, channels: Channels, reply_ready: bool
) -> GrantView:
    """Grant, its one activation delivery and the event in one commit.

    A replay of the same request is answered before readiness is asked.

    Raises the problems of desk.md 4.4, and `CreateRaced` where another session was first.
    """
    require_project(tx, actor, command.workspace_id, command.project_id, Right.READ, Right.EXPORT, share=True)
    replay = _replay(tx, actor, command, keyring, channels)
    if replay is not None:
        return replay
    if not reply_ready:
        raise Problem("reply_execution_not_ready")
    # The grant is locked before the conversation, in the one order of locks.
    slot = reply_slot(command.workspace_id, command.conversation_id, actor.user_id)
    holder = store.find_by_slot(tx, slot, lock=True)
    installation, binding, conversation = _parts(tx, actor, command, keyring, channels)
    _free_stale_slot(tx, holder)
    grant_id = tx.new_id("grt")
    context = conversation.context
    values = {
        "id": grant_id,
        "created_at": tx.now,
        "updated_at": tx.now,
        "workspace": command.workspace_id,
        "installation": installation.id,
        "binding": binding.id,
        "bound_user": actor.user_id,
        "project": command.project_id,
        "workflow": context.get("workflow_id"),
        "run": context.get("run_id"),
        "conversation": conversation.id,
        "context_hash": conversation.context_hash,
        "binding_revision": binding.revision,
        "chat_id": binding.chat_id,
        "created_by": actor.user_id,
        "create_request_id": command.request_id,
        "create_request_hash": command.hash,
        "cursor": conversation.revision,
        "status": "active",
        "version": 1,
        "expires_at": tx.now + command.expires_in_seconds * SECOND,
        "active_slot": slot,
    }
    if not store.insert(tx, values):
        raise CreateRaced
    row = store.find(tx, grant_id)
    assert row is not None
    grant = grant_of(row)
    _activate(tx, grant, installation, conversation)
    _record(tx, grant, "reply_grant.created", actor.user_id)
    return replace(_view(tx, grant, keyring, channels), created=True)


def resolve_race(tx: Tx, actor: Actor, command: CreateGrant, *, keyring: KeyRing, channels: Channels) -> GrantView:
    """After `CreateRaced`, in a new transaction: the winner's row or the exact conflict, not told by driver text.

    Authorises anew, as every transaction does. Raises as `create`.
    """
    require_project(tx, actor, command.workspace_id, command.project_id, Right.READ, Right.EXPORT, share=True)
    replay = _replay(tx, actor, command, keyring, channels)
    if replay is not None:
        return replay
    if store.find_by_slot(tx, reply_slot(command.workspace_id, command.conversation_id, actor.user_id)) is not None:
        raise Problem("active_reply_grant_exists")
    raise Problem("reply_grant_conflict")


def _replay(tx: Tx, actor: Actor, command: CreateGrant, keyring: KeyRing, channels: Channels) -> GrantView | None:
    row = store.find_by_creator_key(tx, command.workspace_id, command.project_id, actor.user_id, command.request_id)
    if row is None:
        return None
    if row["create_request_hash"] != command.hash:
        raise Problem("idempotency_key_reused")
    return replace(_view(tx, grant_of(row), keyring, channels), created=False)


def _parts(
    tx: Tx, actor: Actor, command: CreateGrant, keyring: KeyRing, channels: Channels
) -> tuple[Installation, Binding, Conversation]:
    """The parts a grant ties together, each proven the caller's own (outcomes of foreign ones: desk.md 4.4)."""
    installation = connections.find_installation(tx, command.installation_id, share=True)
    if installation is None or installation.workspace_id != command.workspace_id:
        raise Problem("installation_not_found")
    binding = connections.find_binding(tx, command.binding_id, share=True)
    if binding is None or binding.user_id != actor.user_id or binding.installation_id != installation.id:
        raise Problem("binding_not_found")
    conversation = conversations.find_conversation(tx, command.conversation_id, share=True)
    if (
        conversation is None
        or conversation.workspace_id != command.workspace_id
        or conversation.owner_user_id != actor.user_id
    ):
        raise Problem("conversation_not_found")
    if installation.status == "revoked":
        raise Problem("installation_revoked")
    if installation.status != "active":
        raise Problem("installation_not_active")
    if not binding.active:
        raise Problem("binding_not_active")
    if conversation.status != "active":
        raise Problem("conversation_closed")
    if conversation.project_id is None:
        raise Problem("project_context_required")
    if conversation.project_id != command.project_id:
        raise Problem("conversation_context_mismatch")
    if not connections.usable(installation, channels.get(installation.channel), keyring):
        raise Problem("credential_unavailable")
    if not conversations.context_holds(tx, conversation, runs.find_run_scope):
        raise Problem("conversation_context_mismatch")
    return installation, binding, conversation


def _free_stale_slot(tx: Tx, holder: Mapping[Any, Any] | None) -> None:
    """The slot's locked holder: an expired one gives it up, an active one keeps it."""
    if holder is None:
        return
    if holder["expires_at"] > tx.now:
        raise CreateRaced
    _expire(tx, holder["id"])


def _activate(tx: Tx, grant: ReplyGrant, installation: Installation, conversation: Conversation) -> None:
    text = outbox.templates.activation(installation.command_language, conversation.title, grant.expires_at)
    outbox.take_snapshot(
        tx,
        workspace_id=grant.workspace_id,
        installation_id=installation.id,
        channel_key=installation.channel,
        reply_grant_id=grant.id,
        purpose="activation",
        chat_id=grant.chat_id,
        reply_to=None,
        payload=outbox.text_payload(text),
        dedupe_key=f"activation:{grant.id}",
    )


def _view(tx: Tx, grant: ReplyGrant, keyring: KeyRing, channels: Channels) -> GrantView:
    """The read model; `unusable_reason` is what t1b would decide at this instant."""
    installation = connections.find_installation(tx, grant.installation_id)
    usable = installation is not None and connections.usable(installation, channels.get(installation.channel), keyring)
    reason = judge(tx, grant, needs_cursor=True, secrets_usable=usable).reason
    activation = outbox.find_activation(tx, grant.id)
    return GrantView(grant, grant.status_at(tx.now), activation.status if activation else None, reason)


def _require_project_of_grant(tx: Tx, actor: Actor, workspace_id: str, project_id: str) -> Membership:
    """READ behind the gate; an absent project reads as an absent grant."""
    project = find_project(tx, workspace_id, project_id)
    member = require_behind(tx, actor, workspace_id, project, Right.READ)
    if project is None:
        raise Problem("reply_grant_not_found")
    return member


def _own(tx: Tx, actor: Actor, workspace_id: str, project_id: str, grant_id: str, *, lock: bool = False) -> ReplyGrant:
    _require_project_of_grant(tx, actor, workspace_id, project_id)
    row = store.find(tx, grant_id, lock=lock)
    if row is None or row["workspace"] != workspace_id or row["project"] != project_id:
        raise Problem("reply_grant_not_found")
    if row["bound_user"] != actor.user_id:
        raise Problem("reply_grant_not_found")
    return grant_of(row)


def get(
    tx: Tx, actor: Actor, workspace_id: str, project_id: str, grant_id: str, *, keyring: KeyRing, channels: Channels
) -> GrantView:
    """One own grant. Absent and foreign are the same `reply_grant_not_found`."""
    return _view(tx, _own(tx, actor, workspace_id, project_id, grant_id), keyring, channels)


def list_grants(
    tx: Tx,
    actor: Actor,
    workspace_id: str,
    project_id: str,
    conversation_id: str,
    *,
    limit: int,
    after: tuple[int, str] | None,
    keyring: KeyRing,
    channels: Channels,
) -> tuple[list[GrantView], tuple[int, str] | None]:
    """Own grants of one own conversation, newest first; nothing is re-activated by reading."""
    require_project(tx, actor, workspace_id, project_id, Right.READ, share=True)
    conversation = conversations.find_conversation(tx, conversation_id)
    if conversation is None or conversation.workspace_id != workspace_id or conversation.owner_user_id != actor.user_id:
        raise Problem("conversation_not_found")
    rows, following = store.list_page(tx, project_id, conversation_id, actor.user_id, limit=limit, after=after)
    if not rows and conversation.project_id != project_id:
        raise Problem("conversation_not_found")  # a conversation that moved keeps the grants it has here
    return [_view(tx, grant_of(row), keyring, channels) for row in rows], following


def revoke(
    tx: Tx, actor: Actor, workspace_id: str, project_id: str, grant_id: str, *, keyring: KeyRing, channels: Channels
) -> GrantView:
    """Idempotent: one version step, slot cleared, `revoked_at` fixed; terminal states are left alone; needs no key."""
    grant = _own(tx, actor, workspace_id, project_id, grant_id, lock=True)
    if grant.status_at(tx.now) == "active":
        grant = _revoke(tx, grant, actor.user_id)
    return _view(tx, grant, keyring, channels)


def _revoke(tx: Tx, grant: ReplyGrant, actor_id: str) -> ReplyGrant:
    row = store.end(tx, "revoke", grant.id, {"revoked_at": tx.now, "revoked_by": actor_id})
    if row is None:
        return grant
    revoked = grant_of(row)
    _record(tx, revoked, "reply_grant.revoked", actor_id)
    return revoked


def expire_due(tx: Tx, limit: int) -> int:
    """Sweeper: active grants past their time become `expired` and give their slot up."""
    return sum(_expire(tx, grant_id) for grant_id in store.past_expiry(tx, limit))


def _expire(tx: Tx, grant_id: str) -> bool:
    row = store.end(tx, "expire", grant_id, {})
    if row is not None:
        _record(tx, grant_of(row), "reply_grant.expired", None)
    return row is not None


def set_project_access(
    tx: Tx, actor: Actor, workspace_id: str, project_id: str, *, access: str, active_reply_grants: str | None
) -> Project:
    """Change a project's access.

    Turning to `administrators` with active grants must say keep or revoke (`active_reply_grants_required`); the
    revocations are in this commit.
    """
    _, project = require_project(tx, actor, workspace_id, project_id, Right.CONFIGURE, lock=True)
    if access == "administrators" and project.access != "administrators":
        while grants := store.active_of_project(tx, project_id, limits.SCAN_PAGE):
            living = [row for row in grants if row["expires_at"] > tx.now]
            if living and active_reply_grants is None:
                raise Problem("active_reply_grants_required")
            if active_reply_grants != "revoke":
                break
            for row in grants:
                grant = grant_of(row)
                if grant.status_at(tx.now) == "active":
                    _revoke(tx, grant, actor.user_id)
                else:  # it reads expired already, and stays so
                    _expire(tx, grant.id)
    set_access_row(tx, project_id, access)
    record_event(
        tx,
        workspace_id=workspace_id,
        kind=f"project.access_{access}",
        object_kind="project",
        object_id=project_id,
        project_id=project_id,
        actor_id=actor.user_id,
    )
    changed = find_project(tx, workspace_id, project_id)
    assert changed is not None
    return changed


def timeline(
    tx: Tx,
    actor: Actor,
    workspace_id: str,
    project_id: str,
    grant_id: str,
    *,
    limit: int,
    after: tuple[int, str] | None,
) -> tuple[list[Event], tuple[int, str] | None]:
    """Content-free events of one grant, newest first: for its owner, or for who works the inbox."""
    member = _require_project_of_grant(tx, actor, workspace_id, project_id)
    row = store.find(tx, grant_id)
    if row is None or row["workspace"] != workspace_id or row["project"] != project_id:
        raise Problem("reply_grant_not_found")
    if row["bound_user"] != actor.user_id and Right.INBOX_WORK not in member.rights:
        raise Problem("reply_grant_not_found")
    return list_events_of_grant(tx, grant_id, limit=limit, after=after)


def sole_usable(tx: Tx, binding: Binding) -> tuple[ReplyGrant | None, bool]:
    """The only usable grant of a binding's chat, and whether there are several (desk.md 6.3, `only_grant`).

    Locks the chat's grants, in the order of locks before the conversations that are judged with them.
    """
    usable: list[ReplyGrant] = []
    for row in store.active_in_chat(tx, binding.id, binding.chat_id, limits.SCAN_PAGE):
        grant = grant_of(row)
        if judge(tx, grant, needs_cursor=True).reason is None:
            usable.append(grant)
        if len(usable) > 1:
            return None, True
    return (usable[0] if usable else None), False


def lock_grants(tx: Tx, grant_ids: Iterable[str]) -> dict[str, ReplyGrant]:
    """Those of several grants that exist, whoever asks. Arrivals under them are serialised (PostgreSQL).

    Locked in the order of their ids: two transactions that lock the same ones can't wait for each other.
    """
    return {row["id"]: grant_of(row) for row in store.lock_each(tx, sorted(set(grant_ids)))}


def find_grant(tx: Tx, grant_id: str) -> ReplyGrant | None:
    """One grant by id, whoever asks; neither held nor locked."""
    row = store.find(tx, grant_id)
    return grant_of(row) if row is not None else None


def _record(tx: Tx, grant: ReplyGrant, kind: str, actor_id: str | None) -> None:
    record_event(
        tx,
        workspace_id=grant.workspace_id,
        kind=kind,
        object_kind="reply_grant",
        object_id=grant.id,
        project_id=grant.project_id,
        owner_user_id=grant.bound_user_id,
        reply_grant_id=grant.id,
        actor_id=actor_id,
    )
