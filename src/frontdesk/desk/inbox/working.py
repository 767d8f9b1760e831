"""t1b, t3 and tF: the transactions around one turn, each fenced by the receipt's lease."""

from __future__ import annotations

from dataclasses import dataclass, field

from frontdesk.desk import connections, conversations, grants
from frontdesk.desk.conversations.connector import ConnectorAccess
from frontdesk.desk.conversations.model import ConversationBusy, ConversationMoved, Turn, TurnExists
from frontdesk.desk.conversations.runner import Answer, Failed, Proposal, TurnRequest
from frontdesk.desk.inbox import store
from frontdesk.desk.inbox.claiming import settle
from frontdesk.desk.inbox.endings import complete, fail, notice_due, record_turn
from frontdesk.desk.inbox.model import Receipt, receipt_of, turn_request_id
from frontdesk.desk.inbox.ports import Parts
from frontdesk.desk.inbox.tables import RECEIPTS
from frontdesk.kernel import limits
from frontdesk.kernel.errors import Problem, StaleFence
from frontdesk.kernel.retry import backoff_us
from frontdesk.storage.guarded import held
from frontdesk.storage.tx import Tx

MOVED = "conversation_revision_changed"


@dataclass(frozen=True, slots=True)
class Begun:
    """A running turn and everything the runner may know."""

    receipt: Receipt
    access: ConnectorAccess
    turn: Turn
    runner_name: str
    request: TurnRequest = field(repr=False)


def _own(tx: Tx, receipt: Receipt) -> Receipt:
    """Lock the receipt and prove the fence with the expiry ahead, or raise `StaleFence`."""
    row = store.find(tx, receipt.id, lock=True)
    if row is None or row["status"] != "processing" or not held(row, receipt.lease, now=tx.now):
        raise StaleFence
    return receipt_of(row)


def begin(tx: Tx, claimed: Receipt, parts: Parts) -> Begun | None:
    """t1b: authorise, then insert the running turn. None: the receipt ended or went back to waiting here.

    Raises `StaleFence` where the lease is lost. Everything is refused before anything of the turn exists.
    """
    receipt = _own(tx, claimed)
    if receipt.reply_grant_id is None or settle(tx, receipt, parts):
        return None
    grant = grants.read_grant(tx, receipt.reply_grant_id)
    judgement = grants.judge(tx, grant, needs_cursor=True, receipt=receipt.facts())
    if judgement.reason is not None:
        fail(tx, receipt, grants.lost_code(judgement.reason))
        return None
    installation = judgement.installation
    channel = parts.channels[installation.channel]
    if not connections.usable(installation, channel, parts.keyring):
        retry(tx, receipt, "credential_unavailable")
        return None
    access = grants.build_access(judgement, receipt.facts(), receipt.lease)
    request_id = turn_request_id(channel.prefix, receipt.installation_id, receipt.provider_message_id)
    try:
        conversation, turn = conversations.send_connector_message(tx, access, request_id, receipt.content_text or "")
    except ConversationBusy:
        give_back(tx, receipt, "conversation_busy")
        return None
    except (ConversationMoved, TurnExists):
        fail(tx, receipt, MOVED)
        return None
    except Problem as problem:
        fail(tx, receipt, problem.code)
        return None
    store.set_turn(tx, receipt.id, receipt.lease, turn.id)
    runner_name = conversations.runner_name_of(tx, conversation, parts.default_runner)
    request = conversations.build_request(
        tx,
        conversation,
        turn,
        briefing=parts.briefer(tx, conversation, turn),
        locale=judgement.standing.locale or installation.command_language,
        asked_at=receipt.provider_created_at,
    )
    return Begun(receipt, access, turn, runner_name, request)


def give_back(tx: Tx, receipt: Receipt, code: str) -> None:
    """A busy conversation: back to waiting, no lease kept, the attempt not counted."""
    values = {
        "error_code": code,
        "not_before": tx.now + limits.BUSY_RETRY_US,
        "attempt_count": RECEIPTS.c.attempt_count - 1,
    }
    if store.move(tx, "give_back", receipt.id, lease=receipt.lease, values=values) is None:
        raise StaleFence


def retry(tx: Tx, receipt: Receipt, code: str) -> None:
    """A failure before a turn exists: later again, or `attempts_exhausted` at the cap."""
    if receipt.attempt_count >= limits.RECEIPT_ATTEMPTS_MAX:
        fail(tx, receipt, "attempts_exhausted")
        return
    values = {"error_code": code, "not_before": tx.now + backoff_us(receipt.attempt_count, tx.entropy)}
    if store.move(tx, "retry", receipt.id, lease=receipt.lease, values=values) is None:
        raise StaleFence


def commit_answer(tx: Tx, begun: Begun, result: Answer | Proposal) -> Turn | None:
    """t3: one commit {response, status, revision N+1, cursor N+1}.

    Checked in the order lease, Stop, conversation, authority. Returns the turn that goes on to t4, or None where the
    receipt ended here (desk.md 5.3). Raises `StaleFence`.
    """
    receipt = _own(tx, begun.receipt)
    grant = grants.read_grant(tx, begun.access.reply_grant_id, lock=True)
    conversation = conversations.find_conversation(tx, grant.conversation_id, lock=True)
    turn = conversations.find_turn(tx, begun.turn.id, lock=True)
    if turn is None or not turn.running or conversation is None:
        fail(tx, receipt, "agent_execution_indeterminate", turn_id=begun.turn.id)
        return None
    if turn.cancel_requested_at is not None:
        _end_turn(tx, receipt, turn.id, "runner_cancelled", "stopped_by_owner")
        return None
    judgement = grants.judge(tx, grant, needs_cursor=True, receipt=receipt.facts(), conversation=conversation)
    scope_code = grants.scope_reason(tx, grant, conversation)
    if scope_code is not None:
        _end_turn(tx, receipt, turn.id, MOVED, MOVED)
        return None
    lost = judgement.reason is not None
    finished = conversations.finish_connector_turn(
        tx, begun.access, turn.id, result, runner_name=begun.runner_name, advance_only_audit=lost
    )
    if finished is None:
        _end_turn(tx, receipt, turn.id, MOVED, MOVED)
        return None
    record_turn(tx, receipt, turn.id, finished.status, None)
    if lost:
        fail(tx, receipt, "authorization_revoked_before_delivery", turn_id=turn.id)
        return None
    return finished


def deliver(tx: Tx, begun: Begun, turn: Turn, parts: Parts) -> str:
    """t4: authority again, then the delivery and the receipt's end in one commit. Raises `StaleFence`."""
    return complete(tx, _own(tx, begun.receipt), turn, deliver=True, parts=parts)


def fail_turn(tx: Tx, begun: Begun, failed: Failed, parts: Parts) -> None:
    """tF: a still running turn fails; revision and cursor stay N; its notice is in this commit. Raises `StaleFence`."""
    receipt = _own(tx, begun.receipt)
    # Locked in the one order, because the notice's authority reads both again after the turn was written.
    grants.read_grant(tx, begun.access.reply_grant_id)
    conversations.find_conversation(tx, begun.access.conversation_id, share=True)
    turn = conversations.find_turn(tx, begun.turn.id, lock=True)
    stopped = turn is not None and turn.cancel_requested_at is not None
    code = "runner_cancelled" if stopped else failed.code
    if conversations.fail_turn(tx, begun.turn.id, code, failed.detail) is None:
        fail(tx, receipt, "agent_execution_indeterminate", turn_id=begun.turn.id)
        return
    record_turn(tx, receipt, begun.turn.id, "failed", code)
    if stopped:
        fail(tx, receipt, "stopped_by_owner", turn_id=begun.turn.id)
        return
    fail(tx, receipt, code, turn_id=begun.turn.id, notice=notice_due(code), parts=parts)


def renew(tx: Tx, receipt: Receipt, lease_us: int) -> tuple[bool, bool]:
    """Heartbeat: (still ours, Stop was asked for)."""
    ours = store.renew_lease(tx, receipt.id, receipt.lease, tx.now + lease_us)
    row = store.find(tx, receipt.id) if ours else None
    turn = conversations.find_turn(tx, row["turn"]) if row is not None and row["turn"] else None
    return ours, turn is not None and turn.cancel_requested_at is not None


def release(tx: Tx, receipt: Receipt) -> None:
    """Give a claimed receipt back before anything of it began (shutdown): due at once, the attempt not counted."""
    values = {"not_before": tx.now, "attempt_count": RECEIPTS.c.attempt_count - 1}
    if store.move(tx, "give_back", receipt.id, lease=receipt.lease, values=values) is None:
        raise StaleFence
    tx.wake("receipts")


def _end_turn(tx: Tx, receipt: Receipt, turn_id: str, turn_code: str, code: str) -> None:
    """A running turn ends without response, its receipt with it, and nobody is told."""
    conversations.fail_turn(tx, turn_id, turn_code)
    record_turn(tx, receipt, turn_id, "failed", turn_code)
    fail(tx, receipt, code, turn_id=turn_id)
