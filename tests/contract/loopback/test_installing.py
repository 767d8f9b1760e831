"""Connecting a web hook: what must be said, what has no place, and that channels differ by data alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from frontdesk.channels.registry import build_channels
from frontdesk.kernel.clock import ManualClock
from frontdesk.storage.database import Database
from tests.channels.hooks import OTHER_SECRET, SECRET
from tests.contract.connections.world import INSTALLATIONS, Inline, World, code_of

pytestmark = pytest.mark.engine

TARGET = "http://127.0.0.1:9000/hook"
HOOK: dict[str, Any] = {
    "channel": "loopback",
    "name": "Hook",
    "app_id": "app-label",
    "tenant_key": "tenant-label",
    "app_secret": SECRET,
    "target_url": TARGET,
}
BOT: dict[str, Any] = {
    "channel": "feishu",
    "name": "Bot",
    "app_id": "cli_1",
    "tenant_key": "t-1",
    "app_secret": "s",
    "encrypt_key": "k",
    "verification_token": "t",
}


class RealChannels(World):
    """The room with the channels that this build has."""

    @property
    def channels(self) -> dict[str, Any]:
        return dict(build_channels("https://open.feishu.cn", None, self.clock, Inline()))


@pytest.fixture
async def world(database: Database, clock: ManualClock) -> World:
    return await RealChannels(database, clock).settle()


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    async with world.http("maintainer") as made:
        yield made


def said(answer: httpx2.Response) -> tuple[int, str, str]:
    """Status, path and reason of a refusal."""
    (error,) = answer.json()["errors"]
    return answer.status_code, error["path"], error["reason"]


async def test_a_web_hook_is_connected_with_one_secret(world: World, client: httpx2.AsyncClient) -> None:
    made = await client.post(world.path(), json=HOOK)
    assert made.status_code == 201
    shown = made.json()
    assert (shown["status"], shown["channel"], shown["inbound"]) == ("active", "loopback", "webhook")
    assert (shown["has_app_secret"], shown["has_encrypt_key"], shown["has_verification_token"]) == (True, False, False)
    assert shown["callback_path"].startswith("/api/v1/channels/loopback/installations/ins_")
    row = await world.row(shown["id"])
    assert row["target_url"] == TARGET
    assert world.keyring.decrypt(row["app_secret_ct"]) == SECRET
    health = (await client.get(world.path(shown["id"], "/health"))).json()
    assert (health["callback_ready"], health["binding_ready"], health["long_connection"]) == (True, True, None)


FORM = "must read http:// or https://, a host, an optional port and path; no user, fragment or blank"
SECRET_FORM = "must read whsec_ and the base64 of 24 to 64 bytes"
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    (HOOK, {"target_url": None}, "target_url", "required by this channel"),
    (HOOK, {"target_url": "http://127.0.0.1:0/"}, "target_url", FORM),
    (HOOK, {"target_url": "http://planted@127.0.0.1/"}, "target_url", FORM),
    (HOOK, {"target_url": "http://10.0.0.1/"}, "target_url", "its host is not in loopback_targets"),
    (HOOK, {"target_url": "https://planted.example/x"}, "target_url", "its host is not in loopback_targets"),
    (HOOK, {"app_secret": "planted"}, "app_secret", SECRET_FORM),
    (HOOK, {"encrypt_key": "planted"}, "encrypt_key", SECRET_FORM),
    (HOOK, {"verification_token": "planted"}, "verification_token", "not used by this channel"),
    (HOOK, {"inbound": "long_connection"}, "inbound", "not a mode of this channel"),
    (BOT, {"target_url": "http://127.0.0.1/planted"}, "target_url", "not used by this channel"),
    (BOT, {"channel": "carrier"}, "channel", "not a channel of this server"),
]


async def test_what_the_channel_cannot_use_is_refused_by_name(world: World, client: httpx2.AsyncClient) -> None:
    """422 with the one path and a reason without the value; no row."""
    for body, change, path, reason in REFUSED:
        sent = {name: value for name, value in (body | change).items() if value is not None}
        answer = await client.post(world.path(), json=sent)
        assert said(answer) == (422, path, reason)
        assert "planted" not in answer.text
    assert await world.rows(INSTALLATIONS) == []


async def test_a_patch_is_judged_like_a_creation_and_changes_nothing_where_it_does_not_fit(
    world: World, client: httpx2.AsyncClient
) -> None:
    hook = (await client.post(world.path(), json=HOOK)).json()["id"]
    bot = (await client.post(world.path(), json=BOT)).json()["id"]
    before = [await world.row(one) for one in (hook, bot)]
    for body, change, path, reason in REFUSED:
        if path in ("channel", "inbound") or change.get(path) is None:
            continue
        one = hook if body is HOOK else bot
        answer = await client.patch(world.path(one), json={"name": "changed", **change})
        assert said(answer) == (422, path, reason)
    assert [await world.row(one) for one in (hook, bot)] == before
    changed = {"target_url": "https://localhost/other", "encrypt_key": OTHER_SECRET, "app_secret": SECRET}
    assert (await client.patch(world.path(hook), json=changed)).status_code == 200
    assert (await client.patch(world.path(hook), json={"name": "alone"})).status_code == 200
    assert (await client.patch(world.path(bot), json={"app_secret": "any text"})).status_code == 200
    row = await world.row(hook)
    assert (row["target_url"], row["config_revision"]) == ("https://localhost/other", 3)


async def test_a_channel_that_is_gone_is_refused_by_the_service_while_the_table_takes_any(world: World) -> None:
    """A row of a channel that no build has can be stored, so no CHECK names channels; the service makes none."""
    assert await code_of(world.install(channel="carrier")) == "request_invalid"
    one = await world.install(secrets={"app_secret": SECRET}, channel="loopback", target_url=TARGET)
    await world.change(INSTALLATIONS, INSTALLATIONS.c.id == one.id, channel="carrier")
    assert (await world.row(one.id))["channel"] == "carrier"
    assert (await world.patch(one.id, name="still there")).status == "blocked"
