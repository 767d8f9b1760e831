"""The administrators gate, swept over the operation registry: whoever it keeps out reads, writes and learns nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from frontdesk.api.application import Surroundings, create_api
from frontdesk.api.authentication import OidcBearers
from frontdesk.api.services import Policy, Services
from frontdesk.api.threads import ThreadPool
from frontdesk.app.routes import ROUTES
from frontdesk.channels.transport import tls_context
from frontdesk.desk import conversations, grants
from frontdesk.desk.connections.model import WorkerSnapshot
from frontdesk.identity.events import events_since
from frontdesk.identity.members import add_member
from frontdesk.identity.model import Actor, Login
from frontdesk.identity.oidc import OidcPerson, add_person, find_person
from frontdesk.identity.oidc.fetch import Fetcher
from frontdesk.identity.oidc.issuer import Issuer
from frontdesk.identity.oidc.model import subject_of
from frontdesk.identity.rights import hidden_project_ids
from frontdesk.identity.sessions import create_session
from frontdesk.identity.tokens import create_token
from frontdesk.identity.users import update_user
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.storage.tx import Tx
from frontdesk.wire.operations import OPERATIONS
from tests.contract.desk_world import DeskWorld
from tests.contract.world import UNUSABLE_HASH
from tests.support.gated_requests import BODIES, GATED, LISTS, filled, requests_of
from tests.support.oidc_issuer import AUDIENCE, LocalIssuer

ABLE = WorkerSnapshot(True, True, True, True, True)
CLAIMS = {"is_platform_admin": True, "roles": ["platform_admin"], "groups": ["administrators"], "admin": True}
# Lists over a workspace whose rows are bound to a connection and never to a project (2.3 names what is).
NOT_OF_PROJECTS = re.compile(r"desk\.(outbox|inbox|operations)\.")


@dataclass
class Principal:
    """Somebody with objects of their own in the project, and the bearer they come with."""

    name: str
    bearer: str
    objects: dict[str, str] = field(default_factory=dict)


@dataclass
class Site:
    """The composed API over a desk whose project `secret` became one of administrators."""

    desk: DeskWorld
    api: Any
    principals: dict[str, Principal]
    administrator: Principal

    def client(self, principal: Principal) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {principal.bearer}"}
        transport = httpx2.ASGITransport(app=self.api)
        return httpx2.AsyncClient(transport=transport, base_url="http://localhost/api/v1", headers=headers)


def bearer_of(tx: Tx, user_id: str) -> str:
    return create_session(tx, Login(user_id, UNUSABLE_HASH, enabled=True)).token


async def settle_in(desk: DeskWorld, actor: Actor, project_id: str, workflow_id: str) -> dict[str, str]:
    """Binding, conversation with a turn, grant and run of one person in the project; what a request names of it."""
    number = desk.number()
    conversation = await desk.converse(actor, f"talk {number}", project_id=project_id)
    seat = await desk.seat(
        actor, sender=f"ou_s{number}", chat=f"oc_s{number}", conversation_id=conversation, project_id=project_id
    )
    await desk.ask("A question?", seat)
    await desk.work()
    (grant,) = await desk.rows("reply_grants", id=seat.grant_id)
    return {
        "workspace_id": desk.home,
        "project_id": project_id,
        "open_project_id": desk.project,
        "workflow_id": workflow_id,
        "run_id": await desk.run(workflow_id, project_id, actor),
        "conversation_id": conversation,
        "open_conversation_id": await desk.converse(actor, f"open {number}"),
        "installation_id": seat.installation_id,
        "binding_id": seat.binding_id,
        "reply_grant_id": seat.grant_id,
        "grant_request_id": grant["create_request_id"],
    }


@pytest.fixture
def peer() -> Iterator[LocalIssuer]:
    made = LocalIssuer()
    yield made
    made.close()


@pytest.fixture
async def site(desk: DeskWorld, peer: LocalIssuer) -> AsyncIterator[Site]:
    threads = ThreadPool("sweep", 4)
    issuer = Issuer(peer.address, clock=desk.clock, threads=threads, fetch=Fetcher(tls_context))
    secret = (await desk.people.project("secret")).id
    workflow = await desk.workflow(project_id=secret)
    now_s = desk.clock.now_us() // SECOND

    async def by_issuer(name: str, **claims: Any) -> Principal:
        def make(tx: Tx) -> Actor:
            user, _ = add_person(tx, peer.address, name, display_name=name)
            add_member(tx, desk.owner, desk.home, role="admin", user_id=user.id)
            update_user(tx, desk.owner, user.id, {"is_platform_admin": bool(claims)})
            actor = find_person(tx, OidcPerson(subject_of(peer.address, name), name, ""))
            assert actor is not None
            return actor

        actor = await desk.database.write(make)
        objects = await settle_in(desk, actor, secret, workflow)
        return Principal(name, peer.token(name, now_s, **claims), objects)

    member = await desk.people.person("plain", "admin")
    owned = await settle_in(desk, desk.owner, secret, workflow)

    def tokens(tx: Tx) -> list[Principal]:
        made = [Principal("administrator", bearer_of(tx, desk.owner.user_id), owned)]
        for kind in ("host", "results", "access"):
            more: dict[str, Any] = {"name": kind, "expires_in_seconds": 3_600, "workspace_id": desk.home}
            made.append(Principal(kind, create_token(tx, desk.owner, kind=kind, **more).token, owned))
        return made

    administrator, *by_token = await desk.database.write(tokens)
    local = Principal("local", await desk.write(bearer_of, member.user_id))
    local.objects = await settle_in(desk, member, secret, workflow)
    principals = [await by_issuer("oidc"), await by_issuer("oidc-claiming", **CLAIMS), local, *by_token]
    turning = {"access": "administrators", "active_reply_grants": "keep"}
    await desk.write(grants.set_project_access, desk.owner, desk.home, secret, **turning)
    sender = conversations.ConversationSender(
        desk.database,
        {desk.runner.name: desk.runner},
        conversations.fixed_briefing(()),
        owner="web-sweep",
        lease_us=30 * SECOND,
        default_runner=desk.runner.name,
    )
    services = Services(
        database=desk.database,
        keyring=desk.keyring,
        channels=desk.channels,
        clock=desk.clock,
        entropy=SystemEntropy(),
        policy=Policy(allowed_hosts=("localhost",), reply_enabled=True),
        threads=threads,
        extras={"worker_snapshot": lambda: ABLE, "conversation_sender": sender},
    )
    oidc = OidcBearers(desk.database, issuer, AUDIENCE, provision=False)
    api = create_api(services, ROUTES, None, Surroundings(oidc=oidc))  # type: ignore[arg-type]
    yield Site(desk, api, {each.name: each for each in principals}, administrator)
    await sender.stop(0)
    await issuer.close()
    threads.close()


def test_every_operation_behind_the_gate_is_swept() -> None:
    """An operation that says it stands behind the gate has its requests in the table of this test, and none is left."""
    assert {each.id for each in GATED} == set(BODIES)
    assert all(OPERATIONS[name].gate for name in LISTS)


@pytest.mark.spec("DESK-391")
async def test_whoever_the_gate_keeps_out_reads_and_writes_nothing(site: Site) -> None:
    """On every operation bound to an `administrators` project an OIDC member (also one whose token and row claim
    administrator power), a local non-administrator and any token but an administrator's own get 403
    `administrators_only`, the same bytes each time, and no row of any table changes.
    """
    refusals: set[bytes] = set()
    for principal in site.principals.values():
        async with site.client(principal) as client:
            assert (await client.get("/me")).status_code == 200  # and the use of the token is noted by now
            before = await site.desk.everything()
            asked = [(each, request) for each in GATED for request in requests_of(each, principal.objects)]
            moving = filled({"context": {"project_id": "{project_id}"}}, principal.objects)
            path = filled("/workspaces/{workspace_id}/conversations/{open_conversation_id}", principal.objects)
            if principal.name != "results":  # which has no right to move the open one either
                asked.append(
                    (OPERATIONS["desk.conversations.update"], {"method": "PATCH", "url": path, "json": moving})
                )
            for operation, request in asked:
                answer = await client.request(**request)
                seen = (answer.status_code, answer.json()["code"])
                assert seen == (403, "administrators_only"), (principal.name, operation.id, request)
                refusals.add(answer.content)
            assert await site.desk.everything() == before, principal.name
    assert len(refusals) == 1


@pytest.mark.spec("DESK-391")
async def test_lists_over_the_workspace_leave_out_what_is_behind_the_gate(site: Site) -> None:
    """No list over a workspace names the project or anything in it to whoever the gate keeps out, and what the live
    view of events reads for them names nothing of it either; an administrator sees them.
    """
    lists = [
        each
        for each in OPERATIONS.values()
        if each.method == "GET"
        and each.path_parameters == ("workspace_id",)
        and (each.id in LISTS or not each.gate)
        and not NOT_OF_PROJECTS.match(each.id)
    ]
    assert {"identity.projects.list", "identity.events.list", "desk.conversations.list"} <= {each.id for each in lists}
    hidden = ("project_id", "workflow_id", "run_id", "conversation_id", "reply_grant_id")
    for principal in (*site.principals.values(), site.administrator):
        shown = []
        async with site.client(principal) as client:
            for operation in lists:
                answer = await client.get(filled(operation.path, principal.objects), params={"limit": 100})
                assert answer.status_code == 200 or principal.name == "results", (principal.name, operation.id)
                shown.append(answer.text)
            filtered = {"project_id": principal.objects["project_id"]}
            answer = await client.get(
                filled("/workspaces/{workspace_id}/conversations", principal.objects), params=filtered
            )
            shown.append(answer.text)
        found = {name for name in hidden if principal.objects[name] in "".join(shown)}
        if principal is site.administrator:
            assert {"project_id", "conversation_id", "reply_grant_id", "run_id"} <= found
        else:
            assert not found, principal.name
    await _live_view(site)


async def _live_view(site: Site) -> None:
    desk = site.desk
    secret = site.administrator.objects["project_id"]
    member = next(each for each in await desk.rows("users") if each["username"] == "plain")
    outsider = Actor(member["id"], member["subject"], "", "", "local", is_platform_admin=False)

    def read(tx: Tx, actor: Actor) -> set[str | None]:
        hidden = hidden_project_ids(tx, actor, desk.home)
        return {each.project_id for each in events_since(tx, desk.home, since=0, hidden=hidden, limit=1_000)}

    assert secret in await desk.read(read, desk.owner)
    assert secret not in await desk.read(read, outsider)
    assert desk.project in await desk.read(read, outsider)


async def test_an_administrator_passes_with_each_of_these_requests(site: Site) -> None:
    """The sweep's requests are whole: by a local administrator's session, or their own access token, none is refused
    for its form or at the gate.
    """
    principal = site.administrator
    last = (
        "desk.grants.set_project_access",
        "desk.grants.revoke",
        "desk.conversations.close",
        "identity.projects.update",
    )
    order = [each for each in GATED if each.id not in last] + [OPERATIONS[name] for name in last]
    async with site.client(principal) as client:
        token = {"name": "t", "expires_in_seconds": 3_600, "platform_admin": True}
        made = Principal("own token", (await client.post("/tokens", json=token)).json()["token"], principal.objects)
        for operation in order:
            for request in requests_of(operation, principal.objects):
                answer = await client.request(**request)
                assert answer.status_code not in {401, 403, 405, 422, 500, 503}, (operation.id, answer.text)
    async with site.client(made) as client:
        path = filled("/workspaces/{workspace_id}/projects/{project_id}", principal.objects)
        assert (await client.get(path)).status_code == 200


@pytest.mark.spec("DESK-77")
async def test_an_oidc_member_authorises_replies_in_a_members_project(site: Site) -> None:
    """With the issuer's token an OIDC member makes a grant in a `members` project, which the same request in an
    `administrators` project is refused.
    """
    objects = site.principals["oidc"].objects
    body = {
        "request_id": "open",
        "installation_id": objects["installation_id"],
        "binding_id": objects["binding_id"],
        "conversation_id": objects["open_conversation_id"],
    }
    path = "/workspaces/{workspace_id}/projects/{open_project_id}/reply-grants"
    async with site.client(site.principals["oidc"]) as client:
        answer = await client.post(filled(path, objects), json=body)
        assert (answer.status_code, answer.json()["created"], answer.json()["usable"]) == (201, True, True)
        closed = {**body, "request_id": "closed", "conversation_id": objects["conversation_id"]}
        answer = await client.post(filled(path.replace("open_", ""), objects), json=closed)
        assert (answer.status_code, answer.json()["code"]) == (403, "administrators_only")
