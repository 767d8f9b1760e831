"""t0: one verified push becomes one durable receipt, with its side effects, in one transaction.

Nothing is executed here: at the moment of the acknowledgement only the receipt exists (and, for a binding command, the
consumed challenge and the binding).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frontdesk.desk import connections, grants
from frontdesk.desk.connections.channel import Ignored, Inbound, InboundMessage, Recall
from frontdesk.desk.connections.model import Binding, Installation
from frontdesk.desk.grants.model import ReplyGrant
from frontdesk.desk.inbox import store
from frontdesk.desk.inbox.endings import record_receipt
from frontdesk.desk.inbox.intent import BINDING_TEXT, CLAIM_TEXT, NOT_KEPT, Intent, detect
from frontdesk.desk.inbox.model import ReceiptConflict, Received, SecretsChanged, receipt_of
from frontdesk.desk.inbox.reading import Around, read_around
from frontdesk.kernel import limits
from frontdesk.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a new receipt will be."""

    intent: str
    status: str
    code: str | None = None
    text: str | None = None
    binding: Binding | None = None
    grant: ReplyGrant | None = None
    arrival: int | None = None
    refused_by: ReplyGrant | None = None  # the grant it was aimed at, by the person of that grant


def receive(
    tx: Tx,
    installation_id: str,
    event: Inbound,
    *,
    transport: str,
    unaddressed_messages: str = "only_grant",
    verified_with: Installation | None = None,
) -> Received:
    """Record one verified event of an installation. A replay changes nothing.

    Raises `ReceiptConflict` where the message id is known with another content, and `SecretsChanged` where the
    installation's secrets are not those of `verified_with` any more: the caller does not acknowledge.
    """
    if isinstance(event, Ignored):
        return Received("ignored", None, event.reason, False)
    if isinstance(event, Recall):
        return _recalled(tx, installation_id, event, verified_with)
    around = read_around(tx, installation_id, event)
    if around is None:
        return Received("ignored", None, "installation_gone", False)
    installation = around.installation
    _same_secrets(installation, verified_with)
    if installation.bot_open_id is not None and event.sender_id == installation.bot_open_id:
        return Received("ignored", None, "own_message", False)
    if around.known is not None:
        return _known(around.known, event)
    decision = _decide(tx, around, event, unaddressed_messages)
    receipt_id = tx.new_id("rcp")
    if not store.insert(tx, _values(tx, receipt_id, installation, event, transport=transport, decision=decision)):
        raced = store.find_by_message(tx, installation.id, event.message_id)
        if raced is None:
            raise ReceiptConflict
        return _known(raced, event)
    if decision.status == "received":
        tx.wake("receipts")
    if decision.refused_by is not None:
        _record_refusal(tx, receipt_id, decision.refused_by)
    outcome = "accepted" if decision.status == "received" else decision.status
    return Received(outcome, receipt_id, decision.code, True)


def _same_secrets(installation: Installation, verified_with: Installation | None) -> None:
    if verified_with is not None and _secrets(installation) != _secrets(verified_with):
        raise SecretsChanged


def _secrets(installation: Installation) -> tuple[str | None, ...]:
    return installation.app_secret_ct, installation.encrypt_key_ct, installation.verification_token_ct


def _known(row: Mapping[str, Any], message: InboundMessage) -> Received:
    """A message already recorded is acknowledged unchanged by its key, however old the push or the row (DESK-289)."""
    if row["request_hash"] is not None and row["request_hash"] != message.request_hash:
        raise ReceiptConflict
    return Received("known", row["id"], row["error_code"], False)


def _recalled(tx: Tx, installation_id: str, event: Recall, verified_with: Installation | None) -> Received:
    installation = connections.find_installation(tx, installation_id, share=True)
    if installation is None:
        return Received("ignored", None, "installation_gone", False)
    _same_secrets(installation, verified_with)
    return _recall(tx, installation, event)


def _recall(tx: Tx, installation: Installation, event: Recall) -> Received:
    if (event.app_id, event.tenant_key) != (installation.app_id, installation.tenant_key):
        return Received("ignored", None, "installation_identity_mismatch", False)
    row = store.find_by_message(tx, installation.id, event.message_id)
    if row is None:
        return Received("ignored", None, "recall_of_unknown", False)
    values = {"error_code": "message_recalled", "content_text": NOT_KEPT, "processed_at": tx.now}
    moved = store.move(tx, "recall", row["id"], values=values)
    if moved is None:
        return Received("known", row["id"], None, False)
    record_receipt(tx, receipt_of(moved))
    if moved["reply_grant"] is not None and store.make_next_due(tx, moved["reply_grant"]):
        tx.wake("receipts")
    return Received("recalled", row["id"], "message_recalled", True)


def _decide(tx: Tx, around: Around, message: InboundMessage, unaddressed: str) -> _Decision:
    code = _refusal(tx, around, message)
    if message.text is None:
        return _Decision("reply", "rejected", code or "unsupported_message_shape", NOT_KEPT)
    intent = detect(message.text)
    if code is not None:
        return _Decision(_kept_intent(intent), "rejected", code, _placeholder(intent))
    if intent.kind == "binding":
        return _bind(tx, around.installation, message, intent)
    if intent.kind == "artifact_claim":
        return _Decision("artifact_claim", "rejected", "artifact_claim_invalid", CLAIM_TEXT)
    if intent.kind == "credential":
        return _Decision("reply", "rejected", "credential_text_refused", NOT_KEPT)
    return _reply(tx, around, message, unaddressed)


def _refusal(tx: Tx, around: Around, message: InboundMessage) -> str | None:
    """Reasons that hold before anything of the text is looked at."""
    installation = around.installation
    if installation.status != "active":
        return f"installation_{installation.status}"
    if (message.app_id, message.tenant_key) != (installation.app_id, installation.tenant_key):
        return "installation_identity_mismatch"
    if message.signed_at_ms is not None:
        signed_at = message.signed_at_ms * 1000
        if not tx.now - limits.REPLAY_WINDOW_US <= signed_at <= tx.now + limits.FUTURE_TOLERANCE_US:
            return "timestamp_outside_window"
    if around.sent_by_sender >= limits.SENDER_MESSAGES_PER_MINUTE:
        return "sender_rate_limited"
    return None


def _kept_intent(intent: Intent) -> str:
    return "reply" if intent.kind == "credential" else intent.kind


def _placeholder(intent: Intent) -> str:
    return {"binding": BINDING_TEXT, "artifact_claim": CLAIM_TEXT}.get(intent.kind, NOT_KEPT)


def _bind(tx: Tx, installation: Installation, message: InboundMessage, intent: Intent) -> _Decision:
    since = tx.now - limits.BINDING_ATTEMPT_WINDOW_US
    in_chat, in_all = store.count_wrong_codes(tx, installation.workspace_id, installation.id, message.chat_id, since)
    outcome = connections.consume_challenge(
        tx,
        installation=installation,
        code=intent.code,
        tenant_key=message.tenant_key,
        sender_id=message.sender_id,
        chat_id=message.chat_id,
        wrong_in_chat=in_chat,
        wrong_in_installation=in_all,
    )
    if outcome.code is not None or outcome.binding is None:
        return _Decision("binding", "rejected", outcome.code or "binding_challenge_invalid", BINDING_TEXT)
    return _Decision("binding", "completed", None, BINDING_TEXT, binding=outcome.binding)


def _reply(tx: Tx, around: Around, message: InboundMessage, unaddressed: str) -> _Decision:
    binding = around.binding
    if binding is None or binding.chat_id != message.chat_id:
        return _Decision("reply", "rejected", "principal_not_bound", NOT_KEPT)
    grant, code = _target(tx, around, binding, message, unaddressed)
    if code is not None or grant is None:
        return _Decision("reply", "rejected", code, NOT_KEPT, binding=binding, refused_by=grant)
    waiting, newest = store.open_of_grant(tx, grant.id)
    if waiting >= limits.INBOX_PENDING_MAX_PER_GRANT:
        return _Decision("reply", "rejected", "inbox_full", NOT_KEPT, binding=binding, refused_by=grant)
    # Under the grant's lock arrival is strictly rising, whatever the clocks of the receiving processes say (DESK-294).
    arrival = max(tx.now, newest + 1)
    return _Decision("reply", "received", None, message.text, binding=binding, grant=grant, arrival=arrival)


def _target(
    tx: Tx, around: Around, binding: Binding, message: InboundMessage, unaddressed: str
) -> tuple[ReplyGrant | None, str | None]:
    """The grant a message aims at, or the code that says nothing of what exists (desk.md 6.3).

    With a code the grant is one of this very chat and person that does not take it, for its timeline.
    """
    if not message.parent_id and not message.root_id:
        if unaddressed != "only_grant":
            return None, "reply_target_required"
        sole, several = grants.sole_usable(tx, binding)
        if sole is not None:
            return sole, None
        return None, "reply_target_required" if several else "reply_grant_unavailable"
    if not around.targets or len({target.reply_grant_id for target in around.targets}) > 1:
        return None, "reply_grant_unavailable"
    target = around.targets[0]
    if not target.valid or target.chat_id != message.chat_id:
        return None, "reply_grant_unavailable"
    grant = grants.find_grant(tx, target.reply_grant_id, lock=True)
    if grant is None or grant.binding_id != binding.id or grant.chat_id != message.chat_id:
        return None, "reply_grant_unavailable"
    if grant.status_at(tx.now) != "active" or grant.binding_revision != binding.revision:
        return grant, "reply_grant_unavailable"
    return grant, None


def _record_refusal(tx: Tx, receipt_id: str, grant: ReplyGrant) -> None:
    row = store.find(tx, receipt_id)
    if row is not None:
        record_receipt(tx, receipt_of(row), grant.id)


def _values(
    tx: Tx,
    receipt_id: str,
    installation: Installation,
    message: InboundMessage,
    *,
    transport: str,
    decision: _Decision,
) -> dict[str, Any]:
    grant = decision.grant
    ended = decision.status != "received"
    return {
        "id": receipt_id,
        "created_at": decision.arrival or tx.now,
        "updated_at": tx.now,
        "workspace": installation.workspace_id,
        "installation": installation.id,
        "provider_message_id": message.message_id,
        "provider_event_id": message.event_id,
        "transport": transport,
        "execution": "work",
        "request_hash": message.request_hash,
        "tenant_key": message.tenant_key,
        "sender_id": message.sender_id,
        "chat_id": message.chat_id,
        "parent_message_id": message.parent_id,
        "root_message_id": message.root_id,
        "provider_created_at": message.created_at_ms * 1000,
        "content_text": decision.text,
        "intent": decision.intent,
        "status": decision.status,
        "error_code": decision.code,
        "binding": decision.binding.id if decision.binding else None,
        "conversation": grant.conversation_id if grant else None,
        "reply_grant": grant.id if grant else None,
        "not_before": tx.now,
        "attempt_count": 0,
        "processed_at": tx.now if ended else None,
    }
