"""A receipt's whole life (desk.md 5.2). The receipt is the queue; its lease is the only one in the work of a grant."""

from __future__ import annotations

from typing import Final

from frontdesk.kernel.machine import Fence, Machine, edge

RECEIPT: Final = Machine(
    name="receipt",
    states=(
        "received",
        "processing",
        "completed",
        "proposal",
        "rejected",
        "retryable_failed",
        "permanent_failed",
    ),
    initial=frozenset({"received", "rejected", "completed"}),
    edges={
        "claim": edge("received retryable_failed", "processing", Fence.CLAIM),
        "take_over": edge("processing", "processing", Fence.LAPSED),
        "defer": edge("received retryable_failed", "retryable_failed"),
        "give_back": edge("processing", "retryable_failed", Fence.HELD),
        "retry": edge("processing", "retryable_failed", Fence.HELD),
        "complete": edge("processing", "completed", Fence.HELD),
        "propose": edge("processing", "proposal", Fence.HELD),
        "fail": edge("processing", "permanent_failed", Fence.HELD),
        "recall": edge("received retryable_failed", "rejected"),
        "exhaust": edge("received retryable_failed", "permanent_failed"),
        "withdraw": edge("received retryable_failed processing", "permanent_failed"),
        "revoke_authority": edge("completed proposal", "permanent_failed"),
    },
)

OPEN: Final = ("received", "retryable_failed", "processing")
WAITING: Final = ("received", "retryable_failed")
ENDED: Final = ("completed", "proposal", "rejected", "permanent_failed")
DEAD: Final = ("rejected", "permanent_failed")
