"""Which pushes are authentic: the shape rows without the SDK, the rest by the real SDK alone."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontdesk.channels.feishu import FeishuChannel, sdk, verify
from frontdesk.desk.connections.channel import (
    Challenge,
    Credentials,
    Ignored,
    InboundMessage,
    RawPush,
    Recall,
    Refused,
    Verified,
)
from tests.channels.signing import (
    AT,
    CREDENTIALS,
    KEY,
    NONCE,
    TOKEN,
    V12_BODY,
    V12_CIPHER,
    V13_SIGNATURE,
    body_of,
    challenge,
    encrypted,
    event,
    headers_for,
    signature,
    signed,
    unsigned,
)

SHAPE = Refused("callback_shape_invalid")
NOT_ACCEPTED = Refused("callback_not_accepted")
V13_HEADERS = [
    ("x-lark-request-timestamp", AT),
    ("x-lark-request-nonce", NONCE),
    ("x-lark-signature", V13_SIGNATURE),
]


@pytest.fixture
def _no_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any way to the SDK fails the test."""

    def called(*_: object, **__: object) -> Any:
        raise AssertionError("the SDK was asked")

    for name in ("security", "capturing_dispatcher", "challenge_dispatcher", "raw_request", "load"):
        monkeypatch.setattr(sdk, name, called)


def one(push: RawPush) -> Any:
    verdict = verify.verify(push, CREDENTIALS)
    assert isinstance(verdict, Verified)
    assert len(verdict.events) == 1
    return verdict.events[0]


# ---------------------------------------------------------------------------------------------- shape

NOT_A_PUSH = {
    "plaintext event": json.dumps(event()).encode(),
    "plaintext challenge": json.dumps(challenge()).encode(),
    "extra key": b'{"encrypt":"QUJD","uuid":"1"}',
    "extra key first": b'{"a":1,"encrypt":"QUJD"}',
    "duplicate key": b'{"encrypt":"QUJD","encrypt":"QUJD"}',
    "duplicate key, escaped": b'{"encrypt":"QUJD","\\u0065ncrypt":"QUJD"}',
    "other key": b'{"Encrypt":"QUJD"}',
    "array": b'["encrypt"]',
    "string": b'"encrypt"',
    "null": b"null",
    "number": b"1",
    "nothing": b"",
    "blank": b"  ",
    "empty object": b"{}",
    "empty string": b'{"encrypt":""}',
    "null value": b'{"encrypt":null}',
    "number value": b'{"encrypt":5}',
    "object value": b'{"encrypt":{"a":1}}',
    "array value": b'{"encrypt":["QUJD"]}',
    "true value": b'{"encrypt":true}',
    "NaN": b'{"encrypt":NaN}',
    "trailing text": b'{"encrypt":"QUJD"} x',
    "two objects": b'{"encrypt":"QUJD"}{"encrypt":"QUJD"}',
    "trailing comma": b'{"encrypt":"QUJD",}',
    "single quotes": b"{'encrypt':'QUJD'}",
    "no colon": b'{"encrypt" "QUJD"}',
    "unclosed": b'{"encrypt":"QUJD"',
    "unclosed string": b'{"encrypt":"QUJD}',
    "line break in the string": b'{"encrypt":"QU\nJD"}',
    "NUL in the string": b'{"encrypt":"QU\x00JD"}',
    "bad escape": b'{"encrypt":"QU\\x41"}',
    "short escape": b'{"encrypt":"QU\\u00"}',
    "not UTF-8": b'{"encrypt":"\xff\xfe"}',
    "UTF-16": '{"encrypt":"QUJD"}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"encrypt":"QUJD"}',
    "no-break space": '\u00a0{"encrypt":"QUJD"}'.encode(),
    "deep array": b"[" * 131_072 + b"]" * 131_072,
    "deep object": b'{"encrypt":' * 20_000 + b"1" + b"}" * 20_000,
    "deep value": b'{"encrypt":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "class": b'{"__class__":"x"}',
    "class beside": b'{"encrypt":"QUJD","__class__":"x"}',
    "digits": b"9" * 262_144,
    "digits as a value": b'{"encrypt":' + b"9" * 262_000 + b"}",
    "forged plaintext with a wrong token": json.dumps(event(token="wrong")).encode(),
}


@pytest.mark.usefixtures("_no_sdk")
@pytest.mark.parametrize("name", NOT_A_PUSH)
@pytest.mark.spec("DESK-36")
def test_only_one_object_with_one_cipher_text_is_a_push(name: str) -> None:
    """Whatever is not one object with one non-empty string `encrypt` is told so without the SDK, signed or not."""
    body = NOT_A_PUSH[name]
    for headers in ([], headers_for(body)):
        push = RawPush(headers, body)
        assert verify.precheck(push) == SHAPE
        assert verify.verify(push, CREDENTIALS) == SHAPE


@pytest.mark.usefixtures("_no_sdk")
@pytest.mark.parametrize(
    "body",
    [
        b'{"encrypt":"QUJD"}',
        b'{ "encrypt" : "QUJD" }',
        b'\r\n\t {"encrypt":\n"QUJD"}\n',
        b'{"encrypt":"QU\\/JD\\u002b"}',
        b'{"\\u0065ncrypt":"QUJD"}',
        '{"encrypt":"not base64 é"}'.encode(),
        b'{"encrypt":"' + b"A" * 262_000 + b'"}',
    ],
)
def test_spelling_does_not_matter(body: bytes) -> None:
    assert verify.precheck(RawPush([], body)) is None


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=64),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["encrypt", "a", "Encrypt"]), inner, max_size=3)
            ),
        ).map(lambda value: json.dumps(value).encode()),
        st.text().map(lambda text: json.dumps({"encrypt": text}).encode()),
        st.text().map(lambda text: json.dumps({"encrypt": text}, ensure_ascii=False).encode("utf-8", "surrogatepass")),
    )
)
def test_the_shape_agrees_with_a_full_parser(body: bytes) -> None:
    """The one-pass grammar and an ordinary JSON parser never disagree about what a push is."""
    try:
        pairs = json.loads(body.decode("utf-8"), object_pairs_hook=tuple)
        expected = isinstance(pairs, tuple) and len(pairs) == 1 and pairs[0][0] == "encrypt"
        expected = expected and isinstance(pairs[0][1], str) and pairs[0][1] != ""
    except ValueError:
        expected = False
    assert (verify.precheck(RawPush([], body)) is None) == expected


def headers(**values: str | list[str]) -> list[tuple[str, str]]:
    names = {
        "at": "x-lark-request-timestamp",
        "nonce": "x-lark-request-nonce",
        "signature": "x-lark-signature",
    }
    return [
        (names[name], value)
        for name, given_values in values.items()
        for value in ([given_values] if isinstance(given_values, str) else given_values)
    ]


BAD_HEADERS = {
    "no timestamp": headers(nonce="n", signature="s"),
    "no nonce": headers(at="1", signature="s"),
    "no signature": headers(at="1", nonce="n"),
    "timestamp alone": headers(at="1"),
    "nonce alone": headers(nonce="n"),
    "signature alone": headers(signature="s"),
    "empty timestamp": headers(at="", nonce="n", signature="s"),
    "empty nonce": headers(at="1", nonce="", signature="s"),
    "empty signature": headers(at="1", nonce="n", signature=""),
    "all empty": headers(at="", nonce="", signature=""),
    "timestamp twice": headers(at=["1", "1"], nonce="n", signature="s"),
    "nonce twice": headers(at="1", nonce=["n", "n"], signature="s"),
    "signature twice": headers(at="1", nonce="n", signature=["s", "s"]),
    "long timestamp": headers(at="1" * 256, nonce="n", signature="s"),
    "long nonce": headers(at="1", nonce="n" * 256, signature="s"),
    "long signature": headers(at="1", nonce="n", signature="s" * 256),
    "timestamp with a sign": headers(at="-1", nonce="n", signature="s"),
    "timestamp with a point": headers(at="1.5", nonce="n", signature="s"),
    "timestamp with a blank": headers(at=" 1", nonce="n", signature="s"),
    "timestamp in words": headers(at="now", nonce="n", signature="s"),
    "timestamp in other digits": headers(at="１２", nonce="n", signature="s"),
    "superscript timestamp": headers(at="²", nonce="n", signature="s"),
}


@pytest.mark.usefixtures("_no_sdk")
@pytest.mark.parametrize("name", BAD_HEADERS)
@pytest.mark.spec("DESK-37")
def test_signature_headers_come_exactly_once_or_not_at_all(name: str) -> None:
    """One or two of three, empty, repeated or over 255 characters: told so without the SDK."""
    push = RawPush(BAD_HEADERS[name], b'{"encrypt":"QUJD"}')
    assert verify.precheck(push) == SHAPE
    assert verify.verify(push, CREDENTIALS) == SHAPE


@pytest.mark.usefixtures("_no_sdk")
def test_headers_at_their_limits_pass() -> None:
    at_limit = headers(at="1" * 255, nonce="n" * 255, signature="s" * 255)
    repeated_request_id = [("x-request-id", "1"), ("x-request-id", "2")]
    for given_headers in ([], at_limit, headers(at="0", nonce="n", signature="s") + repeated_request_id):
        assert verify.precheck(RawPush(given_headers, b'{"encrypt":"QUJD"}')) is None


# ---------------------------------------------------------------------------------------------- authenticity


@pytest.mark.spec("DESK-38")
def test_the_check_values_verify() -> None:
    """V12 under signature V13 is accepted by the product's verification, and by the SDK's own classes."""
    push = RawPush(V13_HEADERS, b'{"encrypt":"' + V12_CIPHER.encode() + b'"}')
    assert verify.verify(push, CREDENTIALS) == Challenge(b'{"challenge": "ch-1"}')
    from lark_channel import EventDispatcherHandler

    assert issubclass(sdk.capturing_dispatcher(), EventDispatcherHandler)
    for check in ("do", "_verify_sign", "_decrypt", "_preverify_encrypted_request"):
        assert check not in vars(sdk.capturing_dispatcher())


def test_a_signed_message_comes_out_normalised() -> None:
    got = one(signed(event()))
    assert isinstance(got, InboundMessage)
    assert (got.app_id, got.message_id, got.text, got.signed_at_ms) == ("cli_1", "om_1", "你好 <b>", int(AT) * 1000)


def test_the_raw_bytes_are_verified_not_a_rebuilt_object() -> None:
    """FC-2: the same JSON in another spelling has another signature, and each verifies over its own bytes."""
    compact = body_of(event())
    spaced = json.dumps(json.loads(compact), indent=2).encode()
    assert isinstance(one(RawPush(headers_for(spaced), spaced)), InboundMessage)
    assert verify.verify(RawPush(headers_for(compact), spaced), CREDENTIALS) == NOT_ACCEPTED


@pytest.mark.parametrize(
    "push",
    [
        pytest.param(RawPush([*headers_for(V12_BODY)[:4], ("x-lark-signature", "0" * 64)], V12_BODY), id="forged"),
        pytest.param(
            RawPush([*headers_for(V12_BODY)[:4], ("x-lark-signature", V13_SIGNATURE.upper())], V12_BODY), id="upper"
        ),
        pytest.param(RawPush(headers_for(V12_BODY, nonce="other")[:4] + V13_HEADERS[2:], V12_BODY), id="nonce"),
        pytest.param(RawPush(headers_for(V12_BODY, at="1")[:4] + V13_HEADERS[2:], V12_BODY), id="timestamp"),
        pytest.param(signed(event(), key="other-key"), id="key"),
        pytest.param(signed(event(token="other")), id="token"),
        pytest.param(signed(event(token="")), id="empty token"),
        pytest.param(signed(event() | {"header": {}}), id="no token"),
        pytest.param(signed(challenge("other")), id="challenge token"),
        pytest.param(signed("[1]"), id="array"),
        pytest.param(signed("not json"), id="no json"),
        pytest.param(signed(b"\xff\xfe"), id="no utf-8"),
        pytest.param(RawPush(headers_for(b'{"encrypt":"QUJD"}'), b'{"encrypt":"QUJD"}'), id="short cipher text"),
        pytest.param(RawPush(headers_for(b'{"encrypt":"%%%"}'), b'{"encrypt":"%%%"}'), id="no base64"),
        pytest.param(RawPush([], b'{"encrypt":"QUJD"}'), id="unsigned short cipher text"),
    ],
)
def test_what_the_sdk_does_not_confirm_is_refused(push: RawPush) -> None:
    assert verify.verify(push, CREDENTIALS) == NOT_ACCEPTED


@pytest.mark.parametrize("credentials", [Credentials("s"), Credentials("s", KEY, ""), Credentials("s", "", TOKEN)])
@pytest.mark.usefixtures("_no_sdk")
def test_without_both_secrets_nothing_is_verified(credentials: Credentials) -> None:
    assert verify.verify(signed(event()), credentials) == NOT_ACCEPTED
    assert verify.verify(unsigned(challenge()), credentials) == NOT_ACCEPTED


@pytest.mark.spec("DESK-278")
def test_challenges_are_answered_signed_and_unsigned_and_unsigned_events_are_not() -> None:
    """The signed URL check and the provider's unsigned one are answered; unsigned ciphertext of an event never is."""
    assert verify.verify(signed(challenge()), CREDENTIALS) == Challenge(b'{"challenge": "ch-1"}')
    assert verify.verify(unsigned(challenge()), CREDENTIALS) == Challenge(b'{"challenge": "ch-1"}')
    assert verify.verify(unsigned(challenge("other")), CREDENTIALS) == NOT_ACCEPTED
    for kind in ("im.message.receive_v1", "im.message.recalled_v1", "card.action.trigger", "brand.new_v9"):
        assert verify.verify(unsigned(event(kind)), CREDENTIALS) == NOT_ACCEPTED
    assert verify.verify(unsigned({"uuid": "u", "token": TOKEN, "event": {"type": "message"}}), CREDENTIALS) == (
        NOT_ACCEPTED
    )


@pytest.mark.parametrize(
    "kind",
    [
        "im.message.message_read_v1",
        "im.message.reaction.created_v1",
        "im.chat.member.bot.added_v1",
        "card.action.trigger",
        "url.preview.get",
        "im.chat.updated_v1",
        "brand.new_v9",
        "",
    ],
)
@pytest.mark.spec("DESK-46")
def test_a_signed_event_of_another_type_is_verified_and_ignored(kind: str) -> None:
    """Known to the SDK or not, such an event is authentic and ignored, never a failure that brings it back."""
    assert one(signed(event(kind))) == Ignored("unsupported_event")


ODD_EVENTS = {
    "schema 1.0": event() | {"schema": "1.0"},
    "schema as a number": event() | {"schema": 2},
    "schema as a list": event() | {"schema": ["2.0"]},
    "header without app": event() | {"header": event()["header"] | {"app_id": ""}},
    "header with a numeric app": event() | {"header": event()["header"] | {"app_id": 7}},
    "header without tenant": event() | {"header": event()["header"] | {"tenant_key": None}},
    "header without type": event() | {"header": event()["header"] | {"event_type": None}},
    "type as an object": event() | {"header": event()["header"] | {"event_type": {"a": 1}}},
    "the old schema": {"uuid": "u", "token": TOKEN, "type": "event_callback", "event": {"type": "message"}},
    "the old schema around a message": event() | {"schema": "", "uuid": "u", "token": TOKEN},
    "the old schema with an odd event": {"uuid": "u", "token": TOKEN, "event": "message"},
    "no schema, token on top": {"token": TOKEN, "header": event()["header"], "event": event()["event"]},
}


@pytest.mark.parametrize("name", ODD_EVENTS)
@pytest.mark.spec("DESK-376")
def test_only_a_whole_header_of_schema_two_can_make_a_message(name: str) -> None:
    """Authentic events of another schema or with an incomplete header are acknowledged, whatever their inner event."""
    assert one(signed(ODD_EVENTS[name])) == Ignored("unsupported_event")


def test_a_recall_is_told() -> None:
    payload = event("im.message.recalled_v1") | {
        "event": {
            "message_id": "om_dc13264520392913993dd051dba21dcf",
            "chat_id": "oc_1",
            "recall_time": AT + "000",
            "recall_type": "message_owner",
        }
    }
    assert one(signed(payload)) == Recall("cli_1", "t-1", "om_dc13264520392913993dd051dba21dcf")


def test_the_signing_time_is_bounded_whatever_was_signed() -> None:
    assert one(signed(event(), at="9" * 255)).signed_at_ms == 2**53 - 1
    assert one(signed(event(), at="0")).signed_at_ms == 0


HOSTILE = {
    "deep nesting": '{"a":' * 20_000 + "1" + "}" * 20_000,
    "deep nesting in content": event(content="[" * 50_000 + "]" * 50_000),
    "class": '{"__class__":"x"}',
    "NaN": '{"schema":"2.0","header":{"token":"test-token"},"event":NaN}',
    "lone surrogate": '{"schema":"2.0","header":{"token":"\\ud800"}}',
    "digits": "9" * 200_000,
    "digits in an event": '{"schema":"2.0","header":{"token":"test-token"},"event":' + "9" * 100_000 + "}",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.spec("DESK-282")
def test_hostile_json_is_refused_or_ignored_without_a_crash(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Depth, odd constants, half characters and endless numbers end in a verdict: no exception, nothing logged."""
    payload = HOSTILE[name]
    for push in (
        signed(payload),
        unsigned(payload),
        RawPush([], payload.encode() if isinstance(payload, str) else b""),
    ):
        verdict = verify.verify(push, CREDENTIALS)
        assert isinstance(verdict, Refused | Verified)
        if isinstance(verdict, Verified):
            assert isinstance(verdict.events[0], Ignored) or verdict.events[0].text is None  # type: ignore[union-attr]
    lone = b'{"encrypt":"\\ud800"}'
    for push in (RawPush([], lone), RawPush(headers_for(lone), lone)):
        assert verify.verify(push, CREDENTIALS) == NOT_ACCEPTED
    assert caplog.records == []


# ---------------------------------------------------------------------------------------------- construction


async def _coroutine(_payload: str) -> None: ...


class _AsyncCallable:
    async def __call__(self, _payload: str) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((KEY, TOKEN, print), {"mode": "compat"}, ValueError),
        ((KEY, TOKEN, print), {"mode": "audit"}, ValueError),
        ((KEY, TOKEN, None), {"mode": ""}, ValueError),
        (("", TOKEN, print), {}, ValueError),
        ((None, TOKEN, print), {}, ValueError),
        ((KEY, "", print), {}, ValueError),
        ((KEY, None, None), {}, ValueError),
        ((KEY, TOKEN, print), {"allow_unsigned": True}, ValueError),
        ((KEY, TOKEN, _coroutine), {}, TypeError),
        ((KEY, TOKEN, partial(_coroutine)), {}, TypeError),
        ((KEY, TOKEN, _AsyncCallable()), {}, TypeError),
    ],
)
@pytest.mark.spec("DESK-280")
def test_an_unsafe_dispatcher_cannot_be_built(arguments: Any, options: Any, error: type[Exception]) -> None:
    """Another mode, an empty secret, unsigned events or a capture nobody would await: construction raises."""
    with pytest.raises(error):
        verify.Dispatcher(*arguments, **options)


def test_a_defect_of_ours_leaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(payload: Any, _signed_at_ms: int) -> None:
        raise KeyError(payload["event"]["message"]["content"])

    monkeypatch.setattr(verify, "normalise", broken)
    with pytest.raises(verify.NormaliseFailed) as caught:
        verify.verify(signed(event()), CREDENTIALS)
    assert "你好" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_threads_never_mix_pushes_up() -> None:
    """Every thread gets its own message back under its own installation's secrets."""
    cases = []
    for number in range(40):
        key = f"key-{number % 3}"
        payload = event(message_id=f"om_{number}", token=f"token-{number % 5}")
        cases.append((signed(payload, key), Credentials("s", key, f"token-{number % 5}"), f"om_{number}"))
    barrier = threading.Barrier(8)

    def work(start: int) -> list[bool]:
        barrier.wait()
        turned = cases[start:] + cases[:start]
        return [verify.verify(push, secrets).events[0].message_id == expected for push, secrets, expected in turned]  # type: ignore[union-attr]

    with ThreadPoolExecutor(8) as executor:
        assert all(all(result) for result in executor.map(work, range(0, 40, 5)))


def test_swapped_secrets_are_recognised(channel: FeishuChannel) -> None:
    """A push refused under exchanged secrets is told apart from one that is merely wrong."""
    exchanged = Credentials("s", TOKEN, KEY)
    for push in (signed(event()), unsigned(challenge())):
        assert channel.verify(push, exchanged) == NOT_ACCEPTED
        assert channel.verifies_swapped(push, exchanged)
    assert not channel.verifies_swapped(signed(event(), key="third"), exchanged)
    assert not channel.verifies_swapped(signed(event(), key="third"), Credentials("s"))


def test_which_secrets_each_inbound_mode_needs(channel: FeishuChannel) -> None:
    assert channel.secrets_needed("webhook") == ("app_secret", "encrypt_key", "verification_token")
    assert channel.secrets_needed("long_connection") == ("app_secret",)


@pytest.mark.spec("DESK-287")
def test_the_sdk_is_imported_when_a_push_is_first_verified_and_not_before() -> None:
    """Registry, shape check, body sizes and refusals for want of secrets leave the SDK out; verifying brings it in."""
    script = """
import sys
from frontdesk.channels.registry import build_channels
from frontdesk.desk.connections.channel import Credentials, RawPush
from frontdesk.kernel.clock import SystemClock
channel = build_channels("https://open.feishu.cn", None, SystemClock(), None)["feishu"]
push = RawPush([], b'{"encrypt":"QUJD"}')
assert channel.precheck(push) is None
channel.text_body_bytes("x"); channel.text_content("x")
channel.verify(push, Credentials("s"))
vendor = ("lark_channel", "requests", "requests_toolbelt", "Crypto")
assert not [name for name in sys.modules if name.split(".")[0] in vendor]
channel.verify(push, Credentials("s", "k", "t"))
assert "lark_channel" in sys.modules
"""
    command = [sys.executable, "-W", "error", "-c", script]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env={"PYTHONPATH": "src"}, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_cipher_is_what_the_documentation_says() -> None:
    raw = base64.b64decode(encrypted("x"))
    assert raw[:16] == bytes(range(16))
    assert len(raw) == 32
    assert signature(b"") != signature(b" ")
