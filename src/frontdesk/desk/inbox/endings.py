"""How a receipt ends: completed with its one delivery, or failed for good, with a notice where one is due."""

from __future__ import annotations

from typing import Final

from frontdesk.desk import grants, outbox
from frontdesk.desk.conversations.model import Turn
from frontdesk.desk.inbox import store
from frontdesk.desk.inbox.model import Receipt, receipt_of
from frontdesk.desk.inbox.ports import Parts
from frontdesk.identity import record_event
from frontdesk.kernel.codes import RUNNER_CODES
from frontdesk.kernel.errors import Defect, StaleFence
from frontdesk.storage.tx import Tx

_SILENT: Final = frozenset({"stopped_by_owner"})


def notice_due(code: str) -> bool:
    """True where a definite turn failure is told to the person; unknown and stopped ones are not (desk.md 5.3)."""
    return code in RUNNER_CODES and code not in _SILENT


def complete(tx: Tx, receipt: Receipt, turn: Turn, *, deliver: bool, parts: Parts) -> str:
    """t4: judge authority again; completed | proposal with the delivery inserted, or failed without one.

    Returns the status. Raises `StaleFence` where the receipt is no longer ours.
    """
    if receipt.reply_grant_id is None:
        raise Defect("a turn without a grant")
    grant = grants.read_grant(tx, receipt.reply_grant_id)
    judgement = grants.judge(tx, grant, needs_cursor=True, receipt=receipt.facts())
    if deliver and judgement.reason is not None:
        return fail(tx, receipt, grants.lost_code(judgement.reason), turn_id=turn.id)
    if deliver:
        _deliver(tx, receipt, turn, judgement, parts)
    event = "propose" if turn.status == "proposal" else "complete"
    values = {"turn": turn.id, "processed_at": tx.now, "error_code": None}
    row = store.move(tx, event, receipt.id, lease=receipt.lease, values=values)
    if row is None:
        raise StaleFence
    _after(tx, receipt)
    return str(row["status"])


def _deliver(tx: Tx, receipt: Receipt, turn: Turn, judgement: grants.Judgement, parts: Parts) -> None:
    installation = judgement.installation
    channel = parts.channels[installation.channel]
    if turn.status == "proposal":
        link = f"{parts.public_url}/console/w/{receipt.workspace_id}/proposals"
        text = outbox.templates.proposal_notice(installation.command_language, turn.answer_text, link)
        payload = outbox.text_payload(text)
    else:
        payload = outbox.answer_payload(turn.answer_text, channel, parts.oversize_answer)
    outbox.take_snapshot(
        tx,
        workspace_id=receipt.workspace_id,
        installation_id=installation.id,
        channel_key=installation.channel,
        reply_grant_id=judgement.grant.id,
        purpose="proposal_notice" if turn.status == "proposal" else "agent_reply",
        chat_id=judgement.grant.chat_id,
        reply_to=receipt.provider_message_id,
        payload=payload,
        dedupe_key=f"receipt:{receipt.id}",
        receipt_id=receipt.id,
    )


def fail(
    tx: Tx,
    receipt: Receipt,
    code: str,
    *,
    turn_id: str | None = None,
    notice: bool = False,
    parts: Parts | None = None,
) -> str:
    """End a receipt in work for good. With `notice` (and authority) its failure notice is inserted in this commit.

    Raises `StaleFence` where the receipt is no longer ours; the caller then writes nothing.
    """
    values: dict[str, object] = {"error_code": code, "processed_at": tx.now}
    if turn_id is not None:
        values["turn"] = turn_id
    row = store.move(tx, "fail", receipt.id, lease=receipt.lease, values=values)
    if row is None:
        raise StaleFence
    if notice and parts is not None and parts.failure_notices:
        _notify(tx, receipt, code)
    record_receipt(tx, receipt_of(row))
    _after(tx, receipt)
    return "permanent_failed"


def _notify(tx: Tx, receipt: Receipt, code: str) -> None:
    if receipt.reply_grant_id is None:
        return
    grant = grants.read_grant(tx, receipt.reply_grant_id)
    judgement = grants.judge(tx, grant, needs_cursor=True, receipt=receipt.facts())
    if judgement.reason is not None:
        return
    installation = judgement.installation
    outbox.take_snapshot(
        tx,
        workspace_id=receipt.workspace_id,
        installation_id=installation.id,
        channel_key=installation.channel,
        reply_grant_id=grant.id,
        purpose="failure_notice",
        chat_id=grant.chat_id,
        reply_to=receipt.provider_message_id,
        payload=outbox.text_payload(outbox.templates.failure_notice(installation.command_language, code)),
        dedupe_key=f"receipt:{receipt.id}",
        receipt_id=receipt.id,
    )


def _after(tx: Tx, receipt: Receipt) -> None:
    if receipt.reply_grant_id is not None and store.make_next_due(tx, receipt.reply_grant_id):
        tx.wake("receipts")


def record_turn(tx: Tx, receipt: Receipt, turn_id: str, status: str, code: str | None) -> None:
    """The content-free event of a connector turn's end, in the transaction that ends it."""
    if receipt.reply_grant_id is None:
        raise Defect("a turn without a grant")
    grant = grants.read_grant(tx, receipt.reply_grant_id)
    record_event(
        tx,
        workspace_id=receipt.workspace_id,
        kind=f"turn.{status}",
        object_kind="turn",
        object_id=turn_id,
        project_id=grant.project_id,
        owner_user_id=grant.bound_user_id,
        reply_grant_id=grant.id,
        code=code,
    )


def record_receipt(tx: Tx, receipt: Receipt, reply_grant_id: str | None = None) -> None:
    """The content-free event of a receipt's refusal or failure, in the transaction that brings it about.

    `reply_grant_id` names the grant that refused it, where the receipt itself belongs to none.
    """
    record_event(
        tx,
        workspace_id=receipt.workspace_id,
        kind=f"receipt.{receipt.status}",
        object_kind="receipt",
        object_id=receipt.id,
        reply_grant_id=reply_grant_id or receipt.reply_grant_id,
        code=receipt.error_code,
    )


def revoke_completed(tx: Tx, receipt_id: str, code: str) -> None:
    """An answer lost its authority before it was sent: its receipt ends with the same code, in that commit."""
    row = store.move(tx, "revoke_authority", receipt_id, values={"error_code": code})
    if row is not None:
        record_receipt(tx, receipt_of(row))
