"""Identity over HTTP: the composed API on a real database, each operation called once by the way a person would."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa

from frontdesk.api.application import create_api
from frontdesk.api.services import Policy, Services
from frontdesk.api.threads import ThreadPool
from frontdesk.app.routes import ROUTES
from frontdesk.app.schema import METADATA
from frontdesk.identity.passwords import hash_password
from frontdesk.identity.users import set_password
from frontdesk.kernel.clock import MINUTE, ManualClock
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.wire.operations import OPERATIONS
from tests.contract.world import World

PASSWORD = "correct horse battery"
HASH = hash_password(PASSWORD, SystemEntropy())
BOOTSTRAP = "bootstrap-" + "b" * 32

READ, CONFIGURE, MEMBERS, PLATFORM = (
    "workspace.read",
    "configuration.manage",
    "members.manage",
    "platform administrator",
)
MEMBERS_OR_PLATFORM = "members.manage or platform administrator (+admins.manage for admins)"
WORKSPACE = "/workspaces/{workspace_id}"
PROJECT = WORKSPACE + "/projects/{project_id}"
# desk.md 4.1, written out: method, path, right, status, gate.
TABLE = {
    "identity.session.create": ("POST", "/session", "none", 201, False),
    "identity.session.end": ("DELETE", "/session", "session", 204, False),
    "identity.me.get": ("GET", "/me", "any", 200, False),
    "identity.me.update": ("PATCH", "/me", "any", 200, False),
    "identity.tokens.create": ("POST", "/tokens", "own", 201, False),
    "identity.tokens.list": ("GET", "/tokens", "own", 200, False),
    "identity.tokens.revoke": ("DELETE", "/tokens/{token_id}", "own", 204, False),
    "identity.users.list": ("GET", "/users", PLATFORM, 200, False),
    "identity.users.create": ("POST", "/users", PLATFORM, 201, False),
    "identity.users.update": ("PATCH", "/users/{user_id}", PLATFORM, 200, False),
    "identity.workspaces.list": ("GET", "/workspaces", "own", 200, False),
    "identity.workspaces.create": ("POST", "/workspaces", PLATFORM, 201, False),
    "identity.workspaces.update": ("PATCH", WORKSPACE, MEMBERS, 200, False),
    "identity.members.list": ("GET", WORKSPACE + "/members", READ, 200, False),
    "identity.members.add": ("POST", WORKSPACE + "/members", MEMBERS_OR_PLATFORM, 201, False),
    "identity.members.update": ("PATCH", WORKSPACE + "/members/{member_id}", MEMBERS_OR_PLATFORM, 200, False),
    "identity.members.remove": ("DELETE", WORKSPACE + "/members/{member_id}", MEMBERS_OR_PLATFORM, 204, False),
    "identity.projects.list": ("GET", WORKSPACE + "/projects", READ, 200, False),
    "identity.projects.create": ("POST", WORKSPACE + "/projects", CONFIGURE, 201, False),
    "identity.projects.get": ("GET", PROJECT, READ, 200, True),
    "identity.projects.update": ("PATCH", PROJECT, CONFIGURE, 200, True),
    "identity.workflows.list": ("GET", PROJECT + "/workflows", READ, 200, True),
    "identity.workflows.create": ("POST", PROJECT + "/workflows", CONFIGURE, 201, True),
    "identity.workflows.update": ("PATCH", PROJECT + "/workflows/{workflow_id}", CONFIGURE, 200, True),
    "identity.events.list": ("GET", WORKSPACE + "/events", MEMBERS, 200, False),
}

Client = Callable[..., httpx2.AsyncClient]


class NoPorts:
    """No callback is pushed in these tests."""


@pytest.fixture
async def client(world: World, clock: ManualClock) -> AsyncIterator[Client]:
    """Make clients of the composed API; `owner` has PASSWORD."""
    await world.database.write(lambda tx: set_password(tx, "owner", HASH))
    threads = ThreadPool("test", 2)
    services = Services(
        database=world.database,
        keyring=KeyRing(""),
        channels={},  # type: ignore[arg-type]
        clock=clock,
        entropy=SystemEntropy(),
        policy=Policy(allowed_hosts=("localhost",)),
        threads=threads,
        bootstrap_token=BOOTSTRAP,
    )
    routes = [(operation, handler) for operation, handler in ROUTES if operation.id.startswith("identity.")]
    api = create_api(services, routes, NoPorts())  # type: ignore[arg-type]

    def make(bearer: str | None = None) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        transport = httpx2.ASGITransport(app=api, client=("203.0.113.9", 4000))
        return httpx2.AsyncClient(transport=transport, base_url="http://localhost/api/v1", headers=headers)

    yield make
    threads.close()


async def bearer_of(client: Client, username: str, password: str = PASSWORD) -> str:
    async with client() as stranger:
        answer = await stranger.post("/session", json={"username": username, "password": password})
    assert answer.status_code == 201, answer.text
    token: str = answer.json()["token"]
    return token


def ok(answer: httpx2.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def problem(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def test_the_registry_holds_the_specified_operations() -> None:
    listed = {
        entry.id: (entry.method, entry.path, entry.right, entry.status, entry.gate)
        for entry in OPERATIONS.values()
        if entry.id.startswith("identity.")
    }
    assert listed == TABLE
    assert {entry.id for entry in OPERATIONS.values() if not entry.authenticated} >= {"identity.session.create"}
    bound = {operation.id for operation, _ in ROUTES}
    assert bound.issuperset(TABLE)


async def test_a_person_logs_in_looks_at_themselves_and_logs_out(client: Client) -> None:
    async with client() as stranger:
        assert problem(await stranger.get("/me")) == (401, "unauthenticated")
        wrong = await stranger.post("/session", json={"username": "owner", "password": "wrong"})
        assert problem(wrong) == (401, "login_failed")
        assert "wrong" not in wrong.json()["detail"].replace("or password is wrong", "")
        for body in ({"username": "owner"}, {"username": "owner", "password": ""}, {"username": 1, "password": "x"}):
            assert problem(await stranger.post("/session", json=body)) == (422, "request_invalid")
    async with client(await bearer_of(client, "Owner")) as owner:
        me = ok(await owner.get("/me"))
        assert (me["user"]["username"], me["auth_method"], me["is_platform_admin"]) == ("owner", "local", True)
        assert [(each["name"], each["role"]) for each in me["memberships"]] == [("Home", "admin")]
        changed = ok(await owner.patch("/me", json={"display_name": " Ada ", "locale": "zh"}))
        assert (changed["user"]["display_name"], changed["user"]["locale"]) == ("Ada", "zh")
        for body in ({}, {"display_name": None}, {"display_name": ""}, {"locale": "fr"}, {"email": "x@y"}):
            assert problem(await owner.patch("/me", json=body)) == (422, "request_invalid")
        assert ok(await owner.patch("/me", json={"locale": None}))["user"]["locale"] is None
        ok(await owner.delete("/session"), 204)
        assert problem(await owner.get("/me")) == (401, "unauthenticated")


async def test_a_browser_logs_in_writes_and_logs_out_by_its_cookie(client: Client, world: World) -> None:
    """The session is in an HttpOnly cookie alone; its writes carry the form token; its end takes the cookie back."""
    body = {"username": "owner", "password": PASSWORD, "cookie": True}
    home = {"Origin": "http://localhost"}
    before = await _sessions(world)
    async with client() as browser:
        for elsewhere in ({}, {"Origin": "http://evil.example"}):
            assert problem(await browser.post("/session", json=body, headers=elsewhere)) == (403, "origin_not_allowed")
        assert problem(await browser.post("/session", json={**body, "cookie": "yes"}, headers=home))[0] == 422
        assert await _sessions(world) == before
        answer = await browser.post("/session", json=body, headers=home)
        made = ok(answer, 201)
        assert set(made) == {"csrf_token", "expires_at"}
        cookie = answer.headers["set-cookie"]
        token = cookie.partition("=")[2].partition(";")[0]
        assert token.startswith("fdu_")
        assert cookie == f"frontdesk_session={token}; Path=/; Max-Age=604800; HttpOnly; SameSite=Lax"
        assert token not in answer.text
        (row,) = [each for each in await _sessions(world) if each not in before]
        assert made["csrf_token"] not in repr(row)
        assert token[4:] not in repr(row)

        assert ok(await browser.get("/me"))["auth_method"] == "local"  # the client keeps cookies as a browser does
        change = {"display_name": "Ada"}
        assert problem(await browser.patch("/me", json=change)) == (403, "origin_not_allowed")
        assert problem(await browser.patch("/me", json=change, headers=home)) == (403, "csrf_token_invalid")
        other = ok(await browser.post("/session", json={**body, "cookie": True}, headers=home), 201)["csrf_token"]
        assert other != made["csrf_token"]
        stale = {**home, "X-CSRF-Token": made["csrf_token"]}
        assert problem(await browser.patch("/me", json=change, headers=stale)) == (403, "csrf_token_invalid")
        writing = {**home, "X-CSRF-Token": other}
        assert ok(await browser.patch("/me", json=change, headers=writing))["user"]["display_name"] == "Ada"
        assert problem(await browser.delete("/session", headers=home)) == (403, "csrf_token_invalid")
        ended = await browser.delete("/session", headers=writing)
        ok(ended, 204)
        assert ended.headers["set-cookie"].startswith("frontdesk_session=; Path=/; Max-Age=0")
        assert problem(await browser.get("/me")) == (401, "unauthenticated")
    async with client(token) as bearer:
        assert ok(await bearer.get("/me"))["auth_method"] == "local"  # the first session, by its bearer
        ended = await bearer.delete("/session")
        assert (ended.status_code, "set-cookie" in ended.headers) == (204, False)


async def _sessions(world: World) -> list[dict[str, Any]]:
    table = METADATA.tables["console_sessions"]
    rows = await world.database.read(lambda tx: tx.rows(sa.select(table).order_by(table.c.id)))
    return [dict(row) for row in rows]


async def test_tokens_over_http(client: Client, clock: ManualClock) -> None:
    async with client(await bearer_of(client, "owner")) as owner:
        wanted = {"name": "ci", "expires_in_seconds": 60, "rights": ["workspace.read"]}
        made = ok(await owner.post("/tokens", json=wanted), 201)
        assert made["token"].startswith("fdt_")
        assert (made["rights"], made["platform_admin"], made["last_used_at"]) == (["workspace.read"], False, None)
        async with client(made["token"]) as by_token:
            assert ok(await by_token.get("/me"))["is_platform_admin"] is False
            assert problem(await by_token.get("/users")) == (403, "platform_admin_required")
            assert problem(await by_token.post("/tokens", json=wanted)) == (403, "permission_required")
            assert problem(await by_token.delete("/session")) == (403, "permission_required")
            listed = ok(await owner.get("/tokens"))
            assert [item["id"] for item in listed["items"]] == [made["id"]]
            assert "token" not in listed["items"][0]
            assert listed["items"][0]["last_used_at"] is not None
            clock.advance(MINUTE)
            assert problem(await by_token.get("/me")) == (401, "unauthenticated")
        ok(await owner.delete(f"/tokens/{made['id']}"), 204)
        assert problem(await owner.delete("/tokens/tok_x")) == (404, "token_not_found")
        for body in (
            {"name": "x"},
            {"name": "x", "expires_in_seconds": 0},
            {"name": "x", "expires_in_seconds": "60"},
            {"name": "x", "expires_in_seconds": 60, "kind": "host"},
            {"name": "x", "expires_in_seconds": 60, "digest": "x"},
        ):
            assert problem(await owner.post("/tokens", json=body)) == (422, "request_invalid")


async def test_accounts_members_and_the_way_out_of_an_account(client: Client, world: World) -> None:
    home = f"/workspaces/{world.workspace_id}"
    async with client(await bearer_of(client, "owner")) as owner:
        wanted = {"username": "Bea", "display_name": "Bea", "email": "Bea@Example.org", "password": PASSWORD}
        bea = ok(await owner.post("/users", json=wanted), 201)
        assert (bea["username"], bea["email"], bea["disabled"]) == ("bea", "bea@example.org", False)
        assert PASSWORD not in str(bea)
        assert problem(await owner.post("/users", json=wanted)) == (409, "username_taken")
        refused = await owner.post("/users", json={**wanted, "username": "x", "password": "short"})
        assert problem(refused) == (422, "request_invalid")
        assert "short" not in refused.text.replace("too_short", "").replace("shorter", "")
        assert [item["username"] for item in ok(await owner.get("/users?limit=1"))["items"]] in (["bea"], ["owner"])

        async with client(await bearer_of(client, "bea")) as person:
            assert problem(await person.get(f"{home}/members")) == (403, "membership_required")
            added = await owner.post(f"{home}/members", json={"email": "bea@example.org", "role": "operator"})
            member = ok(added, 201)
            assert (member["user_id"], member["role"]) == (bea["id"], "operator")
            again = await owner.post(f"{home}/members", json={"user_id": bea["id"], "role": "viewer"})
            assert problem(again) == (409, "already_member")
            for body in ({"role": "viewer"}, {"role": "viewer", "user_id": "x", "email": "a@b.c"}, {"role": "king"}):
                assert problem(await owner.post(f"{home}/members", json=body)) == (422, "request_invalid")
            assert len(ok(await person.get(f"{home}/members"))["items"]) == 2
            assert problem(await person.get(f"{home}/events")) == (403, "permission_required")
            path = f"{home}/members/{member['id']}"
            assert ok(await owner.patch(path, json={"role": "maintainer"}))["role"] == "maintainer"
            kinds = [item["kind"] for item in ok(await person.get(f"{home}/events?kind=member.changed"))["items"]]
            assert kinds == ["member.changed"]
            assert problem(await person.get(f"{home}/events?sort=x")) == (422, "request_invalid")
            own = next(each for each in ok(await owner.get(f"{home}/members"))["items"] if each["role"] == "admin")
            assert problem(await owner.delete(f"{home}/members/{own['id']}")) == (409, "last_admin")
            ok(await owner.delete(path), 204)
            assert problem(await person.get(f"{home}/members")) == (403, "membership_required")
            assert ok(await owner.patch(f"/users/{bea['id']}", json={"disabled": True}))["disabled"] is True
            assert problem(await person.get("/me")) == (403, "membership_required")
        ok(await owner.patch(f"/users/{bea['id']}", json={"disabled": False, "password": PASSWORD + "!"}))
        async with client() as stranger:
            old = await stranger.post("/session", json={"username": "bea", "password": PASSWORD})
            assert problem(old) == (401, "login_failed")
        await bearer_of(client, "bea", PASSWORD + "!")


async def test_workspaces_projects_and_workflows(client: Client) -> None:
    async with client(BOOTSTRAP) as root:
        me = ok(await root.get("/me"))
        assert (me["user"]["subject"], me["auth_method"], me["is_platform_admin"]) == ("bootstrap", "bootstrap", True)
        lab = ok(await root.post("/workspaces", json={"name": "Lab", "slug": "lab"}), 201)
        assert problem(await root.post("/workspaces", json={"name": "L", "slug": "lab"})) == (409, "slug_taken")
        assert problem(await root.post("/workspaces", json={"name": "L", "slug": "No!"})) == (422, "request_invalid")
        assert [item["slug"] for item in ok(await root.get("/workspaces"))["items"]] == ["lab"]
        home = f"/workspaces/{lab['id']}"
        assert ok(await root.patch(home, json={"runner": "demo"}))["runner"] == "demo"
        wanted = {"name": "Shop", "slug": "shop", "access": "administrators"}
        shop = ok(await root.post(f"{home}/projects", json=wanted), 201)
        assert problem(await root.post(f"{home}/projects", json=wanted)) == (409, "slug_taken")
        path = f"{home}/projects/{shop['id']}"
        assert ok(await root.get(path)) == shop
        assert ok(await root.patch(path, json={"archived": True}))["archived_at"] is not None
        assert problem(await root.patch(path, json={"access": "members"})) == (422, "request_invalid")
        assert problem(await root.get(f"{home}/projects/prj_x")) == (404, "project_not_found")
        flow = ok(await root.post(f"{path}/workflows", json={"name": "Ship"}), 201)
        assert problem(await root.post(f"{path}/workflows", json={"name": "Ship"})) == (409, "name_taken")
        renamed = ok(await root.patch(f"{path}/workflows/{flow['id']}", json={"name": "Pack", "archived": True}))
        assert (renamed["name"], renamed["archived_at"] is not None) == ("Pack", True)
        assert [item["name"] for item in ok(await root.get(f"{path}/workflows"))["items"]] == ["Pack"]
        user = {"username": "cy", "display_name": "Cy", "password": PASSWORD}
        cy = ok(await root.post("/users", json=user), 201)
        ok(await root.post(f"{home}/members", json={"user_id": cy["id"], "role": "admin"}), 201)
        async with client(await bearer_of(client, "cy")) as admin:
            assert ok(await admin.get(f"{home}/projects"))["items"] == []
            for answer in (
                await admin.get(path),
                await admin.patch(path, json={"name": "x"}),
                await admin.get(f"{path}/workflows"),
                await admin.post(f"{path}/workflows", json={"name": "x"}),
                await admin.patch(f"{path}/workflows/{flow['id']}", json={"name": "x"}),
            ):
                assert problem(answer) == (403, "administrators_only")
            assert {item["project_id"] for item in ok(await admin.get(f"{home}/events"))["items"]} == {None}
        ok(await root.patch(home, json={"active": False}))
        assert problem(await root.get(f"{home}/projects")) == (403, "membership_required")
        ok(await root.patch(home, json={"active": True}))
