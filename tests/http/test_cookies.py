"""A browser's writes: its own origin, and the session's form token, in a header or in the form."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response

from frontdesk.api import cookies
from frontdesk.api.services import Policy
from frontdesk.kernel import limits
from tests.http.conftest import CSRF, SESSION_TOKEN, TOKEN, Site, build_site
from tests.http.test_problems import THINGS, assert_problem

COOKIE = f"frontdesk_session={SESSION_TOKEN}"
HOME = {"Cookie": COOKIE, "Origin": "http://localhost"}
FORM = "application/x-www-form-urlencoded"


class Console:
    """A page with a form: it notes what reaches it, and says which token its form would carry."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        if request.method != "GET":
            async with request.form() as form:
                self.taken.append({name: str(value) for name, value in form.items()})
        await Response(scope.get("csrf_token", ""))(scope, receive, send)


def browser_of(site: Site, headers: dict[str, str]) -> httpx2.AsyncClient:
    client = site.client(token=None)
    client.headers.update(headers)
    return client


@pytest.fixture
def console() -> Console:
    return Console()


@pytest.fixture
def site(console: Console) -> Site:
    return build_site(Policy(allowed_hosts=("localhost",)), mounts={"/console": console})


@pytest.mark.spec("DESK-334")
@pytest.mark.parametrize(
    "body",
    [
        "",
        "name=x",
        "csrf_token=&name=x",
        f"csrf_token={CSRF}x&name=x",
        f"csrf_token={CSRF[:-1]}&name=x",
        f"CSRF_TOKEN={CSRF}&name=x",
        f"csrf_token={CSRF}&csrf_token={CSRF}",
        f"csrf_token={SESSION_TOKEN}",
        "&".join(["x=1"] * (limits.FORM_FIELDS_MAX + 1)) + f"&csrf_token={CSRF}",
        b"csrf_token=\xff\xfe",
    ],
)
async def test_a_form_without_its_sessions_token_goes_nowhere(site: Site, console: Console, body: str | bytes) -> None:
    """A form by cookie whose token is missing, another's, doubled or cut is 403 and no page ever sees it; with the
    token, and this host's own `Origin`, the page gets the form whole.
    """
    async with browser_of(site, HOME) as browser:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = await browser.request(method, "/console/x", content=body, headers={"Content-Type": FORM})
            assert_problem(answer, 403, "csrf_token_invalid")
        assert console.taken == []
        shown = (await browser.get("/console/x")).text
        assert shown == CSRF
        answer = await browser.post("/console/x", data={"name": "a b", "csrf_token": shown})
        assert answer.status_code == 200
        assert console.taken == [{"name": "a b", "csrf_token": CSRF}]


@pytest.mark.spec("DESK-334")
@pytest.mark.parametrize(
    "origin", [None, "http://evil.example", "null", "http://localhost.evil.example", "http://localhost:1", "http://["]
)
async def test_a_write_by_cookie_from_elsewhere_goes_nowhere(site: Site, console: Console, origin: str | None) -> None:
    """A write by cookie with a foreign `Origin` or none is 403 without effect, also with the right form token."""
    headers = {"Cookie": COOKIE, "X-CSRF-Token": CSRF, **({"Origin": origin} if origin else {})}
    async with browser_of(site, headers) as browser:
        assert_problem(await browser.post("/console/x", data={"csrf_token": CSRF}), 403, "origin_not_allowed")
        assert_problem(await browser.post(THINGS, json={"name": "boom"}), 403, "origin_not_allowed")
        assert console.taken == []
    two = [("Cookie", COOKIE), ("X-CSRF-Token", CSRF), ("Origin", "http://localhost"), ("Origin", "http://localhost")]
    async with site.client(token=None) as browser:
        assert_problem(await browser.post(THINGS, json={"name": "boom"}, headers=two), 403, "origin_not_allowed")


@pytest.mark.spec("DESK-334")
@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "localhost:x"])
async def test_a_host_that_is_not_listed_is_not_served(site: Site, console: Console, host: str) -> None:
    """An unlisted `Host` is 403 before anything else is looked at, though origin and form token fit it."""
    headers = {"Host": host, "Cookie": COOKIE, "Origin": f"http://{host}", "X-CSRF-Token": CSRF}
    async with browser_of(site, headers) as browser:
        assert_problem(await browser.post("/console/x", data={"csrf_token": CSRF}), 403, "host_not_allowed")
        assert_problem(await browser.get("/healthz"), 403, "host_not_allowed")
    assert console.taken == []


async def test_the_api_takes_the_token_in_a_header(site: Site) -> None:
    async with browser_of(site, HOME) as browser:
        for headers in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": CSRF + "x"}, {"X-CSRF-Token": TOKEN}):
            refused = await browser.post(THINGS, json={"name": "boom", "csrf_token": CSRF}, headers=headers)
            assert_problem(refused, 403, "csrf_token_invalid")
        twice = [("X-CSRF-Token", CSRF), ("X-CSRF-Token", CSRF)]
        assert_problem(await browser.post(THINGS, json={"name": "boom"}, headers=twice), 403, "csrf_token_invalid")
        made = await browser.post(THINGS, json={"name": "x"}, headers={"X-CSRF-Token": CSRF})
        assert made.status_code == 201
        assert (await browser.get(THINGS)).status_code == 200
    # A bearer is nobody's cookie: no browser sends it by itself.
    async with browser_of(
        site, {"Cookie": COOKIE, "Origin": "http://evil.example", "Authorization": f"Bearer {TOKEN}"}
    ) as program:
        assert (await program.post(THINGS, json={"name": "x"})).status_code == 201


async def test_an_upload_shows_the_header_and_a_form_is_bounded(site: Site, console: Console) -> None:
    async with browser_of(site, HOME) as browser:
        upload = {"files": {"f": ("a.txt", b"x")}, "data": {"csrf_token": CSRF}}
        assert_problem(await browser.post("/console/x", **upload), 403, "csrf_token_invalid")
        assert (await browser.post("/console/x", **upload, headers={"X-CSRF-Token": CSRF})).status_code == 200
        console.taken.clear()
        large = f"csrf_token={CSRF}&x={'y' * limits.REQUEST_BODY_BYTES_MAX}"
        refused = await browser.post("/console/x", content=large, headers={"Content-Type": FORM})
        assert_problem(refused, 413, "body_too_large")
        squeezed = {"Content-Type": FORM, "Content-Encoding": "gzip"}
        refused = await browser.post("/console/x", content=b"x", headers=squeezed)
        assert_problem(refused, 415, "encoding_unsupported")

        async def streamed() -> Any:
            yield b"csrf_tok"
            yield f"en={CSRF}&name=".encode()
            yield b"z"

        assert (await browser.post("/console/x", content=streamed(), headers={"Content-Type": FORM})).status_code == 200
        assert console.taken == [{"csrf_token": CSRF, "name": "z"}]


async def test_a_browser_that_goes_away_within_a_form(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    messages = iter([{"type": "http.request", "body": b"csrf", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> dict[str, Any]:
        return next(messages)

    async def send(message: dict[str, Any]) -> None:
        pytest.fail("answered")

    headers = [(b"host", b"localhost"), (b"cookie", COOKIE.encode()), (b"origin", b"http://localhost")]
    headers.append((b"content-type", FORM.encode()))
    scope = {"type": "http", "method": "POST", "path": "/console/x", "raw_path": b"/console/x", "query_string": b""}
    await site.api({**scope, "headers": headers, "client": None}, receive, send)  # type: ignore[arg-type]
    log = capfd.readouterr().out
    assert "client_disconnected" in log
    assert "internal_error" not in log


@pytest.mark.parametrize(("origin", "status"), [("http://localhost", 403), ("https://localhost", 201)])
async def test_where_browsers_come_over_https_plain_http_is_elsewhere(origin: str, status: int) -> None:
    site = build_site(Policy(allowed_hosts=("localhost",), secure_cookies=True))
    async with browser_of(site, {**HOME, "Origin": origin, "X-CSRF-Token": CSRF}) as browser:
        assert (await browser.post(THINGS, json={"name": "x"})).status_code == status


def test_what_a_cookie_says() -> None:
    assert cookies.set_cookie("fdu_x", secure=False) == (
        "frontdesk_session=fdu_x; Path=/; Max-Age=604800; HttpOnly; SameSite=Lax"
    )
    assert cookies.set_cookie("fdu_x", secure=True).endswith("; HttpOnly; SameSite=Lax; Secure")
    assert cookies.clear_cookie(secure=True) == (
        "frontdesk_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax; Secure"
    )
