"""A decrypted payload in the desk's words, whatever its fields hold."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontdesk.channels.feishu.normalise import normalise
from frontdesk.desk.connections.channel import Ignored, InboundMessage, Recall
from tests.channels.signing import event

V8 = "c2e725a6eeb8e0bd0e83c47d5f8ae1039de395083d41287057ec08977b167ff5"
UNUSABLE_ID = [None, "", 5, True, ["om_1"], {"a": 1}, "x" * 256, "om_\x00", "om_\ud800"]


def message(**changes: Any) -> InboundMessage:
    got = normalise(event(**changes), 1)
    assert isinstance(got, InboundMessage)
    return got


def changed(sender: dict[str, Any]) -> dict[str, Any]:
    payload = event()
    payload["event"]["sender"] = payload["event"]["sender"] | sender
    return payload


def test_every_field_of_a_message() -> None:
    assert normalise(event(root_id="om_r"), 1_767_225_600_000) == InboundMessage(
        app_id="cli_1",
        tenant_key="t-1",
        event_id="ev-1",
        message_id="om_1",
        sender_id="ou_1",
        sender_type="user",
        chat_id="oc_1",
        chat_type="p2p",
        message_type="text",
        text="你好 <b>",
        parent_id="om_0",
        root_id="om_r",
        created_at_ms=1_767_225_600_000,
        signed_at_ms=1_767_225_600_000,
        request_hash=message(root_id="om_r").request_hash,
    )


@pytest.mark.spec("DESK-256")
def test_the_request_hash_is_the_check_value() -> None:
    """V8 is what the product's own normalisation gives for O4."""
    assert message().request_hash == V8
    assert message(root_id="").request_hash == V8
    assert message(root_id=None).request_hash == V8


def test_two_pushes_of_one_message_share_the_hash() -> None:
    """Event id, event time and signing time may differ; anything of the message itself may not."""
    again = event()
    again["header"] |= {"event_id": "ev-2", "create_time": "1767225999999"}
    got = normalise(again, None)
    assert isinstance(got, InboundMessage)
    assert got.request_hash == V8
    assert got.signed_at_ms is None
    for change in (
        {"content": '{"text":"你好"}'},
        {"content": '{"text": "你好 <b>"}'},
        {"message_type": "post"},
        {"parent_id": "om_x"},
        {"root_id": "om_x"},
        {"chat_id": "oc_2"},
        {"create_time": "1767225600001"},
        {"message_id": "om_2"},
    ):
        assert message(**change).request_hash != V8


@pytest.mark.parametrize("length", [1, 20_000])
def test_the_longest_and_the_shortest_text(length: int) -> None:
    assert message(content=json.dumps({"text": "x" * length})).text == "x" * length


@pytest.mark.parametrize(
    "content",
    [
        None,
        5,
        {"text": "object instead of a string"},
        "",
        "not json",
        "null",
        '"text"',
        "[]",
        '["text"]',
        '[["text","x"]]',
        "{}",
        '{"text":""}',
        '{"text":null}',
        '{"text":5}',
        '{"text":["x"]}',
        '{"text":{"text":"x"}}',
        '{"Text":"x"}',
        '{"text":"x","more":1}',
        '{"text":"x","text":"y"}',
        '{"text":"x"} ',
        '{"text":"\\ud800"}',
        '{"text":"\\u0000"}',
        json.dumps({"text": "x" * 20_001}),
        json.dumps({"text": "<" * 5_001}),
        "[" * 100_000,
        '{"text":' + "9" * 5_000 + "}",
    ],
)
@pytest.mark.spec("DESK-49")
def test_content_is_exactly_one_text_of_bearable_length(content: Any) -> None:
    """Anything but one string key `text` of 1..20,000 escaped characters has no text, and is never cut to fit."""
    if content == '{"text":"x"} ':
        assert message(content=content).text == "x"  # white space around JSON is JSON
        return
    got = message(content=content)
    assert got.text is None
    assert got.message_id == "om_1"


def test_the_length_is_that_of_the_escaped_text() -> None:
    """5,000 `<` are 20,000 characters escaped, and the limit counts those."""
    assert len(html.escape("<" * 5_000)) == 20_000
    assert message(content=json.dumps({"text": "<" * 5_000})).text == "<" * 5_000
    assert message(content=json.dumps({"text": '"' * 3_334})).text is None


@pytest.mark.parametrize("kind", ["post", "file", "image", "", None, 5, ["text"], "x" * 300])
def test_other_message_types_have_no_text(kind: Any) -> None:
    got = message(message_type=kind)
    assert got.text is None
    assert got.message_type == (kind if isinstance(kind, str) and 0 < len(kind) <= 255 else "")


@pytest.mark.parametrize("value", UNUSABLE_ID)
@pytest.mark.spec("DESK-297")
def test_an_unusable_message_id_leaves_no_row(value: Any) -> None:
    """Without a message id to remember it by, a message is acknowledged and counted."""
    assert normalise(event(message_id=value), 1) == Ignored("message_id_unusable")


@pytest.mark.parametrize("value", UNUSABLE_ID)
@pytest.mark.parametrize("name", ["chat_id", "parent_id", "root_id"])
def test_other_unusable_ids_make_an_unsupported_message(name: str, value: Any) -> None:
    got = message(**{name: value})
    absent = value in (None, "") and name != "chat_id"
    assert (got.text is None) != absent
    assert getattr(got, name) == (None if name != "chat_id" else "")
    assert len(got.request_hash) == 64


@pytest.mark.parametrize("value", UNUSABLE_ID)
def test_an_unusable_sender_makes_an_unsupported_message(value: Any) -> None:
    got = normalise(changed({"sender_id": {"open_id": value}}), 1)
    assert isinstance(got, InboundMessage)
    assert (got.sender_id, got.text) == ("", None)


@pytest.mark.parametrize("value", [None, "", "x", "-1", "1.5", "９", 1767225600000, ["1"], "9" * 17])
def test_an_unusable_time_is_no_time(value: Any) -> None:
    assert message(create_time=value).created_at_ms == 0
    assert message(create_time="9999999999999999").created_at_ms == 2**53 - 1


@pytest.mark.parametrize("kind", ["app", "bot", "anonymous", "unknown", "", None, 5, ["user"]])
def test_bots_and_other_apps_are_not_heard(kind: Any) -> None:
    assert normalise(changed({"sender_type": kind}), 1) == Ignored("not_a_person")


@pytest.mark.parametrize("kind", ["group", "topic_group", "", None, 5, ["p2p"]])
def test_other_chats_than_private_ones_are_not_heard(kind: Any) -> None:
    assert normalise(event(chat_type=kind), 1) == Ignored("not_private")


def test_a_person_of_another_tenant_carries_that_tenant() -> None:
    """So that the desk's comparison with the installation finds the difference; the hash stays the provider's."""
    got = normalise(changed({"tenant_key": "t-other"}), 1)
    assert isinstance(got, InboundMessage)
    assert (got.tenant_key, got.event_tenant_key, got.request_hash) == ("t-other", "t-1", V8)
    for value in (None, "", 5):
        same = normalise(changed({"tenant_key": value}), 1)
        assert isinstance(same, InboundMessage)
        assert (same.tenant_key, same.event_tenant_key) == ("t-1", None)


@pytest.mark.parametrize("value", UNUSABLE_ID)
def test_a_recall_without_a_usable_id_is_ignored(value: Any) -> None:
    payload = event("im.message.recalled_v1")
    payload["event"] = {"message_id": value}
    assert normalise(payload, 1) == Ignored("message_id_unusable")


@pytest.mark.parametrize("value", [None, 5, "x", [], [["schema", "2.0"]], {}, True])
def test_a_payload_that_is_no_event(value: Any) -> None:
    assert normalise(value, None) == Ignored("unsupported_event")
    for name in ("header", "event"):
        assert isinstance(normalise(event() | {name: value}, None), Ignored)


_SCALAR = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(), max_size=20)
    | st.sampled_from(["\ud800", "", "text", "user", "p2p", "2.0", "x" * 256, 10**400, float("nan")])
)
_ANY = st.recursive(
    _SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
_PATHS = [
    ("schema",),
    ("header",),
    ("event",),
    ("header", "app_id"),
    ("header", "tenant_key"),
    ("header", "event_id"),
    ("header", "event_type"),
    ("event", "sender"),
    ("event", "message"),
    ("event", "sender", "sender_id"),
    ("event", "sender", "sender_id", "open_id"),
    ("event", "sender", "tenant_key"),
    *(("event", "message", name) for name in event()["event"]["message"]),
    ("event", "message", "root_id"),
]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(_PATHS), _ANY), max_size=4))
def test_no_payload_raises_and_what_is_kept_can_be_stored(changes: list[tuple[tuple[str, ...], Any]]) -> None:
    payload = event()
    for path, value in changes:
        holder: Any = payload
        for name in path[:-1]:
            holder = holder.get(name) if isinstance(holder, dict) else None
        if isinstance(holder, dict):
            holder[path[-1]] = value
    got = normalise(payload, 1)
    assert isinstance(got, InboundMessage | Recall | Ignored)
    if isinstance(got, InboundMessage):
        for value in (getattr(got, name) for name in InboundMessage.__slots__):
            if isinstance(value, str):
                assert "\x00" not in value
                value.encode("utf-8")
        assert 0 <= got.created_at_ms <= 2**53 - 1
        again = normalise(json.loads(json.dumps(payload)), 1)
        assert isinstance(again, InboundMessage)
        assert again.request_hash == got.request_hash
