"""What a connection can do, what a connect found, workers' heartbeats, and the probe."""

from __future__ import annotations

from typing import Any

import pytest

from frontdesk.desk import connections
from frontdesk.desk.connections.channel import ProbeReport, RawPush
from frontdesk.desk.connections.model import NO_WORKER, Health, WorkerSnapshot
from frontdesk.kernel.clock import MINUTE, SECOND
from frontdesk.kernel.secretbox import CredentialUnavailable, KeyRing, new_key
from tests.contract.connections.world import INSTALLATIONS, SECRETS, World, code_of

ABLE = WorkerSnapshot(True, True, True, True, True)
NAMES = tuple(SECRETS)


async def health(world: World, one: str, **changes: Any) -> Health:
    flags = {"reply_enabled": True, "artifact_enabled": True, "worker": ABLE}
    return await world.read(
        connections.get_health, world.people["viewer"], installation_id=one, **world.scope, **{**flags, **changes}
    )


def ready(found: Health) -> tuple[bool, bool, bool, bool]:
    return found.callback_ready, found.binding_ready, found.reply_execution_ready, found.artifact_delivery_ready


@pytest.mark.parametrize("fault", ["missing", "empty", "undecryptable"])
@pytest.mark.parametrize("secret", NAMES)
async def test_one_unusable_secret_blocks_everything_that_asks(world: World, secret: str, fault: str) -> None:
    """The service's half of DESK-12: health, card and callback credentials agree on three secrets × three faults."""
    one = (await world.install()).id
    healthy = await health(world, one)
    assert (healthy.status, ready(healthy), healthy.last_error_code) == ("active", (True,) * 4, None)
    other_ring = KeyRing(new_key())
    broken = {"missing": None, "empty": "", "undecryptable": other_ring.encrypt("x")}[fault]
    await world.change(INSTALLATIONS, INSTALLATIONS.c.id == one, **{f"{secret}_ct": broken})
    before = await world.row(one)

    found = await health(world, one)
    assert (found.status, ready(found), found.last_error_code) == (
        "blocked",
        (False,) * 4,
        "credential_unavailable",
    )
    installation = await world.read(connections.find_installation, one)
    assert installation is not None
    shown = connections.view(installation, world.channel, world.keyring)
    assert (shown.status, shown.last_error_code) == ("blocked", "credential_unavailable")
    assert shown.unusable_secrets == (secret,)
    with pytest.raises(CredentialUnavailable):
        connections.callback_credentials(installation, world.channel, world.keyring)
    assert not connections.usable(installation, world.channel, world.keyring, callback=True)
    assert await code_of(world.code(one, "viewer")) == "credential_unavailable"
    assert await world.row(one) == before  # `blocked` is computed: nothing was written
    await world.patch(one, **{secret: "planted-again"})
    assert (await health(world, one)).status == "active"


async def test_a_secret_that_is_empty_once_decrypted_is_unusable(world: World) -> None:
    one = (await world.install()).id
    await world.change(INSTALLATIONS, INSTALLATIONS.c.id == one, encrypt_key_ct=world.keyring.encrypt(""))
    assert (await health(world, one)).status == "blocked"


async def test_a_ring_without_keys_blocks_every_installation(world: World) -> None:
    one = (await world.install()).id
    world.keyring = KeyRing("")
    assert (await health(world, one)).status == "blocked"


async def test_a_long_connection_needs_the_app_secret_alone_and_its_webhook_the_others(world: World) -> None:
    """The service's half of DESK-276; the 503 itself is proved at the callback."""
    one = (await world.install(inbound="long_connection", secrets={"app_secret": "planted"})).id
    found = await health(world, one)
    assert (found.status, ready(found), found.long_connection) == ("active", (True,) * 4, "stopped")
    installation = await world.read(connections.find_installation, one)
    assert installation is not None
    credentials = connections.credentials_of(installation, world.channel, world.keyring)
    assert (credentials.app_secret, credentials.encrypt_key, credentials.verification_token) == ("planted", None, None)
    for extra in ({"encrypt_key": "key"}, {"verification_token": "token"}):
        assert not connections.usable(installation, world.channel, world.keyring, callback=True)
        with pytest.raises(CredentialUnavailable):
            connections.callback_credentials(installation, world.channel, world.keyring)
        await world.patch(one, **extra)
        installation = await world.read(connections.find_installation, one)
        assert installation is not None
    clear = connections.callback_credentials(installation, world.channel, world.keyring)
    assert (clear.encrypt_key, clear.verification_token) == ("key", "token")
    await world.change(INSTALLATIONS, INSTALLATIONS.c.id == one, app_secret_ct=None)
    assert (await health(world, one)).status == "blocked"


async def test_the_long_connection_is_told_from_the_listeners_lease(world: World) -> None:
    webhook, listened = (await world.install()).id, (await world.install(app_id="c2", inbound="long_connection")).id
    assert (await health(world, webhook)).long_connection is None
    lease = {"lease_owner": "listener", "lease_generation": 1, "lease_expires_at": world.clock.now_us() + SECOND}
    await world.change(INSTALLATIONS, INSTALLATIONS.c.id == listened, **lease)
    assert (await health(world, listened)).long_connection == "connected"
    world.clock.advance(SECOND)
    assert (await health(world, listened)).long_connection == "stopped"


@pytest.mark.spec("DESK-212")
async def test_an_installations_readiness_needs_it_active_with_usable_secrets(world: World) -> None:
    """However ready the process, a disabled, revoked or blocked installation is ready for neither answers nor files."""
    active, disabled, revoked, blocked = [(await world.install(app_id=f"cli_{number}")).id for number in range(4)]
    await world.patch(disabled, enabled=False)
    await world.revoke(revoked)
    await world.change(INSTALLATIONS, INSTALLATIONS.c.id == blocked, verification_token_ct=None)
    expected = {
        active: ("active", (True, True, True, True)),
        disabled: ("disabled", (True, False, False, False)),
        revoked: ("revoked", (True, False, False, False)),
        blocked: ("blocked", (False, False, False, False)),
    }
    for one, (status, capabilities) in expected.items():
        found = await health(world, one)
        assert (found.status, ready(found)) == (status, capabilities)
        installation = await world.read(connections.find_installation, one)
        assert installation is not None
        narrowed = connections.installation_readiness(
            installation, world.channel, world.keyring, connections.Readiness(True, True)
        )
        assert (narrowed.reply_execution, narrowed.artifact_delivery) == capabilities[2:]


@pytest.mark.parametrize(
    ("worker", "replies", "artifacts", "expected"),
    [
        (ABLE, True, True, (True, True)),
        (ABLE, False, True, (False, False)),
        (ABLE, True, False, (True, False)),
        (WorkerSnapshot(True, False, True, True, True), True, True, (False, False)),
        (WorkerSnapshot(True, True, False, True, True), True, True, (False, False)),
        (WorkerSnapshot(True, True, True, False, True), True, True, (False, False)),
        (WorkerSnapshot(True, True, True, True, False), True, True, (True, False)),
        (NO_WORKER, True, True, (False, False)),
    ],
)
async def test_readiness_of_a_process(
    world: World, worker: WorkerSnapshot, replies: bool, artifacts: bool, expected: tuple[bool, bool]
) -> None:
    one = (await world.install()).id
    found = await health(world, one, worker=worker, reply_enabled=replies, artifact_enabled=artifacts)
    assert ready(found) == (True, True, *expected)


async def beat(world: World, owner: str, *, accepting: bool = True, outbound: bool = True, files: bool = True) -> None:
    await world.write(
        connections.beat,
        owner,
        started_at=1,
        accepting=accepting,
        outbound_started=outbound,
        artifact_configured=files,
        version="0.1.0",
    )


@pytest.mark.spec("DESK-326")
async def test_a_process_without_worker_reads_the_workers_rows(world: World) -> None:
    """Readiness follows the workers seen within 30 s; 30 s after the last beat of the last one it is false."""
    one = (await world.install()).id

    async def now_ready() -> tuple[bool, bool]:
        return ready(await health(world, one, worker=None))[2:]

    assert await now_ready() == (False, False)
    await beat(world, "w1", files=False)
    assert await now_ready() == (True, False)
    await beat(world, "w2")
    assert await now_ready() == (True, True)
    assert await world.read(connections.live_workers) == 2
    world.clock.advance(20 * SECOND)
    await beat(world, "w1", files=False)
    world.clock.advance(10 * SECOND)
    assert await now_ready() == (True, False)
    world.clock.advance(20 * SECOND - 1)
    assert await now_ready() == (True, False)
    world.clock.advance(1)
    assert await now_ready() == (False, False)
    assert await world.read(connections.snapshot) == NO_WORKER
    assert await world.read(connections.live_workers) == 0


async def test_abilities_of_two_workers_are_not_added_up_and_a_stopping_one_counts_no_more(world: World) -> None:
    await beat(world, "w1", accepting=True, outbound=False)
    await beat(world, "w2", accepting=False, outbound=True)
    found = await world.read(connections.process_readiness, reply_enabled=True, artifact_enabled=True)
    assert found == connections.Readiness(False, False)
    await beat(world, "w3")
    found = await world.read(connections.process_readiness, reply_enabled=True, artifact_enabled=True)
    assert found == connections.Readiness(True, True)
    await world.write(connections.forget, "w3")
    found = await world.read(connections.process_readiness, reply_enabled=True, artifact_enabled=True)
    assert found == connections.Readiness(False, False)


async def test_a_connection_cause_is_kept_until_the_next_success(world: World) -> None:
    """The room's half of DESK-381; that the attempt's own transaction asks for it is proved where sending is."""
    one = (await world.install()).id
    note = connections.note_connect_result
    start = world.clock.now_us()

    async def stored() -> tuple[str | None, int | None, int | None]:
        row = await world.row(one)
        return row["last_error_code"], row["last_error_at"], row["last_ready_at"]

    await world.write(note, one, ok=True)
    assert await stored() == (None, None, start)
    world.clock.advance(30 * SECOND)
    await world.write(note, one, ok=True)
    assert await stored() == (None, None, start)  # at most once a minute
    await world.write(note, one, ok=False, code="rate_limited")
    assert await stored() == ("connect_failed", start + 30 * SECOND, start)
    world.clock.advance(SECOND)
    await world.write(note, one, ok=False, code="connect_failed")
    assert await stored() == ("connect_failed", start + 30 * SECOND, start)  # since when, not how often
    await world.write(note, one, ok=False, code="provider_credentials_rejected")
    assert await stored() == ("provider_credentials_rejected", start + 31 * SECOND, start)
    found = await health(world, one)
    assert (found.status, found.callback_ready, found.last_error_code, found.last_ready_at) == (
        "active",
        True,
        "provider_credentials_rejected",
        start,
    )
    await world.write(note, one, ok=True)
    assert await stored() == (None, None, start)  # cleared at once, the time not yet due
    world.clock.advance(MINUTE)
    await world.write(note, one, ok=True)
    assert await stored() == (None, None, start + 31 * SECOND + MINUTE)
    assert (await world.row(one))["config_revision"] == 1


async def test_unreadable_secrets_are_never_stored_as_a_cause_and_stand_before_one(world: World) -> None:
    one = (await world.install()).id
    note = connections.note_connect_result
    await world.write(note, one, ok=False, code="credential_unavailable")
    assert (await world.row(one))["last_error_code"] is None
    await world.write(note, one, ok=False, code="connect_failed")
    ring, world.keyring = world.keyring, KeyRing("")
    assert (await health(world, one)).last_error_code == "credential_unavailable"
    world.keyring = ring
    assert (await health(world, one)).last_error_code == "connect_failed"


async def test_a_result_of_an_older_configuration_is_dropped(world: World) -> None:
    one = (await world.install()).id
    await world.patch(one, app_secret="planted-new")
    note = connections.note_connect_result
    await world.write(note, one, ok=False, code="provider_credentials_rejected", config_revision=1)
    assert (await world.row(one))["last_error_code"] is None
    await world.write(note, one, ok=False, code="provider_credentials_rejected", config_revision=2)
    assert (await world.row(one))["last_error_code"] == "provider_credentials_rejected"


async def probe(world: World, one: str, name: str = "maintainer") -> tuple[int, Any]:
    async with world.http(name) as client:
        answer = await client.post(world.path(one, "/probe"))
    return answer.status_code, answer.json()


async def test_a_probe_asks_the_provider_and_notes_what_it_found(world: World) -> None:
    one = (await world.install()).id
    status, body = await probe(world, one)
    assert (status, body) == (200, {"token": "ok", "bot_info": "ok", "verification": "ok", "provider_code": None})
    row = await world.row(one)
    assert (row["bot_open_id"], row["last_ready_at"], row["last_error_code"]) == ("ou_bot", world.clock.now_us(), None)
    (asked,) = world.channel.probed
    assert (asked.installation_id, asked.app_id, asked.credentials.app_secret) == (one, "cli_1", SECRETS["app_secret"])

    rejected = "provider_credentials_rejected"
    world.channel.report = ProbeReport(rejected, rejected, 10_003)
    status, body = await probe(world, one)
    assert (status, body["token"], body["provider_code"]) == (200, rejected, 10_003)
    assert (await world.row(one))["last_error_code"] == rejected
    assert (await world.row(one))["bot_open_id"] == "ou_bot"
    world.channel.report = ProbeReport("ok", "permission_denied", 99_991_672)
    status, body = await probe(world, one)
    assert (status, body["bot_info"]) == (200, "permission_denied")
    assert (await world.row(one))["last_error_code"] is None


async def test_a_probe_names_exchanged_secrets_from_the_last_refused_push(world: World) -> None:
    """The probe's half of DESK-286."""
    one = (await world.install()).id
    push = RawPush((("x-lark-signature", "0"),), b'{"encrypt":"AA=="}')
    kept: dict[str, RawPush] = {}
    world.extras["last_refused"] = kept
    world.channel.swapped = True
    assert (await probe(world, one))[1]["verification"] == "ok"  # nothing refused is known
    kept[one] = push
    assert (await probe(world, one))[1]["verification"] == "credentials_swapped"
    (asked,) = world.channel.swaps
    assert asked[0] is push
    assert asked[1].encrypt_key == SECRETS["encrypt_key"]
    world.channel.swapped = False
    assert (await probe(world, one))[1]["verification"] == "ok"


async def test_who_and_what_may_not_be_probed(world: World) -> None:
    one = (await world.install()).id
    assert (await probe(world, one, "operator"))[0] == 403
    await world.patch(one, enabled=False)
    status, body = await probe(world, one)
    assert (status, body["code"]) == (409, "installation_not_active")
    await world.patch(one, enabled=True)
    await world.change(INSTALLATIONS, INSTALLATIONS.c.id == one, app_secret_ct=None)
    status, body = await probe(world, one)
    assert (status, body["code"]) == (503, "credential_unavailable")
    assert world.channel.probed == []


async def test_health_over_http_has_exactly_the_listed_fields(world: World) -> None:
    one = (await world.install()).id
    world.extras["worker_snapshot"] = lambda: ABLE
    async with world.http("viewer") as client:
        shown = (await client.get(world.path(one, "/health"))).json()
    assert shown == {
        "status": "active",
        "callback_ready": True,
        "binding_ready": True,
        "reply_execution_ready": False,  # both flags are off unless a setting turns them on
        "artifact_delivery_ready": False,
        "long_connection": None,
        "last_ready_at": None,
        "last_error_code": None,
    }
