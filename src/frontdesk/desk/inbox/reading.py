"""What t0 knows before it decides: the rows around one message, read together in one statement.

Each part is its room's own prepared select; only the bundle is made here. The grant is not among them: it is locked,
and what the lock waited for must be seen by the statements after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frontdesk.desk import connections, outbox
from frontdesk.desk.connections.channel import InboundMessage
from frontdesk.desk.connections.model import Binding, Installation
from frontdesk.desk.inbox import store
from frontdesk.desk.outbox import Target
from frontdesk.kernel.clock import MINUTE
from frontdesk.storage.prepared import Bundle
from frontdesk.storage.tx import Tx

_AROUND = Bundle(
    connections.prepared_installation(),
    store.BY_MESSAGE,
    store.FROM_SENDER,
    connections.prepared_binding_of_sender(),
    *outbox.prepared_targets(),
)


@dataclass(frozen=True, slots=True)
class Around:
    """The rows around one message. `known` is the receipt it has already; `targets` the parent's first."""

    installation: Installation
    known: dict[str, Any] | None
    sent_by_sender: int
    binding: Binding | None
    targets: tuple[Target, ...]


def read_around(tx: Tx, messages: Sequence[tuple[str, InboundMessage]]) -> list[Around | None]:
    """Everything but the grant around (installation id, message), together; None where the installation is gone."""
    asked = [
        {
            "row_id": installation_id,
            "installation_id": installation_id,
            "message_id": message.message_id,
            "sender_id": message.sender_id,
            "since": tx.now - MINUTE,
            "tenant_key": message.tenant_key,
            "parent_id": message.parent_id or None,
            "root_id": message.root_id or None,
        }
        for installation_id, message in messages
    ]
    return [_around(rows) for rows in _AROUND.read_each(tx, asked)]


def _around(rows: Sequence[dict[str, Any] | None]) -> Around | None:
    installation, known, sent, binding, parent, root = rows
    if installation is None:
        return None
    return Around(
        installation=connections.installation_of(installation),
        known=known,
        sent_by_sender=0 if sent is None else int(sent["messages"]),
        binding=None if binding is None else connections.binding_of(binding),
        targets=tuple(outbox.target_of(row) for row in (parent, root) if row is not None),
    )
