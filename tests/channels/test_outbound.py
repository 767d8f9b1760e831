"""What leaves: exact requests, tokens, limits, uploads, probe and history, on the real SDK over real HTTP."""

from __future__ import annotations

import asyncio
import email.parser
import email.policy
import json
import socket
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from frontdesk.channels.feishu import FeishuChannel, outbound
from frontdesk.channels.feishu.outbound import checked_domain
from frontdesk.channels.registry import build_channels
from frontdesk.desk.connections.channel import (
    Channel,
    Complete,
    ConnectFailed,
    HistoryItem,
    Incomplete,
    NotSent,
    OutboundFile,
    ProbeReport,
    RefusedFinal,
    RefusedRetry,
    Sent,
    Unknown,
)
from frontdesk.kernel.clock import MINUTE, SECOND, ManualClock, SystemClock
from tests.channels.conftest import InlineThreads, PoolThreads, installed, message
from tests.channels.provider import BOT_PATH, TOKEN_PATH, Provider, Request, answer, code, sent, token

REPLY_PATH = "/open-apis/im/v1/messages/om_1/reply"
LIST_PATH = "/open-apis/im/v1/messages"
FILE_PATH = "/open-apis/im/v1/files"
UUID = "0190f7c0-0000-7000-8000-000000000001"
CHAT = "oc_" + "0" * 32


# ---------------------------------------------------------------------------------------------- requests


async def test_a_reply_as_it_is_on_the_wire(provider: Provider, channel: FeishuChannel) -> None:
    assert await channel.send(await channel.connect(installed()), message()) == Sent("om_sent", 1767225601000)
    asked, replied = provider.requests
    assert (asked.method, asked.target, asked.json()) == (
        "POST",
        TOKEN_PATH,
        {"app_id": "cli_1", "app_secret": "app-secret"},
    )
    assert (replied.method, replied.target) == ("POST", REPLY_PATH)
    assert replied.headers["authorization"] == "Bearer t-token"
    assert replied.headers["content-type"].startswith("application/json")
    assert replied.json() == {"content": '{"text":"好的，<done>"}', "msg_type": "text", "uuid": UUID}


async def test_a_fresh_message_and_a_file_as_they_are_on_the_wire(provider: Provider, channel: FeishuChannel) -> None:
    session = await channel.connect(installed())
    await channel.send(session, message(reply_to=None, text=None, upload_key="file_v2_1"))
    request = provider.wire()[0]
    assert (request.method, request.target) == ("POST", "/open-apis/im/v1/messages?receive_id_type=chat_id")
    assert request.json() == {
        "receive_id": "oc_1",
        "msg_type": "file",
        "content": '{"file_key":"file_v2_1"}',
        "uuid": UUID,
    }


async def test_ids_from_outside_cannot_change_the_path(provider: Provider, channel: FeishuChannel) -> None:
    session = await channel.connect(installed())
    await channel.send(session, message(reply_to="../../x?y#z/é"))
    assert provider.wire()[0].target == "/open-apis/im/v1/messages/..%2F..%2Fx%3Fy%23z%2F%C3%A9/reply"


@pytest.mark.spec("DESK-340", "DESK-168")
async def test_each_act_is_one_request_and_asks_for_no_token(provider: Provider, channel: FeishuChannel) -> None:
    """Token, upload, send and list make one request each; sending asks for no token; the SDK keeps none of its own."""
    from lark_channel.core.token import TokenManager

    provider.on(FILE_PATH, answer({"code": 0, "data": {"file_key": "k"}}))
    session = await channel.connect(installed())
    acts: list[tuple[str, Callable[[], Any]]] = [
        (FILE_PATH, lambda: channel.upload(session, OutboundFile("a", "text/plain", b"x"))),
        (REPLY_PATH, lambda: channel.send(session, message())),
        (REPLY_PATH, lambda: channel.send(session, message(text="line\n" * 10_000))),
        (LIST_PATH, lambda: channel.send(session, message(reply_to=None))),
        (LIST_PATH, lambda: channel.history(session, "oc_1", 0, 1)),
    ]
    for path, act in acts:
        before = len(provider.requests)
        await act()
        assert provider.paths()[before:] == [path]
    provider.on(REPLY_PATH, code(99991400, 429, {"x-ogw-ratelimit-reset": "7"}))
    assert await channel.send(session, message()) == RefusedRetry("rate_limited", 7_000, 99991400)
    assert provider.paths().count(TOKEN_PATH) == 1
    assert TokenManager.cache.cache == {}  # type: ignore[attr-defined]


async def test_a_refused_reply_is_not_followed_by_a_fresh_message(provider: Provider, channel: FeishuChannel) -> None:
    session = await channel.connect(installed())
    provider.on(REPLY_PATH, code(230011))
    assert await channel.send(session, message()) == RefusedFinal("target_revoked", 230011)
    assert [request.path for request in provider.wire()] == [REPLY_PATH]


# ---------------------------------------------------------------------------------------------- limits


def text_of(body_bytes: int) -> str:
    """A text whose fresh message into `CHAT` is exactly that long; every kind of character is in it."""
    start = '"\\\n\t好😀<at>'
    probe = FeishuChannel("https://open.feishu.cn", SystemClock(), InlineThreads())
    text = start + "x" * (body_bytes - probe.text_body_bytes(start))
    assert probe.text_body_bytes(text) == body_bytes
    return text


@pytest.mark.spec("DESK-314")
async def test_the_text_limit_is_that_of_the_final_body(provider: Provider, channel: FeishuChannel) -> None:
    """A body of exactly 150,000 bytes leaves, and was measured beforehand as what it is; one byte more never does."""
    session = await channel.connect(installed())
    fits = message(reply_to=None, chat_id=CHAT, text=text_of(150_000))
    assert isinstance(await channel.send(session, fits), Sent)
    assert len(provider.wire()[0].body) == 150_000 == channel.limits.text_bytes_max
    before = provider.accepted
    too_long = message(reply_to=None, chat_id=CHAT, text=text_of(150_001))
    assert await channel.send(session, too_long) == RefusedFinal("format_error")
    assert provider.accepted == before


@pytest.mark.spec("DESK-314")
async def test_the_file_limits(provider: Provider, channel: FeishuChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte and 30,000,000 bytes go over, none and one more do not, and those cause no network call."""
    # How long a busy machine takes for thirty megabytes is not what is tried.
    monkeypatch.setattr(outbound, "CONNECT_TIMEOUT_US", 10 * MINUTE)
    provider.on(FILE_PATH, answer({"code": 0, "data": {"file_key": "k"}}))
    session = await channel.connect(installed())
    before = provider.accepted
    for size in (0, 30_000_001):
        with pytest.raises(ConnectFailed) as caught:
            await channel.upload(session, OutboundFile("a", "text/plain", bytes(size)))
        assert (caught.value.code, caught.value.final) == ("format_error", True)
    assert provider.accepted == before
    for size in (1, 30_000_000):
        assert await channel.upload(session, OutboundFile("a", "text/plain", bytes(size))) == "k"
    assert channel.limits.file_bytes_max == 30_000_000


@pytest.mark.parametrize(
    "changes",
    [
        {"text": None},
        {"text": "x", "upload_key": "k"},
        {"provider_uuid": "u" * 51},
        {"provider_uuid": ""},
        {"text": "half a pair \ud800"},
    ],
)
async def test_what_the_provider_cannot_take_is_never_asked(
    provider: Provider, channel: FeishuChannel, changes: dict[str, Any]
) -> None:
    session = await channel.connect(installed())
    before = provider.accepted
    assert await channel.send(session, message(**changes)) == RefusedFinal("format_error")
    assert provider.accepted == before


async def test_a_uuid_of_fifty_characters_passes(provider: Provider, channel: FeishuChannel) -> None:
    session = await channel.connect(installed())
    assert isinstance(await channel.send(session, message(provider_uuid="u" * 50)), Sent)


def test_text_content_is_as_history_shows_it(channel: FeishuChannel) -> None:
    assert channel.text_content('好 "<b>"\n') == '{"text":"好 \\"<b>\\"\\n"}'


@pytest.mark.spec("DESK-342")
async def test_a_file_arrives_as_it_was_snapshot(provider: Provider, channel: FeishuChannel) -> None:
    """Name in UTF-8, media type and every byte reach the provider in one request."""
    provider.on(FILE_PATH, answer({"code": 0, "data": {"file_key": "k"}}))
    content = bytes(range(256)) * 300 + b"\r\n--boundary\r\n"
    session = await channel.connect(installed())
    await channel.upload(session, OutboundFile("报告 №1 (final).md", "text/markdown", content))
    (request,) = provider.wire()
    assert request.headers["authorization"] == "Bearer t-token"
    parts = multipart(request)
    assert {name: part for name, part in parts.items() if name != "file"} == {
        "file_type": (None, None, b"stream"),
        "file_name": (None, None, "报告 №1 (final).md".encode()),
    }
    assert parts["file"] == ("报告 №1 (final).md", "text/markdown", content)


def multipart(request: Request) -> dict[str, tuple[str | None, str | None, bytes]]:
    boundary = request.headers["content-type"].partition("boundary=")[2].encode()
    parts: dict[str, tuple[str | None, str | None, bytes]] = {}
    for piece in request.body.split(b"--" + boundary)[1:-1]:
        head, _, data = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        fields = email.parser.Parser(policy=email.policy.default).parsestr(head.decode("utf-8") + "\n\n")
        disposition = fields["content-disposition"]
        name = str(disposition.params["name"])
        parts[name] = (disposition.params.get("filename"), fields["content-type"], data.removesuffix(b"\r\n"))
    return parts


async def test_a_file_name_cannot_add_headers(provider: Provider, channel: FeishuChannel) -> None:
    provider.on(FILE_PATH, answer({"code": 0, "data": {"file_key": "k"}}))
    session = await channel.connect(installed())
    await channel.upload(session, OutboundFile('a"\r\nX-Evil: 1\r\n\r\n.md', "text/plain", b"x"))
    assert b"\r\nX-Evil" not in provider.wire()[0].body.split(b'name="file";')[1]
    for name, media_type in (
        ("a", "text/plain\r\nX-Evil: 1"),
        ("a", ""),
        ("a", "é"),
        ("\ud800", "text/plain"),
        ("", "a"),
    ):
        with pytest.raises(ConnectFailed, match="format_error"):
            await channel.upload(session, OutboundFile(name, media_type, b"x"))
    assert len(provider.wire()) == 1


# ---------------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize("number", [99991663, 99991664, 99991668, 99991671])
@pytest.mark.spec("DESK-343")
async def test_a_refused_token_is_dropped_and_the_next_attempt_asks_anew(
    provider: Provider, channel: FeishuChannel, number: int
) -> None:
    """Each token code makes the kept token be forgotten; the next connect fetches another and the send succeeds."""
    provider.on(TOKEN_PATH, token("t-1"), token("t-2"))
    provider.on(REPLY_PATH, code(number), sent())
    first = await channel.connect(installed())
    assert await channel.send(first, message()) == RefusedRetry("provider_token_rejected", None, number)
    second = await channel.connect(installed())
    assert isinstance(await channel.send(second, message()), Sent)
    assert [request.headers["authorization"] for request in provider.wire()] == ["Bearer t-1", "Bearer t-2"]
    # A late refusal of the old token does not cost the new one.
    provider.on(REPLY_PATH, code(number))
    await channel.send(first, message())
    await channel.connect(installed())
    assert provider.paths().count(TOKEN_PATH) == 2


async def test_a_token_refused_at_upload_or_list_is_dropped_too(provider: Provider, channel: FeishuChannel) -> None:
    provider.on(FILE_PATH, code(99991663))
    provider.on(LIST_PATH, code(99991663))
    with pytest.raises(ConnectFailed, match="provider_token_rejected"):
        await channel.upload(await channel.connect(installed()), OutboundFile("a", "text/plain", b"x"))
    listed = await channel.history(await channel.connect(installed()), "oc_1", 0, 1)
    assert listed == Incomplete("provider_token_rejected")
    await channel.connect(installed())
    assert provider.paths().count(TOKEN_PATH) == 3


@pytest.mark.spec("DESK-343")
async def test_eight_deliveries_at_once_ask_for_one_token(provider: Provider, pool: PoolThreads) -> None:
    """However many need it, the token endpoint is asked once while none is kept."""
    everyone_waits = threading.Event()

    def reply(sock: socket.socket, _request: Request) -> None:
        everyone_waits.wait(10)
        sock.sendall(token("t-one"))

    provider.on(TOKEN_PATH, reply)
    channel = FeishuChannel(provider.origin, SystemClock(), pool)

    async def deliver() -> Any:
        return await channel.send(await channel.connect(installed()), message())

    deliveries = [asyncio.create_task(deliver()) for _ in range(8)]
    await asyncio.sleep(0)
    everyone_waits.set()
    assert [type(outcome) for outcome in await asyncio.gather(*deliveries)] == [Sent] * 8
    assert provider.paths().count(TOKEN_PATH) == 1


async def test_a_failed_asking_fails_all_who_waited_and_is_not_remembered(
    provider: Provider, pool: PoolThreads
) -> None:
    provider.on(TOKEN_PATH, code(10014), token())
    channel = FeishuChannel(provider.origin, SystemClock(), pool)
    results = await asyncio.gather(*(channel.connect(installed()) for _ in range(4)), return_exceptions=True)
    assert {str(result) for result in results} == {"provider_credentials_rejected"}
    assert provider.paths() == [TOKEN_PATH]
    await channel.connect(installed())


async def test_when_whoever_asks_is_cancelled_the_next_one_asks(provider: Provider, pool: PoolThreads) -> None:
    entered = threading.Event()

    def never(sock: socket.socket, _request: Request) -> None:
        entered.set()
        sock.recv(1)

    provider.on(TOKEN_PATH, never, token("t-2"))
    channel = FeishuChannel(provider.origin, SystemClock(), pool)
    first = asyncio.create_task(channel.connect(installed()))
    await asyncio.to_thread(entered.wait, 10)
    second = asyncio.create_task(channel.connect(installed()))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).token == "t-2"
    assert first.cancelled()


@pytest.mark.spec("DESK-277")
async def test_a_new_secret_never_meets_an_old_token(provider: Provider, channel: FeishuChannel) -> None:
    """After the app secret changed, the next send fetches a token of its own; going back finds no stranger's either."""
    provider.on(TOKEN_PATH, token("t-old"), token("t-new"), token("t-other-app"))
    for secret, app, expected in (
        ("old", "cli_1", "t-old"),
        ("new", "cli_1", "t-new"),
        ("new", "cli_2", "t-other-app"),
    ):
        session = await channel.connect(installed(secret, app))
        await channel.send(session, message())
        assert provider.wire()[-1].headers["authorization"] == f"Bearer {expected}"
    assert [request.json()["app_secret"] for request in provider.requests if request.path == TOKEN_PATH] == [
        "old",
        "new",
        "new",
    ]
    assert "old" not in repr(channel._tokens._kept)


async def test_a_token_is_kept_until_ten_minutes_before_its_end(provider: Provider) -> None:
    clock = ManualClock()
    channel = FeishuChannel(provider.origin, clock, InlineThreads())
    asked: list[int] = []

    async def connect_after(advance_s: int) -> None:
        clock.advance(advance_s * SECOND)
        await channel.connect(installed())
        asked.append(provider.paths().count(TOKEN_PATH))

    provider.on(TOKEN_PATH, token(expire=7200))
    await connect_after(0)
    await connect_after(6599)
    await connect_after(1)
    assert asked == [1, 1, 2]
    clock.step(-(10**12))  # the wall clock has no say
    await connect_after(0)
    provider.on(TOKEN_PATH, token(expire=600))
    await connect_after(7200)
    await connect_after(0)
    assert asked == [1, 1, 2, 2, 3, 4]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (code(10014, 200), ("provider_credentials_rejected", 10014, None)),
        (code(10003, 400), ("provider_credentials_rejected", 10003, None)),
        (code(99991400, 429, {"x-ogw-ratelimit-reset": "4"}), ("rate_limited", 99991400, 4_000)),
        (code(230002), ("connect_failed", 230002, None)),
        (code(1), ("connect_failed", 1, None)),
        (answer(None, 502, raw=b"<html>"), ("connect_failed", None, None)),
        (answer({}), ("connect_failed", None, None)),
        (answer({"code": 0}), ("connect_failed", None, None)),
        (token(""), ("connect_failed", None, None)),
        (token("t\r\nX-Evil: 1"), ("connect_failed", None, None)),
        (token("t" * 5_000), ("connect_failed", None, None)),
        (token("é"), ("connect_failed", None, None)),
        (token(expire=0), ("connect_failed", None, None)),
        (token(expire="7200"), ("connect_failed", None, None)),
        (token(expire=True), ("connect_failed", None, None)),
        (answer({"code": 0, "tenant_access_token": 5, "expire": 7200}), ("connect_failed", None, None)),
        (answer(None, 307, {"Location": "/elsewhere"}, raw=b""), ("connect_failed", None, None)),
    ],
)
async def test_what_the_token_endpoint_may_answer(
    provider: Provider, channel: FeishuChannel, reply: bytes, expected: tuple[str, int | None, int | None]
) -> None:
    provider.on(TOKEN_PATH, reply)
    with pytest.raises(ConnectFailed) as caught:
        await channel.connect(installed())
    assert (caught.value.code, caught.value.provider_code, caught.value.wait_ms) == expected
    assert "PROVIDER-TEXT-MARKER" not in repr(caught.value)
    assert len(provider.requests) == 1


# ---------------------------------------------------------------------------------------------- probe


def bot(**fields: Any) -> bytes:
    return answer({"code": 0, "msg": "ok", "bot": {"open_id": "ou_bot", "app_name": "desk"} | fields})


async def test_a_probe_tells_token_bot_and_clock(provider: Provider, channel: FeishuChannel) -> None:
    provider.on(BOT_PATH, bot().replace(b"\r\n", b"\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n", 1))
    assert await channel.probe(installed()) == ProbeReport("ok", "ok", None, "ou_bot", 1_767_225_600_000)
    assert [(request.method, request.path) for request in provider.requests] == [
        ("POST", TOKEN_PATH),
        ("GET", BOT_PATH),
    ]


async def test_a_probe_asks_even_where_a_token_is_kept(provider: Provider, channel: FeishuChannel) -> None:
    """A kept token says nothing about the secret; the fresh one takes its place."""
    provider.on(TOKEN_PATH, token("t-1"), token("t-2"), code(10014))
    provider.on(BOT_PATH, bot())
    await channel.connect(installed())
    await channel.probe(installed())
    assert (await channel.connect(installed())).token == "t-2"
    wrong = await channel.probe(installed())
    assert (wrong.token, wrong.provider_code, wrong.bot_open_id) == ("provider_credentials_rejected", 10014, None)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (code(99991672), ("permission_denied", 99991672)),
        (code(99991663), ("provider_token_rejected", 99991663)),
        (code(99991400), ("rate_limited", 99991400)),
        (code(7), ("connect_failed", 7)),
        (answer(None, 500, raw=b""), ("connect_failed", None)),
        (bot(open_id=""), ("connect_failed", None)),
        (bot(open_id=None), ("connect_failed", None)),
        (answer({"code": 0, "bot": []}), ("connect_failed", None)),
    ],
)
async def test_a_probe_names_what_the_bot_endpoint_lacks(
    provider: Provider, channel: FeishuChannel, reply: bytes, expected: tuple[str, int | None]
) -> None:
    provider.on(BOT_PATH, reply)
    report = await channel.probe(installed())
    assert (report.token, report.bot_info, report.provider_code) == ("ok", *expected)


# ---------------------------------------------------------------------------------------------- history


def row(number: int, at: int | None = None, **changes: Any) -> dict[str, Any]:
    return {
        "message_id": f"om_{number}",
        "msg_type": "text",
        "create_time": str(1_767_225_600_000 + (number if at is None else at)),
        "deleted": False,
        "updated": False,
        "chat_id": "oc_1",
        "sender": {"id": "cli_1", "id_type": "app_id", "sender_type": "app", "tenant_key": "t-1"},
        "body": {"content": f'{{"text":"n{number}"}}'},
    } | changes


def page(rows: list[Any], more: Any = False, next_token: Any = None) -> bytes:
    data = {"items": rows, "has_more": more} | ({} if next_token is None else {"page_token": next_token})
    return answer({"code": 0, "msg": "ok", "data": data}, headers={"Date": "Thu, 01 Jan 2026 00:00:05 GMT"})


async def listed(channel: FeishuChannel, provider: Provider, *pages: bytes, since: int = 0, until: int = 60_000) -> Any:
    provider.on(LIST_PATH, *pages)
    base = 1_767_225_600_000
    return await channel.history(await channel.connect(installed()), "oc_1", base + since, base + until)


async def test_history_pages_to_the_end(provider: Provider, channel: FeishuChannel) -> None:
    pages = (page([row(1), row(2)], True, "p2"), page([], True, "p3"), page([row(3)]))
    got = await listed(channel, provider, *pages, since=1, until=1_500)
    assert isinstance(got, Complete)
    assert [item.message_id for item in got.items] == ["om_1", "om_2", "om_3"]
    assert got.provider_now_ms == 1_767_225_605_000
    queries = [dict(parse_qsl(urlsplit(request.target).query)) for request in provider.wire()]
    first = {
        "container_id_type": "chat",
        "container_id": "oc_1",
        "start_time": "1767225600",
        "end_time": "1767225602",
        "sort_type": "ByCreateTimeAsc",
        "page_size": "50",
    }
    assert queries == [first, first | {"page_token": "p2"}, first | {"page_token": "p3"}]


async def test_every_field_of_a_history_item(provider: Provider, channel: FeishuChannel) -> None:
    full = row(1, parent_id="om_p", root_id="om_r", deleted=True, updated=True)
    got = await listed(channel, provider, page([full]))
    assert got.items == (
        HistoryItem(
            message_id="om_1",
            sender_id="cli_1",
            sender_type="app",
            message_type="text",
            created_at_ms=1_767_225_600_001,
            parent_id="om_p",
            root_id="om_r",
            deleted=True,
            updated=True,
            content='{"text":"n1"}',
        ),
    )
    assert "n1" not in repr(got)


@pytest.mark.parametrize(
    ("content", "text", "same"),
    [
        ('{"text":"好"}', "好", True),
        ('{"text": "\\u597d"}', "好", True),
        ('{ "text" : "<b>" }', "<b>", True),
        ('{"text":"\\u003cb\\u003e"}', "<b>", True),
        ('{"text":"好 "}', "好", False),
        ('{"text":"a","b":1}', "a", False),
        ('{"text":1}', "1", False),
        ('["text"]', "text", False),
        ("This message was recalled", "This message was recalled", False),
        ("", "", False),
        ("[" * 100_000, "", False),
    ],
)
def test_the_spelling_of_a_text_does_not_matter(channel: FeishuChannel, content: str, text: str, same: bool) -> None:
    """What we sent and what history shows are compared as text, however the provider spells the JSON."""
    assert channel.same_text(content, text) is same
    assert channel.same_text(channel.text_content(text), text)


@pytest.mark.parametrize("content", ["any {text", '{ "text" : "x" }', None, 5, ["x"]])
async def test_content_is_shown_as_it_came(provider: Provider, channel: FeishuChannel, content: Any) -> None:
    got = await listed(channel, provider, page([row(1, body={"content": content})]))
    assert got.items[0].content == (content if isinstance(content, str) else "")
    got = await listed(channel, provider, page([row(1, body=None)]))
    assert got.items[0].content == ""


async def test_the_window_is_exact_and_the_order_ascending(provider: Provider, channel: FeishuChannel) -> None:
    rows = [row(4, 2_001), row(3, 2_000), row(1, 999), row(2, 1_000), row(5, 1_000)]
    got = await listed(channel, provider, page(rows), since=1_000, until=2_000)
    assert [item.message_id for item in got.items] == ["om_2", "om_5", "om_3"]


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ([page([row(1)], True, "p2"), page([row(2)], True, "p2")], "page_token_repeated"),
        ([page([row(1)], True, "p2"), page([row(2)], True, "p3"), page([row(3)], True, "p2")], "page_token_repeated"),
        ([page([row(1)], True, "p2"), code(1)], "page_refused"),
        ([page([row(1)], True, "p2"), code(99991400)], "rate_limited"),
        ([page([row(1)], True, "p2"), answer(None, 502, raw=b"<html>")], "page_unreadable"),
        ([code(230002)], "permission_denied"),
        ([code(99991672)], "permission_denied"),
        ([page([row(1)], True)], "page_unreadable"),
        ([page([row(1)], True, "")], "page_unreadable"),
        ([page([row(1)], True, 5)], "page_unreadable"),
        ([page([row(1)], None)], "page_unreadable"),
        ([page([row(1)], "false")], "page_unreadable"),
        ([answer({"code": 0, "data": {"has_more": False}})], "page_unreadable"),
        ([answer({"code": 0})], "page_unreadable"),
        ([answer({"code": 0, "data": {"items": [], "has_more": False}}, 500)], "page_refused"),
        ([page([row(1), row(2, message_id="")])], "row_unreadable"),
        ([page([row(1), row(2, message_id="x" * 256)])], "row_unreadable"),
        ([page([row(1), row(2, create_time="now")])], "row_unreadable"),
        ([page([row(1), row(2, create_time=5)])], "row_unreadable"),
        ([page([row(1), row(2, chat_id="oc_other")])], "row_unreadable"),
        ([page([row(1), "row"])], "row_unreadable"),
    ],
)
async def test_a_partial_list_is_never_handed_out(
    provider: Provider, channel: FeishuChannel, pages: list[bytes], reason: str
) -> None:
    assert await listed(channel, provider, *pages) == Incomplete(reason)


async def test_a_thousand_items_are_the_most(provider: Provider, channel: FeishuChannel) -> None:
    def pages(count: int) -> list[bytes]:
        rows = [row(number) for number in range(count)]
        pieces = [rows[at : at + 50] for at in range(0, count, 50)]
        return [page(piece, at < len(pieces) - 1, f"p{at}") for at, piece in enumerate(pieces)]

    got = await listed(channel, provider, *pages(1_000))
    assert isinstance(got, Complete)
    assert len(got.items) == 1_000
    assert await listed(channel, provider, *pages(1_001)) == Incomplete("too_many_items")


async def test_an_unreachable_history_is_incomplete(provider: Provider, channel: FeishuChannel) -> None:
    session = await channel.connect(installed())
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    gone = FeishuChannel(f"http://127.0.0.1:{port}", SystemClock(), InlineThreads())
    assert await gone.history(session, "oc_1", 0, 1) == Incomplete("connect_failed")


# ---------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "domain",
    [
        "https://open.feishu.cn",
        "https://open.larksuite.com",
        "https://proxy.internal:8443",
        "http://127.0.0.1:8790",
        "http://localhost:8790",
        "http://[::1]:8790",
        "http://127.0.0.1",
    ],
)
@pytest.mark.spec("DESK-345")
def test_https_origins_and_loopback_are_accepted(domain: str) -> None:
    """Any https origin and plain http to this machine will do."""
    assert checked_domain(domain) == domain
    assert FeishuChannel(domain, SystemClock(), InlineThreads()).key == "feishu"


@pytest.mark.parametrize(
    "domain",
    [
        "",
        "open.feishu.cn",
        "http://open.feishu.cn",
        "http://127.0.0.1.evil.example",
        "http://127.0.0.2:1",
        "http://0.0.0.0:1",
        "http://10.0.0.1",
        "http://localhost.evil.example",
        "https://open.feishu.cn/",
        "https://open.feishu.cn/open-apis",
        "https://open.feishu.cn?x=1",
        "https://open.feishu.cn#x",
        "https://user@open.feishu.cn",
        "https://user:pass@open.feishu.cn",
        "http://127.0.0.1@evil.example",
        "https://",
        "https://:443",
        "https://open.feishu.cn:",
        "https://open.feishu.cn:0",
        "https://open.feishu.cn:70000",
        "https://open.feishu.cn:x",
        "https://open.feishu.cn\n",
        " https://open.feishu.cn",
        "https://open.feishu.cn\\@evil.example",
        "https://open feishu.cn",
        "https://öpen.feishu.cn",
        "ftp://127.0.0.1",
        "HTTPS://open.feishu.cn",
        "file:///etc/passwd",
        "//open.feishu.cn",
        "https:open.feishu.cn",
        "https://[::1",
    ],
)
@pytest.mark.spec("DESK-345")
def test_any_other_domain_refuses_to_start(domain: str) -> None:
    """Plain http elsewhere, paths, users, odd ports and look-alikes are refused before anything is built."""
    with pytest.raises(ValueError):
        build_channels(domain, None, SystemClock(), InlineThreads())


def test_the_registry_holds_the_port() -> None:
    channels = build_channels("https://open.feishu.cn", None, SystemClock(), InlineThreads())
    feishu: Channel = channels["feishu"]
    assert (feishu.key, feishu.prefix) == ("feishu", "feishu")
    assert 1 <= len(feishu.prefix) <= 7
    assert feishu.limits.chat_per_second == 5


async def test_a_foreign_session_is_a_mistake(channel: FeishuChannel) -> None:
    with pytest.raises(TypeError):
        await channel.send(object(), message())


def test_outcomes_show_no_content() -> None:
    shown = repr([message(), OutboundFile("a", "b", b"SECRET"), Unknown(), NotSent("x"), installed("SECRET")])
    assert "好的" not in shown
    assert "SECRET" not in shown
    assert json.dumps(shown)
