"""What belongs to somebody else looks exactly like what is not there, over every operation that takes an id."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from frontdesk.app.example import Example
from frontdesk.wire.operations import OPERATIONS
from frontdesk.wire.registry import Operation
from tests.app.conftest import PASSWORD, Running, Serve
from tests.simulator.harness import Sim

BODIES: dict[str, dict[str, Any]] = {
    "Acknowledge": {"ids": ["rcp_" + "0" * 32], "reason": "x"},
    "WorkspaceUpdate": {"name": "x"},
    "MemberAdd": {"user_id": "usr_" + "0" * 32, "role": "viewer"},
    "MemberUpdate": {"role": "viewer"},
    "ProjectCreate": {"name": "x", "slug": "x"},
    "ProjectUpdate": {"name": "x"},
    "WorkflowCreate": {"name": "x"},
    "WorkflowUpdate": {"name": "x"},
    "ConversationCreate": {"title": "x"},
    "ConversationUpdate": {"title": "x"},
    "MessageSend": {"request_id": "r", "content": "x"},
    "RunStart": {"request_id": "r", "input": {}},
    "InstallationCreate": {
        "channel": "feishu", "name": "x", "app_id": "cli_x", "tenant_key": "t", "app_secret": "s",
        "encrypt_key": "e", "verification_token": "v",
    },
    "InstallationUpdate": {"name": "x"},
    "ReplyGrantCreate": {
        "request_id": "r", "installation_id": "ins_x", "binding_id": "bnd_x", "conversation_id": "cnv_x",
    },
    "ProjectAccess": {"access": "members"},
    "Settlement": {"outcome": "settled_sent", "reason": "x"},
}  # fmt: skip
# Signed, not authorised; and what only a platform administrator may name at all.
OTHERWISE = {"desk.inbox.callback", "identity.users.update"}


def absent(known: str) -> str:
    """An id of the same kind that was never made."""
    return known[:4] + "f" * 31 + "0"


async def owned(example: Example) -> dict[str, str]:
    """One object of each kind that the owner has in workspace `home`."""
    await example.prepare()
    flow = await example.call("POST", f"{example.project}/workflows", json={"name": "reports"})
    run = await example.call(
        "POST", f"{example.project}/workflows/{flow['id']}/runs", json={"request_id": "r", "input": {}}
    )
    tokens = await example.call("GET", "/tokens")
    first = {
        name: (await example.call("GET", f"{example.workspace}/{path}"))["items"][0]["id"]
        for name, path in {"member_id": "members", "receipt_id": "receipts", "delivery_id": "deliveries"}.items()
    }
    binding = await example.binding()
    assert binding is not None
    return first | {
        "workspace_id": example.workspace_id,
        "project_id": example.project_id,
        "workflow_id": flow["id"],
        "run_id": run["id"],
        "token_id": tokens["items"][0]["id"],
        "conversation_id": example.conversation_id,
        "installation_id": example.installation["id"],
        "binding_id": binding["id"],
        "reply_grant_id": example.grant_id,
    }


async def stranger(running: Running, example: Example, **member_of_home: str) -> httpx2.AsyncClient:
    """A person with a workspace of her own, in which she may do everything."""
    person = await example.call("POST", "/users", json={"username": "eve", "display_name": "Eve", "password": PASSWORD})
    place = await example.call("POST", "/workspaces", json={"name": "Other", "slug": "other"})
    await example.call("POST", f"/workspaces/{place['id']}/members", json={"user_id": person["id"], "role": "admin"})
    if member_of_home:
        await example.call("POST", f"{example.workspace}/members", json={"user_id": person["id"], **member_of_home})
    client = running.client()
    client.base_url = running.address + "/api/v1"
    session = await client.post("/session", json={"username": "eve", "password": PASSWORD})
    client.headers["Authorization"] = f"Bearer {session.json()['token']}"
    client.headers["X-Place"] = place["id"]
    return client


async def ask(client: httpx2.AsyncClient, operation: Operation, ids: dict[str, str], **body: Any) -> httpx2.Response:
    document = None if operation.request is None else {**BODIES[operation.request.__name__], **body}
    path = operation.path.format_map(ids)
    query = {"conversation_id": ids.get("conversation_id", "cnv_x")} if operation.id == "desk.grants.list" else {}
    if document is None:
        return await client.request(operation.method, path, params=query)
    return await client.request(operation.method, path, params=query, json=document)


def told(answer: httpx2.Response, *ids: str) -> tuple[int, bytes, list[tuple[str, str]]]:
    """Status, body and headers of an answer, without the ids asked for and what differs in any two answers."""
    body = answer.content
    for each in ids:
        body = body.replace(each.encode(), b"<id>")
    headers = [(name, value) for name, value in answer.headers.items() if name not in {"date", "content-length"}]
    return answer.status_code, body, headers


@pytest.mark.spec("DESK-221")
async def test_foreign_and_absent_are_answered_with_the_same_bytes(data: Path, serve: Serve, simulator: Sim) -> None:
    """For every operation and each id in its path or body: an id of another owner, project or workspace is answered as
    one that never existed, byte for byte, and nothing changes.
    """
    async with serve(data, feishu_domain=simulator.base) as running:
        example = await running.example(simulator, "foreign")
        theirs = await owned(example)
        eve = await stranger(running, example)
        place = eve.headers.pop("X-Place")
        project = (await eve.post(f"/workspaces/{place}/projects", json={"name": "Mine", "slug": "mine"})).json()
        mine = {"workspace_id": place, "project_id": project["id"]}
        flow = await eve.post(f"/workspaces/{place}/projects/{project['id']}/workflows", json={"name": "mine"})
        mine["workflow_id"] = flow.json()["id"]

        seen = await sweep(eve, theirs, mine)
        assert seen > 45
        await bodies_too(eve, theirs, mine)
        assert (await example.grant())["status"] == "active"
        assert (await example.conversation())["title"] == example.title


async def sweep(eve: httpx2.AsyncClient, theirs: dict[str, str], mine: dict[str, str]) -> int:
    """Each parameter of each path in turn: foreign against absent, the others her own where she has one."""
    seen = 0
    for operation in OPERATIONS.values():
        names = re.findall(r"{(\w+)}", operation.path)
        if operation.id in OTHERWISE or not names:
            continue
        for name in names:
            ids = {each: mine.get(each, absent(theirs.get(each, "xxx_" + "0" * 32))) for each in names}
            foreign = await ask(eve, operation, {**ids, name: theirs[name]})
            missing = await ask(eve, operation, {**ids, name: absent(theirs[name])})
            assert told(foreign, theirs[name]) == told(missing, absent(theirs[name])), f"{operation.id} {name}"
            expected = 403 if name == "workspace_id" else 404
            assert foreign.status_code == expected, f"{operation.id} {name}: {foreign.status_code} {foreign.text}"
            seen += 1
    return seen


async def bodies_too(eve: httpx2.AsyncClient, theirs: dict[str, str], mine: dict[str, str]) -> None:
    """Ids that travel in bodies and queries."""
    create = OPERATIONS["desk.grants.create"]
    for name in ("installation_id", "binding_id", "conversation_id"):
        foreign = await ask(eve, create, mine, **{name: theirs[name]})
        missing = await ask(eve, create, mine, **{name: absent(theirs[name])})
        assert told(foreign, theirs[name]) == told(missing, absent(theirs[name])), name
        assert foreign.status_code == 404
    listing = OPERATIONS["desk.grants.list"]
    known = theirs["conversation_id"]
    foreign = await ask(eve, listing, {**mine, "conversation_id": known})
    missing = await ask(eve, listing, {**mine, "conversation_id": absent(known)})
    assert told(foreign, known) == told(missing, absent(known))
    start = OPERATIONS["desk.runs.start"]
    for name, known in (("conversation_id", theirs["conversation_id"]), ("parent_run_id", theirs["run_id"])):
        foreign = await ask(eve, start, mine, **{name: known})
        missing = await ask(eve, start, mine, **{name: absent(known)})
        assert told(foreign, known) == told(missing, absent(known)), name
        assert foreign.status_code >= 400
    converse = OPERATIONS["desk.conversations.create"]
    for name, known in (("project_id", theirs["project_id"]), ("run_id", theirs["run_id"])):
        context = {} if name == "project_id" else {"project_id": mine["project_id"], "workflow_id": mine["workflow_id"]}
        foreign = await ask(eve, converse, mine, context={**context, name: known})
        missing = await ask(eve, converse, mine, context={**context, name: absent(known)})
        assert told(foreign, known) == told(missing, absent(known)), name
        assert foreign.status_code >= 400


async def test_another_owner_in_the_same_workspace_sees_the_same_absence(
    data: Path, serve: Serve, simulator: Sim
) -> None:
    """Conversations and grants belong to one person: a fellow member is told what a stranger is told."""
    async with serve(data, feishu_domain=simulator.base) as running:
        example = await running.example(simulator, "fellow")
        theirs = await owned(example)
        eve = await stranger(running, example, role="operator")
        eve.headers.pop("X-Place")
        for identity in (
            "desk.conversations.get", "desk.conversations.turns", "desk.conversations.update",
            "desk.conversations.send", "desk.conversations.close", "desk.grants.get", "desk.grants.revoke",
            "desk.connections.unbind",
        ):  # fmt: skip
            operation = OPERATIONS[identity]
            name = re.findall(r"{(\w+)}", operation.path)[-1]
            foreign = await ask(eve, operation, theirs)
            missing = await ask(eve, operation, {**theirs, name: absent(theirs[name])})
            assert told(foreign, theirs[name]) == told(missing, absent(theirs[name])), identity
            assert foreign.status_code == 404, identity
        assert (await example.grant())["status"] == "active"
