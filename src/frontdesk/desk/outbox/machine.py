"""A delivery's whole life (desk.md 5.7). From `sending` on nothing but a listed proof leads back to another try."""

from __future__ import annotations

from typing import Final

from frontdesk.kernel.machine import Fence, Machine, edge

DELIVERY: Final = Machine(
    name="delivery",
    states=(
        "pending",
        "connecting",
        "sending",
        "sent",
        "retryable_failed",
        "failed",
        "indeterminate",
        "settled_sent",
        "settled_not_sent",
    ),
    initial=frozenset({"pending"}),
    edges={
        "claim": edge("pending retryable_failed", "connecting", Fence.CLAIM),
        "expire": edge("pending retryable_failed", "failed"),
        "forbid": edge("pending retryable_failed", "failed"),
        "forbid_connecting": edge("connecting", "failed", Fence.HELD),
        "connect_failed": edge("connecting", "retryable_failed", Fence.HELD),
        "postpone": edge("connecting", "retryable_failed", Fence.HELD),
        "refuse": edge("connecting", "failed", Fence.HELD),
        "interrupt": edge("connecting", "retryable_failed", Fence.LAPSED),
        "exhaust": edge("pending retryable_failed", "failed"),
        "begin": edge("connecting", "sending", Fence.LIVE, keeps_lease=True),
        "confirm": edge("sending", "sent", Fence.HELD),
        "refused": edge("sending", "failed", Fence.HELD),
        "not_sent": edge("sending", "retryable_failed", Fence.HELD),
        "lose": edge("sending", "indeterminate", Fence.HELD),
        "lapse": edge("sending", "indeterminate", Fence.LAPSED),
        "prove": edge("indeterminate", "sent"),
        "settle_sent": edge("indeterminate", "settled_sent"),
        "settle_not_sent": edge("indeterminate", "settled_not_sent"),
    },
)

WAITING: Final = ("pending", "retryable_failed")
UNDER_WAY: Final = ("connecting", "sending")
DEAD: Final = ("failed", "indeterminate")
ENDED: Final = ("sent", "failed", "indeterminate", "settled_sent", "settled_not_sent")
