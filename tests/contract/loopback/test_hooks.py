"""Web hooks through the whole desk: what is pushed becomes rows, and what rows order is posted, on both engines."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from frontdesk.channels import transport
from frontdesk.desk import connections, sending
from frontdesk.desk.conversations.runner import Answer
from tests.channels import hooks
from tests.channels.hooks import OTHER_SECRET, PATH
from tests.channels.provider import answer
from tests.contract.loopback.site import LABELS, HookDesk

pytestmark = pytest.mark.engine


async def delivery(site: HookDesk, purpose: str = "activation") -> dict[str, Any]:
    (found,) = await site.desk.rows("deliveries", purpose=purpose)
    return found


# ---------------------------------------------------------------------------------------------- in and out


async def test_bound_authorised_asked_and_answered(site: HookDesk) -> None:
    """The way of a message on web hooks: the same rows and states as on any channel."""
    desk, peer = site.desk, site.peer
    seat = await site.seat()
    await desk.send()
    activation = await delivery(site)
    assert (activation["status"], activation["provider_message_id"]) == ("sent", "peer_1")
    receipt = await site.say("hello", parent="peer_1")
    assert (receipt["status"], receipt["tenant_key"]) == ("received", LABELS["tenant_key"])
    await desk.work()
    await desk.send()
    reply = await delivery(site, "agent_reply")
    assert (reply["status"], reply["provider_message_id"]) == ("sent", "peer_2")
    assert (await desk.row("receipts", receipt["id"]))["status"] == "completed"
    (turn,) = await desk.rows("turns")
    assert turn["request_id"].startswith("loop:")
    assert len(turn["request_id"]) == 61
    assert (await desk.row("conversations", seat.conversation_id))["revision"] == 1
    assert (await desk.row("reply_grants", seat.grant_id))["cursor"] == 1
    posted = [request.json() for request in peer.requests]
    assert [(body["chat"], body.get("reply_to"), body["kind"]) for body in posted] == [
        ("chat-1", None, "text"),
        ("chat-1", receipt["provider_message_id"], "text"),
    ]
    assert [body["operation_id"] for body in posted] == [activation["operation_id"], reply["operation_id"]]
    for request in peer.requests:
        at, event_id = request.headers["webhook-timestamp"], request.headers["webhook-id"]
        assert request.headers["webhook-signature"] == hooks.sign(request.body, event_id=event_id, at=at)


async def test_an_answer_over_the_text_limit_arrives_as_one_file(site: HookDesk) -> None:
    desk = site.desk
    await site.seat()
    await desk.send()

    async def long_answer(*_: Any) -> Answer:
        return Answer("x" * 149_000)

    desk.runner.behaviour = long_answer
    await site.say("hello", parent="peer_1")
    await desk.work()
    await desk.send()
    body = site.peer.requests[1].json()
    assert (body["kind"], body["file"]["name"], body["file"]["media_type"]) == ("file", "answer.md", "text/markdown")


async def test_a_message_pushed_twice_is_one_receipt(site: HookDesk) -> None:
    await site.seat()
    fields = hooks.message(id="once", text="hello", parent=None)
    assert [await site.push(fields, event_id=f"wh_{number}") for number in (1, 2, 1)] == [200, 200, 200]
    assert await site.desk.count("receipts", provider_message_id="once") == 1
    assert await site.push(fields | {"text": "other"}) == 500
    assert await site.desk.count("receipts", provider_message_id="once") == 1


async def test_a_recall_ends_a_message_that_waits(site: HookDesk) -> None:
    await site.seat()
    receipt = await site.say("hello")
    assert receipt["status"] == "received"
    assert await site.push({"type": "recall", "id": receipt["provider_message_id"]}) == 200
    found = await site.desk.row("receipts", receipt["id"])
    assert (found["status"], found["error_code"]) == ("rejected", "message_recalled")


async def test_what_the_desk_does_not_keep_is_acknowledged_without_a_row(site: HookDesk) -> None:
    before = await site.desk.counts()
    for fields in (
        hooks.message(chat_type="group"),
        hooks.message(id=None),
        hooks.message(type="reaction"),
        {"type": "recall", "id": "never-seen"},
        {"type": "recall"},
    ):
        assert await site.push(fields) == 200
    assert await site.desk.counts() == before


async def test_a_push_for_another_channels_installation_is_404(site: HookDesk) -> None:
    assert await site.push(hooks.message()) == 200
    await site.desk.force("installations", site.desk.installation_id, channel="feishu")
    site.clock.advance(2_000_000)  # past what is kept of a reading
    assert await site.push(hooks.message(id="other")) == 404


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.spec("DESK-352")
async def test_a_push_that_is_not_authentic_is_500_and_leaves_no_row(site: HookDesk) -> None:
    """Wrong secret, id, body or version, or a time beyond ±300 s: `callback_not_accepted`, and nothing is written."""
    before = await site.desk.counts()
    body = hooks.body_of(hooks.message(text="planted-text"))
    right = hooks.headers(body)
    late, early = (hooks.headers(body, at=str(int(hooks.AT) + off)) for off in (301, -301))

    def but(name: str, value: str) -> list[tuple[str, str]]:
        return [(each, value if each == name else given) for each, given in right]

    version = but("webhook-signature", "v2," + hooks.sign(body).partition(",")[2])
    for headers, sent in (
        (hooks.headers(body, secret=OTHER_SECRET), body),
        (but("webhook-id", "wh_2"), body),
        (right, body.replace(b"planted", b"changed")),
        (version, body),
        (late, body),
        (early, body),
    ):
        answered = await site.raw(headers, sent)
        assert (answered.status_code, answered.json()["code"]) == (500, "callback_not_accepted")
        assert b"planted" not in answered.content
    assert await site.desk.counts() == before
    for off in (300, -300):
        assert await site.push(hooks.message(id=f"at {off}"), at=str(int(hooks.AT) + off)) == 200
    assert (await site.raw(right, body)).status_code == 200
    assert (await site.desk.counts())["receipts"] == before["receipts"] + 3


async def test_a_push_without_its_shape_is_400_and_leaves_no_row(site: HookDesk) -> None:
    before = await site.desk.counts()
    body = hooks.body_of(hooks.message())
    right = hooks.headers(body)
    cases = [
        ([pair for pair in right if pair[0] != "webhook-id"], body),
        ([*right, ("webhook-signature", hooks.sign(body))], body),
        ([*right, ("webhook-timestamp", hooks.AT)], body),
        *((hooks.headers(odd), odd) for odd in (b"", b"[]", b"{", b'{"a":1,"a":2}', b"[" * 50_000)),
    ]
    for headers, sent in cases:
        answered = await site.raw(headers, sent)
        assert (answered.status_code, answered.json()["code"]) == (400, "callback_shape_invalid")
    big = b'{"type":"message","text":"' + b"x" * 262_144 + b'"}'
    assert (await site.raw(hooks.headers(big), big)).status_code == 413
    assert await site.desk.counts() == before


@pytest.mark.spec("DESK-352")
async def test_both_secrets_of_a_rotation_verify_and_a_replaced_one_does_not(site: HookDesk) -> None:
    """The second secret counts from the moment it is stored; put into both places, the new one alone counts."""
    await site.desk.write(_change, site, app_secret=OTHER_SECRET, encrypt_key=hooks.SECRET)
    site.clock.advance(2_000_000)
    for number, secret in enumerate((hooks.SECRET, OTHER_SECRET)):
        assert await site.push(hooks.message(id=f"m{number}"), secret=secret) == 200
    await site.desk.write(_change, site, encrypt_key=OTHER_SECRET)
    site.clock.advance(2_000_000)
    assert await site.push(hooks.message(id="m3"), secret=hooks.SECRET) == 500
    assert await site.push(hooks.message(id="m4"), secret=OTHER_SECRET) == 200


def _change(tx: Any, site: HookDesk, **changes: Any) -> None:
    connections.update_installation(
        tx,
        site.desk.owner,
        workspace_id=site.desk.home,
        installation_id=site.desk.installation_id,
        changes=changes,
        **site.desk.keys,
    )


# ---------------------------------------------------------------------------------------------- sending


@pytest.mark.spec("DESK-354")
@pytest.mark.parametrize("case", ["host not listed", "name not listed", "name leads outside"])
async def test_a_target_outside_fails_before_connecting(
    site: HookDesk, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is not listed, or a name with an address outside, fails the delivery `ssrf_blocked`, unconnected."""
    await site.seat()
    if case == "host not listed":
        site.listing("10.0.0.0/8")
    else:
        where = f"http://localhost:{site.peer.port}{PATH}"
        await site.desk.write(_change, site, target_url=where)
        site.listing(*(["127.0.0.0/8"] if case == "name not listed" else ["localhost", "127.0.0.0/8"]))
        leads_to = [(2, 1, 6, "", ("127.0.0.1", site.peer.port)), (2, 1, 6, "", ("10.0.0.1", site.peer.port))]
        monkeypatch.setattr(transport, "resolve", lambda *_: leads_to)
    await site.desk.send()
    found = await delivery(site)
    assert (found["status"], found["error_code"], found["sending_at"]) == ("failed", "ssrf_blocked", None)
    assert site.peer.accepted == 0


@pytest.mark.spec("DESK-354")
async def test_a_redirect_is_not_followed_and_leaves_the_delivery_unknown(site: HookDesk) -> None:
    """One request went out and none to where it points; the delivery is indeterminate and is not sent again."""
    await site.seat()
    site.peer.on(PATH, answer({"message_id": "m"}, 307, {"Location": f"{site.peer.origin}/elsewhere"}))
    await site.desk.send()
    found = await delivery(site)
    assert (found["status"], found["error_code"], found["provider_code"]) == (
        "indeterminate",
        "send_result_unknown",
        307,
    )
    await site.desk.send()
    assert site.peer.paths() == [PATH]


async def test_a_peer_that_is_down_is_asked_again_with_the_same_bytes(site: HookDesk) -> None:
    await site.seat()
    site.peer.hush()
    await site.desk.send()
    found = await delivery(site)
    assert (found["status"], found["error_code"]) == ("retryable_failed", "not_sent_connection")
    assert site.peer.requests == []


async def test_a_peer_that_gives_one_id_twice_leaves_the_second_delivery_unknown(site: HookDesk) -> None:
    """An id that another delivery has proves nothing: no defect, no message lost, and nothing is sent again."""
    await site.seat()
    site.peer.on(PATH, hooks.took("always-the-same"))
    await site.desk.send()
    await site.say("hello", parent="always-the-same")
    await site.desk.work()
    with structlog.testing.capture_logs() as logs:
        await site.desk.send()
    assert (await delivery(site))["status"] == "sent"
    second = await delivery(site, "agent_reply")
    assert (second["status"], second["error_code"], second["provider_message_id"]) == (
        "indeterminate",
        "send_result_unknown",
        None,
    )
    assert "sending.message_id_reused" in {entry["event"] for entry in logs}
    assert "sending.defect" not in {entry["event"] for entry in logs}
    await site.desk.send()
    assert len(site.peer.requests) == 2


async def test_a_look_back_is_unknown_and_sends_nothing(site: HookDesk) -> None:
    desk = site.desk
    await site.seat()
    await desk.send()
    row = await delivery(site)
    order = await desk.read(sending.begin_look, desk.owner, desk.home, row["id"], **desk.keys)
    seen = await sending.look(order)
    assert seen.result == "unknown"
    await desk.write(sending.note_look, desk.owner, desk.home, row["id"], seen)
    found = await delivery(site)
    assert (found["status"], found["read_back_result"]) == ("sent", "unknown")
    assert len(site.peer.requests) == 1
