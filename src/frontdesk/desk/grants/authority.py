"""The one authority query of the desk (desk.md 5.5): read anew at every use, never cached in a grant.

The rows are read FOR SHARE on PostgreSQL, so that a racing revocation is seen or waits for this commit. The connector
capability (`ConnectorAccess`) is built here and nowhere else; what protects is the reading anew, not the value.
"""

from __future__ import annotations

from dataclasses import dataclass

from frontdesk.desk import connections, conversations, outbox, runs
from frontdesk.desk.connections.model import Binding, Installation
from frontdesk.desk.conversations.connector import _AUTHORITY_KEY, ConnectorAccess
from frontdesk.desk.conversations.model import Conversation
from frontdesk.desk.grants import store
from frontdesk.desk.grants.model import ReceiptFacts, ReplyGrant, grant_of
from frontdesk.identity import Standing, connector_actor, read_standing
from frontdesk.identity.model import Right
from frontdesk.kernel.errors import Defect
from frontdesk.kernel.machine import Lease
from frontdesk.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class Judgement:
    """What authority found, with the rows it read. `reason` None means: allowed now."""

    reason: str | None
    grant: ReplyGrant
    installation: Installation
    binding: Binding
    conversation: Conversation
    standing: Standing


def judge(
    tx: Tx,
    grant: ReplyGrant,
    *,
    needs_cursor: bool,
    secrets_usable: bool = True,
    receipt: ReceiptFacts | None = None,
    conversation: Conversation | None = None,
) -> Judgement:
    """Read everything that the use of `grant` rests on; name the first reason against it, in the order of desk.md 4.4.

    `needs_cursor` demands revision = cursor. `receipt` adds sender, chat and target. `conversation` may be handed in
    where the caller has just locked it. Does not prevent a change after this commit: each step judges again.
    """
    installation = connections.find_installation(tx, grant.installation_id, share=True)
    binding = connections.find_binding(tx, grant.binding_id, share=True)
    found = conversation or conversations.find_conversation(tx, grant.conversation_id, share=True)
    if installation is None or binding is None or found is None:
        raise Defect("a grant outlives what it names")
    standing = read_standing(tx, grant.bound_user_id, grant.workspace_id, share=True)
    reason = _grant_reason(grant, installation, binding, tx.now, secrets_usable)
    if reason is None and receipt is not None and not _receipt_matches(tx, grant, binding, receipt):
        reason = "binding_revoked"
    if reason is None:
        reason = _conversation_reason(tx, grant, found, needs_cursor)
    if reason is None and not _standing_holds(standing):
        reason = "authority_lost"
    return Judgement(reason, grant, installation, binding, found, standing)


def _grant_reason(
    grant: ReplyGrant, installation: Installation, binding: Binding, now: int, secrets_usable: bool
) -> str | None:
    status = grant.status_at(now)
    if status != "active":
        return status
    if installation.status != "active":
        return f"installation_{installation.status}"
    if not secrets_usable:
        return "credential_unavailable"
    same = binding.active and binding.revision == grant.binding_revision and binding.chat_id == grant.chat_id
    return None if same and binding.user_id == grant.bound_user_id else "binding_revoked"


def _conversation_reason(tx: Tx, grant: ReplyGrant, conversation: Conversation, needs_cursor: bool) -> str | None:
    if conversation.status != "active" or conversation.owner_user_id != grant.bound_user_id:
        return "conversation_closed"
    frozen = conversation.context_hash == grant.context_hash
    if not frozen or not conversations.context_holds(tx, conversation, runs.find_run_scope):
        return "conversation_context_changed"
    if needs_cursor and conversation.revision != grant.cursor:
        return "conversation_revision_changed"
    return None


def scope_reason(tx: Tx, grant: ReplyGrant, conversation: Conversation) -> str | None:
    """What alone says that the conversation is no longer the one the grant continues; t3 asks it before authority."""
    return _conversation_reason(tx, grant, conversation, True)


def _standing_holds(standing: Standing) -> bool:
    return (
        standing.user_enabled
        and standing.workspace_active
        and Right.READ in standing.rights
        and Right.EXPORT in standing.rights
    )


def _receipt_matches(tx: Tx, grant: ReplyGrant, binding: Binding, receipt: ReceiptFacts) -> bool:
    if (receipt.tenant_key, receipt.sender_id, receipt.chat_id) != (
        binding.tenant_key,
        binding.sender_id,
        grant.chat_id,
    ):
        return False
    if not receipt.parent_id and not receipt.root_id:
        return True  # the only grant of the chat, chosen in the receipt's own commit
    targets = outbox.find_targets(tx, grant.installation_id, receipt.parent_id, receipt.root_id)
    return {target.reply_grant_id for target in targets} == {grant.id}


def read_grant(tx: Tx, grant_id: str, *, lock: bool = False) -> ReplyGrant:
    """A grant that must exist. With `lock` it is taken in the lock order before the conversation."""
    row = store.find(tx, grant_id, share=not lock, lock=lock)
    if row is None:
        raise Defect("a receipt or delivery names a grant that is not there")
    return grant_of(row)


@dataclass(frozen=True, slots=True)
class _GrantCursor:
    """Moves the cursor of one grant from exactly one expected revision."""

    grant_id: str
    expected: int

    def advance(self, tx: Tx, *, turn_id: str, revision: int) -> bool:  # noqa: ARG002 - the port names the turn
        """Compare-and-set to `revision`, which must be expected + 1."""
        if revision != self.expected + 1:
            raise Defect("a turn advances its cursor by one")
        return store.advance_cursor(tx, self.grant_id, self.expected)


def build_access(judgement: Judgement, receipt: ReceiptFacts, lease: Lease) -> ConnectorAccess:
    """The connector capability for one receipt's work, from rows just read. No JSON and no API makes one."""
    grant = judgement.grant
    return ConnectorAccess.build(
        _AUTHORITY_KEY,
        receipt_id=receipt.receipt_id,
        reply_grant_id=grant.id,
        conversation_id=grant.conversation_id,
        user_id=grant.bound_user_id,
        workspace_id=grant.workspace_id,
        project_id=grant.project_id,
        workflow_id=grant.workflow_id,
        run_id=grant.run_id,
        context=dict(judgement.conversation.context),
        context_hash=grant.context_hash,
        expected_revision=grant.cursor,
        lease_owner=lease.owner,
        receipt_generation=lease.generation,
        actor=connector_actor(judgement.standing),
        cursor=_GrantCursor(grant.id, grant.cursor),
    )
