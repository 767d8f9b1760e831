"""What only the loopback channel has: web hook signatures, secrets with a form, listed targets, plain answers."""

from __future__ import annotations

import base64
import hmac
import json
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from frontdesk.channels import transport
from frontdesk.channels.loopback import DEFAULT_TARGETS, LoopbackChannel, Targets, signature, verify
from frontdesk.channels.loopback.targets import target_of
from frontdesk.desk.connections.channel import (
    ConnectFailed,
    Credentials,
    InboundMessage,
    Incomplete,
    NotSent,
    OutboundFile,
    RawPush,
    Refused,
    RefusedFinal,
    RefusedRetry,
    Sent,
    Unknown,
    Verdict,
    Verified,
)
from frontdesk.kernel.clock import SECOND, ManualClock, SystemClock
from tests.channels import hooks
from tests.channels.certificates import self_signed
from tests.channels.conftest import InlineThreads, message
from tests.channels.hooks import BOTH, CREDENTIALS, OTHER_SECRET, PATH, SECRET
from tests.channels.provider import Provider, answer

SHAPE = Refused("callback_shape_invalid")
NOT_ACCEPTED = Refused("callback_not_accepted")
NOW_US = 1_767_225_600 * SECOND


def check(push: RawPush, credentials: Credentials = CREDENTIALS, now_us: int = NOW_US) -> Verdict:
    return verify.verify(push, credentials, now_us)


def channel_to(*targets: str, clock: Any = None) -> LoopbackChannel:
    return LoopbackChannel(targets or DEFAULT_TARGETS, clock or SystemClock(), InlineThreads())


# ---------------------------------------------------------------------------------------------- signatures


@pytest.mark.spec("DESK-352")
def test_v14_verifies() -> None:
    """The published signature is ours, and a push that carries it is authentic."""
    key = signature.key_of(SECRET)
    assert key == bytes(range(32))
    assert signature.signature(key, "wh_1", hooks.AT, hooks.V14_BODY) == hooks.V14_SIGNATURE
    push = RawPush(hooks.headers(hooks.V14_BODY, signatures=hooks.V14_SIGNATURE), hooks.V14_BODY)
    assert isinstance(check(push), Verified)


BODY = hooks.body_of(hooks.message())
RIGHT = hooks.sign(BODY)
UNAUTHENTIC = {
    "another secret": hooks.headers(BODY, secret=OTHER_SECRET),
    "another id": [(name, "wh_2" if name == "webhook-id" else value) for name, value in hooks.headers(BODY)],
    "another time": [
        (name, "1767225601" if name == "webhook-timestamp" else value) for name, value in hooks.headers(BODY)
    ],
    "another body": hooks.headers(BODY + b" "),
    "an unknown version": hooks.headers(BODY, signatures=RIGHT.replace("v1,", "v2,")),
    "no version": hooks.headers(BODY, signatures=RIGHT.removeprefix("v1,")),
    "no signature": hooks.headers(BODY, signatures="v1,"),
    "a signature in hex": hooks.headers(BODY, signatures="v1," + base64.b64decode(RIGHT.removeprefix("v1,")).hex()),
    "half a signature": hooks.headers(BODY, signatures=RIGHT[:20]),
    "latin letters": hooks.headers(BODY, signatures="v1,é" + RIGHT[4:]),
    "blanks alone": hooks.headers(BODY, signatures="   "),
    "several, none right": hooks.headers(BODY, signatures=f"v1,AAAA v2,{RIGHT[3:]} {hooks.sign(b'x')}"),
}


@pytest.mark.spec("DESK-352")
@pytest.mark.parametrize("name", UNAUTHENTIC)
def test_whatever_is_not_signed_by_a_live_secret_is_not_accepted(name: str) -> None:
    """Another secret, id, time, body or version is `callback_not_accepted`."""
    assert check(RawPush(UNAUTHENTIC[name], BODY)) == NOT_ACCEPTED


@pytest.mark.spec("DESK-352")
def test_one_right_signature_among_several_suffices() -> None:
    """Order, neighbours and foreign versions do not matter."""
    for given in (
        f"{hooks.sign(b'x')} {RIGHT}",
        f"{RIGHT} v1,AAAA",
        f"v1a,xyz v2,{RIGHT[3:]} {RIGHT}",
        f" {RIGHT}  ",
        " ".join([hooks.sign(str(number).encode()) for number in range(20)] + [RIGHT]),
    ):
        assert isinstance(check(RawPush(hooks.headers(BODY, signatures=given), BODY)), Verified), given


@pytest.mark.spec("DESK-352")
def test_two_live_secrets_both_verify() -> None:
    """During a rotation the app secret and the encrypt key both count; without the second one only the first does."""
    for secret in (SECRET, OTHER_SECRET):
        assert isinstance(check(hooks.signed(hooks.message(), secret=secret), BOTH), Verified)
        swapped = Credentials(OTHER_SECRET, SECRET)
        assert isinstance(check(hooks.signed(hooks.message(), secret=secret), swapped), Verified)
    assert check(hooks.signed(hooks.message(), secret=OTHER_SECRET)) == NOT_ACCEPTED
    ended = Credentials(OTHER_SECRET, OTHER_SECRET)  # how a rotation ends
    assert check(hooks.signed(hooks.message()), ended) == NOT_ACCEPTED


@pytest.mark.spec("DESK-352")
def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each given entry is compared with each expected one by the constant-time comparison, also after a match."""
    seen: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def watched(expected: bytes, given: bytes) -> bool:
        seen.append((expected, given))
        return compare(expected, given)

    monkeypatch.setattr(signature.hmac, "compare_digest", watched)
    other = hooks.sign(BODY, secret=OTHER_SECRET)
    assert isinstance(check(RawPush(hooks.headers(BODY, signatures=f"{RIGHT} v1,A"), BODY), BOTH), Verified)
    assert seen == [(mine.encode(), given) for mine in (RIGHT, other) for given in (RIGHT.encode(), b"v1,A")]


@pytest.mark.spec("DESK-352")
@pytest.mark.parametrize(("off_s", "accepted"), [(-300, True), (300, True), (-301, False), (301, False)])
def test_a_timestamp_counts_within_three_hundred_seconds(off_s: int, accepted: bool) -> None:
    """Older or newer than that, a right signature is refused; at exactly that it is not."""
    push = hooks.signed(hooks.message(), at=str(1_767_225_600 + off_s))
    assert isinstance(check(push), Verified) is accepted
    if not accepted:
        assert check(push) == NOT_ACCEPTED


def test_a_microsecond_past_the_tolerance_is_past_it() -> None:
    push = hooks.signed(hooks.message())
    assert isinstance(check(push, now_us=NOW_US + 300 * SECOND), Verified)
    assert check(push, now_us=NOW_US + 300 * SECOND + 1) == NOT_ACCEPTED
    assert check(hooks.signed(hooks.message(), at="9" * 255)) == NOT_ACCEPTED
    assert isinstance(check(hooks.signed(hooks.message(), at="0001767225600")), Verified)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"[]",
        b'"text"',
        b"{}",
        b'{"type":7}',
        b'{"type":"message","type":"recall"}',
        b'{"type":"message","n":NaN}',
        b'{"type":"message","n":-Infinity}',
        b'{"type":"message","text":"\xff"}',
        b'\xef\xbb\xbf{"type":"message"}',
        '{"type":"message"}'.encode("utf-16"),
        b'{"type":"message"} {}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"type":"message","n":' + b"1" * 10_000 + b"}",
    ],
)
def test_a_signed_body_that_is_no_object_of_ours_is_a_shape_error(body: bytes) -> None:
    assert check(hooks.signed(body)) == SHAPE


def test_a_body_is_read_after_its_signature_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_object", lambda _body: pytest.fail("read before it was verified"))
    assert check(hooks.signed(b"[" * 100_000, secret=OTHER_SECRET)) == NOT_ACCEPTED


def test_times_and_unknown_keys_of_a_body() -> None:
    for value, expected in ((5, 5), (0, 0), (-1, 0), ("5", 0), (True, 0), (1.5, 0), (2**80, 2**53 - 1)):
        verdict = check(hooks.signed(hooks.message(created_at_ms=value, more={"of": ["theirs"]})))
        assert isinstance(verdict, Verified)
        (event,) = verdict.events
        assert isinstance(event, InboundMessage)
        assert event.created_at_ms == expected
        assert event.event_id == "wh_1"


# ---------------------------------------------------------------------------------------------- secrets


def secret_of(size: int, prefix: str = "whsec_") -> str:
    return prefix + base64.b64encode(bytes(size)).decode()


@pytest.mark.parametrize(
    ("secret", "fits"),
    [
        (secret_of(24), True),
        (secret_of(64), True),
        (secret_of(23), False),
        (secret_of(65), False),
        (secret_of(32, ""), False),
        (secret_of(32, "WHSEC_"), False),
        ("whsec_", False),
        ("whsec_" + "A" * 43, False),
        ("whsec_" + "!" * 44, False),
        ("whsec_" + "_-" * 22, False),
        (secret_of(32) + "\n", False),
        ("whsec_é" + "A" * 43, False),
    ],
)
def test_a_secret_is_whsec_and_the_base64_of_24_to_64_bytes(secret: str, fits: bool) -> None:
    """What does not fit is refused when it is entered, and verifies nothing should it be stored."""
    channel = channel_to()
    for name in ("app_secret", "encrypt_key"):
        assert (channel.unfit(name, secret) is None) is fits
    assert channel.unfit("app_secret", None) == "required"
    if not fits:
        assert check(hooks.signed(hooks.message()), Credentials(secret)) == NOT_ACCEPTED
        assert check(hooks.signed(hooks.message()), Credentials(secret, "")) == NOT_ACCEPTED


async def test_a_stored_secret_that_is_none_waits_for_a_right_one(provider: Provider) -> None:
    with pytest.raises(ConnectFailed) as caught:
        await channel_to().connect(hooks.installed(hooks.hook(provider), Credentials("planted", SECRET)))
    assert (caught.value.code, caught.value.final) == ("credential_unavailable", False)
    assert provider.accepted == 0


# ---------------------------------------------------------------------------------------------- targets


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.0.0.1:9000/a/b?c=d&e",
        "https://LOCALHOST:65535",
        "http://[::1]:9000/x",
        "http://a-b.c_d.example/%7E",
    ],
)
def test_urls_that_are_targets(url: str) -> None:
    target = target_of(url)
    assert target is not None
    assert target.host == target.host.lower()
    assert target.port in (80, 443, 9000, 65535)


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "127.0.0.1:9000/hook",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "http://",
        "http:///hook",
        "http://user@127.0.0.1/",
        "http://user:word@127.0.0.1/",
        "http://127.0.0.1:0/",
        "http://127.0.0.1:/",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:x/",
        "http://127.0.0.1/#part",
        "http://127.0.0.1/a b",
        "http://127.0.0.1\\@evil.example/",
        "http://127.0.0.1/\r\nX-Evil: 1",
        "http://127.0.0.1/é",
        "http://ex%61mple/",
        "http://localhost./",
        "http://-a/",
        "http://a..b/",
        "http://[::1/",
        "http://[fe80::1%25eth0]/",
        "http://" + "a" * 254 + "/",
        "http://127.0.0.1/" + "x" * 2_048,
    ],
)
def test_urls_that_are_none(url: str | None) -> None:
    assert target_of(url) is None
    assert channel_to().unfit("target_url", url) is not None


@pytest.mark.parametrize("entry", ["127.0.0.1", "10.0.0.0/8", "::1", "[::1]", "fd00::/32", "peer", "Peer.Example"])
def test_entries_that_may_be_listed(entry: str) -> None:
    Targets.parse([entry])


@pytest.mark.parametrize(
    "entry",
    [
        "",
        " ",
        "0.0.0.0/0",
        "10.0.0.0/7",
        "::/0",
        "fd00::/31",
        "10.0.0.1/8",
        "http://peer",
        "peer:80",
        "*.example",
        "1",
        "127.1",
    ],
)
def test_entries_that_may_not(entry: str) -> None:
    with pytest.raises(ValueError):
        Targets.parse([entry])


def test_sixty_four_entries_are_the_most() -> None:
    assert len(Targets.parse([f"10.0.0.{number}" for number in range(64)]).networks) == 64
    with pytest.raises(ValueError):
        Targets.parse([f"10.0.0.{number}" for number in range(65)])


@pytest.mark.parametrize(
    ("host", "admitted"),
    [
        ("127.0.0.1", True),
        ("127.255.0.9", True),
        ("::1", True),
        ("localhost", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("169.254.169.254", False),
        ("0.0.0.0", False),
        ("::", False),
        ("localhost.example", False),
        ("2130706433", False),
        ("0x7f.1", False),
        ("127.1", False),
    ],
)
def test_loopback_addresses_alone_are_listed_by_default(host: str, admitted: bool) -> None:
    assert Targets.parse(DEFAULT_TARGETS).admit_host(host) is admitted


def found(*addresses: str, port: int = 80) -> list[transport.Address]:
    return [
        (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
        for each in addresses
    ]


@pytest.fixture
def no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any try to connect fails the test."""
    monkeypatch.setattr(transport.Call, "open_socket", lambda *_: pytest.fail("connected"))


@pytest.mark.spec("DESK-354")
@pytest.mark.parametrize(
    ("targets", "url", "resolved"),
    [
        ((), "http://10.0.0.1/", ["10.0.0.1"]),
        ((), "http://169.254.169.254/latest/meta-data", ["169.254.169.254"]),
        ((), "http://example.test/", ["127.0.0.1"]),
        ((), "http://127.1/", ["127.0.0.1"]),
        ((), "http://localhost/", ["10.0.0.1"]),
        ((), "http://localhost/", ["127.0.0.1", "10.0.0.1"]),
        ((), "http://localhost/", ["::ffff:169.254.169.254"]),
        (("peer.test",), "http://peer.test/", ["127.0.0.1"]),
        (("peer.test", "10.1.0.0/16"), "http://peer.test/", ["10.2.0.1"]),
        (("10.1.0.0/16",), "http://peer.test/", ["10.1.0.1"]),
        (("10.1.0.0/16",), "http://127.0.0.1/", ["127.0.0.1"]),
        ((), None, []),
        ((), "not a url", []),
    ],
)
async def test_what_leads_outside_is_blocked_before_connecting(
    targets: Sequence[str], url: Any, resolved: list[str], no_socket: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is not listed, or a name with any address outside, ends as `ssrf_blocked` for good, unconnected."""
    monkeypatch.setattr(transport, "resolve", lambda _host, port: found(*resolved, port=port))
    channel = channel_to(*targets)
    with pytest.raises(ConnectFailed) as caught:
        await channel.connect(hooks.installed(url))
    assert (caught.value.code, caught.value.final) == ("ssrf_blocked", True)
    assert (await channel.probe(hooks.installed(url))).token == "ssrf_blocked"


@pytest.mark.spec("DESK-354")
async def test_a_name_is_looked_up_once_and_what_was_judged_is_what_is_connected_to(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads elsewhere after it was judged turns nothing: the connection goes to the judged address."""
    asked: list[str] = []

    def rebinding(host: str, port: int) -> list[transport.Address]:
        asked.append(host)
        return found("127.0.0.1" if len(asked) == 1 else "10.0.0.1", port=port)

    monkeypatch.setattr(transport, "resolve", rebinding)
    channel = channel_to("peer.test", "127.0.0.0/8")
    provider.on(PATH, hooks.took())
    session = await channel.connect(hooks.installed(f"http://peer.test:{provider.port}{PATH}"))
    assert await channel.send(session, message()) == Sent("peer_1")
    assert asked == ["peer.test"]
    assert provider.requests[0].headers["host"] == f"peer.test:{provider.port}"


async def test_a_name_that_is_not_known_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_host: str, _port: int) -> list[transport.Address]:
        raise socket.gaierror

    monkeypatch.setattr(transport, "resolve", unknown)
    with pytest.raises(ConnectFailed) as caught:
        await channel_to("peer.test").connect(hooks.installed("http://peer.test/"))
    assert (caught.value.code, caught.value.final) == ("connect_failed", False)


@pytest.mark.spec("DESK-354")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_is_indeterminate(provider: Provider, status: int) -> None:
    """Wherever it points, also outside of what is listed, one request was made and nothing is known."""
    channel = channel_to()
    provider.on(PATH, hooks.took(status=status).replace(b"\r\n", b"\r\nLocation: http://10.0.0.1/\r\n", 1))
    session = await channel.connect(hooks.installed(hooks.hook(provider)))
    assert await channel.send(session, message()) == Unknown(provider_code=status)
    assert provider.paths() == [PATH]


async def test_an_address_of_ipv6_without_a_port_keeps_its_last_group(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def refuse(_call: transport.Call, address: Any, *_: Any) -> socket.socket:
        seen.append(address)
        raise OSError

    monkeypatch.setattr(transport.Call, "open_socket", refuse)
    channel = channel_to()
    session = await channel.connect(hooks.installed("http://[::1]/hook"))
    assert await channel.send(session, message()) == NotSent("not_sent_connection")
    assert seen == [("::1", 80)]


# ---------------------------------------------------------------------------------------------- requests


async def test_a_reply_as_it_is_on_the_wire(provider: Provider) -> None:
    clock = ManualClock()
    channel = channel_to(clock=clock)
    provider.on(PATH, hooks.took())
    session = await channel.connect(hooks.installed(hooks.hook(provider) + "?key=v"))
    assert await channel.send(session, message(text='好 "<b>"')) == Sent("peer_1")
    (request,) = provider.requests
    assert (request.method, request.target) == ("POST", PATH + "?key=v")
    assert (
        request.body
        == '{"operation_id":"dlv_1","chat":"oc_1","reply_to":"om_1","kind":"text","text":"好 \\"<b>\\""}'.encode()
    )
    assert {name: request.headers[name] for name in ("content-type", "webhook-id", "webhook-timestamp")} == {
        "content-type": "application/json",
        "webhook-id": "dlv_1",
        "webhook-timestamp": hooks.AT,
    }
    assert request.headers["webhook-signature"] == hooks.sign(request.body, event_id="dlv_1")
    assert "authorization" not in request.headers


async def test_a_file_and_a_fresh_message_as_they_are_on_the_wire(provider: Provider) -> None:
    channel = channel_to(clock=ManualClock())
    provider.on(PATH, hooks.took())
    session = await channel.connect(hooks.installed(hooks.hook(provider)))
    content = bytes(range(256)) * 300
    file = OutboundFile("报告 №1.md", "text/markdown", content)
    assert await channel.upload(session, file) is None
    assert provider.requests == []
    assert await channel.send(session, message(text=None, file=file, reply_to=None)) == Sent("peer_1")
    body = provider.requests[0].json()
    assert base64.b64decode(body["file"].pop("base64"), validate=True) == content
    assert body == {
        "operation_id": "dlv_1",
        "chat": "oc_1",
        "kind": "file",
        "file": {"name": "报告 №1.md", "media_type": "text/markdown"},
    }
    oversize = OutboundFile("a", "text/plain", bytes(30_000_001))
    assert await channel.send(session, message(text=None, file=oversize)) == RefusedFinal("format_error")
    assert len(provider.requests) == 1


async def test_during_a_rotation_both_secrets_sign(provider: Provider) -> None:
    """The other side may know either; afterwards the same secret in both places signs once."""
    channel = channel_to(clock=ManualClock())
    provider.on(PATH, hooks.took())
    for credentials in (BOTH, Credentials(SECRET, SECRET)):
        await channel.send(await channel.connect(hooks.installed(hooks.hook(provider), credentials)), message())
    first, second = provider.requests
    assert first.headers["webhook-signature"].split(" ") == [
        hooks.sign(first.body, event_id="dlv_1", secret=secret) for secret in (SECRET, OTHER_SECRET)
    ]
    assert second.headers["webhook-signature"] == hooks.sign(second.body, event_id="dlv_1")


async def test_the_longest_ids_leave_with_the_longest_text(provider: Provider) -> None:
    """What the desk measured as fitting is never refused for the length of its ids."""
    channel = channel_to()
    provider.on(PATH, hooks.took())
    text = "x" * (150_000 - channel.text_body_bytes(""))
    session = await channel.connect(hooks.installed(hooks.hook(provider)))
    longest = "\x01" * 255
    sent = message(operation_id="dlv_" + "0" * 32, text=text, chat_id=longest, reply_to=longest)
    assert await channel.send(session, sent) == Sent("peer_1")
    assert len(provider.requests[0].body) == 150_000


async def test_a_send_over_tls_checks_the_name_of_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, public = self_signed(tmp_path)
    client = ssl.create_default_context(cafile=str(public))
    monkeypatch.setattr(transport, "tls_context", lambda: client)
    with Provider(tls=server) as provider:
        provider.on(PATH, hooks.took())
        channel = channel_to()
        session = await channel.connect(hooks.installed(hooks.hook(provider)))
        assert await channel.send(session, message()) == Sent("peer_1")
        wrong = await channel.connect(hooks.installed(f"https://localhost:{provider.port}{PATH}"))
        assert await channel.send(wrong, message()) == NotSent("not_sent_connection")
        assert len(provider.requests) == 1


# ---------------------------------------------------------------------------------------------- answers

AN_HOUR_LATER = "Thu, 01 Jan 2026 01:00:00 GMT"
ANSWERS: dict[str, tuple[bytes, Any]] = {
    "200": (hooks.took("m"), Sent("m")),
    "201": (hooks.took("m", 201), Sent("m")),
    "299": (hooks.took("m" * 255, 299), Sent("m" * 255)),
    "204": (answer(None, 204, raw=b""), Unknown(provider_code=204)),
    "200 with more": (answer({"message_id": "m", "at": 1}), Sent("m")),
    "400 problem": (hooks.problem(400), RefusedFinal("format_error", 400)),
    "403 problem": (hooks.problem(403), RefusedFinal("permission_denied", 403)),
    "404 problem": (hooks.problem(404), RefusedFinal("permission_denied", 404)),
    "422 problem": (hooks.problem(422), RefusedFinal("format_error", 422)),
    "410": (answer(None, 410, raw=b""), RefusedFinal("target_revoked", 410)),
    "410 problem": (hooks.problem(410), RefusedFinal("target_revoked", 410)),
    "429 seconds": (answer(None, 429, {"Retry-After": "3"}, raw=b""), RefusedRetry("rate_limited", 3_000, 429)),
    "429 a day": (answer(None, 429, {"Retry-After": "999999"}), RefusedRetry("rate_limited", 86_400_000, 429)),
    "429 at": (answer(None, 429, {"Retry-After": AN_HOUR_LATER}), RefusedRetry("rate_limited", 3_600_000, 429)),
    "429 before": (
        answer(None, 429, {"Retry-After": "Wed, 31 Dec 2025 00:00:00 GMT"}),
        RefusedRetry("rate_limited", 0, 429),
    ),
    "429 soon": (answer(None, 429, {"Retry-After": "soon"}), Unknown(provider_code=429)),
    "429 minus": (answer(None, 429, {"Retry-After": "-1"}), Unknown(provider_code=429)),
    "429 bare": (hooks.problem(429), Unknown(provider_code=429)),
    **{
        f"{status} without a problem": (answer({"title": "no"}, status), Unknown(provider_code=status))
        for status in (400, 403, 404, 422)
    },
    "400 a problem by name": (
        answer(None, 400, {"Content-Type": "application/problem+json"}, raw=b"<html>"),
        Unknown(provider_code=400),
    ),
    **{
        f"{status} problem": (hooks.problem(status), Unknown(provider_code=status))
        for status in (401, 405, 409, 500, 503)
    },
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_each_answer_has_its_one_outcome(provider: Provider, name: str) -> None:
    reply, expected = ANSWERS[name]
    channel = channel_to(clock=ManualClock())
    provider.on(PATH, reply)
    session = await channel.connect(hooks.installed(hooks.hook(provider)))
    assert await channel.send(session, message()) == expected
    assert len(provider.requests) == 1


async def test_an_answer_larger_than_we_hold_is_unknown(provider: Provider) -> None:
    channel = channel_to()
    session = await channel.connect(hooks.installed(hooks.hook(provider)))
    fields = {"message_id": "m", "pad": ""}
    fields["pad"] = "x" * (65_536 - len(json.dumps(fields)))
    provider.on(PATH, answer(fields))
    assert await channel.send(session, message()) == Sent("m")
    fields["pad"] += "x"
    provider.on(PATH, answer(fields))
    assert await channel.send(session, message()) == Unknown()


async def test_there_is_no_history_to_look_into(provider: Provider) -> None:
    channel = channel_to()
    session = await channel.connect(hooks.installed(hooks.hook(provider)))
    assert await channel.history(session, "c", 0, 1) == Incomplete("not_available")
    assert provider.accepted == 0


def test_a_long_connection_is_no_mode_of_it() -> None:
    channel = channel_to()
    assert channel.secrets_needed("webhook") == ("app_secret",)
    assert channel.secrets_needed("long_connection") == ()
