"""Nothing passes without credentials but the allow-list; hosts, origins and sizes are checked first."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.responses import HTMLResponse, Response

from frontdesk.api.services import Policy
from frontdesk.kernel import limits
from tests.http.conftest import ADMIN_TOKEN, CSRF, SESSION_TOKEN, TOKEN, Site, build_site
from tests.http.test_problems import THINGS, assert_problem

PUBLIC = [
    ("GET", "/"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/static/status.css"),
    ("GET", "/static/icon.svg"),
    ("POST", "/api/v1/session"),
]


@pytest.mark.parametrize(("method", "path"), PUBLIC)
async def test_the_allow_list(stranger: httpx2.AsyncClient, method: str, path: str) -> None:
    """The allow-list answers without credentials."""
    body = {"note": "x"} if method == "POST" else None
    response = await stranger.request(method, path, json=body)
    assert response.status_code in {200, 201}
    if method == "GET":
        head = await stranger.head(path)
        assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize(
    "path",
    ["/", "/healthz", "/healthz/", "/healthz%2f", "//healthz", "/HEALTHZ", "/readyz/", "/api/v1/session",
     "/api/v1/session/", "/api/v1/me", THINGS, "/docs", "/redoc", "/openapi.json", "/metrics", "/nothing",
     "/%2e%2e/healthz", "/static", "/console/w/wsp_1", "/.well-known/x",
     "/api/v1/channels/fake/installations/ins_1/event", "/api/v1/channels"],
)  # fmt: skip
async def test_everything_else_needs_credentials(stranger: httpx2.AsyncClient, method: str, path: str) -> None:
    """Any other method or path is 401 before routing, whether it exists or not, and is never redirected."""
    if (method, path) in PUBLIC or (method == "HEAD" and ("GET", path) in PUBLIC):
        return
    response = await stranger.request(method, "http://localhost" + path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert "location" not in response.headers
    if method != "HEAD":
        assert_problem(response, 401, "unauthenticated")


async def test_every_route_of_the_table_is_guarded(site: Site, stranger: httpx2.AsyncClient) -> None:
    """A request to each route of the table without credentials is 401, the allow-list aside."""
    for route in site.api.routes.routes:
        for method in route.methods - {"HEAD"}:
            if (method, route.path) in PUBLIC:
                continue
            response = await stranger.request(method, route.path.replace("{", "").replace("}", ""))
            assert_problem(response, 401, "unauthenticated")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer nobody"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": f"Bearer {TOKEN} {TOKEN}"},
        {"Authorization": "Bearer " + "x" * 9_000},
        {"Cookie": "frontdesk_session=nobody"},
        {"Cookie": f"other={SESSION_TOKEN}"},
        {"Cookie": f"frontdesk_session={TOKEN}"},
        {"X-Api-Key": TOKEN},
    ],
)
async def test_what_is_no_credential(stranger: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    """Malformed, unknown and misplaced credentials all look alike."""
    assert_problem(await stranger.get(THINGS, headers=headers), 401, "unauthenticated")


async def test_two_credentials_are_none(stranger: httpx2.AsyncClient) -> None:
    """A repeated Authorization header is refused."""
    headers = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {ADMIN_TOKEN}")]
    assert_problem(await stranger.get(THINGS, headers=headers), 401, "unauthenticated")


async def test_the_scheme_has_no_case(stranger: httpx2.AsyncClient) -> None:
    """`bearer` is `Bearer`."""
    assert (await stranger.get(THINGS, headers={"Authorization": f"bearer {TOKEN}"})).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "10.0.0.1:8080", "", "localhost:80:evil", "localhost:x", "[::1]evil"],
)
async def test_an_unlisted_host(client: httpx2.AsyncClient, host: str) -> None:
    """A Host outside the list is 403, on public addresses too."""
    for path in (THINGS, "/", "/healthz"):
        assert_problem(await client.get(path, headers={"Host": host}), 403, "host_not_allowed")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "localhost."])
async def test_listed_hosts(client: httpx2.AsyncClient, host: str) -> None:
    """A listed host is taken with any port."""
    assert (await client.get(THINGS, headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "origin", [None, "http://evil.example", "null", "http://localhost.evil.example", "http://localhost:1", "http://["]
)
async def test_cookie_writes_need_their_own_origin(stranger: httpx2.AsyncClient, origin: str | None) -> None:
    """A write by cookie with a foreign Origin, or none, is 403; reading, and writing by bearer, need none."""
    headers = {"Cookie": f"a=b; frontdesk_session={SESSION_TOKEN}", "X-CSRF-Token": CSRF}
    if origin is not None:
        headers["Origin"] = origin
    assert_problem(await stranger.post(THINGS, json={"name": "x"}, headers=headers), 403, "origin_not_allowed")
    assert (await stranger.get(THINGS, headers=headers)).status_code == 200
    same = {**headers, "Origin": "http://localhost"}
    assert (await stranger.post(THINGS, json={"name": "x"}, headers=same)).status_code == 201
    by_bearer = {"Authorization": f"Bearer {TOKEN}", **({"Origin": origin} if origin else {})}
    assert (await stranger.post(THINGS, json={"name": "x"}, headers=by_bearer)).status_code == 201


async def test_bodies_are_bounded_when_declared(client: httpx2.AsyncClient) -> None:
    """A declared length beyond the bound is 413 before a byte is read; a malformed one is 400."""
    headers = {"Content-Length": str(limits.REQUEST_BODY_BYTES_MAX + 1)}
    assert_problem(await client.post(THINGS, content=b"{}", headers=headers), 413, "body_too_large")
    for length in ("-1", "1e3", "0x10", "9" * 30):
        response = await client.post(THINGS, content=b"{}", headers={"Content-Length": length})
        assert response.status_code == (413 if length.isdigit() else 400)


async def test_bodies_are_bounded_when_streamed(client: httpx2.AsyncClient) -> None:
    """A body that grows beyond the bound is 413 without being held."""
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while taken < 100 * limits.REQUEST_BODY_BYTES_MAX:
            taken += 65_536
            yield b" " * 65_536

    response = await client.post(THINGS, content=endless(), headers={"Content-Type": "application/json"})
    assert_problem(response, 413, "body_too_large")
    assert taken <= limits.REQUEST_BODY_BYTES_MAX + 2 * 65_536
    assert response.headers["connection"] == "close"


async def test_only_identity_encoding(client: httpx2.AsyncClient) -> None:
    """A compressed body is 415; identity is what is."""
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    assert_problem(await client.post(THINGS, content=b"x", headers=headers), 415, "encoding_unsupported")
    headers["Content-Encoding"] = "identity"
    assert (await client.post(THINGS, content=b'{"name":"x"}', headers=headers)).status_code == 201


async def test_credentials_are_asked_before_anything_else(stranger: httpx2.AsyncClient) -> None:
    """Without credentials a huge, compressed or malformed request is still only 401."""
    headers = {"Content-Encoding": "gzip", "Content-Length": "99999999"}
    assert_problem(await stranger.post(THINGS, content=b"x", headers=headers), 401, "unauthenticated")


@pytest.fixture
def console() -> Site:
    """A site with a console mounted behind the gate."""

    async def app(scope: object, receive: object, send: object) -> None:
        await Response("console")(scope, receive, send)  # type: ignore[arg-type]

    async def login_page(scope: object) -> Response:
        return HTMLResponse("<h1>login</h1>", headers={"Content-Security-Policy": "default-src 'self'"})

    public = (("GET", b"/console/login"),)
    policy = Policy(allowed_hosts=("localhost",))
    return build_site(policy, mounts={"/console": app}, login_page=login_page, public=public)


@pytest.mark.spec("DESK-333")
async def test_the_console_shows_its_login_page(console: Site) -> None:
    """Below /console the 401 has the login page as its body; its public pages answer, and with a session all do."""
    async with console.client(token=None) as stranger:
        response = await stranger.get("/console/w/wsp_1")
        assert (response.status_code, response.text) == (401, "<h1>login</h1>")
        assert response.headers["content-security-policy"] == "default-src 'self'"
        assert response.headers["cache-control"] == "no-store"
        assert (await stranger.get("/console/login")).text == "console"
        assert_problem(await stranger.get("/consoles"), 401, "unauthenticated")
        by_cookie = {"Cookie": f"frontdesk_session={SESSION_TOKEN}"}
        assert (await stranger.get("/console/w/wsp_1", headers=by_cookie)).text == "console"


async def test_websockets_are_closed() -> None:
    """No websocket is served here, with or without credentials."""
    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    site = build_site()
    scope = {"type": "websocket", "path": "/x", "raw_path": b"/x", "headers": []}
    await site.api(scope, receive, send)  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_a_client_that_goes_away(capfd: pytest.CaptureFixture[str]) -> None:
    """A client that disconnects while sending gets no answer, and is no defect of ours."""
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> dict[str, object]:
        return next(messages)

    async def send(message: dict[str, object]) -> None:
        pytest.fail("answered")

    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())]
    scope = {"type": "http", "method": "POST", "path": THINGS, "raw_path": THINGS.encode(), "query_string": b""}
    await build_site().api({**scope, "headers": headers, "client": None}, receive, send)  # type: ignore[arg-type]
    log = capfd.readouterr().out
    assert "client_disconnected" in log
    assert "internal_error" not in log
