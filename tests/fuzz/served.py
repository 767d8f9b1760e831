"""The real application in this process on a real database: people of every standing, and one object of each kind.

Everything is made by the product's own verbs; nothing behind the ASGI surface is a double. The provider is a closed
port of this machine.
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from frontdesk.api.cookies import SESSION_COOKIE
from frontdesk.app.settings import Settings
from frontdesk.app.wiring import Outside, Process
from frontdesk.desk import connections, conversations, runs
from frontdesk.desk.connections.channel import Unknown
from frontdesk.identity.members import add_member
from frontdesk.identity.model import SESSION_PREFIX, Login
from frontdesk.identity.projects import create_project, create_workflow
from frontdesk.identity.sessions import create_session
from frontdesk.identity.tokens import create_token, revoke_token
from frontdesk.identity.users import insert_local_user, update_user
from frontdesk.identity.workspaces import create_workspace
from frontdesk.kernel.clock import ManualClock
from frontdesk.kernel.ids import SeededEntropy
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.opening import open_database
from frontdesk.storage.tx import Tx
from tests.contract.conftest import TimedDatabase
from tests.contract.desk_world import SECRETS, DeskWorld, open_desk
from tests.contract.world import UNUSABLE_HASH, logged_in

KEY = "O7k2k-0JuIbxKiI0u7RAXVbXiPPCIiAGGsh-6Z9nLyo="
BOOTSTRAP = "bootstrap-" + "b" * 32
ABSENT = "0" * 32
STREAM = "/desk/events"
MEMBERS = ("viewer", "operator", "maintainer", "admin")
# In whose name requests are made. Nobody: those whom every route but the allow-list refuses before it looks.
NOBODY = ("anonymous", "garbage", "revoked")
EVERYBODY = (*NOBODY, "disabled", *MEMBERS, "owner", "platform", "bootstrap", "outsider")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What was made once: bearers by standing, ids by path parameter, of `home` and of a workspace next to it."""

    bearers: dict[str, str]
    home: dict[str, str]
    lab: dict[str, str]


def ending(url: str) -> str:
    """The same request; of the stream of events the one that polls, since the one that follows never ends."""
    path, _, query = url.partition("?")
    if not path.endswith(STREAM):
        return url
    kept = [each for each in query.split("&") if each and each.partition("=")[0] != "follow"]
    return f"{path}?{'&'.join([*kept, 'follow=false'])}"


@dataclasses.dataclass
class Site:
    """A served copy of what was made."""

    plan: Plan
    process: Process
    run: Callable[..., Any]

    def ask(
        self, who: str, method: str, url: str, body: bytes | None, headers: dict[str, str], *, cookie: bool = False
    ) -> httpx2.Response:
        """One request of somebody's, who shows a bearer or, where it is a session, the console's cookie."""
        bearer = self.plan.bearers.get(who)
        given = {name: value for name, value in headers.items() if name.lower() not in {"authorization", "cookie"}}
        if bearer is not None and cookie and bearer.startswith(SESSION_PREFIX):
            given["Cookie"] = f"{SESSION_COOKIE}={bearer}"
        elif bearer is not None:
            given["Authorization"] = f"Bearer {bearer}"
        return self.run(self._ask(method, ending(url), body, given))

    async def _ask(self, method: str, url: str, body: bytes | None, given: dict[str, str]) -> httpx2.Response:
        transport = httpx2.ASGITransport(app=self.process.api, client=("127.0.0.1", 4000))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, url, content=body, headers=given)

    def close(self) -> None:
        """End what was started for it."""
        self.run(self.process.stop())


def opened(url: str, seed: int) -> TimedDatabase:
    """The database at a standing clock, with ids from a seed."""
    clock = ManualClock()
    return TimedDatabase(open_database(url, clock, SeededEntropy(seed)), clock)


def _beat(tx: Tx) -> None:
    """Somebody else's worker, so that what needs one is ready."""
    ready: dict[str, Any] = {"accepting": True, "outbound_started": True, "artifact_configured": True}
    connections.beat(tx, "worker-1", started_at=tx.now, version="0", **ready)


def serve(url: str, data: Path, plan: Plan, run: Callable[..., Any]) -> Site:
    """The application on a database that `furnish` filled."""
    settings = Settings(
        reply_enabled=True,
        credential_keys=KEY,  # type: ignore[arg-type]
        bootstrap_token=BOOTSTRAP,  # type: ignore[arg-type]
        feishu_domain="http://127.0.0.1:9",
    )
    database = opened(url, 2)
    outside = Outside(database=database, clock=database.clock, entropy=SeededEntropy(3))  # type: ignore[arg-type]
    process = Process(settings, data, with_worker=False, outside=outside, port=8080)

    async def start() -> None:
        await database.write(_beat)
        await process.start()

    run(start())
    return Site(plan, process, run)


async def furnish(url: str) -> Plan:
    """Fill an empty database; who and what is in it."""
    database = opened(url, 1)
    desk = await open_desk(database, database.clock, keyring=KeyRing(KEY))  # type: ignore[arg-type]
    try:
        home = await _home(desk)
        lab, outsider = await _lab(desk)
        bearers, guest = await _people(desk)
        return Plan(bearers | {"outsider": outsider}, home | guest, lab)
    finally:
        await database.close()


async def _home(desk: DeskWorld) -> dict[str, str]:
    """One of everything in `home`, the owner's."""
    seat = await desk.seat()
    workflow = await desk.workflow()
    run = await desk.run(workflow)
    await desk.ask("hello", seat)
    await desk.work()
    desk.channel.outcomes.append(Unknown("send_result_unknown"))
    await desk.send()
    (receipt,) = await desk.rows("receipts", intent="reply")
    delivery = await desk.delivery_of(receipt["id"])
    assert delivery is not None
    assert delivery.status == "indeterminate"
    second = await desk.ask("and then?", seat)
    return {
        "workspace_id": desk.home,
        "project_id": desk.project,
        "workflow_id": workflow,
        "run_id": run,
        "conversation_id": seat.conversation_id,
        "installation_id": seat.installation_id,
        "binding_id": seat.binding_id,
        "reply_grant_id": seat.grant_id,
        "receipt_id": second["id"],
        "delivery_id": delivery.id,
        "channel": "feishu",
    }


async def _lab(desk: DeskWorld) -> tuple[dict[str, str], str]:
    """A workspace beside it whose admin is no member of `home`."""

    def make(tx: Tx) -> tuple[dict[str, str], str]:
        user = _user(tx, "outsider")
        bearer = _session(tx, user)
        lab = create_workspace(tx, desk.owner, name="Lab", slug="lab")
        add_member(tx, desk.owner, lab.id, role="admin", user_id=user)
        actor = logged_in(tx, user)
        project = create_project(tx, actor, lab.id, name="Bench", slug="bench", access="members")
        workflow = create_workflow(tx, actor, lab.id, project.id, name="tests")
        conversation = conversations.create_conversation(
            tx,
            actor,
            lab.id,
            title="Ours",
            context={"project_id": project.id},
            find_run=runs.find_run_scope,
        )
        ids = {
            "workspace_id": lab.id,
            "project_id": project.id,
            "workflow_id": workflow.id,
            "conversation_id": conversation.id,
            "user_id": user,
            "channel": "feishu",
        }
        return ids, bearer

    return await desk.write(make)


async def _people(desk: DeskWorld) -> tuple[dict[str, str], dict[str, str]]:
    """Bearers by standing, sessions but for the revoked token; and a guest, whom nobody here asks as."""

    def make(tx: Tx) -> tuple[dict[str, str], dict[str, str]]:
        found = {"garbage": "fdt_" + "x" * 43, "bootstrap": BOOTSTRAP, "owner": _session(tx, desk.owner.user_id)}
        for role in MEMBERS:
            user = _user(tx, role)
            add_member(tx, desk.owner, desk.home, role=role, user_id=user)
            found[role] = _session(tx, user)
        found["platform"] = _session(tx, _user(tx, "platform", is_platform_admin=True))
        token = create_token(tx, desk.owner, name="ended", expires_in_seconds=3_600)
        revoke_token(tx, desk.owner, token.record.id)
        found["revoked"] = token.token
        gone = _user(tx, "disabled")
        add_member(tx, desk.owner, desk.home, role="admin", user_id=gone)
        found["disabled"] = _session(tx, gone)
        update_user(tx, desk.owner, gone, {"disabled": True})
        guest = _user(tx, "guest")
        member = add_member(tx, desk.owner, desk.home, role="viewer", user_id=guest)
        kept = create_token(tx, desk.owner, name="kept", expires_in_seconds=3_600)
        return found, {"user_id": guest, "member_id": member.id, "token_id": kept.record.id}

    return await desk.write(make)


def _user(tx: Tx, name: str, *, is_platform_admin: bool = False) -> str:
    return insert_local_user(
        tx,
        username=name,
        display_name=name.title(),
        email=f"{name}@example.org",
        password_hash=UNUSABLE_HASH,
        is_platform_admin=is_platform_admin,
    ).id


def _session(tx: Tx, user_id: str) -> str:
    return create_session(tx, Login(user_id, UNUSABLE_HASH, enabled=True)).token


def planted() -> tuple[str, ...]:
    """What no answer and no log may hold."""
    return tuple(SECRETS.values())


class Template:
    """A furnished SQLite file to copy, one copy a test."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan

    def copy(self, folder: Path) -> str:
        """A copy's URL."""
        target = folder / "frontdesk.db"
        shutil.copyfile(self.path, target)
        return f"sqlite:///{target}"


def settle(path: Path) -> None:
    """Everything in the one file, so that it can be copied."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def runner() -> asyncio.Runner:
    """A loop that lives as long as the site."""
    return asyncio.Runner()
