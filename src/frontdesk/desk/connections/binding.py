"""Tying a person's chat account to their user: challenge, consumption, my binding, unbind."""

from __future__ import annotations

from typing import Final

from frontdesk.desk.connections import store
from frontdesk.desk.connections.channel import Channels
from frontdesk.desk.connections.installing import get_owned
from frontdesk.desk.connections.model import (
    BINDING_WORDS,
    CREDENTIAL_UNAVAILABLE,
    Binding,
    BindingOutcome,
    Challenge,
    Installation,
    IssuedChallenge,
)
from frontdesk.desk.connections.secrets import usable
from frontdesk.identity import read_standing, record_event, require
from frontdesk.identity.model import Actor, Right
from frontdesk.kernel import limits
from frontdesk.kernel.errors import Defect, Problem
from frontdesk.kernel.oncesecret import binding_code_digest, new_binding_code
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.tx import Tx

INVALID: Final = "binding_challenge_invalid"
EXCEEDED: Final = "binding_attempts_exceeded"
CONFLICT: Final = "binding_principal_conflict"


def create_challenge(
    tx: Tx, actor: Actor, *, workspace_id: str, installation_id: str, channels: Channels, keyring: KeyRing
) -> IssuedChallenge:
    """A one-time code for the asking person alone, valid for 10 minutes. Needs READ.

    The clear code is in the returned command and nowhere else; only its digest is stored. Raises
    `installation_not_found`, `installation_not_active`, and `credential_unavailable` for a blocked one, whose bot
    could not hear the command. Does not prevent the person from giving the code away: who sends it is bound as them.
    """
    require(tx, actor, workspace_id, Right.READ)
    installation = get_owned(tx, workspace_id, installation_id)
    if not installation.active:
        raise Problem("installation_not_active")
    if not usable(installation, channels.get(installation.channel), keyring):
        raise Problem(CREDENTIAL_UNAVAILABLE)
    code = new_binding_code(tx.entropy)
    challenge_id = tx.new_id("bch")
    expires_at = tx.now + limits.BINDING_CHALLENGE_TTL_US
    inserted = store.try_insert_challenge(
        tx,
        {
            "id": challenge_id,
            "installation": installation.id,
            "user": actor.user_id,
            "code_digest": binding_code_digest(code),
            "expires_at": expires_at,
        },
    )
    if not inserted:
        raise Defect("a fresh binding code was refused")
    record_event(
        tx,
        workspace_id=workspace_id,
        kind="binding.challenged",
        object_kind="installation",
        object_id=installation.id,
        owner_user_id=actor.user_id,
        actor_id=actor.user_id,
    )
    return IssuedChallenge(challenge_id, installation.id, command_text(installation, code), expires_at)


def command_text(installation: Installation, code: str) -> str:
    """What the person sends to the bot, in the installation's language; the other word works just as well."""
    return f"{BINDING_WORDS[installation.command_language]} {code}"


def my_binding(tx: Tx, actor: Actor, *, workspace_id: str, installation_id: str) -> Binding | None:
    """The asking person's active binding, else their newest inactive one, else None. Needs READ.

    Raises `installation_not_found`. Never answers for another person.
    """
    require(tx, actor, workspace_id, Right.READ)
    installation = get_owned(tx, workspace_id, installation_id)
    return store.find_shown_binding(tx, installation.id, actor.user_id)


def unbind(tx: Tx, actor: Actor, *, workspace_id: str, binding_id: str) -> Binding:
    """Revoke a binding, one revision higher; idempotent. One's own needs READ, another's `configuration.manage`.

    Raises `binding_not_found` for an absent or foreign one, and for another person's without the right: they look
    alike. Grants frozen on the old revision stay unusable for good, whoever binds later.
    """
    membership = require(tx, actor, workspace_id, Right.READ)
    found = store.find_binding_in_workspace(tx, workspace_id, binding_id)
    if found is None or (found.user_id != actor.user_id and Right.CONFIGURE not in membership.rights):
        raise Problem("binding_not_found")
    revoked = store.try_revoke_binding(tx, binding_id, actor.user_id)
    if revoked is not None:
        _record(tx, workspace_id, "binding.revoked", revoked, actor.user_id)
        return revoked
    again = store.find_binding(tx, binding_id)
    if again is None or again.active:
        raise Defect("a binding refused its revocation and is still active")
    return again


def consume_challenge(
    tx: Tx,
    *,
    installation: Installation,
    code: str | None,
    tenant_key: str,
    sender_id: str,
    chat_id: str,
    wrong_in_chat: int,
    wrong_in_installation: int,
) -> BindingOutcome:
    """Bind the account that sent `code`, in the transaction that keeps its receipt; else the refusal's code.

    `wrong_in_*` are the refused binding messages of the last `BINDING_ATTEMPT_WINDOW_US`, counted by who owns receipts.
    A refusal consumes nothing: `consumed_at` means that this challenge made (or confirmed) a binding. Who is
    bound to the same account already keeps the binding and its revision, unless the code came from another private
    chat: the binding then moves there, one revision higher. The guarded consumption and the two partial
    unique indexes decide every race; a row is never reassigned. Whoever holds the code is bound as the person it was
    made for: this does not prevent a code from being passed on.
    """
    if not installation.active:
        return BindingOutcome(f"installation_{installation.status}", None)
    if (
        wrong_in_chat >= limits.BINDING_ATTEMPTS_MAX_PER_CHAT
        or wrong_in_installation >= limits.BINDING_ATTEMPTS_MAX_PER_INSTALLATION
    ):
        return BindingOutcome(EXCEEDED, None)
    if code is None:
        return BindingOutcome(INVALID, None)
    challenge = store.find_challenge_for_update(tx, installation.id, binding_code_digest(code))
    if challenge is None or not challenge.open(tx.now) or not _may_bind(tx, installation, challenge.user_id):
        return BindingOutcome(INVALID, None)
    binding, kind = _bind(tx, challenge, tenant_key, sender_id, chat_id)
    if binding is None:
        return BindingOutcome(CONFLICT, None)
    if not store.try_consume_challenge(tx, challenge.id):
        # The row was locked above, so this can't happen; were it to, the whole transaction goes back and is pushed
        # again.
        raise Defect("a challenge was consumed twice")
    _record(tx, installation.workspace_id, kind, binding, challenge.user_id)
    return BindingOutcome(None, binding)


def _may_bind(tx: Tx, installation: Installation, user_id: str) -> bool:
    return Right.READ in read_standing(tx, user_id, installation.workspace_id, share=True).rights


def _bind(tx: Tx, challenge: Challenge, tenant_key: str, sender_id: str, chat_id: str) -> tuple[Binding | None, str]:
    """The active binding of person and account and what happened to it; None where either is bound elsewhere."""
    installation_id, user_id = challenge.installation_id, challenge.user_id
    # Shared, so that a binding which is confirmed here can't be revoked before this commit.
    of_sender = store.find_active_binding_of_sender(tx, installation_id, tenant_key, sender_id, share=True)
    if of_sender is not None:
        if of_sender.user_id != user_id:
            return None, ""
        # From another private chat: grants keep the chat they were made for, so they must not survive the move.
        moved = store.try_move_binding(tx, of_sender.id, chat_id)
        return (moved, "binding.moved") if moved is not None else (of_sender, "binding.confirmed")
    if store.find_active_binding_of_user(tx, installation_id, user_id) is not None:
        return None, ""
    known = store.find_binding_of_pair(tx, installation_id, user_id, tenant_key, sender_id)
    if known is not None:
        written = store.try_activate_binding(tx, known.id, chat_id)
    else:
        written = store.try_insert_binding(
            tx,
            {
                "id": tx.new_id("bnd"),
                "installation": installation_id,
                "user": user_id,
                "tenant_key": tenant_key,
                "sender_id": sender_id,
                "chat_id": chat_id,
            },
        )
    now_bound = store.find_active_binding_of_sender(tx, installation_id, tenant_key, sender_id)
    if now_bound is not None and now_bound.user_id == user_id:
        # Not written: another code of this person came from this account at the same moment and was first.
        return now_bound, "binding.activated" if written else "binding.confirmed"
    return None, ""


def _record(tx: Tx, workspace_id: str, kind: str, binding: Binding, actor_id: str) -> None:
    record_event(
        tx,
        workspace_id=workspace_id,
        kind=kind,
        object_kind="binding",
        object_id=binding.id,
        owner_user_id=binding.user_id,
        actor_id=actor_id,
        data={"revision": binding.revision},
    )
