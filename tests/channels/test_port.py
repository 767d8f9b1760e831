"""The port's own suite: every sentence holds for every channel of this build, Feishu and loopback alike."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from frontdesk.channels import transport
from frontdesk.channels.registry import build_channels
from frontdesk.desk.connections.channel import (
    Channel,
    Complete,
    ConnectFailed,
    Credentials,
    Ignored,
    InboundMessage,
    Incomplete,
    NotSent,
    OutboundFile,
    RawPush,
    Recall,
    Refused,
    RefusedFinal,
    RefusedRetry,
    Sent,
    Unknown,
    Verified,
)
from frontdesk.kernel.clock import ManualClock, SystemClock
from tests.channels.conftest import InlineThreads, PoolThreads, message
from tests.channels.provider import Provider, Reply, Request, answer, reset
from tests.channels.sides import SIDES, Side

SHAPE = Refused("callback_shape_invalid")
NOT_ACCEPTED = Refused("callback_not_accepted")
NOT_SENT = NotSent("not_sent_connection")
SECRET_NAMES = ("app_secret", "encrypt_key", "verification_token")


@pytest.fixture(params=SIDES, ids=lambda side: side.key)
def side(request: pytest.FixtureRequest) -> Side:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def channel(side: Side, provider: Provider) -> Channel:
    """The channel at the time its pushes are signed, for what is pure."""
    return side.channel(provider, ManualClock(), InlineThreads())


@pytest.fixture
def live(side: Side, provider: Provider) -> Channel:
    """The channel on the machine's clock, for what uses the network."""
    return side.channel(provider, SystemClock(), InlineThreads())


# ---------------------------------------------------------------------------------------------- data


def test_the_registry_holds_each_channel_under_its_key(side: Side) -> None:
    channels = build_channels("https://open.feishu.cn", None, SystemClock(), InlineThreads())
    assert set(channels) == {each.key for each in SIDES}
    found = channels[side.key]
    assert (found.key, found.prefix) == (side.key, side.prefix)
    assert 1 <= len(found.prefix) <= 7
    limits = found.limits
    assert (limits.text_bytes_max, limits.file_bytes_max, limits.chat_per_second) == (150_000, 30_000_000, 5)


def test_a_mode_needs_secrets_by_their_names_or_is_none(channel: Channel) -> None:
    assert channel.secrets_needed("webhook")
    for mode in ("webhook", "long_connection"):
        assert set(channel.secrets_needed(mode)) <= set(SECRET_NAMES)


def test_what_a_person_may_enter(side: Side, channel: Channel) -> None:
    """Its own values fit; a value the channel has no use for is refused, and no reason repeats a value."""
    for name, value in side.fit.items():
        assert channel.unfit(name, value) is None, name
        if value is None:
            reason = channel.unfit(name, "http://127.0.0.1:9/planted-value")
            assert reason == "not used by this channel"
    for name in SECRET_NAMES[1:]:
        assert channel.unfit(name, None) is None
    for value in ("", "planted-value", "http://planted-value:x/", "\ud800"):
        assert "planted-value" not in str(channel.unfit("target_url", value))


@pytest.mark.parametrize("text", ["", "a", 'quotes " and \\', "line\nline", "好😀<at>", "\x01\x02"])
def test_content_carries_its_text(channel: Channel, text: str) -> None:
    assert channel.same_text(channel.text_content(text), text)
    assert not channel.same_text(channel.text_content(text), text + "x")
    assert channel.text_body_bytes(text) > len(text.encode())


# ---------------------------------------------------------------------------------------------- inbound


def one(channel: Channel, side: Side, push: RawPush) -> Any:
    assert channel.precheck(push) is None
    verdict = channel.verify(push, side.credentials)
    assert isinstance(verdict, Verified), verdict
    (event,) = verdict.events
    return event


def test_a_signed_message_in_the_desks_words(side: Side, channel: Channel) -> None:
    found = one(channel, side, side.push(id="m-7", sender="s-7", chat="c-7", parent="m-6", root="m-5", text="你好 <b>"))
    assert found == InboundMessage(
        app_id=side.labels[0],
        tenant_key=side.labels[1],
        event_id=found.event_id,
        message_id="m-7",
        sender_id="s-7",
        sender_type="user",
        chat_id="c-7",
        chat_type="p2p",
        message_type="text",
        text="你好 <b>",
        parent_id="m-6",
        root_id="m-5",
        created_at_ms=1_767_225_600_000,
        signed_at_ms=1_767_225_600_000,
        request_hash=found.request_hash,
    )
    assert "你好" not in repr(found)


def test_labels_are_the_installations_own_where_a_push_names_none(side: Side, channel: Channel) -> None:
    named = side.labels if all(side.labels) else ("app-9", "tenant-9")
    for event in (one(channel, side, side.push()), one(channel, side, side.push("recall", id="m-1"))):
        placed = event.within("app-9", "tenant-9")
        assert (placed.app_id, placed.tenant_key) == named
        assert placed.message_id == event.message_id


def test_two_pushes_of_one_message_share_the_hash_and_another_text_does_not(side: Side, channel: Channel) -> None:
    first = one(channel, side, side.push(event_id="e-1", text="a"))
    second = one(channel, side, side.push(event_id="e-2", text="a"))
    other = one(channel, side, side.push(event_id="e-1", text="b"))
    assert first.event_id != second.event_id
    assert first.request_hash == second.request_hash != other.request_hash
    assert channel.verify(side.push(text="a"), side.credentials) == channel.verify(
        side.push(text="a"), side.credentials
    )


def test_a_recall_and_what_the_desk_does_not_keep(side: Side, channel: Channel) -> None:
    assert one(channel, side, side.push("recall", id="m-1")) == Recall(*side.labels, "m-1")
    assert one(channel, side, side.push("other")) == Ignored("unsupported_event")
    assert one(channel, side, side.push(chat_type="group")) == Ignored("not_private")
    for unusable in ("", "m" * 256, 7, "\x00"):
        assert one(channel, side, side.push(id=unusable)) == Ignored("message_id_unusable")
        assert one(channel, side, side.push("recall", id=unusable)) == Ignored("message_id_unusable")


@pytest.mark.parametrize(
    "fields",
    [
        {"text": ""},
        {"text": "x" * 20_001},
        {"text": "<" * 5_001},
        {"text": 7},
        {"text": "a\x00b"},
        {"sender": "s" * 256},
        {"sender": 7},
        {"chat": ""},
        {"parent": 7},
        {"root": "r" * 256},
    ],
)
def test_a_message_out_of_bounds_keeps_its_id_and_loses_its_text(
    side: Side, channel: Channel, fields: dict[str, Any]
) -> None:
    found = one(channel, side, side.push(**fields))
    assert isinstance(found, InboundMessage)
    assert found.text is None
    assert all(isinstance(value, str) for value in (found.message_id, found.sender_id, found.chat_id))


def test_the_longest_and_the_shortest_text(side: Side, channel: Channel) -> None:
    for text in ("x", "x" * 20_000, "&" * 4_000, "😀" * 20_000):
        assert one(channel, side, side.push(text=text)).text == text


def test_a_forged_push_is_not_accepted(side: Side, channel: Channel) -> None:
    push = side.push(text="planted-text")
    assert channel.verify(side.forged(push), side.credentials) == NOT_ACCEPTED
    other = side.push(text="another text")
    assert channel.verify(replace(push, body=other.body), side.credentials) == NOT_ACCEPTED
    empty = Credentials("", "", "")
    assert channel.verify(push, empty) == NOT_ACCEPTED
    assert "planted-text" not in repr(push)


def test_signature_headers_stand_there_once_and_in_bounds(side: Side, channel: Channel) -> None:
    push = side.push()
    for name in side.signature_headers:
        value = dict(push.headers)[name]
        without = [pair for pair in push.headers if pair[0] != name]
        for headers in (
            without,
            [*push.headers, (name, value)],
            [*without, (name, "")],
            [*without, (name, "9" * 4_000)],
        ):
            broken = replace(push, headers=headers)
            assert channel.precheck(broken) == SHAPE, name
            assert channel.verify(broken, side.credentials) == SHAPE, name
    timestamp = side.signature_headers[1 if side.key == "loopback" else 0]
    for odd in ("1.5", "-1", "１７", "0x1", " 1"):
        headers = [(name, odd if name == timestamp else value) for name, value in push.headers]
        assert channel.precheck(replace(push, headers=headers)) == SHAPE


HOSTILE = {
    "nothing": b"",
    "no json": b"hello",
    "a list": b"[]",
    "a number of digits": b"1" * 200_000,
    "a nest": b"[" * 100_000,
    "a nest of objects": b'{"a":' * 40_000,
    "half a pair": b'{"type":"message","id":"\\ud800"}',
    "latin": b'{"type":"\xe9"}',
    "utf-16": '{"type":"message"}'.encode("utf-16"),
    "a mark": b'\xef\xbb\xbf{"type":"message"}',
    "twice": b'{"type":"message","type":"recall"}',
    "not a number": b'{"type":"message","created_at_ms":NaN}',
    "a class": b'{"__class__":"os.system"}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bodies_are_refused_without_a_crash(side: Side, channel: Channel, name: str) -> None:
    """Whatever is pushed, `verify` answers with a verdict, and an unsigned body is never authentic."""
    push = replace(side.push(), body=HOSTILE[name])
    verdict = channel.verify(push, side.credentials)
    assert verdict in (NOT_ACCEPTED, SHAPE)
    assert channel.precheck(push) in (None, SHAPE)


# ---------------------------------------------------------------------------------------------- outbound


async def send(live: Channel, side: Side, provider: Provider, **changes: Any) -> Any:
    return await live.send(await live.connect(side.installed(provider)), message(**changes))


async def test_a_message_is_one_request_with_its_text(side: Side, live: Channel, provider: Provider) -> None:
    provider.on(side.path, side.took("sent-1"))
    outcome = await send(live, side, provider, text="好的，<done>")
    assert isinstance(outcome, Sent)
    assert outcome.message_id == "sent-1"
    (request,) = provider.wire()
    assert (request.method, request.path) == ("POST", side.path)
    assert side.text_sent(request.json()) == "好的，<done>"


async def test_a_second_attempt_has_the_same_bytes(side: Side, live: Channel, provider: Provider) -> None:
    provider.on(side.path, side.limited(1), side.took("sent-1"))
    assert isinstance(await send(live, side, provider), RefusedRetry)
    assert isinstance(await send(live, side, provider), Sent)
    first, second = provider.wire()
    assert first.body == second.body


async def test_listed_refusals(side: Side, live: Channel, provider: Provider) -> None:
    provider.on(side.path, side.gone())
    outcome = await send(live, side, provider)
    assert isinstance(outcome, RefusedFinal)
    assert outcome.code == "target_revoked"
    provider.on(side.path, side.limited(7))
    assert await send(live, side, provider) == RefusedRetry("rate_limited", 7_000, side.limited_by)
    assert len(provider.wire()) == 2


def cut_off(sock: socket.socket, _request: Request) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")


def silent(_sock: socket.socket, _request: Request) -> None:
    """An orderly end without a word."""


ODD: dict[str, Reply] = {
    "nothing at all": silent,
    "a reset": reset,
    "cut off": cut_off,
    "an empty success": answer(None, 200, raw=b""),
    "a success without an id": answer({"code": 0, "data": {}}),
    "an empty id": answer({"code": 0, "message_id": "", "data": {"message_id": ""}}),
    "an id too long": answer({"code": 0, "message_id": "m" * 256, "data": {"message_id": "m" * 256}}),
    "an id that can't be stored": answer({"code": 0, "message_id": "\x00", "data": {"message_id": "\x00"}}),
    "an id that is a number": answer({"code": 0, "message_id": 7, "data": {"message_id": 7}}),
    "a page": answer(None, 200, raw=b"<html>ok</html>"),
    "a gateway's page": answer(None, 502, raw=b"<html>bad gateway</html>"),
    "a gateway's refusal": answer(None, 403, {"Content-Type": "text/html"}, raw=b"<html>no</html>"),
    "a bare limit": answer(None, 429, raw=b""),
    "a failure": answer({"error": "x"}, 500),
    "a nest": answer(None, 200, raw=b"[" * 100_000),
    "a list": answer([], 200),
}


@pytest.mark.parametrize("name", ODD)
async def test_whatever_is_no_listed_proof_is_unknown(side: Side, live: Channel, provider: Provider, name: str) -> None:
    provider.on(side.path, ODD[name])
    outcome = await send(live, side, provider)
    assert isinstance(outcome, Unknown)
    assert outcome.code == "send_result_unknown"
    assert len(provider.wire()) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_is_unknown(
    side: Side, live: Channel, provider: Provider, status: int
) -> None:
    provider.on(side.path, answer({"message_id": "m"}, status, {"Location": f"{provider.origin}/elsewhere"}))
    assert isinstance(await send(live, side, provider), Unknown)
    assert [request.path for request in provider.wire()] == [side.path]


async def test_a_connection_that_never_stood_proves_that_nothing_left(
    side: Side, live: Channel, provider: Provider
) -> None:
    session = await live.connect(side.installed(provider))
    provider.hush()
    assert await live.send(session, message()) == NOT_SENT


class DripTimer(threading.Thread):
    """A deadline that comes when the answer has begun to drip, however slow the machine."""

    begun: ClassVar[threading.Event]
    intervals: ClassVar[list[float]]

    def __init__(self, interval: float, function: Callable[[], object]) -> None:
        super().__init__()
        self.intervals.append(interval)
        self._function = function
        self._cancelled = threading.Event()

    def run(self) -> None:
        self.begun.wait(30)
        if not self._cancelled.is_set():
            self._function()

    def cancel(self) -> None:
        self._cancelled.set()
        self.begun.set()


@pytest.mark.parametrize("part", ["head", "body", "nothing"])
async def test_a_dripping_answer_ends_at_the_overall_bound(
    side: Side, live: Channel, provider: Provider, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One deadline of twenty seconds holds over all reads; what it cuts off proves nothing."""
    timer = type("Timer", (DripTimer,), {"begun": threading.Event(), "intervals": []})

    def drip(sock: socket.socket, _request: Request) -> None:
        whole = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + side.took("sent-1").partition(b"\r\n\r\n")[2]
        sock.sendall({"head": b"HTTP/1.1 200 OK\r\nX: ", "body": whole, "nothing": b""}[part])
        timer.begun.set()
        while not provider.stopped(0.01):
            sock.sendall(b"" if part == "nothing" else b" ")

    session = await live.connect(side.installed(provider))
    provider.on(side.path, drip)
    monkeypatch.setattr(transport.threading, "Timer", timer)
    assert await live.send(session, message()) == Unknown()
    (interval,) = timer.intervals
    assert 0 < interval <= 20
    assert len(provider.wire()) == 1


async def test_too_late_to_begin_sends_nothing_and_is_unknown(side: Side, live: Channel, provider: Provider) -> None:
    session = await live.connect(side.installed(provider))
    before = provider.accepted
    late = message(start_before_us=SystemClock().monotonic_us())
    assert await live.send(session, late) == Unknown()
    assert provider.accepted == before


async def test_what_fits_by_its_measure_leaves_and_one_byte_more_does_not(
    side: Side, live: Channel, provider: Provider
) -> None:
    start = '"\\\n\t好😀<at>'
    text = start + "x" * (150_000 - live.text_body_bytes(start))
    assert live.text_body_bytes(text) == 150_000
    assert live.text_body_bytes(text + "x") == 150_001
    session = await live.connect(side.installed(provider))
    provider.on(side.path, side.took("sent-1"))
    assert isinstance(await live.send(session, message(text=text)), Sent)
    assert len(provider.wire()[0].body) <= 150_000
    before = provider.accepted
    assert await live.send(session, message(text="x" * 150_000)) == RefusedFinal("format_error")
    assert await live.send(session, message(text=None)) == RefusedFinal("format_error")
    assert await live.send(session, message(text="half a pair \ud800")) == RefusedFinal("format_error")
    assert provider.accepted == before


async def test_a_file_that_does_not_fit_is_refused_before_any_call(
    side: Side, live: Channel, provider: Provider
) -> None:
    session = await live.connect(side.installed(provider))
    before = provider.accepted
    for file in (
        OutboundFile("a.md", "text/markdown", b""),
        OutboundFile("a.md", "text/markdown", bytes(30_000_001)),
        OutboundFile("", "text/markdown", b"x"),
        OutboundFile("\ud800", "text/markdown", b"x"),
        OutboundFile("a.md", "", b"x"),
    ):
        with pytest.raises(ConnectFailed) as caught:
            await live.upload(session, file)
        assert (caught.value.code, caught.value.final) == ("format_error", True)
    assert provider.accepted == before


async def test_the_environments_proxies_see_nothing(
    side: Side, live: Channel, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Provider() as trap:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, trap.origin)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        provider.on(side.path, side.took("sent-1"))
        assert isinstance(await send(live, side, provider), Sent)
        await live.probe(side.installed(provider))
        assert trap.accepted == 0


def hold(entered: threading.Event) -> Reply:
    def reply(sock: socket.socket, _request: Request) -> None:
        entered.set()
        sock.recv(1)  # returns when the client lets go

    return reply


@pytest.mark.parametrize("ending", ["cancelled", "closed"])
async def test_a_send_can_be_let_go(side: Side, provider: Provider, pool: PoolThreads, ending: str) -> None:
    """Cancelling it, or closing its session, frees its thread; a closed one is unknown."""
    entered = threading.Event()
    provider.on(side.path, hold(entered))
    channel = side.channel(provider, SystemClock(), pool)
    session = await channel.connect(side.installed(provider))
    sending = asyncio.create_task(channel.send(session, message()))
    assert await asyncio.to_thread(entered.wait, 30)
    if ending == "cancelled":
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
    else:
        await channel.close(session)
        assert await sending == Unknown()
    await asyncio.to_thread(pool.executor.shutdown, True)  # returns only when the worker is idle
    assert transport.DEADLINE_THREAD not in {thread.name for thread in threading.enumerate()}


async def test_a_probe_sends_no_message_and_names_what_it_found(side: Side, live: Channel, provider: Provider) -> None:
    report = await live.probe(side.installed(provider))
    assert report.token == "ok"
    assert side.path not in provider.paths()
    where = side.installed(provider)
    provider.hush()
    assert (await live.probe(where)).token == "connect_failed"


async def test_history_is_whole_or_says_why_not(side: Side, live: Channel, provider: Provider) -> None:
    provider.default = answer({"code": 0, "data": {"items": [], "has_more": False}})
    session = await live.connect(side.installed(provider))
    found = await live.history(session, "c", 0, 1)
    assert isinstance(found, Complete | Incomplete)
    provider.hush()
    broken = await live.history(session, "c", 0, 1)
    assert isinstance(broken, Incomplete)
    assert broken.reason


async def test_a_foreign_session_is_a_mistake(live: Channel) -> None:
    for act in (
        live.send(object(), message()),
        live.upload(object(), OutboundFile("a", "text/plain", b"x")),
        live.history(object(), "c", 0, 1),
        live.close(object()),
    ):
        with pytest.raises(TypeError):
            await act


async def test_nothing_shows_a_secret_or_a_text(side: Side, live: Channel, provider: Provider) -> None:
    session = await live.connect(side.installed(provider))
    provider.on(side.path, side.gone())
    outcome = await live.send(session, message(text="planted-text"))
    shown = repr((session, outcome, side.credentials, side.installed(provider), message(text="planted-text")))
    for secret in (side.credentials.app_secret, "planted-text", "PROVIDER-TEXT-MARKER"):
        assert secret not in shown
    assert not any(byte_key in shown for byte_key in ("\\x00\\x01", "app-secret"))
