"""The callback answers in the order of desk.md 6.2, and what is refused in one row never reaches the next."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator

import httpx2
import pytest
import uvicorn
from prometheus_client import generate_latest

from frontdesk.api.desk import callback
from frontdesk.api.services import Policy
from frontdesk.kernel import limits
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.errors import DatabaseBusy
from tests.http.conftest import MARKER, SECRET, FakeTarget, Site, build_site, settle, signed
from tests.http.test_problems import assert_problem

PATH = "/api/v1/channels/fake/installations/ins_1/events"
MAX = limits.CALLBACK_BODY_BYTES_MAX


def count(site: Site, outcome: str) -> float:
    return site.surroundings.metrics.registry.get_sample_value("frontdesk_callbacks_total", {"outcome": outcome}) or 0.0


async def test_a_verified_push(site: Site, stranger: httpx2.AsyncClient) -> None:
    """What verifies is committed and then acknowledged with the constant body."""
    response = await stranger.post(PATH, content=signed())
    assert (response.status_code, response.content) == (200, b'{"msg":"success"}')
    assert response.headers["content-type"] == "application/json"
    assert [name for name, _ in site.ports.received] == ["ins_1"]
    assert site.channel.asked == ["precheck", "verify"]
    assert count(site, "received") == 1


async def test_a_challenge(site: Site, stranger: httpx2.AsyncClient) -> None:
    """A challenge is answered with the channel's body, and nothing is received."""
    response = await stranger.post(PATH, content=signed(b"challenge"))
    assert (response.status_code, response.content) == (200, b'{"challenge":"c"}')
    assert site.ports.received == []


@pytest.mark.spec("DESK-31")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        *[(method, PATH) for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS")],
        ("POST", PATH + "/"),
        ("POST", PATH + "/more"),
        ("POST", PATH + "%2f"),
        ("POST", "/api/v1/channels/fake%2Finstallations/ins_1/events"),
        ("POST", "/api/v1/channels/fake/installations/ins%5f1/events"),
        ("POST", "/api/v1/channels/fake/installations/ins_1%2Fevents"),
        ("POST", "/api/v1/channels/unknown/installations/ins_1/events"),
        ("POST", "/api/v1/channels/FAKE/installations/ins_1/events"),
        ("POST", "/api/v1/channels/fake/installations//events"),
        ("POST", "/api/v1//channels/fake/installations/ins_1/events"),
        ("POST", "/api/v1/channels/fake/installations/ins_1/health"),
        ("GET", "/api/v1/workspaces/wsp_1/installations"),
        ("DELETE", "/api/v1/workspaces/wsp_1/installations/ins_1"),
    ],
)
async def test_only_the_exact_path(site: Site, stranger: httpx2.AsyncClient, method: str, path: str) -> None:
    """Only POST on the exact raw path of a known channel works without credentials; all else is 401, unredirected."""
    response = await stranger.request(method, "http://localhost" + path, content=signed())
    assert response.status_code == 401
    assert "location" not in response.headers
    assert site.channel.asked == []
    assert site.ports.received == []


@pytest.mark.spec("DESK-34")
async def test_an_unknown_installation(site: Site, stranger: httpx2.AsyncClient) -> None:
    """An unknown installation is 404 with the bare problem, and the channel is not asked anything."""
    response = await stranger.post(PATH.replace("ins_1", "ins_9"), content=signed())
    assert_problem(response, 404, "installation_not_found")
    assert site.channel.asked == []


@pytest.mark.spec("DESK-281")
@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "gzip, identity", "", "identity, identity"])
async def test_other_encodings(site: Site, stranger: httpx2.AsyncClient, encoding: str) -> None:
    """Any encoding but identity is 415 before a byte of the body is asked for."""

    async def untouched() -> AsyncIterator[bytes]:
        pytest.fail("the body was read")
        yield b""

    headers = {"Content-Encoding": encoding, "Content-Length": "zz"}
    assert_problem(await stranger.post(PATH, content=untouched(), headers=headers), 415, "encoding_unsupported")
    assert site.channel.asked == []


async def test_identity_is_no_encoding(stranger: httpx2.AsyncClient) -> None:
    """The identity encoding is taken in any case."""
    response = await stranger.post(PATH, content=signed(), headers={"Content-Encoding": "Identity"})
    assert response.status_code == 200


@pytest.mark.spec("DESK-33")
async def test_sizes(site: Site, stranger: httpx2.AsyncClient) -> None:
    """Over 256 KiB is 413 by declared length and by streamed count, a malformed length is 400; no more is read."""
    for length in ("-1", "1e3", "12 ", "+5", "0x10", ""):
        response = await stranger.post(PATH, content=b"x", headers={"Content-Length": length})
        assert_problem(response, 400, "body_malformed")
    two = [("Content-Length", "1"), ("Content-Length", "1")]
    assert_problem(await stranger.post(PATH, content=b"x", headers=two), 400, "body_malformed")
    for length in (str(MAX + 1), "9" * 40):
        response = await stranger.post(PATH, content=b"x", headers={"Content-Length": length})
        assert_problem(response, 413, "body_too_large")
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while taken < 100 * MAX:
            taken += 4_096
            yield b":" * 4_096

    assert_problem(await stranger.post(PATH, content=endless()), 413, "body_too_large")
    assert taken <= MAX + 2 * 4_096
    assert_problem(await stranger.post(PATH, content=b":" * (MAX + 1)), 413, "body_too_large")
    assert site.channel.asked == []
    assert (await stranger.post(PATH, content=signed(b"x" * (MAX - 65)))).status_code == 200


async def test_a_wrong_shape(site: Site, stranger: httpx2.AsyncClient) -> None:
    """What has not the channel's shape is 400, before secrets are looked at."""
    assert_problem(await stranger.post(PATH, content=b"x"), 400, "callback_shape_invalid")
    assert_problem(await stranger.post(PATH.replace("_1", "_x"), content=b"x"), 400, "callback_shape_invalid")
    assert site.channel.asked == ["precheck", "precheck"]


async def test_unusable_secrets(site: Site, stranger: httpx2.AsyncClient) -> None:
    """Secrets that can't be read are 503; nothing is verified, nothing received."""
    response = await stranger.post(PATH.replace("ins_1", "ins_x"), content=signed())
    assert_problem(response, 503, "verification_material_unavailable")
    assert site.channel.asked == ["precheck"]
    assert site.ports.received == []


async def test_a_forgery(site: Site, stranger: httpx2.AsyncClient) -> None:
    """What does not verify is the constant 500 without any secret, and is kept for the probe."""
    response = await stranger.post(PATH, content=b"forged:hello")
    assert_problem(response, 500, "callback_not_accepted")
    assert SECRET not in response.text
    assert site.ports.received == []
    kept = site.surroundings.last_refused.get("ins_1")
    assert kept is not None
    assert kept.body == b"forged:hello"
    assert site.surroundings.last_refused.get("ins_2") is None


async def test_a_raising_channel_and_a_raising_commit(
    site: Site, stranger: httpx2.AsyncClient, capfd: pytest.CaptureFixture[str]
) -> None:
    """An exception while verifying or committing is the constant 500, and its text is in neither body nor log."""
    texts = [(await stranger.post(PATH, content=signed(b"boom"))).text]

    async def broken() -> None:
        raise RuntimeError(MARKER)

    async def busy() -> None:
        raise DatabaseBusy

    for trouble in (broken, busy):
        site.ports.before_commit = trouble
        response = await stranger.post(PATH, content=signed())
        assert_problem(response, 500, "callback_not_accepted")
        texts.append(response.text)
    assert len(set(texts)) == 1
    assert MARKER not in texts[0] + "".join(capfd.readouterr())
    assert site.ports.received == []
    assert count(site, "commit_failed") == 2


async def test_a_raising_lookup(site: Site, stranger: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that can't name the installation is the constant 500 too, within its bound."""

    async def never(channel_key: str, installation_id: str) -> FakeTarget | None:
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(callback, "_TARGET_WAIT_S", 0.01)
    monkeypatch.setattr(site.ports, "load_target", never)
    assert_problem(await stranger.post(PATH, content=signed()), 500, "callback_not_accepted")


async def test_a_late_commit_goes_on(site: Site, stranger: httpx2.AsyncClient) -> None:
    """A commit past its time is 500, is not cancelled, and the push that follows it is 200."""
    site.ports.wait_s = 0.02
    gate = asyncio.Event()
    site.ports.before_commit = lambda: asyncio.wait_for(gate.wait(), 10)  # type: ignore[assignment]
    assert_problem(await stranger.post(PATH, content=signed()), 500, "callback_not_accepted")
    assert site.ports.received == []
    gate.set()
    await asyncio.gather(*site.ports.late)
    assert len(site.ports.received) == 1
    assert (await stranger.post(PATH, content=signed())).status_code == 200


async def test_a_slow_commit_holds_no_thread(site: Site, stranger: httpx2.AsyncClient) -> None:
    """While commits wait, the two threads of the pool are free and the loop answers others."""
    gate = asyncio.Event()
    begun, under_way = asyncio.Event(), []

    async def slow() -> None:
        under_way.append(1)
        if len(under_way) == 8:
            begun.set()
        await gate.wait()

    site.ports.before_commit = slow
    waiting = [asyncio.create_task(stranger.post(PATH, content=signed(b"%d" % n))) for n in range(8)]
    async with asyncio.timeout(10):
        await begun.wait()
    assert not any(task.done() for task in waiting)
    assert_problem(await stranger.post(PATH, content=b"forged:x"), 500, "callback_not_accepted")
    assert (await stranger.get("/healthz")).status_code == 200
    gate.set()
    assert {(await task).status_code for task in waiting} == {200}


async def test_a_client_that_goes_away(site: Site) -> None:
    """A push whose sender disconnects while sending is dropped without an answer."""
    messages = iter([{"type": "http.request", "body": b"x", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> dict[str, object]:
        return next(messages)

    async def send(message: dict[str, object]) -> None:
        pytest.fail("answered")

    scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "headers": [], "client": None}
    await site.api(scope, receive, send)  # type: ignore[arg-type]
    assert site.ports.received == []


REFUSALS = {
    "unknown installation": ("POST", PATH.replace("ins_1", "ins_9"), b"x", {}, 404),
    "near miss": ("POST", PATH + "/", b"x", {}, 401),
    "encoding": ("POST", PATH, b"x", {"Content-Encoding": "gzip"}, 415),
    "length": ("POST", PATH, b"x", {"Content-Length": "zz"}, 400),
    "size": ("POST", PATH, b"x", {"Content-Length": str(MAX + 1)}, 413),
    "shape": ("POST", PATH, b"x", {}, 400),
    "forgery": ("POST", PATH, b"forged:x", {}, 500),
}


@pytest.mark.spec("DESK-283")
@pytest.mark.parametrize("kind", REFUSALS)
async def test_refused_requests_cost_their_client(site: Site, kind: str) -> None:
    """Past 60 refusals a minute a client gets 429 with Retry-After and nothing is verified; others are not touched."""
    method, path, body, headers, status = REFUSALS[kind]
    async with site.client(token=None, address="127.0.0.7") as noisy, site.client(token=None) as other:
        for _ in range(limits.REFUSED_REQUESTS_PER_MINUTE):
            response = await noisy.request(method, path, content=body, headers=headers)
            assert response.status_code == status
        site.channel.asked.clear()
        refused = await noisy.post(PATH, content=signed())
        assert_problem(refused, 429, "rate_limited")
        assert refused.headers["retry-after"] == "1"
        assert site.channel.asked == []
        assert (await other.post(PATH, content=signed())).status_code == 200
        site.clock.advance(SECOND)
        assert (await noisy.post(PATH, content=signed())).status_code == 200
        assert (await noisy.post(PATH, content=b"x")).status_code == 400
        assert (await noisy.post(PATH, content=signed())).status_code == 429
    assert count(site, "client_limited") == 2


@pytest.mark.spec("DESK-283")
async def test_garbage_costs_the_installation_nothing(site: Site) -> None:
    """Unusable secrets and verified pushes cost a client nothing; garbage costs the installation nothing."""
    async with site.client(token=None) as provider:
        for _ in range(70):
            assert (await provider.post(PATH.replace("_1", "_x"), content=signed())).status_code == 503
        for number in range(6):
            async with site.client(token=None, address=f"127.0.1.{number}") as noisy:
                for _ in range(60):
                    assert (await noisy.post(PATH, content=b"forged:x")).status_code == 500
        for _ in range(limits.CALLBACK_BURST):
            assert (await provider.post(PATH, content=signed())).status_code == 200
        site.ports.received.clear()
        refused = await provider.post(PATH, content=signed())
        assert_problem(refused, 429, "rate_limited")
        assert refused.headers["retry-after"] == "1"
        assert site.ports.received == []
        assert (await provider.post(PATH.replace("_1", "_2"), content=signed())).status_code == 200
        site.clock.advance(SECOND // limits.CALLBACK_RATE_PER_SECOND)
        assert (await provider.post(PATH, content=signed())).status_code == 200
        assert (await provider.post(PATH, content=signed())).status_code == 429


@pytest.mark.spec("DESK-283")
async def test_forwarded_addresses() -> None:
    """A listed proxy's forwarded client is the one that pays; anybody else's forwarded address is ignored."""
    site = build_site(Policy(allowed_hosts=("localhost",), trusted_proxies=("127.0.0.9", "127.1.0.0/16")))
    async with site.client(token=None, address="127.0.0.9") as proxy, site.client(token=None) as direct:
        for _ in range(60):
            spoofed = {"X-Forwarded-For": "192.0.2.1, 192.0.2.7, 127.1.2.3"}
            assert (await proxy.post(PATH, content=b"x", headers=spoofed)).status_code == 400
        assert (await proxy.post(PATH, content=signed(), headers={"X-Forwarded-For": "192.0.2.7"})).status_code == 429
        assert (await proxy.post(PATH, content=signed(), headers={"X-Forwarded-For": "192.0.2.1"})).status_code == 200
        claimed = {"X-Forwarded-For": "192.0.2.7"}
        assert (await direct.post(PATH, content=signed(), headers=claimed)).status_code == 200
    site.services.threads.close()  # type: ignore[attr-defined]


async def test_over_a_real_socket(site: Site) -> None:
    """On a real server the same answers come, and a refusal of an unread body ends its connection."""
    config = uvicorn.Config(site.api, log_config=None, lifespan="off", access_log=False, proxy_headers=False)
    server = uvicorn.Server(config)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    task = asyncio.create_task(server.serve([listener]))
    while not server.started:  # noqa: ASYNC110 - uvicorn offers no event
        await asyncio.sleep(0.005)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with httpx2.AsyncClient(base_url=base) as client:
        assert (await client.post(PATH, content=signed())).json() == {"msg": "success"}
        assert (await client.post(PATH + "/", content=signed())).status_code == 401
        large = await client.post(PATH, content=b"x" * (MAX + 1))
        assert (large.status_code, large.headers["connection"]) == (413, "close")
        assert (await client.post(PATH, content=b"forged:x")).status_code == 500
        head = await client.head("/healthz")
        assert (head.status_code, head.content) == (200, b"")
    server.should_exit = True
    await task


def test_the_scrape_names_outcomes(site: Site) -> None:
    """Every outcome has its metric from the start, and none says that a push was answered."""
    text = generate_latest(site.surroundings.metrics.registry).decode()
    for outcome in callback.Outcome:
        assert f'outcome="{outcome}"' in text
    assert "answered" not in text


def test_nothing_holds_the_loop() -> None:
    """Verification runs on another thread than the loop's."""
    names: list[str] = []

    async def main() -> None:
        site = build_site()
        verify = site.channel.verify

        def watched(*arguments: object) -> object:
            names.append(threading.current_thread().name)
            time.sleep(0)
            return verify(*arguments)  # type: ignore[arg-type]

        site.channel.verify = watched  # type: ignore[assignment,method-assign]
        async with site.client(token=None) as client:
            await client.post(PATH, content=signed())
        site.services.threads.close()  # type: ignore[attr-defined]
        await settle()

    asyncio.run(main())
    assert names
    assert all(name.startswith("frontdesk-test") for name in names)
