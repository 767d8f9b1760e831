"""t0: one verified push becomes one durable receipt, with its side effects, in one transaction.

Nothing is executed here: at the moment of the acknowledgement only the receipt exists (and, for a binding command, the
consumed challenge and the binding). Pushes that wait together may be received together, which reads and writes for all
of them at once; each becomes what it would have become alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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
class Push:
    """One verified event of an installation. `verified_with` is the row whose secrets verified it, where not fresh."""

    installation_id: str
    event: Inbound
    transport: str
    unaddressed_messages: str = "only_grant"
    verified_with: Installation | None = None


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


@dataclass(frozen=True, slots=True)
class _Aimed:
    """An ordinary reply of a bound person at something of this grant."""

    text: str
    binding: Binding
    grant_id: str


@dataclass(frozen=True, slots=True)
class _Unaddressed:
    """An ordinary message of a bound person that names nothing it answers."""

    text: str
    binding: Binding


@dataclass(frozen=True, slots=True)
class _Case:
    """A message that is new, with the rows around it."""

    push: Push
    message: InboundMessage
    around: Around


_GONE: Final = Received("ignored", None, "installation_gone", False)


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
    push = Push(installation_id, event, transport, unaddressed_messages, verified_with)
    around = read_around(tx, [(installation_id, event)])[0]
    settled = _settled(push, event, around)
    if settled is not None or around is None:
        return settled or _GONE
    case = _Case(push, event, around)
    outcome = _record(tx, [(case, _decide(tx, case))])[0]
    if isinstance(outcome, ReceiptConflict):
        raise outcome
    return outcome


def receive_together(tx: Tx, pushes: Sequence[Push]) -> list[Received | Exception | None]:
    """`receive` for pushes that wait together: what became of each, or what `receive` would raise for it.

    None stands for one that has to be received alone, after these: what is no ordinary reply, and all but the first of
    a person, whose earlier messages count. Nothing was done for it.
    """
    outcomes: list[Received | Exception | None] = [None] * len(pushes)
    chosen = _first_of_each_person(pushes)
    new: list[tuple[int, _Case]] = []
    for (place, push, message), around in zip(
        chosen, read_around(tx, [(push.installation_id, message) for _, push, message in chosen]), strict=True
    ):
        try:
            outcomes[place] = _settled(push, message, around)
        except (ReceiptConflict, SecretsChanged) as error:
            outcomes[place] = error
        if outcomes[place] is None and around is not None:
            new.append((place, _Case(push, message, around)))
    looked = [(place, case, _look(tx.now, case)) for place, case in new]
    aimed = [(place, case, look) for place, case, look in looked if isinstance(look, _Aimed)]
    decided = [(place, case, look) for place, case, look in looked if isinstance(look, _Decision)]
    answers = _under_their_grants(tx, [(case.message, look) for _, case, look in aimed])
    decided += [(place, case, answer) for (place, case, _), answer in zip(aimed, answers, strict=True)]
    recorded = _record(tx, [(case, decision) for _, case, decision in decided])
    for (place, _, _), outcome in zip(decided, recorded, strict=True):
        outcomes[place] = outcome
    return outcomes


def _first_of_each_person(pushes: Sequence[Push]) -> list[tuple[int, Push, InboundMessage]]:
    chosen: list[tuple[int, Push, InboundMessage]] = []
    people: set[tuple[str, str]] = set()
    messages: set[tuple[str, str]] = set()
    for place, push in enumerate(pushes):
        if not isinstance(push.event, InboundMessage):
            continue
        person = (push.installation_id, push.event.sender_id)
        message = (push.installation_id, push.event.message_id)
        if person not in people and message not in messages:
            chosen.append((place, push, push.event))
        people.add(person)
        messages.add(message)
    return chosen


def _settled(push: Push, message: InboundMessage, around: Around | None) -> Received | None:
    """What is clear without a decision: nothing to record, or recorded before. Raises as `receive`."""
    if around is None:
        return _GONE
    installation = around.installation
    _same_secrets(installation, push.verified_with)
    if installation.bot_open_id is not None and message.sender_id == installation.bot_open_id:
        return Received("ignored", None, "own_message", False)
    return None if around.known is None else _known(around.known, message)


def _record(tx: Tx, decided: Sequence[tuple[_Case, _Decision]]) -> list[Received | ReceiptConflict]:
    """Insert the receipts of different messages; one whose message was recorded meanwhile is known."""
    if not decided:
        return []
    rows = [_values(tx, tx.new_id("rcp"), case, decision) for case, decision in decided]
    inserted = store.insert(tx, rows)
    outcomes: list[Received | ReceiptConflict] = []
    for (case, decision), row in zip(decided, rows, strict=True):
        if row["id"] not in inserted:
            outcomes.append(_raced(tx, case))
            continue
        if decision.status == "received":
            tx.wake("receipts")
        if decision.refused_by is not None:
            _record_refusal(tx, row["id"], decision.refused_by)
        outcome = "accepted" if decision.status == "received" else decision.status
        outcomes.append(Received(outcome, row["id"], decision.code, True))
    return outcomes


def _raced(tx: Tx, case: _Case) -> Received | ReceiptConflict:
    row = store.find_by_message(tx, case.around.installation.id, case.message.message_id)
    if row is None:
        return ReceiptConflict()
    try:
        return _known(row, case.message)
    except ReceiptConflict as error:
        return error


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


def _decide(tx: Tx, case: _Case) -> _Decision:
    look = _look(tx.now, case)
    if isinstance(look, _Decision):
        return look
    if isinstance(look, Intent):
        return _bind(tx, case.around.installation, case.message, look)
    if isinstance(look, _Aimed):
        return _under_their_grants(tx, [(case.message, look)])[0]
    grant, code = _sole(tx, look.binding, case.push.unaddressed_messages)
    if grant is None:
        return _Decision("reply", "rejected", code, NOT_KEPT, binding=look.binding)
    return _accepted(tx.now, look, grant, store.open_of_grants(tx, [grant.id])[grant.id])


def _look(now: int, case: _Case) -> _Decision | _Aimed | _Unaddressed | Intent:
    """What the rows around a message decide without another one; an `Intent` is a binding command. Pure."""
    message, around = case.message, case.around
    code = _refusal(now, around, message)
    if message.text is None:
        return _Decision("reply", "rejected", code or "unsupported_message_shape", NOT_KEPT)
    intent = detect(message.text)
    if code is not None:
        return _Decision(_kept_intent(intent), "rejected", code, _placeholder(intent))
    if intent.kind == "binding":
        return intent
    if intent.kind == "artifact_claim":
        return _Decision("artifact_claim", "rejected", "artifact_claim_invalid", CLAIM_TEXT)
    if intent.kind == "credential":
        return _Decision("reply", "rejected", "credential_text_refused", NOT_KEPT)
    binding = around.binding
    if binding is None or binding.chat_id != message.chat_id:
        return _Decision("reply", "rejected", "principal_not_bound", NOT_KEPT)
    if not message.parent_id and not message.root_id:
        return _Unaddressed(message.text, binding)
    grant_id = _target(around, message)
    return _unavailable(binding, None) if grant_id is None else _Aimed(message.text, binding, grant_id)


def _refusal(now: int, around: Around, message: InboundMessage) -> str | None:
    """Reasons that hold before anything of the text is looked at."""
    installation = around.installation
    if installation.status != "active":
        return f"installation_{installation.status}"
    if (message.app_id, message.tenant_key) != (installation.app_id, installation.tenant_key):
        return "installation_identity_mismatch"
    if message.event_tenant_key is not None:
        return "installation_identity_mismatch"
    if message.signed_at_ms is not None:
        signed_at = message.signed_at_ms * 1000
        if not now - limits.REPLAY_WINDOW_US <= signed_at <= now + limits.FUTURE_TOLERANCE_US:
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


def _target(around: Around, message: InboundMessage) -> str | None:
    """The grant a message aims at; None says nothing of what exists (desk.md 6.3)."""
    if not around.targets or len({target.reply_grant_id for target in around.targets}) > 1:
        return None
    target = around.targets[0]
    return target.reply_grant_id if target.valid and target.chat_id == message.chat_id else None


def _under_their_grants(tx: Tx, aimed: Sequence[tuple[InboundMessage, _Aimed]]) -> list[_Decision]:
    """Decide replies of different people under their grants' locks."""
    if not aimed:
        return []
    locked = grants.lock_grants(tx, [look.grant_id for _, look in aimed])
    answering = [_answering(tx.now, locked.get(look.grant_id), look.binding, message) for message, look in aimed]
    opened = store.open_of_grants(tx, sorted({grant.id for grant, stands in answering if grant is not None and stands}))
    return [
        _accepted(tx.now, look, grant, opened[grant.id])
        if grant is not None and stands
        else _unavailable(look.binding, grant)
        for (_, look), (grant, stands) in zip(aimed, answering, strict=True)
    ]


def _answering(
    now: int, grant: ReplyGrant | None, binding: Binding, message: InboundMessage
) -> tuple[ReplyGrant | None, bool]:
    """The grant, where it is of this very chat and person, and whether it takes the message now."""
    if grant is None or grant.binding_id != binding.id or grant.chat_id != message.chat_id:
        return None, False
    return grant, grant.status_at(now) == "active" and grant.binding_revision == binding.revision


def _sole(tx: Tx, binding: Binding, unaddressed: str) -> tuple[ReplyGrant | None, str | None]:
    """The grant of a message without a target, or the code of its refusal."""
    if unaddressed != "only_grant":
        return None, "reply_target_required"
    sole, several = grants.sole_usable(tx, binding)
    if sole is not None:
        return sole, None
    return None, "reply_target_required" if several else "reply_grant_unavailable"


def _unavailable(binding: Binding, grant: ReplyGrant | None) -> _Decision:
    return _Decision("reply", "rejected", "reply_grant_unavailable", NOT_KEPT, binding=binding, refused_by=grant)


def _accepted(now: int, look: _Aimed | _Unaddressed, grant: ReplyGrant, opened: tuple[int, int]) -> _Decision:
    waiting, newest = opened
    if waiting >= limits.INBOX_PENDING_MAX_PER_GRANT:
        return _Decision("reply", "rejected", "inbox_full", NOT_KEPT, binding=look.binding, refused_by=grant)
    # Under the grant's lock arrival is strictly rising, whatever the clocks of the receiving processes say (DESK-294).
    arrival = max(now, newest + 1)
    return _Decision("reply", "received", None, look.text, binding=look.binding, grant=grant, arrival=arrival)


def _record_refusal(tx: Tx, receipt_id: str, grant: ReplyGrant) -> None:
    row = store.find(tx, receipt_id)
    if row is not None:
        record_receipt(tx, receipt_of(row), grant.id)


def _values(tx: Tx, receipt_id: str, case: _Case, decision: _Decision) -> dict[str, Any]:
    grant, message, installation = decision.grant, case.message, case.around.installation
    ended = decision.status != "received"
    return {
        "id": receipt_id,
        "created_at": decision.arrival or tx.now,
        "updated_at": tx.now,
        "workspace": installation.workspace_id,
        "installation": installation.id,
        "provider_message_id": message.message_id,
        "provider_event_id": message.event_id,
        "transport": case.push.transport,
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
        "lease_generation": 0,
        "not_before": tx.now,
        "attempt_count": 0,
        "processed_at": tx.now if ended else None,
    }
