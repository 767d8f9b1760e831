"""Journey 9: a project for administrators only, with people of a real issuer before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from frontdesk.app.example import Example, open_example
from frontdesk.wire.operations import OPERATIONS
from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.people import Colleague, join
from tests.e2e.rig import House, until
from tests.support.gated_requests import GATED, filled, requests_of
from tests.support.oidc_issuer import AUDIENCE, LocalIssuer

CLAIMS = {"is_platform_admin": True, "roles": ["platform_admin"], "groups": ["administrators"]}


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    made = LocalIssuer()
    yield made
    made.close()


@dataclass
class Outsider:
    """Somebody the gate keeps out, with a conversation of their own from before it was shut."""

    name: str
    api: httpx2.AsyncClient
    objects: dict[str, str]


async def by_issuer(house: House, issuer: LocalIssuer, algorithm: str, **claims: Any) -> httpx2.AsyncClient:
    """A member with all a workspace can give, who comes with the issuer's token; made by their first call."""
    sub = f"person-{algorithm.lower()}"
    api = house.client(issuer.token(sub, algorithm=algorithm, **claims))
    me = (await api.get("/api/v1/me")).json()
    assert (me["auth_method"], me["is_platform_admin"], me["memberships"]) == ("oidc", False, [])
    body = {"user_id": me["user"]["id"], "role": "admin"}
    await house.example.call("POST", f"{house.example.workspace}/members", json=body)
    if claims:  # nor does the row of the user make an administrator of an issuer's person
        await house.example.call("PATCH", f"/users/{me['user']['id']}", json={"is_platform_admin": True})
    return api


async def chatting(house: House, person: Colleague, prepared: dict[str, Any], project_id: str) -> Example:
    """Their own chat with one of the prepared apps, bound, and authorised in this project."""
    example = open_example(house.address, house.simulator, person.token, "")
    example.sim.headers["Authorization"] = house.example.sim.headers["Authorization"]
    house.clients += [example.api, example.sim]
    example.app_name, example.title, example.person_name = prepared["app_name"], "Behind the gate", "Administrator"
    example.workspace_id, example.project_id = house.example.workspace_id, project_id
    await example.connect()
    await example.bind()
    await example.converse()
    await example.authorise()
    return example


async def outsiders(
    house: House, issuer: LocalIssuer, administrator: Colleague, objects: dict[str, str]
) -> list[Outsider]:
    """An issuer's people, a local member, and tokens of an administrator; each with a conversation in the project."""
    local = await join(house, "admin")
    made = [
        ("oidc", await by_issuer(house, issuer, "RS256")),
        ("oidc claiming power", await by_issuer(house, issuer, "ES256", **CLAIMS)),
        ("local", local.api),
    ]
    path, context = f"/api/v1{house.example.workspace}/conversations", {"project_id": objects["project_id"]}
    found = []
    for name, api in (*made, ("administrator", administrator.api)):
        answer = await api.post(path, json={"title": name, "context": context})
        assert answer.status_code == 201, answer.text
        found.append(Outsider(name, api, {**objects, "conversation_id": answer.json()["id"]}))
    owned = found.pop().objects
    for kind in ("access", "results"):
        body = {"name": kind, "kind": kind, "expires_in_seconds": 3_600, "workspace_id": house.example.workspace_id}
        status, token = await administrator.ask("POST", "/tokens", json=body)
        assert status == 201, token
        found.append(Outsider(f"{kind} token", house.client(token["token"]), owned))
    return found


async def kept_out(person: Outsider) -> list[str]:
    """Every operation behind the gate that did not answer with the gate's refusal alone."""
    wrong = []
    for operation in GATED:
        for request in requests_of(operation, person.objects):
            answer = await person.api.request(**{**request, "url": "/api/v1" + request["url"]})
            if (answer.status_code, answer.json().get("code")) != (403, "administrators_only"):
                wrong.append(f"{person.name}: {operation.id} {answer.status_code} {answer.text[:200]}")
    listing = OPERATIONS["desk.conversations.list"]
    answer = await person.api.get("/api/v1" + filled(listing.path, person.objects))
    if person.objects["conversation_id"] in answer.text:
        wrong.append(f"{person.name}: {listing.id} shows what is behind the gate")
    return wrong


async def answered(house: House, chat: Example, message: str) -> None:
    """Wait until the message has its one answer in the chat."""
    await until("an answer to be sent", lambda: house.delivery_is(message, "sent"))
    assert len(await chat.answers_to(message)) == 1


async def test_administrators_only(copy_house: Copy, known: list[dict[str, Any]], issuer: LocalIssuer) -> None:
    """With real tokens of a real issuer: everybody but a local administrator gets 403 `administrators_only` on every
    operation of an `administrators` project, and no row; the administrator works there, and their chat goes on when
    their power is taken; a manager, kept out too, ends it by disabling the connection, with no wire request.
    """
    async with copy_house() as house:
        house.environment |= {
            "FRONTDESK_OIDC_ISSUER": issuer.address,
            "FRONTDESK_OIDC_AUDIENCE": AUDIENCE,
            "FRONTDESK_OIDC_PROVISION": "true",
        }
        await house.serve()
        call, example = house.example.call, house.example
        administrator, manager = await join(house, "operator"), await join(house, "maintainer")
        await call("PATCH", f"/users/{administrator.user_id}", json={"is_platform_admin": True})
        inner = await call("POST", f"{example.workspace}/projects", json={"name": "Inner", "slug": "inner"})
        path = f"{example.workspace}/projects/{inner['id']}"
        flow = await call("POST", f"{path}/workflows", json={"name": "reports"})
        run = await call("POST", f"{path}/workflows/{flow['id']}/runs", json={"request_id": "r"})
        objects = {
            "workspace_id": example.workspace_id,
            "project_id": inner["id"],
            "open_project_id": example.project_id,
            "workflow_id": flow["id"],
            "run_id": run["id"],
            "installation_id": example.installation["id"],
            "binding_id": "bnd_none",
            "reply_grant_id": "grt_none",
            "grant_request_id": "r",
        }
        people = await outsiders(house, issuer, administrator, objects)
        await call("PUT", f"{path}/access", json={"access": "administrators"})

        chat = await chatting(house, administrator, known[1], inner["id"])
        for person in people:
            person.objects |= {"binding_id": (await chat.binding() or {})["id"], "reply_grant_id": chat.grant_id}
        before = house.counts()
        wrong = [line for person in people for line in await kept_out(person)]
        assert not wrong, "\n".join(wrong)
        assert house.counts() == before

        await answered(house, chat, await rig.say(chat, "Does an administrator work here?"))
        await call("PATCH", f"/users/{administrator.user_id}", json={"is_platform_admin": False})
        status, answer = await administrator.ask("GET", f"{path}/reply-grants/{chat.grant_id}")
        assert (status, answer["code"]) == (403, "administrators_only")
        await answered(house, chat, await rig.say(chat, "And without the power?"))

        wires = len(await rig.wires_of(chat))
        house.hold()
        message = await rig.say(chat, "And when a manager has had enough?")
        await house.held(3)
        status, answer = await manager.ask("DELETE", f"{path}/reply-grants/{chat.grant_id}")
        assert (status, answer["code"]) == (403, "administrators_only")
        installation = f"{example.workspace}/installations/{chat.installation['id']}"
        status, _ = await manager.ask("PATCH", installation, json={"enabled": False})
        assert status == 200
        house.release()
        ended = await until(
            "the receipt to end", lambda: house.receipt(message)["processed_at"] and house.receipt(message)
        )
        assert (ended["status"], ended["error_code"]) == (
            "permanent_failed",
            "authorization_revoked_before_delivery",
        )
        assert house.rows("deliveries", receipt=ended["id"]) == []
        refused = await rig.say(chat, "Is anybody there?", wait=True)
        assert house.receipt(refused)["error_code"] == "installation_disabled"
        assert len(await rig.wires_of(chat)) == wires
