"""One push, one receipt: dedupe, identity, shape, and what stands when the push is acknowledged."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest

from frontdesk.desk import inbox
from frontdesk.desk.inbox import ReceiptConflict, Received
from frontdesk.kernel.clock import DAY, HOUR, MINUTE, SECOND
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import DeskWorld, Gate
from tests.contract.inbox.pushing import Provider, payload
from tests.contract.world import race


async def only_receipt(desk: DeskWorld, **equal: Any) -> dict[str, Any]:
    (row,) = await desk.rows("receipts", intent="reply", **equal)
    return row


# ------------------------------------------------------------------------------------------------ dedupe


@pytest.mark.spec("DESK-51")
async def test_one_message_is_one_receipt_however_often_it_is_pushed(desk: DeskWorld, open_session: Any) -> None:
    """A message pushed at once by several, on the provider's schedule and after restarts is one receipt, one turn."""
    seat = await desk.seat()
    message = payload("count me once", parent_id=seat.activation)
    processes = [Provider(desk, open_session()) for _ in range(4)]
    for process in processes:  # the SDK is imported and the sessions stand before the clock of the callback runs
        assert await process.push(payload("warm", message_id="om_g", chat_type="group")) == 200

    answers = await asyncio.gather(*(process.push(message) for process in processes))
    answers += [await processes[0].push(message) for _ in range(2)]
    await desk.work()
    for wait_us in (15 * SECOND, 5 * MINUTE, 1 * HOUR):
        desk.clock.advance(wait_us)
        answers.append(await processes[0].push(message))
        await desk.work()
    restarted = Provider(desk, open_session())
    desk.clock.advance(6 * HOUR)
    answers.append(await restarted.push(message))
    await desk.work()

    assert answers == [200] * 10
    receipt = await only_receipt(desk)
    (turn,) = await desk.rows("turns")
    assert receipt["status"] == "completed"
    assert receipt["turn"] == turn["id"]
    assert len(desk.runner.requests) == 1


async def test_a_race_of_two_sessions_writes_one_receipt(desk: DeskWorld, open_session: Any) -> None:
    """Two transactions that both looked before either wrote end with one row, and neither fails."""
    seat = await desk.seat()
    message = desk.message("once", seat)
    sessions = [open_session(), open_session()]

    def receive(tx: Tx) -> Received:
        return inbox.receive(tx, desk.installation_id, message, transport="webhook")

    outcomes = await race(sessions, receive, receive)
    assert sorted(outcome.outcome for outcome in outcomes) == ["accepted", "known"]  # type: ignore[union-attr]
    await only_receipt(desk)


@pytest.mark.spec("DESK-52")
async def test_the_same_id_with_another_content_is_not_accepted(desk: DeskWorld) -> None:
    """A known message id with another hash is answered 500; the first row stands as it was and runs once."""
    seat = await desk.seat()
    provider = Provider(desk)
    assert await provider.push(payload("first", parent_id=seat.activation)) == 200
    before = await only_receipt(desk)

    assert await provider.push(payload("second", parent_id=seat.activation)) == 500
    assert await only_receipt(desk) == before
    await desk.work()
    assert await provider.push(payload("second", parent_id=seat.activation)) == 500

    assert [turn["user_content"] for turn in await desk.rows("turns")] == ["first"]
    assert (await only_receipt(desk))["status"] == "completed"


@pytest.mark.spec("DESK-50")
async def test_the_key_is_installation_and_message_id(desk: DeskWorld) -> None:
    """Another event id makes no second receipt, another installation makes an independent one."""
    seat = await desk.seat()
    other = await desk.install("Second", app_id="cli_2")
    provider = Provider(desk)
    message = payload("hi", parent_id=seat.activation)
    assert await provider.push(message) == 200
    assert await provider.push(payload("hi", parent_id=seat.activation, header={"event_id": "ev_2"})) == 200
    assert await provider.push(payload("hi", parent_id=seat.activation, header={"app_id": "cli_2"}), other) == 200
    # One event id for two messages is no reason to drop the second.
    assert await provider.push(payload("hi", message_id="om_2", parent_id=seat.activation)) == 200

    here = await desk.rows("receipts", intent="reply", installation=desk.installation_id)
    assert {(row["provider_message_id"], row["status"]) for row in here} == {("om_1", "received"), ("om_2", "received")}
    assert len(here) == 2
    (elsewhere,) = await desk.rows("receipts", installation=other)
    assert elsewhere["provider_message_id"] == "om_1"
    assert elsewhere["error_code"] == "principal_not_bound"  # no binding and no grant of the first reach over


@pytest.mark.spec("DESK-289")
@pytest.mark.parametrize("meanwhile", ["older than the window", "disabled", "revoked", "purged"])
async def test_a_known_message_is_acknowledged_whatever_happened_since(desk: DeskWorld, meanwhile: str) -> None:
    """A recorded message pushed again is answered 200 and its row is left alone, whatever changed meanwhile."""
    seat = await desk.seat()
    provider = Provider(desk)
    message = payload("again", parent_id=seat.activation)
    signed_at = desk.clock.now_us()
    assert await provider.push(message) == 200
    receipt = await only_receipt(desk)
    if meanwhile == "older than the window":
        desk.clock.advance(3 * DAY)
    elif meanwhile == "disabled":
        await desk.enable(False)
    elif meanwhile == "revoked":
        await desk.revoke_installation()
    else:
        await desk.force("receipts", receipt["id"], content_text=None, request_hash=None, purged_at=signed_at)
    desk.clock.advance(2 * SECOND)
    before = await only_receipt(desk)

    assert await provider.push(message, at_us=signed_at) == 200
    assert await only_receipt(desk) == before


# ------------------------------------------------------------------------------------------------ identity and shape

OTHERS: list[tuple[str, dict[str, Any], str]] = [
    ("app", {"header": {"app_id": "cli_other"}}, "installation_identity_mismatch"),
    (
        "tenant",
        {"header": {"tenant_key": "t-other"}, "sender": {"tenant_key": "t-other"}},
        "installation_identity_mismatch",
    ),
    ("the event's tenant", {"header": {"tenant_key": "t-other"}}, "installation_identity_mismatch"),
    ("the sender's tenant", {"sender": {"tenant_key": "t-other"}}, "installation_identity_mismatch"),
    ("type", {"message_type": "image"}, "unsupported_message_shape"),
]


@pytest.mark.spec("DESK-48")
async def test_only_this_app_this_tenant_a_person_a_private_chat_and_text(desk: DeskWorld) -> None:
    """Another app or tenant, of the sender too, is recorded as a mismatch; group chats and machines leave no row."""
    seat = await desk.seat()
    provider = Provider(desk)
    for index, (what, changes, code) in enumerate(OTHERS):
        name = f"om_other_{index}"
        assert await provider.push(payload("hi", message_id=name, parent_id=seat.activation, **changes)) == 200, what
        (row,) = await desk.rows("receipts", provider_message_id=name)
        assert (row["status"], row["error_code"]) == ("rejected", code), what
        assert (row["reply_grant"], row["conversation"]) == (None, None), what
    for name, changes in (("om_g", {"chat_type": "group"}), ("om_b", {"sender": {"sender_type": "app"}})):
        assert await provider.push(payload("hi", message_id=name, parent_id=seat.activation, **changes)) == 200
        assert await desk.rows("receipts", provider_message_id=name) == []

    assert await provider.push(payload("hi", message_id="om_ok", parent_id=seat.activation)) == 200
    (row,) = await desk.rows("receipts", provider_message_id="om_ok")
    assert row["status"] == "received"
    await desk.work()
    assert len(desk.runner.requests) == 1


CONTENTS: list[tuple[str, str, int]] = [
    ("one character", json.dumps({"text": "x"}), 1),
    ("20,000 plain", json.dumps({"text": "x" * 20_000}), 20_000),
    ("20,000 escaped", json.dumps({"text": "<" * 5_000}), 5_000),
    ("none", json.dumps({"text": ""}), 0),
    ("20,001 plain", json.dumps({"text": "x" * 20_001}), 0),
    ("20,001 escaped", json.dumps({"text": "<" * 5_000 + "x"}), 0),
    ("another key too", json.dumps({"text": "x", "more": "y"}), 0),
    ("the key twice", '{"text":"x","text":"y"}', 0),
    ("another key", json.dumps({"content": "x"}), 0),
    ("a number", json.dumps({"text": 1}), 0),
    ("a list", json.dumps(["x"]), 0),
    ("no JSON", "{text", 0),
]


@pytest.mark.spec("DESK-49")
async def test_content_is_one_text_of_a_bearable_length(desk: DeskWorld) -> None:
    """Exactly one string `text` of escaped length 1 to 20,000 is stored whole; anything else is refused, never cut."""
    seat = await desk.seat()
    provider = Provider(desk)
    for index, (what, content, length) in enumerate(CONTENTS):
        name = f"om_c_{index}"
        message = payload(message_id=name, parent_id=seat.activation, content=content)
        assert await provider.push(message) == 200, what
        (row,) = await desk.rows("receipts", provider_message_id=name)
        if length:
            assert (row["status"], row["content_text"]) == ("received", json.loads(content)["text"]), what
            assert len(row["content_text"]) == length
        else:
            assert (row["status"], row["error_code"]) == ("rejected", "unsupported_message_shape"), what
            assert row["content_text"] == "[not kept]", what


@pytest.mark.spec("DESK-54")
async def test_parent_and_root_are_absent_or_short_texts(desk: DeskWorld) -> None:
    """An object, a list or an overlong parent or root refuses the message, and nothing of it reaches a column."""
    seat = await desk.seat()
    provider = Provider(desk)
    wrong: list[Any] = [{"id": "om_1"}, ["om_1"], 7, True, "x" * 256]
    cases = [({name: value}, 0) for name in ("parent_id", "root_id") for value in wrong]
    cases += [({name: value}, 1) for name in ("parent_id", "root_id") for value in ("", None, "x" * 255)]
    cases += [({}, 1)]
    for index, (fields, good) in enumerate(cases):
        name = f"om_p_{index}"
        assert await provider.push(payload("hi", message_id=name, **fields)) == 200, fields
        (row,) = await desk.rows("receipts", provider_message_id=name)
        stored = (row["parent_message_id"], row["root_message_id"])
        if good:
            expected = (fields.get("parent_id") or None, fields.get("root_id") or None)
            assert stored == expected, fields
            assert row["error_code"] != "unsupported_message_shape"
        else:
            assert stored == (None, None), fields
            assert row["error_code"] == "unsupported_message_shape", fields
            assert row["reply_grant"] is None
    assert seat.grant_id


@pytest.mark.spec("DESK-297")
async def test_content_of_any_kind_is_handled_without_an_exception(desk: DeskWorld) -> None:
    """Content that is not JSON or of odd types is a receipt; an unusable message id is acknowledged and counted."""
    provider = Provider(desk)
    odd: list[Any] = ["", "null", "[]", "1", '"text"', "{", None, 5, {"text": "x"}, ["x"], "[" * 5_000, '{"text":NaN}']
    for index, content in enumerate(odd):
        assert await provider.push(payload(message_id=f"om_o_{index}", content=content)) == 200, content
    rows = await desk.rows("receipts")
    assert [row["error_code"] for row in rows] == ["unsupported_message_shape"] * len(odd)

    unusable: list[Any] = ["", None, 5, {"a": 1}, ["om"], "x" * 256, "a\x00b"]
    for message_id in unusable:
        assert await provider.push(payload(message_id=message_id)) == 200, message_id
    assert provider.ignored("message_id_unusable") == len(unusable)
    assert await desk.rows("receipts") == rows


# ------------------------------------------------------------------------------------------------ the acknowledgement


@pytest.mark.spec("DESK-58")
async def test_at_the_acknowledgement_only_the_receipt_exists(desk: DeskWorld) -> None:
    """A 200 means one more receipt and nothing else; it comes while a runner and a send are held up."""
    seat = await desk.seat()
    provider = Provider(desk)
    desk.runner.behaviour = gate = Gate()
    sending, let_go = asyncio.Event(), asyncio.Event()

    async def hold(message: Any) -> None:
        sending.set()
        await let_go.wait()

    desk.channel.on_send = hold
    mate = await desk.people.person("mate", "operator")
    order = desk.order(await desk.bind(mate, sender="ou_2", chat="oc_2"), await desk.converse(mate))
    await desk.create(order, mate)  # its activation is the delivery that hangs
    first = await desk.ask("held", seat)
    worker, sender = desk.receipt_worker(), desk.delivery_worker()
    assert await worker.step() == 1
    assert await sender.step() == 1
    await asyncio.wait_for(gate.reached.wait(), 10)
    await asyncio.wait_for(sending.wait(), 10)

    before = await desk.counts()
    calls = len(desk.runner.requests), len(desk.channel.sent)
    assert (
        await asyncio.wait_for(provider.push(payload("now", message_id="om_now", parent_id=seat.activation)), 10) == 200
    )
    after = await desk.counts()
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {"receipts": 1}
    assert (len(desk.runner.requests), len(desk.channel.sent)) == calls
    (row,) = await desk.rows("receipts", provider_message_id="om_now")
    assert (row["status"], row["turn"], row["attempt_count"]) == ("received", None, 0)
    assert (await desk.row("receipts", first["id"]))["status"] == "processing"
    gate.opened.set()
    let_go.set()
    await worker.stop(30)
    await sender.stop(30)


@pytest.mark.spec("DESK-55")
async def test_a_disabled_or_revoked_installation_records_and_does_nothing(desk: DeskWorld) -> None:
    """Pushes to a disabled or revoked installation verify and are recorded as rejected for good; others go on."""
    seat = await desk.seat()
    other = await desk.install("Second", app_id="cli_2")
    provider = Provider(desk)
    code = await desk.challenge(await desk.people.person("late", "operator"))
    bindings = await desk.rows("bindings")
    await desk.enable(False)
    desk.clock.advance(2 * SECOND)
    reply = payload("hi", message_id="om_d", parent_id=seat.activation)
    bind = payload(f"/bind {code}", message_id="om_bind", sender={"sender_id": {"open_id": "ou_7"}}, chat_id="oc_7")
    for message in (reply, bind):
        assert await provider.push(message) == 200
    codes = [(row["status"], row["error_code"]) for row in (await desk.rows("receipts"))[-2:]]
    assert codes == [("rejected", "installation_disabled")] * 2
    # Forged pushes are refused as ever: verification stands before the record.
    forged = payload("hi", message_id="om_forged", header={"token": "wrong"})
    assert await provider.push(forged) == 500
    assert await desk.rows("receipts", provider_message_id="om_forged") == []

    await desk.enable(True)
    desk.clock.advance(2 * SECOND)
    for message in (reply, bind):
        assert await provider.push(message) == 200
    await desk.work()
    assert await desk.send() == 0
    assert await desk.rows("turns") == []
    assert await desk.rows("bindings") == bindings
    assert [(row["status"], row["error_code"]) for row in (await desk.rows("receipts"))[-2:]] == codes

    await desk.revoke_installation()
    desk.clock.advance(2 * SECOND)
    assert await provider.push(payload("hi", message_id="om_r", parent_id=seat.activation)) == 200
    assert (await desk.rows("receipts"))[-1]["error_code"] == "installation_revoked"
    # Another installation is unaffected, and one whose secrets cannot be read still fails closed.
    assert await provider.push(payload("hi", message_id="om_e", header={"app_id": "cli_2"}), other) == 200
    (row,) = await desk.rows("receipts", installation=other)
    assert row["error_code"] == "principal_not_bound"
    await desk.force("installations", desk.installation_id, encrypt_key_ct=None)
    await desk.force("installations", other, encrypt_key_ct=None)
    desk.clock.advance(2 * SECOND)
    count = await desk.count("receipts")
    for where in (desk.installation_id, other):
        assert await provider.push(payload("hi", message_id="om_x"), where) == 503
    assert await desk.count("receipts") == count


@pytest.mark.spec("DESK-62")
async def test_what_a_receipt_belongs_to_is_the_servers_to_say(desk: DeskWorld) -> None:
    """Fields named like the server's own, anywhere in a payload, change nothing; an unmatched claim names no grant."""
    seat = await desk.seat()
    stranger = await desk.seat(
        await desk.people.person("other", "operator"), sender="ou_2", chat="oc_2", title="Foreign"
    )
    planted = {
        name: value
        for base, value in (
            ("reply_grant", stranger.grant_id),
            ("conversation", stranger.conversation_id),
            ("binding", stranger.binding_id),
            ("artifact_grant", "agr_1"),
            ("turn", "trn_1"),
            ("delivery", "dlv_1"),
            ("status", "completed"),
        )
        for name in (base, f"{base}_id")
    }
    provider = Provider(desk)
    message = payload("hi", parent_id=seat.activation, header=planted, event=planted, sender=planted, **planted)
    assert await provider.push(message) == 200
    row = await only_receipt(desk)
    assert (row["reply_grant"], row["conversation"], row["binding"]) == (
        seat.grant_id,
        seat.conversation_id,
        seat.binding_id,
    )
    assert (row["artifact_grant"], row["turn"], row["status"]) == (None, None, "received")

    claim = payload("/claim fdc_" + "A" * 32, message_id="om_claim", parent_id=seat.activation, **planted)
    assert await provider.push(claim) == 200
    (claimed,) = await desk.rows("receipts", intent="artifact_claim")
    assert claimed["artifact_grant"] is None
    await desk.work()
    (turn,) = await desk.rows("turns")
    assert turn["conversation"] == seat.conversation_id


@pytest.mark.spec("DESK-290")
async def test_machines_and_groups_leave_no_row_however_much_they_talk(desk: DeskWorld) -> None:
    """1,000 messages of bots, of our own bot and of groups are acknowledged and counted; no receipt, no turn."""
    seat = await desk.seat()
    await desk.force("installations", desk.installation_id, bot_open_id="ou_bot")
    provider = Provider(desk)
    before = await desk.counts()
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("not_a_person", {"sender": {"sender_type": "app"}}),
        ("not_a_person", {"sender": {"sender_type": "bot", "sender_id": {"open_id": "ou_bot"}}}),
        ("own_message", {"sender": {"sender_id": {"open_id": "ou_bot"}}}),
        ("not_private", {"chat_type": "group"}),
    ]
    counted = dict.fromkeys((reason for reason, _ in kinds), 0)
    for number in range(1_000):
        # Mostly other bots, as a loop between two of them is; every 25th is another kind.
        reason, changes = kinds[number // 25 % 4] if number % 25 == 0 else kinds[0]
        counted[reason] += 1
        desk.clock.advance(SECOND // 50)
        message = payload("hi", message_id=f"om_l_{number}", parent_id=seat.activation, **changes)
        assert await provider.push(message) == 200
    assert {reason: provider.ignored(reason) for reason in counted} == counted
    assert min(counted.values()) >= 10
    assert await desk.counts() == before
    await desk.work()
    assert await desk.rows("turns") == []


async def test_a_push_of_an_unknown_installation_changes_nothing(desk: DeskWorld) -> None:
    """An installation that is gone between verification and t0 leaves nothing."""
    received = await desk.push(desk.message("hi"), "ins_" + "0" * 32)
    assert (received.outcome, received.code) == ("ignored", "installation_gone")


async def test_a_conflict_leaves_the_transaction_undone(desk: DeskWorld) -> None:
    """A batch in which one message conflicts writes none of its messages."""
    seat = await desk.seat()
    first = desk.message("one", seat, message_id="om_a")
    await desk.push(first)
    with pytest.raises(ReceiptConflict):
        await desk.push(dataclasses.replace(first, request_hash="0" * 64))
    batch = [desk.message("two", seat), dataclasses.replace(first, request_hash="0" * 64)]
    with pytest.raises(ReceiptConflict):
        await desk.database.write(
            lambda tx: [inbox.receive(tx, desk.installation_id, each, transport="webhook") for each in batch]
        )
    assert (await only_receipt(desk))["content_text"] == "one"
