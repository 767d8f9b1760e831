"""The transactions of sending: t5 (authorise, claim), the slot, t7 (re-authorise, begin), t9 (what became of it)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from frontdesk.desk import connections, grants, inbox, outbox
from frontdesk.desk.connections.channel import (
    Channel,
    Installed,
    NotSent,
    OutboundFile,
    OutboundMessage,
    Outcome,
    RefusedFinal,
    RefusedRetry,
    Sent,
    Unknown,
)
from frontdesk.desk.inbox.ports import Parts
from frontdesk.desk.outbox import Delivery, Slot
from frontdesk.kernel import limits
from frontdesk.kernel.errors import Defect, StaleFence
from frontdesk.kernel.secretbox import CredentialUnavailable
from frontdesk.storage.tx import Tx

NEEDS_CURSOR = ("activation", *outbox.REPLIES)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One claimed delivery with what connect may know."""

    delivery: Delivery
    installed: Installed = field(repr=False)
    channel_key: str


@dataclass(frozen=True, slots=True)
class Order:
    """Who claims, for how long, up to how many, and the age past which nothing is sent any more."""

    owner: str
    lease_us: int
    age_max_us: int
    limit: int


def claim_due(tx: Tx, order: Order, parts: Parts, found_work: Callable[[], None] = lambda: None) -> list[Attempt]:
    """t5 for as many as fit. Each waiting delivery is aged, judged, checked for usable secrets, then claimed.

    A delivery without authority fails here and its receipt with it; the channel is not even built. Bounded by one scan
    page: whatever is looked at ends, is claimed or waits for a later moment, so the next page starts behind it.
    """
    claimed: list[Attempt] = []
    due = outbox.due(tx, limits.SCAN_PAGE)
    if due:
        found_work()
    for delivery_id, _ in due:
        if len(claimed) >= order.limit:
            break
        delivery = outbox.find_delivery(tx, delivery_id)
        if delivery is None or delivery.status not in ("pending", "retryable_failed"):
            continue
        attempt = _claim(tx, delivery, order, parts)
        if attempt is not None:
            claimed.append(attempt)
    return claimed


def _claim(tx: Tx, delivery: Delivery, order: Order, parts: Parts) -> Attempt | None:
    if tx.now - delivery.created_at > order.age_max_us:
        outbox.expire(tx, delivery.id)
        return None
    reason = _reason(tx, delivery)
    if reason is not None:
        _forbid(tx, delivery, reason)
        return None
    claimed = outbox.claim(tx, delivery, order.owner, order.lease_us)
    if claimed is None:
        return None
    installation = connections.find_installation(tx, claimed.installation_id)
    if installation is None:
        raise Defect("a delivery names an installation that is not there")
    channel = parts.channels.get(installation.channel)
    if channel is None:  # no longer installed: one such delivery must not keep the others from being sent
        outbox.connect_failed(tx, claimed, "connect_failed")
        return None
    try:
        credentials = connections.credentials_of(installation, channel, parts.keyring, needed=("app_secret",))
    except CredentialUnavailable:
        outbox.connect_failed(tx, claimed, "credential_unavailable")
        return None
    code = refused_locally(claimed, channel)
    if code is not None:
        outbox.refuse(tx, claimed, code)
        return None
    installed = Installed(
        installation.id, installation.app_id, installation.tenant_key, installation.target_url, credentials
    )
    return Attempt(claimed, installed, installation.channel)


def refused_locally(delivery: Delivery, channel: Channel) -> str | None:
    """Limits that are checked before any network call: the final body's size, a file's size, the uuid's length."""
    if delivery.payload_kind == "text":
        too_long = channel.text_body_bytes(delivery.text or "") > channel.limits.text_bytes_max
        return "answer_too_long" if too_long else None
    size = len(delivery.payload_bytes or b"")
    return None if 1 <= size <= channel.limits.file_bytes_max else "not_supported"


def _reason(tx: Tx, delivery: Delivery) -> str | None:
    """Why this delivery may not be sent now. Its receipt, which may end here, is locked first: the lock order."""
    facts = inbox.lock_facts(tx, delivery.receipt_id) if delivery.receipt_id is not None else None
    grant = grants.read_grant(tx, delivery.reply_grant_id)
    return grants.judge(tx, grant, needs_cursor=delivery.purpose in NEEDS_CURSOR, receipt=facts).reason


def _forbid(tx: Tx, delivery: Delivery, reason: str) -> bool:
    """Fail the delivery and its receipt in one commit. False: it is another's by now, and nothing was written."""
    code = grants.lost_code(reason)
    if outbox.forbid(tx, delivery, code) is None:
        return False
    if delivery.receipt_id is not None:
        inbox.revoke_completed(tx, delivery.receipt_id, code)
    return True


def note_connected(tx: Tx, attempt: Attempt, uploaded: str | None) -> None:
    """A connect came about: a cause it disproves is cleared, `last_ready_at` noted, a file's key kept.

    Raises `StaleFence` where there is a key to keep and the lease is lost.
    """
    if uploaded is not None and not outbox.store_upload_key(tx, attempt.delivery, uploaded):
        raise StaleFence
    connections.note_connect_result(tx, attempt.installed.installation_id, ok=True, code=None)


def connect_failed(
    tx: Tx, attempt: Attempt, code: str, *, wait_us: int | None, provider_code: int | None, final: bool
) -> None:
    """The attempt ends before anything was sent; the installation keeps the cause in the same commit.

    Raises `StaleFence` where the attempt is no longer ours: then nothing is kept.
    """
    if final:
        ended = outbox.refuse(tx, attempt.delivery, code, provider_code)
    else:
        # A connection's own cause is kept on the installation; the delivery says that connect failed (desk.md 4.6).
        row_code = "connect_failed" if code == "provider_credentials_rejected" else code
        ended = outbox.connect_failed(tx, attempt.delivery, row_code, wait_us=wait_us, provider_code=provider_code)
    if ended is None:
        raise StaleFence
    if code in ("connect_failed", "provider_credentials_rejected"):
        connections.note_connect_result(tx, attempt.installed.installation_id, ok=False, code=code)


def reserve(tx: Tx, attempt: Attempt) -> Slot:
    """Take the chat's slot; too far away: the attempt is given back in the same commit."""
    delivery = attempt.delivery
    slot = outbox.reserve_slot(tx, attempt.channel_key, attempt.installed.app_id, delivery.chat_id)
    if not slot.reserved and outbox.postpone(tx, delivery, slot.at) is None:
        raise StaleFence
    return slot


def begin_sending(tx: Tx, attempt: Attempt, lease_us: int) -> Delivery | None:
    """t7: authority, fence and expiry are read anew; connecting → sending with a full lease. None: it ended here.

    Raises `StaleFence` where the lease is lost or has lapsed. Committed before the wire request begins.
    """
    lease = attempt.delivery.lease
    reason = _reason(tx, attempt.delivery)
    current = outbox.find_delivery(tx, attempt.delivery.id, lock=True)
    if current is None or current.status != "connecting" or not current.lease.live(tx.now):
        raise StaleFence
    if (current.lease.owner, current.lease.generation) != (lease.owner, lease.generation):
        raise StaleFence
    if reason is not None:
        if not _forbid(tx, current, reason):
            raise StaleFence
        return None
    sending = outbox.begin(tx, current, lease_us)
    if sending is None:
        raise StaleFence
    return sending


def conclude(tx: Tx, delivery: Delivery, outcome: Outcome) -> str:
    """t9: what the one wire request brought, fenced. Raises `StaleFence`: a late result is dropped."""
    if isinstance(outcome, Sent) and 1 <= len(outcome.message_id) <= limits.PROVIDER_ID_CHARS_MAX:
        ended = outbox.confirm(tx, delivery, outcome.message_id, outcome.created_ms)
    elif isinstance(outcome, RefusedFinal):
        ended = outbox.refused_by_provider(tx, delivery, outcome.code, outcome.provider_code)
    elif isinstance(outcome, RefusedRetry):
        wait_us = None if outcome.wait_ms is None else outcome.wait_ms * 1000
        ended = outbox.not_sent(tx, delivery, outcome.code, wait_us=wait_us, provider_code=outcome.provider_code)
    elif isinstance(outcome, NotSent):
        ended = outbox.not_sent(tx, delivery, outcome.code)
    else:
        ended = outbox.lose(tx, delivery, outcome.provider_code if isinstance(outcome, Unknown) else None)
    if ended is None:
        raise StaleFence
    return ended.status


def message_of(delivery: Delivery, upload_key: str | None, start_before_us: int | None) -> OutboundMessage:
    """The immutable snapshot as the channel takes it."""
    return OutboundMessage(
        operation_id=delivery.operation_id,
        provider_uuid=delivery.provider_uuid,
        chat_id=delivery.chat_id,
        reply_to=delivery.reply_to,
        text=delivery.text if delivery.payload_kind == "text" else None,
        upload_key=upload_key,
        file=file_of(delivery),
        start_before_us=start_before_us,
    )


def file_of(delivery: Delivery) -> OutboundFile | None:
    """The file of a delivery that carries one."""
    if delivery.payload_kind == "text" or delivery.payload_bytes is None:
        return None
    return OutboundFile(
        delivery.file_name or "answer.md", delivery.media_type or "application/octet-stream", delivery.payload_bytes
    )
