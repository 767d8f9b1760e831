"""Other people and chats of a house: accounts made by the API, logged in by their password; the owner's other chats."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

import httpx2

from frontdesk.app.example import Example, open_example
from tests.e2e.rig import House


@dataclass
class Colleague:
    """A member of the workspace with a session of their own."""

    user_id: str
    member_id: str
    token: str = field(repr=False)
    api: httpx2.AsyncClient = field(repr=False)

    async def ask(self, method: str, path: str, **arguments: Any) -> tuple[int, dict[str, Any]]:
        """One API call: its status and its document."""
        answer = await self.api.request(method, "/api/v1" + path, **arguments)
        return answer.status_code, answer.json() if answer.content else {}


async def join(house: House, role: str) -> Colleague:
    """A new account with a role in the house's workspace, logged in."""
    example = house.example
    name = f"{role}-{secrets.token_hex(3)}"
    password = secrets.token_urlsafe(12)
    body = {"username": name, "display_name": name.title(), "password": password}
    user = await example.call("POST", "/users", json=body)
    member = await example.call("POST", f"{example.workspace}/members", json={"user_id": user["id"], "role": role})
    api = house.client()
    session = await api.post("/api/v1/session", json={"username": name, "password": password})
    assert session.status_code == 201, session.text
    token = session.json()["token"]
    api.headers["Authorization"] = f"Bearer {token}"
    return Colleague(user["id"], member["id"], token, api)


def own(house: House, known: dict[str, Any]) -> Example:
    """The owner's chat with another of the prepared apps, and clients for it."""
    example = open_example(house.address, house.simulator, house.example.api.headers["Authorization"][7:], "")
    example.sim.headers["Authorization"] = house.example.sim.headers["Authorization"]
    house.clients += [example.api, example.sim]
    for name, value in known.items():
        setattr(example, name, value)
    return example


async def listen(example: Example, address: str) -> None:
    """Tell the simulator where the app of a chat is to be pushed, with the provider's URL check."""
    url = address + example.installation["callback_path"]
    checked = await example.simulate("PUT", f"/_sim/apps/{example.app['app_id']}/callback", json={"url": url})
    assert checked["ok"], checked
