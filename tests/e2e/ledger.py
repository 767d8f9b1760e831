"""What must be true of a house once everything in it has ended: nothing lost, nothing doubled, nothing unexplained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.e2e.rig import House

OPEN_RECEIPTS = {"received", "processing", "retryable_failed"}
OPEN_DELIVERIES = {"pending", "connecting", "sending", "retryable_failed"}
# What the provider answers where it proves that no message was made (desk.md 6.6): only then may a uuid come again.
PROOFS = {99991400, 230020, 11232, 11233, 99991663, 99991664, 99991668, 99991671}


def ended(house: House, messages: Sequence[str]) -> bool:
    """Whether each message has a receipt, and no receipt and no delivery of the house is open any more."""
    receipts = house.rows("receipts")
    known = {row["provider_message_id"] for row in receipts}
    deliveries = house.rows("deliveries")
    return (
        set(messages) <= known
        and all(row["status"] not in OPEN_RECEIPTS for row in receipts)
        and all(row["status"] not in OPEN_DELIVERIES for row in deliveries)
    )


def receipts_of(house: House, messages: Sequence[str]) -> list[dict[str, Any]]:
    """The one receipt of each message, in the order of their arrival."""
    wanted = set(messages)
    found = [
        row
        for row in house.query("SELECT * FROM receipts ORDER BY created_at, id")
        if row["provider_message_id"] in wanted
    ]
    assert len(found) == len(wanted) == len(messages), f"{len(found)} receipts of {len(messages)} messages"
    assert {row["provider_message_id"] for row in found} == wanted
    return found


def one_turn_each(house: House, receipts: Sequence[dict[str, Any]]) -> None:
    """Each receipt has one turn of its own, and those of one grant ran in the order of arrival."""
    turns = {row["id"]: row for row in house.rows("turns")}
    assert all(row["turn"] in turns for row in receipts), "a receipt without a turn"
    assert len({row["turn"] for row in receipts}) == len(receipts), "a turn of two receipts"
    places: dict[str, list[int]] = {}
    for row in receipts:
        places.setdefault(row["reply_grant"], []).append(turns[row["turn"]]["sequence"])
    for grant, sequence in places.items():
        assert sequence == sorted(sequence), f"{grant} did not run in the order of arrival: {sequence}"


def cursors_agree(house: House, grants: Sequence[str]) -> None:
    """A grant's cursor, its conversation's revision and the number of answered turns are one number."""
    for grant_id in grants:
        (grant,) = house.rows("reply_grants", id=grant_id)
        (conversation,) = house.rows("conversations", id=grant["conversation"])
        turns = house.rows("turns", conversation=conversation["id"])
        answered = [turn["committed_revision"] for turn in turns if turn["status"] in ("completed", "proposal")]
        numbers = (grant["cursor"], conversation["revision"], len(answered))
        assert len(set(numbers)) == 1, f"{grant_id}: cursor, revision, answered turns: {numbers}"
        assert sorted(answered) == list(range(1, len(answered) + 1))


def ends_are_named(house: House, receipts: Sequence[dict[str, Any]]) -> Counter[str]:
    """Each receipt ended in an answer that was sent, or with a code that people see; how often which."""
    deliveries: dict[str, dict[str, Any]] = {}
    for row in house.rows("deliveries"):
        if row["receipt"] is not None:
            assert row["receipt"] not in deliveries, "a receipt with two deliveries"
            deliveries[row["receipt"]] = row
    seen: Counter[str] = Counter()
    for receipt in receipts:
        delivery = deliveries.get(receipt["id"])
        if delivery is None:
            assert receipt["status"] == "permanent_failed"
            assert receipt["error_code"], receipt["id"]
            seen[receipt["error_code"]] += 1
        elif delivery["status"] != "sent":
            assert delivery["status"] in ("indeterminate", "failed")
            assert delivery["error_code"], delivery["id"]
            seen[delivery["error_code"]] += 1
        else:
            seen["sent"] += 1
    return seen


def never_blindly(wires: Sequence[dict[str, Any]]) -> None:
    """A wire request was repeated only after an answer which proves that it made no message, with the same uuid."""
    before: dict[str, dict[str, Any]] = {}
    for row in wires:
        assert row["uuid"], row
        earlier = before.get(row["uuid"])
        assert earlier is None or (not earlier["accepted"] and earlier["code"] in PROOFS), (earlier, row)
        before[row["uuid"]] = row
