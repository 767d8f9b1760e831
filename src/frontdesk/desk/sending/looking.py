"""Looking in the provider's own history for a delivery: evidence for people, never a reason to send (desk.md 6.7)."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from frontdesk.desk import connections, outbox
from frontdesk.desk.connections.channel import (
    Channel,
    Channels,
    Complete,
    ConnectFailed,
    HistoryItem,
    Incomplete,
    Installed,
    Session,
)
from frontdesk.desk.outbox import Delivery
from frontdesk.identity import require
from frontdesk.identity.model import Actor, Right
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.errors import Defect, Problem
from frontdesk.kernel.secretbox import CredentialUnavailable, KeyRing
from frontdesk.storage.tx import Tx


@dataclass(frozen=True, slots=True)
class Look:
    """What one bounded look needs."""

    delivery: Delivery
    installed: Installed = field(repr=False)
    channel: Channel = field(repr=False)
    bot_open_id: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Seen:
    """found (exactly one match, its id) | absent (a complete list without one) | unknown (anything else).

    `matches` are all ids that match; which of them are another delivery's is for `weigh` to say.
    """

    result: str
    message_id: str | None = field(default=None, repr=False)
    matches: tuple[str, ...] = field(default=(), repr=False)


def begin_look(
    tx: Tx, actor: Actor, workspace_id: str, delivery_id: str, *, keyring: KeyRing, channels: Channels
) -> Look:
    """Read what a look needs.

    Raises `delivery_not_found`, `delivery_not_sent` before any request, `credential_unavailable`.
    """
    delivery = outbox.get(tx, actor, workspace_id, delivery_id)
    if delivery.sending_at is None:
        raise Problem("delivery_not_sent")
    installation = connections.find_installation(tx, delivery.installation_id)
    if installation is None or installation.channel not in channels:
        raise Defect("a delivery names an installation or channel that is not there")
    channel = channels[installation.channel]
    try:
        credentials = connections.credentials_of(installation, channel, keyring, needed=("app_secret",))
    except CredentialUnavailable:
        raise Problem("credential_unavailable") from None
    installed = Installed(
        installation.id, installation.app_id, installation.tenant_key, installation.target_url, credentials
    )
    return Look(delivery, installed, channel, installation.bot_open_id)


def begin_settling_look(
    tx: Tx, actor: Actor, workspace_id: str, delivery_id: str, *, keyring: KeyRing, channels: Channels
) -> Look | None:
    """As `begin_look`, for who may settle; None where the delivery is not indeterminate and nothing is to be asked."""
    require(tx, actor, workspace_id, Right.ACTIONS_APPROVE)
    delivery = outbox.find_delivery(tx, delivery_id)
    if delivery is None or delivery.workspace_id != workspace_id or delivery.status != "indeterminate":
        return None
    return begin_look(tx, actor, workspace_id, delivery_id, keyring=keyring, channels=channels)


async def look(order: Look) -> Seen:
    """One bounded look around the moment of sending. Raises `ConnectFailed` where the provider is not reached.

    `unknown`, and nobody is asked, where retention has cleared what it would be compared with.
    """
    delivery = order.delivery
    if delivery.purged_at is not None:
        return Seen("unknown")
    sending_at = delivery.sending_at
    assert sending_at is not None
    session = await _connect(order)
    try:
        async with asyncio.timeout(limits.SEND_TIMEOUT_US / SECOND):
            history = await order.channel.history(
                session,
                delivery.chat_id,
                (sending_at - limits.READ_BACK_BEFORE_US) // 1000,
                (sending_at + limits.READ_BACK_AFTER_US) // 1000,
            )
    except TimeoutError:
        history = Incomplete("timeout")
    finally:
        with contextlib.suppress(Exception):  # cannot change what was seen
            async with asyncio.timeout(limits.CLOSE_TIMEOUT_US / SECOND):
                await order.channel.close(session)
    if not isinstance(history, Complete):
        return Seen("unknown")
    return _judged(tuple(item.message_id for item in history.items if _matches(order, item)))


def _judged(matches: tuple[str, ...]) -> Seen:
    if not matches:
        return Seen("absent")
    if len(matches) == 1:
        return Seen("found", matches[0], matches)
    return Seen("unknown", matches=matches)


def weigh(tx: Tx, delivery: Delivery, seen: Seen) -> Seen:
    """What was seen, by what the house knows now: another delivery's message is no match (HIST-116).

    `unknown` where another delivery of equal text and parent, itself without an id, may be what was found (HIST-118).
    """
    if not seen.matches:
        return seen
    owned = outbox.find_owned(tx, delivery, seen.matches)
    left = tuple(message_id for message_id in seen.matches if message_id not in owned)
    if left and delivery.provider_message_id not in left and outbox.has_unproven_twin(tx, delivery):
        return Seen("unknown", matches=left)
    return _judged(left)


async def _connect(order: Look) -> Session:
    try:
        async with asyncio.timeout(limits.CONNECT_TIMEOUT_US / SECOND):
            return await order.channel.connect(order.installed)
    except TimeoutError:
        raise ConnectFailed("connect_failed") from None


def _matches(order: Look, item: HistoryItem) -> bool:
    """Our bot's message with equal parent and equal content, neither recalled nor edited."""
    delivery = order.delivery
    if item.sender_type == "user" or item.deleted or item.updated:
        return False
    if item.sender_id not in {order.installed.app_id, order.bot_open_id}:
        return False
    if (item.parent_id or None) != delivery.reply_to:
        return False
    if delivery.payload_kind == "text":
        return item.message_type == "text" and order.channel.same_text(item.content, delivery.text or "")
    return item.message_type == "file" and bool(delivery.upload_key) and (delivery.upload_key or "") in item.content


def note_look(tx: Tx, actor: Actor, workspace_id: str, delivery_id: str, seen: Seen) -> Delivery:
    """Keep the result, weighed; the state does not change."""
    delivery = outbox.get(tx, actor, workspace_id, delivery_id)
    outbox.note_read_back(tx, delivery_id, weigh(tx, delivery, seen).result)
    return outbox.get(tx, actor, workspace_id, delivery_id)
