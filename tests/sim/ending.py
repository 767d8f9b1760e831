"""How everything must have ended once the faults are over: each accepted message in exactly one definite way."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from frontdesk.kernel.codes import RUNNER_CODES
from tests.sim.life import Violation
from tests.sim.mirror import Mirror, Row
from tests.sim.runner import answer_to
from tests.sim.watch import LOST_CODES

if TYPE_CHECKING:
    from tests.sim.world import World

_OPEN: Final = {
    "receipts": ("received", "retryable_failed", "processing"),
    "deliveries": ("pending", "retryable_failed", "connecting", "sending"),
    "turns": ("running",),
}
# Ends of a receipt without any answer, and what each means.
SILENT_ENDS: Final = frozenset(
    (
        "authorization_revoked_before_delivery",
        "conversation_revision_changed",
        "agent_execution_indeterminate",
        "attempts_exhausted",
    )
)
DELIVERY_ENDS: Final = {
    "sent": frozenset([None]),
    "indeterminate": frozenset(["send_result_unknown"]),
    "settled_sent": frozenset(["send_result_unknown"]),
    "settled_not_sent": frozenset(["send_result_unknown"]),
    "failed": frozenset(
        (
            "attempts_exhausted",
            "authorization_revoked_before_delivery",
            "conversation_revision_changed",
            "delivery_expired",
            "format_error",
            "permission_denied",
            "target_revoked",
        )
    ),
}


def still_open(mirror: Mirror) -> list[str]:
    """What has not come to an end."""
    found = []
    for table, states in _OPEN.items():
        for row_id, row in mirror.rows(table):
            if row["status"] in states:
                found.append(f"{table} {row_id} {row['status']} {row.get('error_code')} {row.get('attempt_count')}")
    return found


def outcomes(world: World) -> dict[str, int]:
    """How many receipts ended how."""
    counted: Counter[str] = Counter()
    for _, receipt in world.mirror.rows("receipts", intent="reply"):
        counted[_name_of(receipt, world.mirror)] += 1
    return dict(sorted(counted.items()))


def _name_of(receipt: Row, mirror: Mirror) -> str:
    if receipt["status"] != "completed":
        return f"{receipt['status']}:{receipt['error_code']}" if receipt["error_code"] else str(receipt["status"])
    statuses = [row["status"] for row_id, row in mirror.rows("deliveries") if _of(row, receipt, mirror)]
    return f"answered:{statuses[0]}" if statuses else "answered:?"


def _of(delivery: Row, receipt: Row, mirror: Mirror) -> bool:
    return delivery["receipt"] is not None and mirror.tables["receipts"].get(delivery["receipt"]) is receipt


def check(world: World) -> None:
    """Raise `Violation` for the first thing that ended in no permitted way."""
    mirror = world.mirror
    deliveries: dict[str, Row] = {
        row["receipt"]: row for _, row in mirror.rows("deliveries") if row["receipt"] is not None
    }
    for receipt_id, receipt in mirror.rows("receipts"):
        _check_receipt(world, receipt_id, receipt, deliveries.get(receipt_id))
    for delivery_id, delivery in mirror.rows("deliveries"):
        _check_delivery(world, delivery_id, delivery)
    _check_pushes(world)
    _check_calm(world)


def _demand(holds: Any, text: str) -> None:
    if not holds:
        raise Violation(text)


def _check_receipt(world: World, receipt_id: str, receipt: Row, delivery: Row | None) -> None:
    status, code = receipt["status"], receipt["error_code"]
    turns = [row for row_id, row in world.mirror.rows("turns") if row_id == receipt["turn"]]
    asked = sum(world.watch.questions[turn["user_content"]] for turn in turns)
    what = f"receipt {receipt_id} {status} {code}"
    purpose = delivery["purpose"] if delivery is not None else None
    _demand(asked <= 1, f"{what}: its question was asked {asked} times")
    if receipt["intent"] == "binding" or status == "rejected":
        _demand(delivery is None and not turns, f"{what}: has a turn or a delivery")
    elif status in ("completed", "proposal") and delivery is not None and delivery["error_code"] in LOST_CODES:
        raise Violation(f"{what}: its answer lost its authority, and it still counts as answered")
    elif status == "completed":
        _demand(purpose == "agent_reply" and asked == 1, f"{what}: without answer")
        assert delivery is not None
        _demand(delivery["text"] == answer_to(turns[0]["user_content"]), f"{what}: another answer")
        _demand(delivery["reply_to_message_id"] == receipt["provider_message_id"], f"{what}: answers another message")
    elif status == "proposal":
        _demand(purpose == "proposal_notice" and asked == 1, f"{what}: without notice")
    elif status == "permanent_failed" and code in RUNNER_CODES:
        _demand(purpose in ("failure_notice", None) and asked <= 1, f"{what}: not told")
    elif status == "permanent_failed":
        _demand(code in SILENT_ENDS, f"{what}: ended for no permitted reason")
        silent = delivery is None or delivery["status"] == "failed"
        _demand(silent, f"{what}: something was sent all the same")
    else:
        raise Violation(f"{what}: did not end")


def _check_delivery(world: World, delivery_id: str, delivery: Row) -> None:
    status, code = delivery["status"], delivery["error_code"]
    shown = world.provider.visible(delivery["operation_id"])
    what = f"delivery {delivery_id} {status} {code}"
    _demand(code in DELIVERY_ENDS[status], f"{what}: no permitted end")
    _demand(len(shown) <= 1, f"{what}: shown {len(shown)} times")
    if status == "sent":
        _demand(len(shown) == 1 and shown[0].message_id == delivery["provider_message_id"], f"{what}: not shown")
    if status == "failed":
        _demand(not shown, f"{what}: shown although it failed")


def _check_pushes(world: World) -> None:
    known = {row["provider_message_id"] for _, row in world.mirror.rows("receipts")}
    for key, push in world.provider.pushes.items():
        kind, _, message_id = key.partition(":")
        _demand(push.acknowledged, f"{key} was never acknowledged")
        _demand(kind != "message" or message_id in known, f"{key} was acknowledged and is gone")


def _check_calm(world: World) -> None:
    """What may not happen where nobody brought it about."""
    plan = world.plan
    counted = outcomes(world)
    unknown = sum(row["status"] == "indeterminate" for _, row in world.mirror.rows("deliveries"))
    if not plan.may_lose_work:
        _demand(
            not any("agent_execution_indeterminate" in name for name in counted),
            f"lost work without a reason: {counted}",
        )
        _demand(plan.wire or not unknown, f"{unknown} unknown deliveries without a reason")
    if plan.profile == "calm":
        # A slow answer may let more than twenty questions wait; one more is refused (DESK-293).
        _demand(set(counted) <= {"answered:sent", "rejected:inbox_full"}, f"a calm day ended otherwise: {counted}")
        for _, grant in world.mirror.rows("reply_grants"):
            conversation = world.mirror.tables["conversations"][grant["conversation"]]
            turns = world.mirror.rows("turns", conversation=grant["conversation"])
            _demand(grant["cursor"] == conversation["revision"] == len(turns), "a calm day skipped a revision")
