"""Health, readiness, metrics, the status page, buckets, addresses and the last refused push."""

from __future__ import annotations

import asyncio
import re

import httpx2
import pytest

from frontdesk.api import health
from frontdesk.api.addresses import ClientAddresses
from frontdesk.api.desk import refused
from frontdesk.api.desk.refused import LastRefused
from frontdesk.api.limits import TokenBuckets
from frontdesk.api.metrics import DeskSnapshot
from frontdesk.desk.connections.channel import RawPush
from frontdesk.kernel.clock import SECOND, ManualClock
from tests.http.conftest import ADMIN_TOKEN, MARKER, TOKEN, build_site, signed
from tests.http.test_problems import assert_problem


async def yes() -> bool:
    return True


async def no() -> bool:
    return False


async def broken() -> bool:
    raise RuntimeError(MARKER)


async def stuck() -> bool:
    await asyncio.Event().wait()
    return True


async def test_readiness(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Ready only when every check says so; what fails or hangs is not ready and says nothing of why."""
    monkeypatch.setattr(health, "CHECK_TIMEOUT_S", 0.01)
    checks = {"database": yes}
    async with build_site(readiness=checks).client(token=None) as stranger:
        assert (await stranger.get("/healthz")).json() == {"alive": True}
        assert (await stranger.get("/readyz")).json() == {"ready": True, "checks": {"database": True}}
        for trouble in (no, broken, stuck):
            checks["worker"] = trouble
            response = await stranger.get("/readyz")
            assert response.status_code == 503
            assert response.json() == {"ready": False, "checks": {"database": True, "worker": False}}
            assert (await stranger.get("/healthz")).status_code == 200
    assert MARKER not in "".join(capfd.readouterr())


async def test_the_status_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page at / says alive and ready, loads one stylesheet and runs no script."""
    async with build_site(readiness={"database": yes, "worker": no}).client(token=None) as stranger:
        response = await stranger.get("/")
        assert response.status_code == 200
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'")
        assert "unsafe" not in policy
        page = response.text
        assert "not yet" in page
        assert "<script" not in page
        assert "style=" not in page
        assert re.findall(r'(?:href|src)="([^"]+\.css)"', page) == ["/static/status.css"]
        sheet = await stranger.get("/static/status.css")
        assert sheet.headers["content-type"].startswith("text/css")
        assert sheet.headers["cache-control"] == "public, max-age=3600"
        assert "prefers-color-scheme: dark" in sheet.text
        assert_problem(await stranger.get("/static/nothing.css"), 404, "route_not_found")
        assert_problem(await stranger.get("/static/..%2fstatus.css"), 404, "route_not_found")


async def test_metrics_need_their_token_or_an_administrator() -> None:
    """/metrics is for the metrics token and platform administrators; labels hold operations, statuses and outcomes."""

    async def snapshot() -> DeskSnapshot:
        return DeskSnapshot(receipts={("received", ""): 2}, live_workers=1, unsettled_indeterminate=3)

    site = build_site(snapshot=snapshot)
    async with site.client(token=None) as anyone:
        await anyone.post("/api/v1/channels/fake/installations/ins_1/events", content=signed())
        assert_problem(await anyone.get("/metrics"), 401, "unauthenticated")
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert_problem(await anyone.get("/metrics", headers=headers), 403, "platform_admin_required")
        texts = []
        for token in (ADMIN_TOKEN, site.services.metrics_token):
            response = await anyone.get("/metrics", headers={"Authorization": f"Bearer {token}"})
            assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            texts.append(response.text)
        elsewhere = {"Authorization": f"Bearer {site.services.metrics_token}"}
        assert_problem(await anyone.get("/openapi.json", headers=elsewhere), 401, "unauthenticated")
    text = texts[-1]
    assert 'frontdesk_callbacks_total{outcome="received"} 1.0' in text
    assert 'frontdesk_requests_total{operation="api.metrics",status="200"} 1.0' in text
    assert 'frontdesk_receipts{code="",status="received"} 2.0' in text
    assert "frontdesk_unsettled_indeterminate_deliveries 3.0" in text
    assert "ins_1" not in text
    site.services.threads.close()  # type: ignore[attr-defined]


async def test_access_log(capfd: pytest.CaptureFixture[str]) -> None:
    """Each request is one log event with operation, status and duration: no path, query, body or token."""
    async with build_site().client() as client:
        await client.get(f"/api/v1/workspaces/{MARKER}/things", params={"cursor": MARKER})
        await client.post(f"/api/v1/workspaces/{MARKER}/things", json={"name": MARKER})
        await client.get(f"/{MARKER}", params={"q": MARKER})
    lines = capfd.readouterr().out.splitlines()
    assert [re.sub(r"duration_ms=\d+", "", line.split("] ", 1)[1]).split() for line in lines] == [
        ["test.things.list", "status=200"],
        ["test.things.create", "status=201"],
        ["api.unrouted", "code=route_not_found", "status=404"],
    ]
    assert MARKER not in "".join(lines)


def test_buckets() -> None:
    """A bucket gives its burst, refills at its rate, never owes more than itself, and forgets the least used."""
    clock = ManualClock()
    buckets = TokenBuckets(clock, interval_us=SECOND, burst=3, keys_max=2)
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 1]
    for _ in range(50):
        buckets.spend("a")
    assert buckets.wait_s("a") == 1
    clock.advance(SECOND)
    assert [buckets.take("a"), buckets.take("a")] == [0, 1]
    clock.advance(100 * SECOND)
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 1]
    buckets.spend("b")
    buckets.spend("c")
    assert len(buckets) == 2
    assert buckets.wait_s("a") == 0


def scope(client: str | None, *forwarded: str) -> dict[str, object]:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    return {"client": (client, 1) if client else None, "headers": headers}


@pytest.mark.parametrize(
    ("client", "forwarded", "expected"),
    [
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("192.0.2.1",), "192.0.2.1"),
        ("10.0.0.1", ("198.51.100.9, 192.0.2.1",), "192.0.2.1"),
        ("10.0.0.1", ("198.51.100.9", "192.0.2.1, 10.0.0.2"), "192.0.2.1"),
        ("10.0.0.1", ("192.0.2.1, nonsense",), "10.0.0.1"),
        ("10.0.0.1", ("10.0.0.2",), "10.0.0.1"),
        ("::ffff:10.0.0.1", ("2001:db8::1",), "2001:db8::1"),
        ("192.0.2.50", ("198.51.100.9",), "192.0.2.50"),
        (None, ("198.51.100.9",), "unknown"),
    ],
)
def test_addresses(client: str | None, forwarded: tuple[str, ...], expected: str) -> None:
    """The address is the peer's, or the last one that a listed proxy did not itself write."""
    assert ClientAddresses(["10.0.0.0/8"]).of(scope(client, *forwarded)) == expected
    assert ClientAddresses([]).of(scope(client, *forwarded)) == (client or "unknown")


def test_the_last_refused_push_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One push an installation, at most so many installations and bytes; the oldest goes first."""
    kept = LastRefused()
    for number in range(300):
        kept.keep(f"ins_{number}", RawPush([("a", "b")], b"x"))
    assert kept.get("ins_43") is None
    assert kept.get("ins_44") is not None
    kept.keep("ins_299", RawPush([], b"new"))
    newest = kept.get("ins_299")
    assert newest is not None
    assert newest.body == b"new"
    monkeypatch.setattr(refused, "BYTES_MAX", 10)
    kept.keep("ins_big", RawPush([], b"y" * 8))
    assert kept.get("ins_big") is not None
    assert kept.get("ins_298") is None
    kept.keep("ins_bigger", RawPush([], b"y" * 11))
    assert kept.get("ins_bigger") is None


async def test_a_request_without_http_host() -> None:
    """Two Host headers, or none, name no host."""
    async with build_site().client() as client:
        two = httpx2.Headers([("Host", "localhost"), ("Host", "evil.example")])
        assert_problem(await client.get("/", headers=two), 403, "host_not_allowed")
