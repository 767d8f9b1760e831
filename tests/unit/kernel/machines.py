"""Every transition table of the product, with the table whose rows live by it."""

from __future__ import annotations

from frontdesk.desk.connections.machine import INSTALLATION
from frontdesk.desk.conversations.machine import CONVERSATION, PROPOSAL, TURN
from frontdesk.desk.grants.machine import ARTIFACT_GRANT, REPLY_GRANT
from frontdesk.desk.inbox.machine import RECEIPT
from frontdesk.desk.outbox.machine import DELIVERY
from frontdesk.kernel.machine import Machine

MACHINES: dict[str, Machine] = {
    "installations": INSTALLATION,
    "conversations": CONVERSATION,
    "turns": TURN,
    "proposals": PROPOSAL,
    "reply_grants": REPLY_GRANT,
    "artifact_grants": ARTIFACT_GRANT,
    "receipts": RECEIPT,
    "deliveries": DELIVERY,
}
PAIRS = [
    (table, state, event) for table, machine in MACHINES.items() for state in machine.states for event in machine.edges
]
