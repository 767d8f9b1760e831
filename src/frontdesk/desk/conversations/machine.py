"""Turn and proposal transitions (desk.md 5.3, 5.8). A turn's lease columns serve console and API turns alone."""

from __future__ import annotations

from typing import Final

from frontdesk.kernel.machine import Fence, Machine, edge

TURN: Final = Machine(
    name="turn",
    states=("running", "completed", "proposal", "failed"),
    initial=frozenset({"running"}),
    edges={
        # Turns of the connector are fenced by their receipt's lease, checked in the same transaction.
        "complete": edge("running", "completed"),
        "propose": edge("running", "proposal"),
        "fail": edge("running", "failed"),
        "complete_held": edge("running", "completed", Fence.HELD),
        "propose_held": edge("running", "proposal", Fence.HELD),
        "fail_held": edge("running", "failed", Fence.HELD),
        "interrupt": edge("running", "failed", Fence.LAPSED),
    },
)

PROPOSAL: Final = Machine(
    name="proposal",
    states=("open", "applied", "refused", "stale"),
    initial=frozenset({"open"}),
    edges={
        "apply": edge("open", "applied"),
        "refuse": edge("open", "refused"),
        "find_stale": edge("open", "stale"),
    },
)

CONVERSATION: Final = Machine(
    name="conversation",
    states=("active", "closed"),
    initial=frozenset({"active"}),
    edges={"close": edge("active", "closed")},
)
