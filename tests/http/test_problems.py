"""Every refusal is an RFC 9457 problem with a stable code, and says nothing else."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from frontdesk.api import problems
from frontdesk.kernel.codes import PROBLEMS, Kind
from tests.http.conftest import MARKER, Site

THINGS = "/api/v1/workspaces/wsp_1/things"


def assert_problem(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert (response.status_code, body["code"]) == (status, code)
    assert body["type"] == f"urn:frontdesk:problem:{code}"
    assert body["status"] == status
    assert body["detail"] == PROBLEMS[code].en
    assert body["retry"] == PROBLEMS[code].retry
    assert set(body) <= {"type", "title", "status", "detail", "code", "retry", "errors"}
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    return body


def test_every_kind_has_a_status() -> None:
    """Each kind of problem maps to exactly one HTTP status."""
    assert set(problems.STATUS) == set(Kind)
    for code in PROBLEMS:
        assert 400 <= problems.status_of(code) <= 503


async def test_a_rooms_problem(client: httpx2.AsyncClient) -> None:
    """What a room refuses arrives with its code and status."""
    assert_problem(await client.post(THINGS, json={"name": "taken"}), 409, "name_taken")


async def test_a_busy_database(client: httpx2.AsyncClient) -> None:
    """A busy database is 503 `unavailable` and says when to come again."""
    response = await client.post(THINGS, json={"name": "busy"})
    assert_problem(response, 503, "unavailable")
    assert response.headers["retry-after"] == "1"


async def test_an_unforeseen_exception(client: httpx2.AsyncClient, capfd: pytest.CaptureFixture[str]) -> None:
    """A defect answers the constant `internal_error`, and neither body nor log holds the exception's text.

    FC-61.
    """
    response = await client.post(THINGS, json={"name": "boom"})
    assert_problem(response, 500, "internal_error")
    seen = response.text + "".join(capfd.readouterr())
    assert MARKER not in seen
    assert "Traceback" not in seen
    assert "internal_error" in seen


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"{", 400, "body_malformed"),
        (b"\xff\xfe", 400, "body_malformed"),
        (b'{"name": NaN}', 400, "body_malformed"),
        (b'{"name": "x", "count": 1e999}', 400, "body_malformed"),
        (b'{"name": "\\ud800"}', 400, "body_malformed"),
        (b"[" * 100_000, 400, "body_malformed"),
        (b'{"payload":' * 70 + b"1" + b"}" * 70, 400, "body_malformed"),
        (b"9" * 100_000, 400, "body_malformed"),
        (b"", 422, "request_invalid"),
        (b"[]", 422, "request_invalid"),
        (b'"x"', 422, "request_invalid"),
        (b"{}", 422, "request_invalid"),
        (b'{"name": "a\\u0000b"}', 422, "request_invalid"),
        (b'{"name": "x", "count": "3"}', 422, "request_invalid"),
        (b'{"name": "x", "count": 1.5}', 422, "request_invalid"),
        (b'{"name": "x", "surprise": 1}', 422, "request_invalid"),
    ],
)
async def test_bodies(client: httpx2.AsyncClient, raw: bytes, status: int, code: str) -> None:
    """What is not JSON is 400; JSON of another shape, unknown keys and numbers in texts are 422."""
    response = await client.post(THINGS, content=raw, headers={"Content-Type": "application/json"})
    assert_problem(response, status, code)


async def test_an_escaped_backslash_is_no_nul(client: httpx2.AsyncClient) -> None:
    """The text backslash-u0000 is a text like any other."""
    response = await client.post(THINGS, content=b'{"name": "a\\\\u0000b"}')
    assert response.status_code == 201


async def test_validation_names_paths_never_values(client: httpx2.AsyncClient) -> None:
    """A 422 lists at most five paths with reasons made from the schema alone; no value and no odd key is repeated."""
    body = {"name": "", "count": MARKER, "kind": MARKER, "inner": {"note": 7, MARKER + " ": 1}, "payload": [MARKER]}
    response = await client.post(THINGS, json=body)
    errors = assert_problem(response, 422, "request_invalid")["errors"]
    assert len(errors) == 5
    assert {"path": "name", "reason": "must have a length of at least 1"} in errors
    assert {"path": "count", "reason": "must be a whole number"} in errors
    assert {"path": "kind", "reason": "must be 'a' or 'b'"} in errors
    assert {"path": "inner.note", "reason": "must be a text"} in errors
    assert {"path": "inner.*", "reason": "unknown key"} in errors
    assert MARKER not in response.text


@pytest.mark.parametrize(
    ("query", "path", "reason"),
    [
        ("?limit=0", "limit", "must be at least 1"),
        ("?limit=101", "limit", "must be at most 100"),
        ("?limit=x", "limit", "must be a whole number"),
        ("?limit=1&limit=2", "limit", "given more than once"),
        ("?cursor=%00", "cursor", "NUL is not allowed"),
        ("?colour=red", "colour", "unknown key"),
        ("?<script>=1", "*", "unknown key"),
    ],
)
async def test_queries(client: httpx2.AsyncClient, query: str, path: str, reason: str) -> None:
    """Unknown, repeated and malformed query parameters are 422 and named."""
    response = await client.get(THINGS + query)
    assert assert_problem(response, 422, "request_invalid")["errors"] == [{"path": path, "reason": reason}]


async def test_operations_without_query_or_body_refuse_both(client: httpx2.AsyncClient) -> None:
    """Where nothing is to be said, anything said is refused; an empty object is nothing."""
    path = THINGS + "/thg_1/close"
    assert (await client.post(path)).status_code == 204
    assert (await client.post(path, json={})).status_code == 204
    assert_problem(await client.post(path, json={"x": 1}), 422, "request_invalid")
    assert_problem(await client.post(path + "?x=1"), 422, "request_invalid")


async def test_other_media_types(client: httpx2.AsyncClient) -> None:
    """A body that says it is something else is refused before it is parsed."""
    response = await client.post(THINGS, content=b'{"name": "x"}', headers={"Content-Type": "text/plain"})
    assert assert_problem(response, 422, "request_invalid")["errors"][0]["path"] == "content-type"


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/docs",
        "/redoc",
        "/docs/oauth2-redirect",
        "/api/v1/nothing",
        THINGS + "/",
        "/api/v1/workspaces/a%2Fb/things",
        "/api/v1/workspaces/a%2e%2e/things",
        "/api/v1/workspaces/%00/things",
        "/api/v1/workspaces/%0a/things",
        "/api/v1/workspaces/" + "x" * 300 + "/things",
        "//api/v1/workspaces/wsp_1/things",
        "/API/v1/workspaces/wsp_1/things",
    ],
)
async def test_addresses_without_a_route(client: httpx2.AsyncClient, path: str) -> None:
    """With credentials an address without a route is 404; slashes are neither decoded nor redirected."""
    assert_problem(await client.get("http://localhost" + path), 404, "route_not_found")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "BREW"])
async def test_other_methods(client: httpx2.AsyncClient, method: str) -> None:
    """A method the address does not take is 405 and says which it takes; a HEAD has no body."""
    response = await client.request(method, THINGS)
    assert response.status_code == 405
    assert response.headers["allow"]
    if method != "HEAD":
        assert_problem(response, 405, "method_not_allowed")
    else:
        assert response.content == b""


async def test_answers_have_exactly_the_documented_fields(client: httpx2.AsyncClient) -> None:
    """A good answer is plain JSON with the operation's status."""
    response = await client.post(THINGS, json={"name": "x", "count": 2})
    assert response.status_code == 201
    assert json.loads(response.text) == {"name": "x", "count": 2}
    assert response.headers["cache-control"] == "no-store"
    listed = await client.get(THINGS, params={"limit": 7})
    assert listed.json() == {"items": [{"name": "wsp_1", "count": 7}], "next_cursor": None}


async def test_site_has_no_traceback_route(site: Site) -> None:
    """The framework's debug pages and telemetry are off."""
    assert site.api.routes.debug is False
    assert site.api.routes.docs_url is None
    assert site.api.routes._native_telemetry.enabled() is False
