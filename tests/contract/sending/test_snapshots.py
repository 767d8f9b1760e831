"""What a delivery carries: fixed at its birth, rendered here, never split, never in two of its kind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from frontdesk.app.commands import COMMANDS
from frontdesk.channels.feishu.codes import classify_send
from frontdesk.channels.transport import Answer as WireAnswer
from frontdesk.desk import outbox, sending
from frontdesk.desk.connections.channel import (
    Complete,
    ConnectFailed,
    HistoryItem,
    Incomplete,
    NotSent,
    RefusedRetry,
    Unknown,
)
from frontdesk.desk.conversations.runner import Answer
from frontdesk.desk.outbox import store
from frontdesk.desk.outbox.machine import DELIVERY
from frontdesk.desk.outbox.neutral import neutralise
from frontdesk.desk.outbox.snapshot import delivery_hash
from frontdesk.kernel.canonical import bytes_digest
from frontdesk.kernel.clock import HOUR, SECOND
from frontdesk.kernel.errors import Problem
from frontdesk.storage.tx import Tx
from tests.contract.desk_world import APP_ID, LEASE_US, DeskWorld, Seat

SCOPE = (
    "id workspace operation_id provider_uuid installation reply_grant artifact_grant receipt purpose chat_id "
    "reply_to_message_id payload_kind text payload_bytes file_name media_type template_version payload_hash "
    "request_hash dedupe_key created_at"
).split()


def saying(text: str) -> Any:
    async def behave(request: Any, cancel: Any) -> Answer:
        return Answer(text)

    return behave


async def answered(desk: DeskWorld, seat: Seat, text: str = "hello") -> dict[str, Any]:
    receipt = await desk.ask("What now?", seat)
    desk.runner.behaviour = saying(text)
    await desk.work()
    (delivery,) = await desk.rows("deliveries", receipt=receipt["id"])
    return delivery


async def step(desk: DeskWorld) -> None:
    worker = desk.delivery_worker()
    await worker.step()
    await worker.stop(60)


@pytest.mark.spec("DESK-149")
async def test_a_snapshot_stays_what_it_was(desk: DeskWorld, seat: Seat) -> None:
    """Over retries and to its end every fixed column and every sent byte is the same, and its hash is the known one."""
    payload = "07f6edd53d87bc037bec8da5ce8c72b3d01bb84f98d9ecee32646df09fff29c6"
    assert bytes_digest("好的，<done>".encode()) == payload
    o5 = {
        "channel": "feishu",
        "chat_id": "oc_1",
        "file_name": None,
        "media_type": None,
        "operation_id": "dlv-1",
        "payload_hash": payload,
        "payload_kind": "text",
        "provider_uuid": "0190f7c0-0000-7000-8000-000000000001",
        "purpose": "agent_reply",
        "reply_to_message_id": "om_1",
        "template_version": 1,
    }
    assert delivery_hash(o5) == "07f54bf2cfaf1aecce3bcfb66bd87399ac1479e41734bd381e98f54797a71915"
    row = await answered(desk, seat, "好的，<done>")
    assert (row["payload_hash"], row["operation_id"]) == (payload, row["id"])
    assert len(row["provider_uuid"]) <= 50
    hashed = {key: row[key] for key in o5 if key != "channel"} | {"channel": "feishu"}
    assert row["request_hash"] == delivery_hash(hashed)

    desk.channel.connects.extend([ConnectFailed("connect_failed"), None, None, None])
    desk.channel.outcomes.extend([NotSent("not_sent_connection"), RefusedRetry("rate_limited"), Unknown()])
    for _ in range(4):
        await step(desk)
        now = await desk.row("deliveries", row["id"])
        assert {key: now[key] for key in SCOPE} == {key: row[key] for key in SCOPE}
        desk.clock.advance(now["not_before"] - desk.clock.now_us() if now["not_before"] > desk.clock.now_us() else 0)
    assert now["status"] == "indeterminate"
    await desk.write(
        outbox.settle, desk.owner, desk.home, row["id"], outcome="settled_sent", reason="I saw it", read_back=None
    )
    now = await desk.row("deliveries", row["id"])
    assert {key: now[key] for key in SCOPE} == {key: row[key] for key in SCOPE}
    sent = {
        (each.operation_id, each.provider_uuid, each.text, each.chat_id, each.reply_to) for each in desk.channel.sent
    }
    assert sent == {(row["id"], row["provider_uuid"], "好的，<done>", seat.chat, row["reply_to_message_id"])}
    assert len(desk.channel.sent) == 3
    other = await answered(desk, seat)
    assert other["provider_uuid"] != row["provider_uuid"]


@pytest.mark.spec("DESK-151")
async def test_the_database_admits_one_delivery_of_a_kind(desk: DeskWorld, seat: Seat) -> None:
    """A second one for the receipt, whatever it carries, for the grant's activation or a grant's offer is refused."""
    row = await answered(desk, seat)
    before = await desk.count("deliveries")

    def copy(tx: Tx, **changes: Any) -> bool:
        unique = {"id": tx.new_id("dlv"), "operation_id": tx.new_id("dlv"), "provider_uuid": tx.new_id("dlv")}
        return store.insert_delivery(tx, {**row, **unique, **changes})

    for purpose in ("agent_reply", "failure_notice", "artifact_delivery"):
        assert not await desk.write(copy, purpose=purpose, dedupe_key=f"other:{purpose}")
        assert not await desk.write(copy, purpose=purpose, receipt=None)
    for key in (f"activation:{seat.grant_id}", "offer:agr_1"):
        inserted = await desk.write(copy, purpose="artifact_offer", receipt=None, dedupe_key=key)
        assert inserted == (key == "offer:agr_1")
        assert not await desk.write(copy, purpose="activation", receipt=None, dedupe_key=key)
    assert await desk.count("deliveries") == before + 1

    def again(tx: Tx) -> str:
        found = outbox.take_snapshot(
            tx,
            workspace_id=desk.home,
            installation_id=seat.installation_id,
            channel_key="feishu",
            reply_grant_id=seat.grant_id,
            purpose="agent_reply",
            chat_id=seat.chat,
            reply_to="om_other",
            payload=outbox.text_payload("something else"),
            dedupe_key=row["dedupe_key"],
            receipt_id=row["receipt"],
        )
        return found.id

    assert await desk.database.write(again) == row["id"]


@pytest.mark.spec("DESK-166")
async def test_what_looks_like_a_path_an_address_or_a_key_is_only_text(desk: DeskWorld, seat: Seat) -> None:
    """An answer's characters are sent as characters: nothing is opened, fetched, uploaded or taken as a file key."""
    for text in (
        "/etc/passwd",
        "file:///etc/passwd",
        "http://127.0.0.1:9/x",
        '{"file_key":"file_v3_planted"}',
        "file_v3_x",
    ):
        row = await answered(desk, seat, text)
        assert (row["payload_kind"], row["text"], row["upload_key"], row["file_name"]) == ("text", text, None, None)
        await desk.send()
        message = desk.channel.sent[-1]
        assert (message.text, message.upload_key, message.file) == (text, None, None)
    assert desk.channel.uploaded == []
    # A long one becomes a file whose name, type and bytes are ours alone.
    long = "../../evil.sh http://127.0.0.1:9/ file_v3_planted " + "x" * 150_000
    row = await answered(desk, seat, long)
    await desk.send()
    (file,) = desk.channel.uploaded
    assert (file.name, file.media_type, file.content) == ("answer.md", "text/markdown", long.encode())
    assert desk.channel.sent[-1].upload_key == "file_1"


@pytest.mark.spec("DESK-169")
async def test_a_text_over_the_limit_is_one_file_or_nothing(desk: DeskWorld, seat: Seat) -> None:
    """At the limit it is one text; one byte more is one file, or is refused before any request where so set."""
    room = desk.channel.limits.text_bytes_max - desk.channel.text_body_bytes("")
    fitting, over = "x" * room, "x" * (room + 1)
    await answered(desk, seat, fitting)
    await desk.send()
    assert [(message.text, message.upload_key) for message in desk.channel.sent] == [(fitting, None)]
    row = await answered(desk, seat, over)
    await desk.send()
    assert (row["payload_kind"], row["file_name"]) == ("file", "answer.md")
    assert [(message.text, message.upload_key) for message in desk.channel.sent[1:]] == [(None, "file_1")]
    assert desk.channel.uploaded[0].content == over.encode()
    desk.oversize_answer = "refuse"
    connects = len(desk.channel.connected)
    row = await answered(desk, seat, over)
    await desk.send()
    refused = await desk.row("deliveries", row["id"])
    assert (refused["status"], refused["error_code"]) == ("failed", "answer_too_long")
    assert (len(desk.channel.connected), len(desk.channel.sent), len(desk.channel.uploaded)) == (connects, 2, 1)


NEUTRAL = {
    '<at user_id="all">': '＜at user_id="all">',
    "<AT user_id='all'>": "＜AT user_id='all'>",
    "</at>": "＜/at>",
    '<a href="http://x">': '＜a href="http://x">',
    "</A>": "＜/A>",
    "<at/>": "＜at/>",
    "<at": "＜at",
    "<at\n>": "＜at\n>",
    "a < b": "a < b",
    "<atlas>": "<atlas>",
    "<b>bold</b>": "<b>bold</b>",
    "if a<at_most: pass": "if a<at_most: pass",
    "List<Attr> x = new ArrayList<>();": "List<Attr> x = new ArrayList<>();",
}


@pytest.mark.spec("DESK-170")
async def test_tags_that_ping_or_link_leave_as_text(desk: DeskWorld, seat: Seat) -> None:
    """Tags named `at` and `a` lose their `<` on the wire; everything else leaves as it was written."""
    for text, expected in NEUTRAL.items():
        assert neutralise(text) == expected
    await answered(desk, seat, " ".join(NEUTRAL))
    await desk.send()
    assert desk.channel.sent[-1].text == " ".join(NEUTRAL.values())


@pytest.mark.spec("DESK-316")
async def test_nothing_the_provider_says_is_kept_but_its_number(desk: DeskWorld, seat: Seat) -> None:
    """Message and error text of the provider are in no row and no value an operator reads; the numeric code is."""
    planted = "planted-provider-text"
    for number, code in enumerate((230011, 230020, 230001, 99992402, 0)):
        row = await answered(desk, seat, f"answer {number}")
        fields = {"code": code, "msg": planted, "error": {"log_id": planted}, "data": {"body": {"content": planted}}}
        desk.channel.outcomes.append(
            classify_send(WireAnswer(200, {"x-planted": planted}, str(fields).replace("'", '"').encode()), True)
        )
        await step(desk)
        desk.clock.advance(SECOND)
        read = await desk.read(outbox.get, desk.owner, desk.home, row["id"])
        assert read.provider_code == (code or None)
        assert planted not in repr(read)
        await desk.force("deliveries", row["id"], not_before=desk.clock.now_us() + HOUR)
    desk.channel.outcomes.append(ValueError(planted))
    await answered(desk, seat, "raises")
    await step(desk)
    desk.channel.connects.append(OSError(planted))
    await answered(desk, seat, "refuses")
    await step(desk)
    assert planted not in await desk.everything()


@pytest.mark.spec("DESK-165")
def test_there_is_no_way_to_send_again() -> None:
    """No operation, command, page or transition leads from a delivery that may have been sent to another request."""
    from frontdesk.app.routes import ROUTES

    word = re.compile(r"re-?send|re-?deliver|requeue|send[_-]again|force", re.IGNORECASE)
    operations = [operation for operation, _ in ROUTES]
    assert len(operations) > 30
    for operation in operations:
        assert not word.search(f"{operation.id} {operation.path} {operation.summary}"), operation.id
        fields = () if operation.request is None else operation.request.model_fields
        assert not [name for name in fields if word.search(name)], operation.id
    about = {operation.id for operation in operations if operation.id.startswith("desk.outbox.")}
    assert about == {"desk.outbox.list", "desk.outbox.get", "desk.outbox.read_back", "desk.outbox.settle"}
    assert not [name for name in COMMANDS if word.search(name)]
    package = Path(outbox.__file__).parents[2]
    pages = [path for path in package.rglob("*") if path.suffix in (".html", ".js", ".jinja", ".j2")]
    assert not [path for path in pages if word.search(path.read_text("utf-8"))]
    leaving = {
        event: edge.target
        for event, edge in DELIVERY.edges.items()
        if edge.sources & {"sending", "sent", "failed", "indeterminate", "settled_sent", "settled_not_sent"}
    }
    assert {event for event, target in leaving.items() if target in ("pending", "connecting", "retryable_failed")} == {
        "not_sent"
    }


# ---------------------------------------------------------------------------------------------- read-back


def item(number: int, row: dict[str, Any], **changes: Any) -> HistoryItem:
    values: dict[str, Any] = {
        "message_id": f"om_seen_{number}",
        "sender_id": APP_ID,
        "sender_type": "app",
        "message_type": "text",
        "created_at_ms": (row["sending_at"] or 0) // 1000 + number,
        "parent_id": row["reply_to_message_id"],
        "root_id": None,
        "deleted": False,
        "updated": False,
        "content": '{"text": "hello"}',
    }
    return HistoryItem(**{**values, **changes})


@pytest.mark.spec("DESK-319")
async def test_a_look_into_the_history_finds_one_or_does_not_know(
    desk: DeskWorld, seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One match is `found`, none in a complete list `absent`, all else `unknown`; nothing is sent, no state moves."""
    row = await answered(desk, seat)
    with pytest.raises(Problem, match="delivery_not_sent"):
        await desk.read(sending.begin_look, desk.owner, desk.home, row["id"], **desk.keys)
    desk.channel.outcomes.append(Unknown())
    await step(desk)
    row = await desk.row("deliveries", row["id"])
    other = {
        "another text": item(1, row, content='{"text": "hello!"}'),
        "another parent": item(2, row, parent_id="om_other"),
        "no parent": item(3, row, parent_id=None),
        "a person": item(4, row, sender_type="user", sender_id=seat.sender),
        "another bot": item(5, row, sender_id="cli_other"),
        "another kind": item(6, row, message_type="post"),
        "withdrawn": item(7, row, deleted=True),
        "edited": item(8, row, updated=True),
    }
    histories: list[tuple[Any, str, str | None]] = [
        (Complete((*other.values(), item(9, row)), None), "found", "om_seen_9"),
        (Complete(tuple(other.values()), None), "absent", None),
        (Complete((), None), "absent", None),
        (Complete((item(1, row), item(2, row)), None), "unknown", None),
        (Incomplete("page_refused"), "unknown", None),
    ]
    windows: list[tuple[int, int]] = []
    wire, closed = len(desk.channel.sent), desk.channel.closed
    for given, result, message_id in histories:

        async def history(session: Any, chat: str, since_ms: int, until_ms: int, given: Any = given) -> Any:
            windows.append((since_ms, until_ms))
            return given

        monkeypatch.setattr(desk.channel, "history", history)
        order = await desk.read(sending.begin_look, desk.owner, desk.home, row["id"], **desk.keys)
        seen = await sending.look(order)
        assert (seen.result, seen.message_id) == (result, message_id)
        noted = await desk.write(sending.note_look, desk.owner, desk.home, row["id"], seen)
        assert (noted.status, noted.read_back_result) == ("indeterminate", result)
    sending_ms = row["sending_at"] // 1000
    assert set(windows) == {(sending_ms - 60_000, sending_ms + 3_600_000)}
    assert (len(desk.channel.sent), desk.channel.closed) == (wire, closed + len(histories))
    desk.clock.advance(LEASE_US)
    await desk.send()
    assert len(desk.channel.sent) == wire


async def looked(desk: DeskWorld, row: dict[str, Any]) -> str | None:
    order = await desk.read(sending.begin_look, desk.owner, desk.home, row["id"], **desk.keys)
    seen = await sending.look(order)
    return (await desk.write(sending.note_look, desk.owner, desk.home, row["id"], seen)).read_back_result


@pytest.mark.spec("DESK-319")
async def test_a_message_that_another_delivery_owns_is_no_evidence(desk: DeskWorld, seat: Seat) -> None:
    """Of two deliveries of equal text and parent, the one's message proves nothing of the other."""
    rows = []
    for _ in range(3):
        desk.channel.outcomes.append(Unknown())
        row = await answered(desk, seat)
        await step(desk)
        desk.clock.advance(SECOND)
        rows.append(row["id"])
    parent = (await desk.row("deliveries", rows[0]))["reply_to_message_id"]
    for row_id in rows:
        await desk.force("deliveries", row_id, reply_to_message_id=parent)
    one, two, three = [await desk.row("deliveries", row_id) for row_id in rows]
    await desk.force("deliveries", three["id"], status="failed")
    desk.channel.items = [item(1, one)]
    assert [await looked(desk, one), await looked(desk, two)] == ["unknown", "unknown"]  # whose is it?
    await desk.force("deliveries", one["id"], status="sent", provider_message_id="om_seen_1")
    assert [await looked(desk, one), await looked(desk, two)] == ["found", "absent"]
    desk.channel.items.append(item(2, two))
    assert await looked(desk, two) == "found"

    desk.channel.items.pop()
    order = await desk.read(sending.begin_settling_look, desk.owner, desk.home, two["id"], **desk.keys)
    assert order is not None
    seen = await sending.look(order)
    assert seen.message_id == "om_seen_1"
    weighed = await desk.read(sending.weigh, order.delivery, seen)
    assert (weighed.result, weighed.message_id) == ("absent", None)
    settled = await desk.write(
        outbox.settle,
        desk.owner,
        desk.home,
        two["id"],
        outcome="settled_sent",
        reason="I looked",
        read_back=(weighed.result, weighed.message_id),
    )
    assert (settled.status, settled.provider_message_id) == ("settled_sent", None)
    assert await desk.read(sending.begin_settling_look, desk.owner, desk.home, two["id"], **desk.keys) is None
