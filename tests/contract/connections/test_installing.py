"""Connecting a chat app: rights, secrets, uniqueness, revisions, revocation."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from frontdesk.desk import connections
from frontdesk.kernel.secretbox import KeyRing, new_key
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.connections.world import (
    BINDINGS,
    EVENTS,
    INSTALLATIONS,
    MEMBERS,
    SECRETS,
    USERS,
    WORKSPACES,
    World,
    code_of,
)

pytestmark = pytest.mark.timeout(60)
FRESH = itertools.count(100)


def verbs(world: World, actor: str, installation_id: str, binding_id: str) -> dict[str, Any]:
    """Each verb of the room as this person, not begun yet."""
    person = world.people[actor]
    one = {"installation_id": installation_id, **world.scope}
    return {
        "list": lambda: world.read(connections.list_installations, person, limit=20, **world.scope),
        "get": lambda: world.read(connections.get_installation, person, **one),
        "create": lambda: world.install(actor, app_id=f"cli_{next(FRESH)}"),
        "update": lambda: world.patch(installation_id, actor, name="Renamed"),
        "health": lambda: world.read(connections.get_health, person, reply_enabled=True, artifact_enabled=True, **one),
        "probe": lambda: world.read(connections.probe_target, person, **one),
        "challenge": lambda: world.write(connections.create_challenge, person, **one),
        "my_binding": lambda: world.read(
            connections.my_binding, person, workspace_id=world.home, installation_id=installation_id
        ),
        "unbind": lambda: world.unbind(binding_id, actor),
        "revoke": lambda: world.write(connections.revoke_installation, person, **one),
    }


async def outcomes(world: World, actor: str) -> dict[str, str]:
    installation = await world.install(app_id=f"cli_{next(FRESH)}")
    binding = await world.insert(
        BINDINGS,
        "bnd",
        installation=installation.id,
        user=world.people["admin"].user_id,
        tenant_key="t-1",
        sender_id="ou_1",
        chat_id="oc_1",
        active=True,
        revision=1,
    )
    asked = verbs(world, actor, installation.id, binding)
    return {name: await code_of(verb()) for name, verb in asked.items()}


MANAGED = ("create", "update", "probe", "revoke")


@pytest.mark.spec("DESK-8")
async def test_every_verb_asks_for_the_callers_own_membership_and_right(world: World) -> None:
    """Each verb is decided by the caller's membership and role as they are now, and recorded under the caller's id."""
    for actor in ("admin", "maintainer"):
        assert set((await outcomes(world, actor)).values()) == {"done"}
    for actor in ("operator", "viewer"):
        expected = dict.fromkeys(MANAGED, "permission_required") | {"unbind": "binding_not_found"}
        found = await outcomes(world, actor)
        assert {name: code for name, code in found.items() if code != "done"} == expected
    assert set((await outcomes(world, "stranger")).values()) == {"membership_required"}
    written = {event["actor"] for event in await world.rows(EVENTS)}
    assert written == {world.people[name].user_id for name in ("admin", "maintainer", "operator", "viewer")}

    await world.change(USERS, USERS.c.id == world.people["admin"].user_id, disabled_at=1)
    assert set((await outcomes(world, "admin")).values()) == {"membership_required"}
    await world.change(MEMBERS, MEMBERS.c.user == world.people["viewer"].user_id, role="maintainer")
    assert set((await outcomes(world, "viewer")).values()) == {"done"}
    installation = await world.install()
    await world.change(WORKSPACES, WORKSPACES.c.id == world.home, active=False)
    late = verbs(world, "maintainer", installation.id, "bnd_none")
    assert {await code_of(verb()) for verb in late.values()} == {"membership_required"}


@pytest.mark.spec("DESK-10")
async def test_no_answer_holds_a_secret_and_the_database_holds_ciphertext(world: World) -> None:
    """Answers name the secrets as booleans alone; the rows hold only what the key ring can read."""
    async with world.http("maintainer") as client:
        body = {"channel": "feishu", "name": "Bot", "app_id": "cli_1", "tenant_key": "t-1", **SECRETS}
        made = await client.post(world.path(), json=body)
        assert made.status_code == 201
        one = made.json()["id"]
        answers = [
            made,
            await client.get(world.path()),
            await client.get(world.path(one)),
            await client.patch(world.path(one), json={"app_secret": "planted-second-secret"}),
            await client.get(world.path(one, "/health")),
            await client.post(world.path(one, "/probe")),
            await client.get(world.path(one, "/my-binding")),
            await client.post(world.path(one, "/binding-challenges")),
            await client.post(world.path(), json=body),
            await client.patch(world.path(one), json={"app_secret": "planted-" * 4000}),
            await client.delete(world.path(one)),
        ]
    row = await world.row(one)
    ciphertexts = [row[f"{name}_ct"] for name in SECRETS]
    assert [answer.status_code for answer in answers] == [201, 200, 200, 200, 200, 200, 200, 201, 409, 422, 200]
    for answer in answers:
        assert "planted" not in answer.text
        assert not any(ciphertext in answer.text for ciphertext in ciphertexts)
    shown = made.json()
    assert (shown["has_app_secret"], shown["has_encrypt_key"], shown["has_verification_token"]) == (True, True, True)
    assert not any("planted" in str(value) for value in row.values())
    clear = [world.keyring.decrypt(ciphertext) for ciphertext in ciphertexts]
    assert clear == ["planted-second-secret", SECRETS["encrypt_key"], SECRETS["verification_token"]]


async def test_an_installation_is_shown_with_exactly_the_listed_fields(world: World) -> None:
    installation = await world.install()
    async with world.http("viewer") as client:
        shown = (await client.get(world.path(installation.id))).json()
    instant = "2026-01-01T00:00:00.000000Z"
    assert shown == {
        "id": installation.id,
        "channel": "feishu",
        "name": "Bot",
        "app_id": "cli_1",
        "tenant_key": "t-1",
        "inbound": "webhook",
        "status": "active",
        "has_app_secret": True,
        "has_encrypt_key": True,
        "has_verification_token": True,
        "command_language": "zh",
        "provider_zone": None,
        "late_answers_enabled": False,
        "config_revision": 1,
        "callback_path": f"/api/v1/channels/feishu/installations/{installation.id}/events",
        "last_ready_at": None,
        "last_error_code": None,
        "created_at": instant,
        "updated_at": instant,
    }


@pytest.mark.spec("DESK-13")
async def test_one_workspace_holds_an_app_once_and_another_workspace_too(
    world: World, open_session: Callable[[], Database]
) -> None:
    """The second creation of an app is `installation_exists`, one after the other and at once; elsewhere it is free."""
    first = await world.install()
    assert await code_of(world.install(name="Again")) == "installation_exists"
    await world.revoke(first.id)
    assert await code_of(world.install(name="After the end")) == "installation_exists"
    elsewhere = {"workspace_id": world.other, "channels": world.channels, "keyring": world.keyring}
    assert await code_of(world.install("stranger", **elsewhere)) == "done"

    barrier = threading.Barrier(2)
    sessions = [open_session(), open_session()]

    def create(tx: Tx) -> str:
        if world.database.engine_name == "postgresql":  # SQLite's writers are serial: the second cannot even begin
            barrier.wait(10)
        made = connections.create_installation(
            tx,
            world.people["maintainer"],
            channel="feishu",
            name="Raced",
            app_id="cli_2",
            tenant_key="t-1",
            secrets=SECRETS,
            **world.scope,
        )
        return made.id

    ended = await asyncio.gather(*(code_of(session.write(create)) for session in sessions))
    assert sorted(ended) == ["done", "installation_exists"]
    assert len(await world.rows(INSTALLATIONS, INSTALLATIONS.c.app_id == "cli_2")) == 1


@pytest.mark.spec("DESK-14")
async def test_a_patch_is_exact(world: World) -> None:
    """Null, `{}`, unknown and fixed keys are 422 and change nothing; what is left out stays."""
    one = (await world.install()).id
    before = await world.row(one)
    refused: list[dict[str, Any]] = [
        {},
        {"unknown": 1},
        {"app_id": "cli_2"},
        {"tenant_key": "t-2"},
        {"channel": "feishu"},
        {"name": " "},
        {"app_secret": ""},
        {"command_language": "fr"},
        {"enabled": "true"},
    ]
    nullable = (*SECRETS, "name", "enabled", "command_language", "target_url", "provider_zone", "late_answers_enabled")
    refused += [{name: None} for name in nullable]
    async with world.http("maintainer") as client:
        for body in refused:
            answer = await client.patch(world.path(one), json=body)
            assert (answer.status_code, answer.json()["code"]) == (422, "request_invalid"), body
        assert await world.row(one) == before
        changed = await client.patch(world.path(one), json={"encrypt_key": "  planted-other \n"})
        assert changed.status_code == 200
    after = await world.row(one)
    assert {name for name in before if before[name] != after[name]} == {"encrypt_key_ct", "config_revision"}
    assert world.keyring.decrypt(after["encrypt_key_ct"]) == "planted-other"


@pytest.mark.spec("DESK-15")
async def test_each_patch_raises_the_revision_and_a_revoked_installation_takes_none(world: World) -> None:
    """Every successful patch counts once, refused ones do not, and after revocation there is none."""
    one = (await world.install()).id
    changes: list[dict[str, Any]] = [
        {"name": "B"},
        {"name": "B"},
        {"enabled": False},
        {"enabled": False, "app_secret": "x"},
        {"enabled": True, "provider_zone": "Asia/Shanghai"},
        {"late_answers_enabled": True, "target_url": "http://127.0.0.1:1/", "command_language": "en"},
    ]
    for revision, change in enumerate(changes, start=2):
        shown = await world.patch(one, **change)
        assert shown.config_revision == revision
        assert shown.status == ("disabled" if revision in (4, 5) else "active")
    assert await code_of(world.patch(one, app_id="cli_2")) == "request_invalid"
    await world.revoke(one)
    revoked = await world.row(one)
    for change in changes:
        assert await code_of(world.patch(one, **change)) == "installation_revoked"
    assert await world.row(one) == revoked
    assert revoked["config_revision"] == 7


@pytest.mark.spec("DESK-16")
async def test_an_installation_of_another_workspace_is_absent_everywhere(world: World) -> None:
    """Every route below an installation answers a foreign one exactly as one that does not exist."""
    foreign = await world.install("stranger", workspace_id=world.other, channels=world.channels, keyring=world.keyring)
    routes = [
        ("GET", "", None),
        ("PATCH", "", {"name": "x"}),
        ("DELETE", "", None),
        ("GET", "/health", None),
        ("POST", "/probe", None),
        ("GET", "/my-binding", None),
        ("POST", "/binding-challenges", None),
    ]
    async with world.http("admin") as client:
        for method, rest, body in routes:
            answers = [
                await client.request(method, world.path(one, rest), json=body)
                for one in (foreign.id, "ins_" + "0" * 32)
            ]
            assert answers[0].status_code == 404
            assert answers[0].json()["code"] == "installation_not_found"
            assert answers[0].content == answers[1].content
        assert (await client.get(world.path())).json() == {"items": [], "next_cursor": None}
    assert (await world.row(foreign.id))["status"] == "active"


async def test_the_list_is_paged_newest_first(world: World) -> None:
    made = []
    for number in range(3):
        world.clock.advance(1_000_000)
        made.append((await world.install(app_id=f"cli_{number}")).id)
    async with world.http("viewer") as client:
        first = (await client.get(world.path(), params={"limit": 2})).json()
        second = (await client.get(world.path(), params={"limit": 2, "cursor": first["next_cursor"]})).json()
        assert (await client.get(world.path(), params={"limit": 101})).status_code == 422
        assert (await client.get(world.path(), params={"cursor": "no"})).status_code == 422
        assert (await client.get(world.path(), params={"channel": "feishu"})).status_code == 422
    assert [item["id"] for item in first["items"] + second["items"]] == made[::-1]
    assert second["next_cursor"] is None


async def test_what_a_creation_must_not_say(world: World) -> None:
    body: dict[str, Any] = {"channel": "feishu", "name": "Bot", "app_id": "cli_1", "tenant_key": "t-1", **SECRETS}
    async with world.http("maintainer") as client:
        for change in (
            {"channel": "carrier-pigeon"},
            {"inbound": "fax"},
            {"name": ""},
            {"name": "n" * 256},
            {"app_secret": "  "},
            {"app_secret": "s" * 4097},
            {"app_secret": None},
            {"command_language": "fr"},
            {"provider_zone": "not a zone"},
            {"target_url": "ftp://x"},
            {"status": "active"},
        ):
            answer = await client.post(world.path(), json=body | change)
            assert (answer.status_code, answer.json()["code"]) == (422, "request_invalid"), change
        assert await world.rows(INSTALLATIONS) == []
        longest = body | {"name": "  " + "n" * 255, "app_secret": "s" * 4096}
        assert (await client.post(world.path(), json=longest)).status_code == 201


async def test_a_channel_unknown_to_the_registry_is_refused_by_the_service_and_by_no_check(world: World) -> None:
    assert await code_of(world.install(channel="loopback")) == "request_invalid"
    assert await world.rows(INSTALLATIONS) == []
    one = (await world.install()).id
    await world.change(INSTALLATIONS, INSTALLATIONS.c.id == one, channel="gone")
    shown = await world.read(connections.get_installation, world.people["viewer"], installation_id=one, **world.scope)
    assert (shown.status, shown.last_error_code) == ("blocked", "credential_unavailable")


@pytest.mark.parametrize("keys", ["", "not-a-key", f"{new_key()},broken"], ids=["none", "malformed", "one-malformed"])
async def test_without_a_usable_key_secrets_are_refused_and_nothing_is_written(world: World, keys: str) -> None:
    """The connections' half of DESK-268; the artifact grant's half is proved in its own room."""
    one = (await world.install()).id
    before, events = await world.row(one), len(await world.rows(EVENTS))
    world.keyring = KeyRing(keys)
    async with world.http("maintainer") as client:
        body = {"channel": "feishu", "name": "Bot", "app_id": "cli_2", "tenant_key": "t-1", **SECRETS}
        for answer in (
            await client.post(world.path(), json=body),
            await client.patch(world.path(one), json={"name": "x", "verification_token": "planted"}),
            await client.post(world.path(one, "/binding-challenges")),
            await client.post(world.path(one, "/probe")),
        ):
            assert (answer.status_code, answer.json()["code"]) == (503, "credential_unavailable")
        assert await world.row(one) == before
        assert len(await world.rows(INSTALLATIONS)) == 1
        assert len(await world.rows(EVENTS)) == events
        renamed = await client.patch(world.path(one), json={"name": "Renamed without a key"})
    assert (renamed.status_code, renamed.json()["status"]) == (200, "blocked")


async def test_revocation_is_terminal_and_idempotent(world: World) -> None:
    """The room's half of DESK-30; that the next send heeds it is proved where sending is."""
    one = (await world.install()).id
    await world.bind(one, "viewer")
    revoked = await world.revoke(one)
    first = await world.row(one)
    assert (revoked.status, first["revoked_by"]) == ("revoked", world.people["maintainer"].user_id)
    world.clock.advance(1_000_000)
    assert await world.revoke(one) == revoked
    assert await world.row(one) == first
    assert [event["kind"] for event in await world.rows(EVENTS) if event["object_id"] == one].count(
        "installation.revoked"
    ) == 1
    for refused in (
        world.patch(one, enabled=True),
        world.code(one, "viewer"),
        world.read(connections.probe_target, world.people["admin"], installation_id=one, **world.scope),
    ):
        assert await code_of(refused) in ("installation_revoked", "installation_not_active")
    outcome = await world.consume(one, "fdb_" + "0" * 20)
    assert (outcome.code, outcome.binding) == ("installation_revoked", None)


async def test_secrets_outlive_revocation_until_they_are_forgotten(world: World) -> None:
    """The room's half of DESK-275: the callback's credentials exist, and are gone after `forget_secrets`."""
    kept, forgotten = (await world.install()).id, (await world.install(app_id="cli_2")).id
    await world.revoke(kept)
    await world.revoke(forgotten, forget=True)

    async def callback_usable(one: str) -> bool:
        installation = await world.read(connections.find_installation, one)
        assert installation is not None
        return connections.usable(installation, world.channel, world.keyring, callback=True)

    assert await callback_usable(kept)
    assert not await callback_usable(forgotten)
    assert [(await world.row(forgotten))[f"{name}_ct"] for name in SECRETS] == [None, None, None]
    shown = await world.revoke(kept, forget=True)
    assert (shown.status, shown.has_app_secret, await callback_usable(kept)) == ("revoked", False, False)
    async with world.http("admin") as client:
        again = await client.delete(world.path(kept), params={"forget_secrets": "true"})
        assert (again.status_code, again.json()["status"]) == (200, "revoked")


async def test_events_of_an_installation_hold_no_content(world: World) -> None:
    one = (await world.install()).id
    await world.patch(one, name="planted-name", app_secret="planted")
    await world.revoke(one, forget=True)
    events = await world.rows(EVENTS)
    kinds = {event["kind"] for event in events}
    assert kinds == {
        "installation.created",
        "installation.changed",
        "installation.revoked",
        "installation.secrets_forgotten",
    }
    assert "planted" not in json.dumps(events)


async def test_nothing_of_a_view_shows_a_secret(world: World) -> None:
    one = (await world.install()).id
    installation = await world.read(connections.find_installation, one)
    assert installation is not None
    text = repr(installation) + repr(connections.view(installation, world.channel, world.keyring))
    row = await world.row(one)
    assert not any(row[f"{name}_ct"] in text for name in SECRETS)
    credentials = connections.credentials_of(installation, world.channel, world.keyring)
    assert dataclasses.asdict(credentials) == SECRETS
    assert "planted" not in repr(credentials)


async def test_concurrent_patches_each_raise_the_revision(world: World, open_session: Callable[[], Database]) -> None:
    one = (await world.install()).id
    sessions = [open_session(), open_session()]
    barrier = threading.Barrier(2)

    def patch(tx: Tx) -> int:
        if world.database.engine_name == "postgresql":
            barrier.wait(10)
        changed = connections.update_installation(
            tx, world.people["maintainer"], installation_id=one, changes={"name": "Raced"}, **world.scope
        )
        return changed.config_revision

    assert sorted(await asyncio.gather(*(session.write(patch) for session in sessions))) == [2, 3]
    assert await world.read(lambda tx: tx.count(sa.select(INSTALLATIONS.c.config_revision))) == 3
