"""The ready-made example of `up` and `demo`: everything is made by the public API and the simulator's routes alone."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import httpx2

from frontdesk.app.installing import open_migrated
from frontdesk.app.serving import StartRefused
from frontdesk.app.settings import load_settings
from frontdesk.identity import local_actor
from frontdesk.identity.tokens import create_token

APP: Final = "Frontdesk example"
PERSON: Final = "Ada"
TITLE: Final = "Getting to know Frontdesk"
TOKEN_FILE: Final = "owner.token"  # noqa: S105 - a file's name
WAIT_S: Final = 30.0
POLL_S: Final = 0.1


async def owner_token(data: Path, *, renew: bool = False) -> str:
    """The owner's access token for the example, kept in the data folder (0600); made here where it is missing."""
    path = data / TOKEN_FILE
    if not renew and path.exists():
        return path.read_text(encoding="ascii").strip()
    database = open_migrated(load_settings(data), data, may_upgrade=False)
    try:
        made = await database.write(
            lambda tx: create_token(
                tx,
                local_actor(tx, "owner"),
                name="frontdesk up",
                expires_in_seconds=90 * 86_400,
                platform_admin=True,
            )
        )
    finally:
        await database.close()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(made.token + "\n")
    return made.token


@dataclass(slots=True)
class Example:
    """Clients of a running server and simulator, and what the example made there."""

    server: str
    simulator: str
    api: httpx2.AsyncClient = field(repr=False)
    sim: httpx2.AsyncClient = field(repr=False)
    app_name: str = APP
    title: str = TITLE
    person_name: str = PERSON
    workspace_id: str = ""
    project_id: str = ""
    app: dict[str, Any] = field(default_factory=dict, repr=False)
    person: dict[str, Any] = field(default_factory=dict, repr=False)
    installation: dict[str, Any] = field(default_factory=dict, repr=False)
    conversation_id: str = ""
    grant_id: str = ""

    async def close(self) -> None:
        """Release both clients."""
        await self.api.aclose()
        await self.sim.aclose()

    @property
    def chat_page(self) -> str:
        """The simulator's page with the example's private chat open."""
        return f"{self.simulator}/?{urlencode({'app': self.app['app_id'], 'person': self.person['open_id']})}"

    # ------------------------------------------------------------------------------------------ calls

    async def call(self, method: str, path: str, **arguments: Any) -> Any:
        """One API call; a problem ends the example with its code."""
        answer = await _answered(self.api, "the server", method, "/api/v1" + path, arguments)
        if answer.is_error:
            code = _code(answer)
            raise StartRefused(f"{method} {path.split('?', maxsplit=1)[0]} was refused: {code}")
        return answer.json() if answer.content else None

    async def simulate(self, method: str, path: str, **arguments: Any) -> Any:
        """One control call of the simulator."""
        answer = await _answered(self.sim, "the simulator", method, path, arguments)
        if answer.is_error:
            raise StartRefused(f"the simulator refused {method} {path} ({answer.status_code})")
        return answer.json()

    async def unknown(self) -> bool:
        """Whether the server does not know the token."""
        answer = await _answered(self.api, "the server", "GET", "/api/v1/me", {})
        return answer.status_code == 401

    async def until(self, what: str, check: Callable[[], Awaitable[Any]], wait_s: float = WAIT_S) -> Any:
        """Poll `check` until it gives something; ends the example with `what` where it never does."""
        deadline = asyncio.get_running_loop().time() + wait_s
        while asyncio.get_running_loop().time() < deadline:
            found = await check()
            if found:
                return found
            await asyncio.sleep(POLL_S)
        raise StartRefused(f"waited {wait_s:.0f} s in vain for {what}")

    # ------------------------------------------------------------------------------------------ making

    async def prepare(self) -> None:
        """Connection, URL check, binding, conversation and authorisation; what is there already is used again."""
        await self._find_place()
        await self.connect()
        await self.bind()
        await self.converse()
        await self.authorise()

    async def _find_place(self) -> None:
        me = await self.call("GET", "/me")
        self.workspace_id = me["memberships"][0]["workspace_id"]
        projects = await self.call("GET", f"/workspaces/{self.workspace_id}/projects")
        self.project_id = next(item["id"] for item in projects["items"] if item["slug"] == "first")

    @property
    def workspace(self) -> str:
        """Path of the workspace."""
        return f"/workspaces/{self.workspace_id}"

    @property
    def project(self) -> str:
        """Path of the project."""
        return f"{self.workspace}/projects/{self.project_id}"

    async def connect(self) -> None:
        """An app at the simulator, its connection here, and the provider's URL check."""
        self.app = await self.simulate("POST", "/_sim/apps", json={"name": self.app_name})
        self.person = await self.simulate(
            "POST", "/_sim/people", json={"name": self.person_name, "app_id": self.app["app_id"]}
        )
        listed = await self.call("GET", f"{self.workspace}/installations", params={"limit": 100})
        mine = [
            item for item in listed["items"] if item["app_id"] == self.app["app_id"] and item["status"] != "revoked"
        ]
        if mine:
            self.installation = mine[0]
        else:
            self.installation = await self.call(
                "POST",
                f"{self.workspace}/installations",
                json={
                    "channel": "feishu",
                    "name": self.app_name,
                    "app_id": self.app["app_id"],
                    "tenant_key": self.app["tenant_key"],
                    "app_secret": self.app["app_secret"],
                    "encrypt_key": self.app["encrypt_key"],
                    "verification_token": self.app["verification_token"],
                    "command_language": "en",
                },
            )
        url = self.server + self.installation["callback_path"]
        checked = await self.simulate("PUT", f"/_sim/apps/{self.app['app_id']}/callback", json={"url": url})
        if not checked["ok"]:
            raise StartRefused(f"the URL check of {url} failed ({checked.get('status')})")

    async def bind(self) -> None:
        """The person's chat account, tied by the one-time code sent to the bot."""
        if await self.binding() is not None:
            return
        made = await self.call(
            "POST", f"{self.workspace}/installations/{self.installation['id']}/binding-challenges", json={}
        )
        await self.say(made["command_text"])
        await self.until("the binding", self.binding)

    async def binding(self) -> dict[str, Any] | None:
        """The owner's active binding."""
        found = await self.call("GET", f"{self.workspace}/installations/{self.installation['id']}/my-binding")
        binding: dict[str, Any] | None = found["binding"]
        return binding if binding is not None and binding["active"] else None

    async def converse(self) -> None:
        """The conversation that replies continue."""
        listed = await self.call(
            "GET", f"{self.workspace}/conversations", params={"project_id": self.project_id, "status": "active"}
        )
        mine = [item for item in listed["items"] if item["title"] == self.title]
        if not mine:
            context = {"project_id": self.project_id, "surface": "console"}
            mine = [
                await self.call(
                    "POST", f"{self.workspace}/conversations", json={"title": self.title, "context": context}
                )
            ]
        self.conversation_id = mine[0]["id"]

    async def authorise(self) -> None:
        """A usable reply grant whose activation reached the chat."""
        listed = await self.call(
            "GET", f"{self.project}/reply-grants", params={"conversation_id": self.conversation_id}
        )
        for item in listed["items"]:
            if item["status"] != "active":
                continue
            if item["usable"] and item["activation_status"] == "sent":
                self.grant_id = item["id"]
                return
            await self.call("DELETE", f"{self.project}/reply-grants/{item['id']}")
        binding = await self.binding()
        assert binding is not None
        body = {
            "request_id": secrets.token_hex(16),
            "installation_id": self.installation["id"],
            "binding_id": binding["id"],
            "conversation_id": self.conversation_id,
        }
        made = await self.call("POST", f"{self.project}/reply-grants", json=body)
        self.grant_id = made["id"]
        await self.until("the activation to be sent", self._activated)

    async def _activated(self) -> bool:
        grant = await self.grant()
        return bool(grant["activation_status"] == "sent")

    # ------------------------------------------------------------------------------------------ using

    async def grant(self) -> dict[str, Any]:
        """The example's reply grant."""
        found: dict[str, Any] = await self.call("GET", f"{self.project}/reply-grants/{self.grant_id}")
        return found

    async def conversation(self) -> dict[str, Any]:
        """The example's conversation."""
        found: dict[str, Any] = await self.call("GET", f"{self.workspace}/conversations/{self.conversation_id}")
        return found

    async def say(self, text: str, *, reply: bool = False) -> str:
        """A message of the person; with `reply` it answers the bot's newest. Returns its message id."""
        body: dict[str, Any] = {"app_id": self.app["app_id"], "person": self.person["open_id"], "text": text}
        if reply:
            body["reply_to"] = "newest_bot"
        sent = await self.simulate("POST", "/_sim/send", json=body)
        return str(sent["message_id"])

    async def wires(self) -> int:
        """Wire requests so far: create and reply."""
        seen = await self.simulate("GET", "/_sim/requests", params={"limit": 1})
        return int(seen["sends"])

    async def answers_to(self, message_id: str) -> list[dict[str, Any]]:
        """The bot's messages in the chat that reply to a message."""
        seen = await self.simulate(
            "GET",
            "/_sim/messages",
            params={"app_id": self.app["app_id"], "sender_type": "app", "limit": 1000},
        )
        return [item for item in seen["items"] if item["parent_id"] == message_id]


def open_example(server: str, simulator: str, token: str, simulator_token: str) -> Example:
    """Clients for a server and a simulator on this machine; environment proxies are not used."""
    api = httpx2.AsyncClient(base_url=server, headers={"Authorization": f"Bearer {token}"}, timeout=30, trust_env=False)
    sim = httpx2.AsyncClient(
        base_url=simulator, headers={"Authorization": f"Bearer {simulator_token}"}, timeout=30, trust_env=False
    )
    return Example(server, simulator, api, sim)


async def _answered(
    client: httpx2.AsyncClient, who: str, method: str, path: str, arguments: dict[str, Any]
) -> httpx2.Response:
    try:
        return await client.request(method, path, **arguments)
    except httpx2.TransportError as error:
        raise StartRefused(f"{who} gave no answer to {method} {path} ({type(error).__name__})") from None


def _code(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["code"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {answer.status_code}"
