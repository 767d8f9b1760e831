"""The document says exactly what the routes do: credentials, rights, problems."""

from __future__ import annotations

import dataclasses
from typing import Any

import httpx2
import pytest

from frontdesk.api import gate, problems
from frontdesk.api.application import Api, Surroundings, create_api
from frontdesk.api.binding import PREFIX, Call, bind
from frontdesk.kernel.codes import PROBLEMS
from frontdesk.kernel.errors import Defect, Problem
from frontdesk.wire.operations import OPERATIONS, ROOMS, assembled
from frontdesk.wire.registry import COMMON_ERRORS, Operation
from tests.http.conftest import CREATE, FakePorts, Site, authenticate, create
from tests.http.test_problems import assert_problem

# desk.md 2.4, as far as the API itself serves it; the console's pages are no operations.
ALLOW_LIST = {
    ("GET", "/"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/static/status.css"),
    ("GET", "/static/icon.svg"),
    ("POST", "/api/v1/session"),
    ("POST", "/api/v1/channels/{channel}/installations/{installation_id}/events"),
}


async def _nothing(call: Call) -> None:
    raise Problem("internal_error")


@pytest.fixture
def whole(site: Site) -> Api:
    """The API with every operation of the registry bound."""
    routes = [(operation, _nothing) for operation in OPERATIONS.values()]
    return create_api(site.services, routes, FakePorts(), Surroundings(authenticate=authenticate))


def described(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): entry
        for path, methods in document["paths"].items()
        for method, entry in methods.items()
    }


@pytest.mark.spec("DESK-32")
def test_only_the_allow_list_is_public(whole: Api) -> None:
    """OpenAPI marks as unauthenticated exactly the allow-list, and asks for credentials everywhere else."""
    document = whole.openapi()
    assert document["security"] == [{"bearer": []}, {"console_session": []}]
    public = {key for key, entry in described(document).items() if entry.get("security") == []}
    assert public == ALLOW_LIST
    assert all("security" not in entry for key, entry in described(document).items() if key not in public)
    guarded = {(method, raw.decode()) for method, raw in gate.PUBLIC} | {
        ("GET", "/static/status.css"),
        ("GET", "/static/icon.svg"),
    }
    assert public - {("POST", PREFIX + OPERATIONS["desk.inbox.callback"].path)} == guarded


def test_every_operation_is_described(whole: Api) -> None:
    """Each registry entry is there under its id, method and path, with its right and every problem it can answer."""
    entries = described(whole.openapi())
    for operation in OPERATIONS.values():
        entry = entries[operation.method, PREFIX + operation.path]
        assert entry["operationId"] == operation.id
        assert entry["x-right"] == operation.right
        assert entry["x-gate"] == operation.gate
        assert str(operation.success_status) in entry["responses"]
        for code in (*(COMMON_ERRORS if operation.authenticated else ()), *operation.errors):
            response = entry["responses"][str(problems.status_of(code))]
            assert f"`{code}`" in response["description"]
            assert list(response["content"]) == ["application/problem+json"]
    login = entries["POST", PREFIX + "/session"]["responses"]
    assert {"201", "400", "401", "403", "413", "415", "422", "429", "500", "503"} == set(login)
    assert "404" in entries["GET", PREFIX + "/workspaces/{workspace_id}/projects"]["responses"]


def test_references_lead_somewhere(whole: Api) -> None:
    """No reference of the document dangles, and the framework's own error shapes are gone."""
    document = whole.openapi()
    schemas = document["components"]["schemas"]
    assert "HTTPValidationError" not in schemas

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str):
                assert reference.removeprefix("#/components/schemas/") in schemas
            for child in value.values():
                walk(child)
        elif isinstance(value, list):
            for child in value:
                walk(child)

    walk(document)


@pytest.mark.spec("DESK-333")
async def test_every_route_of_the_product_needs_credentials(whole: Api) -> None:
    """Walking the whole route table, every route outside the allow-list is 401 without credentials."""
    transport = httpx2.ASGITransport(app=whole)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as stranger:
        seen = 0
        for route in whole.routes.routes:
            for method in route.methods - {"HEAD"}:  # type: ignore[attr-defined]
                path = route.path  # type: ignore[attr-defined]
                if (method, path) in ALLOW_LIST:
                    continue
                filled = path.replace("{", "").replace("}", "")
                assert_problem(await stranger.request(method, filled), 401, "unauthenticated")
                seen += 1
        assert seen >= len(OPERATIONS) - 2


async def test_the_document_needs_credentials(client: httpx2.AsyncClient, stranger: httpx2.AsyncClient) -> None:
    """/openapi.json is 401 to strangers and the document to everybody else; /docs does not exist."""
    assert_problem(await stranger.get("/openapi.json"), 401, "unauthenticated")
    response = await client.get("/openapi.json")
    assert response.json()["info"]["title"] == "Frontdesk"
    assert_problem(await client.get("/docs"), 404, "route_not_found")


def test_the_registry_holds_together() -> None:
    """Ids, methods and paths are unique, codes are registered, and a duplicate is refused when assembling."""
    for operation in OPERATIONS.values():
        assert set(operation.errors) <= set(PROBLEMS)
        assert operation.path.startswith("/")
        assert len(operation.cli_words) >= 2
    assert len(OPERATIONS) == sum(len(room.OPERATIONS) for room in ROOMS)
    with pytest.raises(ValueError, match="listed twice"):
        assembled([[CREATE], [CREATE]])
    with pytest.raises(ValueError, match="share"):
        assembled([[CREATE], [dataclasses.replace(CREATE, id="test.things.other")]])


def test_an_operation_is_bound_once(site: Site) -> None:
    """Two routes of one operation are a defect at start."""
    with pytest.raises(Defect):
        create_api(site.services, [(CREATE, create), (CREATE, create)], FakePorts())


def test_binding_by_hand(site: Site) -> None:
    """`bind` works on any router of the application."""
    other = Operation("test.other.get", "GET", "/other", "Other", "any")
    bind(site.api.routes.router, other, _nothing)
    assert any(getattr(route, "path", "") == "/api/v1/other" for route in site.api.routes.routes)
