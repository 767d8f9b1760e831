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
from frontdesk.identity.model import Actor
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
    """found (exactly one match, its id) | absent (a complete list without one) | unknown (anything else)."""

    result: str
    message_id: str | None = field(default=None, repr=False)


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


async def look(order: Look) -> Seen:
    """One bounded look around the moment of sending. Raises `ConnectFailed` where the provider is not reached."""
    delivery = order.delivery
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
    matches = [item for item in history.items if _matches(order, item)]
    if not matches:
        return Seen("absent")
    if len(matches) == 1:
        return Seen("found", matches[0].message_id)
    return Seen("unknown")


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
    """Keep the result; the state does not change."""
    outbox.get(tx, actor, workspace_id, delivery_id)
    outbox.note_read_back(tx, delivery_id, seen.result)
    return outbox.get(tx, actor, workspace_id, delivery_id)
