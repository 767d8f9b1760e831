"""Event pushes over real HTTP: what arrives, the redelivery schedule, faults on pushes."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tests.simulator.harness import START_MS, Provider, Received, Receiver, Sim


def opened(push: Received, app: dict[str, Any]) -> dict[str, Any]:
    """The plaintext of a push, decrypted here and not by the simulator's own code."""
    raw = base64.b64decode(json.loads(push.body)["encrypt"])
    key = hashlib.sha256(app["encrypt_key"].encode()).digest()
    decryptor = Cipher(algorithms.AES(key), modes.CBC(raw[:16])).decryptor()
    padded = decryptor.update(raw[16:]) + decryptor.finalize()
    return dict(json.loads(padded[: -padded[-1]]))


def signed_well(push: Received, app: dict[str, Any]) -> bool:
    text = push.headers["X-Lark-Request-Timestamp"] + push.headers["X-Lark-Request-Nonce"] + app["encrypt_key"]
    return push.headers["X-Lark-Signature"] == hashlib.sha256(text.encode() + push.body).hexdigest()


@pytest.fixture
def connected(desk: Provider, receiver: Receiver, sim: Sim) -> Provider:
    """An app whose callback address passed the URL check."""

    def challenge(push: Received) -> tuple[int, bytes]:
        value = opened(push, desk.app)
        return 200, json.dumps({"challenge": value.get("challenge")}).encode()

    receiver.answer = challenge
    answer = sim.control.put(f"/_sim/apps/{desk.app['app_id']}/callback", json={"url": receiver.url}).json()
    assert answer == {"ok": True, "status": 200, "reason": ""}
    return desk


def states(sim: Sim) -> list[str]:
    return [push["state"] for push in sim.get("pushes")["items"]]


def test_the_url_check_is_encrypted_and_unsigned(connected: Provider, receiver: Receiver) -> None:
    (check,) = receiver.received
    value = opened(check, connected.app)
    assert value["type"] == "url_verification"
    assert value["token"] == connected.app["verification_token"]
    assert not [name for name in check.headers if name.lower().startswith("x-lark")]


def test_a_failed_url_check_says_why_and_the_address_is_kept(desk: Provider, receiver: Receiver, sim: Sim) -> None:
    path = f"/_sim/apps/{desk.app['app_id']}/callback"
    receiver.answer = lambda _: (500, b"")
    assert sim.control.put(path, json={"url": receiver.url}).json()["reason"] == "answered 500, not 200"
    receiver.answer = lambda _: (200, b"{}")
    assert sim.control.put(path, json={"url": receiver.url}).json()["reason"] == "answered 200 without the challenge"
    closed = sim.control.put(path, json={"url": "http://127.0.0.1:1/x"}).json()
    assert (closed["ok"], closed["status"]) == (False, None)
    assert sim.get("apps")["items"][0]["callback_url"] == "http://127.0.0.1:1/x"
    for url in ("http://example.org/x", "ftp://127.0.0.1/x", "http://user@127.0.0.1/", "nonsense"):
        assert sim.control.put(path, json={"url": url}).status_code == 400


def test_a_message_arrives_encrypted_signed_and_complete(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    bot = connected.create("welcome").json()["data"]["message_id"]
    message = connected.say("你好 <b>", reply_to="newest_bot", wait=True)
    push = receiver.received[-1]
    assert signed_well(push, connected.app)
    event = opened(push, connected.app)
    assert event["schema"] == "2.0"
    assert event["header"]["event_type"] == "im.message.receive_v1"
    assert event["header"]["app_id"] == connected.app["app_id"]
    assert event["header"]["tenant_key"] == connected.app["tenant_key"]
    assert event["event"]["sender"]["sender_id"]["open_id"] == connected.person["open_id"]
    shown = event["event"]["message"]
    assert (shown["message_id"], shown["parent_id"], shown["root_id"]) == (message, bot, bot)
    assert (shown["chat_type"], shown["message_type"]) == ("p2p", "text")
    assert json.loads(shown["content"]) == {"text": "你好 <b>"}
    assert shown["create_time"] == str(START_MS)
    assert states(sim) == ["delivered"]


def test_header_names_may_be_lower_case(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    sim.post("apps", name="Front Desk", header_case="lower")
    connected.say(wait=True)
    assert "x-lark-signature" in receiver.received[-1].headers


def test_a_recall_pushes_the_providers_event(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    message = connected.say(wait=True)
    sim.post("clock", advance_ms=5)
    sim.post("recall", message_id=message, wait=True)
    event = opened(receiver.received[-1], connected.app)
    assert event["header"]["event_type"] == "im.message.recalled_v1"
    assert event["event"] == {
        "message_id": message,
        "chat_id": connected.chat,
        "recall_time": str(START_MS + 5),
        "recall_type": "message_owner",
    }


@pytest.mark.spec("DESK-359")
def test_redelivery_follows_the_schedule_and_then_gives_up(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    """Attempts come at 0, 15 s, 5 min, 1 h and 6 h after one another with the same event id, body and signature."""
    receiver.answer = lambda _: (500, b"no")
    connected.say(wait=True)
    expected = [0]
    for wait in (15_000, 300_000, 3_600_000, 21_600_000):
        sim.post("clock", advance_ms=wait - 1)
        assert len(sim.get("pushes")["items"][0]["attempts"]) == len(expected)
        sim.post("clock", advance_ms=1)
        expected.append(expected[-1] + wait)
    (push,) = sim.get("pushes")["items"]
    assert [attempt["at_ms"] - START_MS for attempt in push["attempts"]] == expected
    assert {attempt["status"] for attempt in push["attempts"]} == {500}
    assert (push["state"], push["due_ms"]) == ("failed", None)
    pushes = receiver.received[1:]
    assert len(pushes) == 5
    assert len({push.body for push in pushes}) == 1
    assert len({push.headers["X-Lark-Signature"] for push in pushes}) == 1
    sim.post("clock", advance_ms=86_400_000)
    assert len(receiver.received) == 6


@pytest.mark.spec("DESK-359")
def test_redelivery_stops_at_the_first_200_in_time(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    """A 200 after the answer time does not count, the first one in time ends the schedule; one clock step runs all."""
    receiver.wait_seconds = 1.0
    connected.say(wait=True)
    (push,) = sim.get("pushes")["items"]
    assert push["state"] == "waiting"
    assert push["attempts"][0]["error"] == "no answer within 0.7 s"
    receiver.wait_seconds = 0
    answers = iter([503, 200])
    receiver.answer = lambda _: (next(answers), b"")
    sim.post("clock", advance_ms=30_000_000)
    (push,) = sim.get("pushes")["items"]
    assert [attempt["status"] for attempt in push["attempts"]] == [None, 503, 200]
    assert [attempt["at_ms"] - START_MS for attempt in push["attempts"]] == [0, 15_000, 315_000]
    assert push["state"] == "delivered"
    assert len({attempt["event_id"] for attempt in push["attempts"]}) == 1


def test_resigned_redeliveries_have_a_fresh_timestamp(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    sim.post("apps", name="Front Desk", resign_redeliveries=True)
    receiver.answer = lambda _: (500, b"")
    connected.say(wait=True)
    sim.post("clock", advance_ms=15_000)
    first, second = receiver.received[-2:]
    stamps = [int(push.headers["X-Lark-Request-Timestamp"]) for push in (first, second)]
    assert stamps[1] - stamps[0] == 15
    assert signed_well(second, connected.app)
    ids = {opened(push, connected.app)["header"]["event_id"] for push in (first, second)}
    assert len(ids) == 1


def test_without_an_address_a_push_waits(desk: Provider, receiver: Receiver, sim: Sim) -> None:
    desk.say(wait=True)
    (push,) = sim.get("pushes")["items"]
    assert push["state"] == "waiting"
    assert push["attempts"][0]["error"] == "no callback address and no long connection"
    sim.control.put(f"/_sim/apps/{desk.app['app_id']}/callback", json={"url": receiver.url})
    sim.post("clock", advance_ms=15_000)
    assert states(sim) == ["delivered"]


# -- faults on pushes --------------------------------------------------------------------------------------------------


def push_fault(sim: Sim, **knobs: Any) -> None:
    sim.faults({"match": {"route": "push"}, **knobs})


def test_fault_duplicate(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    push_fault(sim, duplicate=2)
    connected.say(wait=True)
    events = [opened(push, connected.app)["header"]["event_id"] for push in receiver.received[1:]]
    assert len(events) == 3
    assert len(set(events)) == 1
    push_fault(sim, duplicate=2, new_event_id=True)
    connected.say(wait=True)
    events = [opened(push, connected.app)["header"]["event_id"] for push in receiver.received[4:]]
    assert len(set(events)) == 3


def test_fault_reorder_window(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    push_fault(sim, reorder=3)
    sent = [connected.say("1"), connected.say("2")]
    assert states(sim) == ["held", "held"]
    assert len(receiver.received) == 1
    sent.append(connected.say("3"))
    sim.until(lambda: len(receiver.received) == 4)
    arrived = [opened(push, connected.app)["event"]["message"]["message_id"] for push in receiver.received[1:]]
    assert arrived == sent[::-1]
    connected.say("4")
    sim.faults()
    sim.until(lambda: len(receiver.received) == 5)


def test_fault_delay(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    push_fault(sim, delay_ms=2_000)
    connected.say(wait=True)
    sim.post("clock", advance_ms=1_999)
    assert len(receiver.received) == 1
    sim.post("clock", advance_ms=1)
    assert len(receiver.received) == 2


def test_fault_new_event_id_on_redeliveries(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    push_fault(sim, new_event_id=True)
    receiver.answer = lambda _: (500, b"")
    connected.say(wait=True)
    sim.post("clock", advance_ms=15_000)
    first, second = (opened(push, connected.app) for push in receiver.received[-2:])
    assert first["header"]["event_id"] != second["header"]["event_id"]
    assert first["event"] == second["event"]


def test_fault_drop(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    sim.faults({"match": {"route": "push", "times": 1}, "drop": True})
    connected.say(wait=True)
    sim.post("clock", advance_ms=86_400_000)
    assert (states(sim), len(receiver.received)) == (["dropped"], 1)
    connected.say(wait=True)
    assert states(sim) == ["dropped", "delivered"]


def test_fault_bad_signature_for_the_first_attempt_only(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    push_fault(sim, bad_signature=True, attempts=1)
    receiver.answer = lambda push: (200 if signed_well(push, connected.app) else 500, b"")
    connected.say(wait=True)
    sim.post("clock", advance_ms=15_000)
    (push,) = sim.get("pushes")["items"]
    assert [attempt["status"] for attempt in push["attempts"]] == [500, 200]


def test_faults_unsigned_and_plaintext(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    push_fault(sim, unsigned=True)
    connected.say(wait=True)
    assert not [name for name in receiver.received[-1].headers if name.lower().startswith("x-lark")]
    push_fault(sim, plaintext=True)
    connected.say("in the clear", wait=True)
    push = receiver.received[-1]
    assert json.loads(push.body)["header"]["token"] == connected.app["verification_token"]
    assert signed_well(push, connected.app)


def test_fault_old_timestamp(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    push_fault(sim, old_timestamp=True)
    connected.say(wait=True)
    assert receiver.received[-1].headers["X-Lark-Request-Timestamp"] == str(START_MS // 1_000 - 36_000)
    push_fault(sim, old_timestamp=-301_000)
    connected.say(wait=True)
    assert receiver.received[-1].headers["X-Lark-Request-Timestamp"] == str(START_MS // 1_000 + 301)
    assert signed_well(receiver.received[-1], connected.app)


@pytest.mark.parametrize(
    ("knob", "field"), [("wrong_tenant", "tenant_key"), ("wrong_app", "app_id"), ("wrong_token", "token")]
)
def test_faults_on_the_header(connected: Provider, receiver: Receiver, sim: Sim, knob: str, field: str) -> None:
    connected.say(wait=True)
    push_fault(sim, **{knob: True})
    connected.say(wait=True)
    plain, bent = (opened(push, connected.app)["header"] for push in receiver.received[-2:])
    assert plain[field] != bent[field]
    assert signed_well(receiver.received[-1], connected.app)


def test_faults_other_type_and_lower_headers(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    push_fault(sim, other_type=True, lower_headers=True)
    connected.say(wait=True)
    push = receiver.received[-1]
    assert opened(push, connected.app)["header"]["event_type"] == "im.chat.updated_v1"
    assert "x-lark-nonce" not in push.headers
    assert "x-lark-request-nonce" in push.headers


# -- pushing by hand ---------------------------------------------------------------------------------------------------


def test_a_message_is_pushed_again_with_the_same_or_a_new_event_id(
    connected: Provider, receiver: Receiver, sim: Sim
) -> None:
    message = connected.say(wait=True)
    sim.post("push", message_id=message, wait=True)
    sim.post("push", message_id=message, new_event_id=True, duplicate=1, wait=True)
    ids = [opened(push, connected.app)["header"]["event_id"] for push in receiver.received[1:]]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_any_event_and_any_payload_can_be_pushed(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    app_id = connected.app["app_id"]
    sim.post("push", app_id=app_id, event_type="im.chat.disbanded_v1", event={"chat_id": "oc_1"}, wait=True)
    assert opened(receiver.received[-1], connected.app)["header"]["event_type"] == "im.chat.disbanded_v1"
    whole = {"schema": "2.0", "header": {"event_id": "e", "event_type": "t", "token": "x"}, "event": {}}
    sim.post("push", app_id=app_id, event=whole, wait=True)
    assert opened(receiver.received[-1], connected.app) == whole
    receiver.answer = lambda _: (500, b"")
    made = sim.post("push", app_id=app_id, payload="{not json", plaintext=True, redeliver=False, wait=True)
    assert receiver.received[-1].body == b"{not json"
    assert made["pushes"][0]["state"] == "failed"


def test_raw_content_types_and_threads_can_be_sent(connected: Provider, receiver: Receiver, sim: Sim) -> None:
    connected.say(text="", raw_content='{"image_key":"img"}', message_type="image", chat_type="group", wait=True)
    shown = opened(receiver.received[-1], connected.app)["event"]["message"]
    assert (shown["message_type"], shown["chat_type"]) == ("image", "group")
    bot = connected.create().json()["data"]["message_id"]
    connected.say("hi", reply_to=bot, root="om_other", created_ms=5, wait=True)
    shown = opened(receiver.received[-1], connected.app)["event"]["message"]
    assert (shown["parent_id"], shown["root_id"], shown["create_time"]) == (bot, "om_other", "5")


@pytest.mark.parametrize(
    "body",
    [
        {"text": "x"},
        {"text": "x", "app_id": "cli_none", "person": "Ada"},
        {"text": "x", "person": "Nobody"},
        {"text": "x", "person": "Ada", "reply_to": "om_none"},
        {"text": "x", "person": "Ada", "reply_to": "newest_bot"},
        {"text": "x", "person": "Ada", "unknown": 1},
        {"text": 7, "person": "Ada"},
    ],
)
def test_impossible_sends_are_refused_with_a_sentence(desk: Provider, sim: Sim, body: dict[str, Any]) -> None:
    answer = sim.control.post("/_sim/send", json={"app_id": desk.app["app_id"], **body})
    assert answer.status_code == 400
    assert answer.json()["detail"]
    assert sim.get("messages")["items"] == []
