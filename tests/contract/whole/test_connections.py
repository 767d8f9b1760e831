"""One connection seen from its two sides at once: what people read of it, and what the provider's push is told."""

from __future__ import annotations

from typing import Any

import pytest

from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.secretbox import KeyRing, new_key
from tests.channels.signing import body_of, headers_for
from tests.contract.desk_world import SECRETS
from tests.contract.whole.house import House, counted_sdk

NO_CAPABILITY = ("callback_ready", "binding_ready", "reply_execution_ready", "artifact_delivery_ready")


async def break_secret(house: House, secret: str, fault: str) -> dict[str, Any]:
    """Spoil one stored secret; gives the row as it was."""
    desk = house.desk
    before = await desk.row("installations", desk.installation_id)
    spoiled = {"missing": None, "empty": "", "undecryptable": KeyRing(new_key()).encrypt("x")}[fault]
    await desk.force("installations", desk.installation_id, **{f"{secret}_ct": spoiled})
    return before


def challenge() -> dict[str, str]:
    return {"challenge": "ch", "token": SECRETS["verification_token"], "type": "url_verification"}


@pytest.mark.spec("DESK-12")
@pytest.mark.parametrize("fault", ["missing", "empty", "undecryptable"])
@pytest.mark.parametrize("secret", list(SECRETS))
async def test_health_and_callback_never_disagree_about_a_secret(house: House, secret: str, fault: str) -> None:
    """Each of three secrets missing, empty or unreadable: health says blocked with its cause, and every push gets 503.

    So it is at once, on the very next request, whatever the callback still remembers; and no longer once it is mended.
    """
    desk = house.desk
    numbers = iter(range(1_000))

    async def told() -> tuple[Any, ...]:
        """What health says, and what a message, a URL check and an event of no interest are answered."""
        message = house.message("hello", f"om_{next(numbers)}")
        other = {**message, "header": {**message["header"], "event_type": "im.chat.updated_v1"}}
        answers = [(await house.push(each)).status_code for each in (message, challenge(), other)]
        found = await house.get(house.installation(rest="/health"))
        return found["status"], found["callback_ready"], found["last_error_code"], answers

    sound = ("active", True, None, [200, 200, 200])
    assert await told() == sound
    before = await break_secret(house, secret, fault)
    rows = await desk.counts()
    broken = ("blocked", False, "credential_unavailable", [503, 503, 503])
    # The callback has just read the installation and would trust that reading for a second.
    assert await told() == broken
    desk.clock.advance(2 * SECOND)
    assert await told() == broken
    assert await desk.counts() == rows
    found = await house.get(house.installation(rest="/health"))
    assert [found[name] for name in NO_CAPABILITY] == [False] * 4
    body = (await house.push(challenge())).json()
    assert (body["code"], body["status"]) == ("verification_material_unavailable", 503)
    await desk.force("installations", desk.installation_id, **{f"{secret}_ct": before[f"{secret}_ct"]})
    assert await told() == sound


@pytest.mark.spec("DESK-35")
@pytest.mark.parametrize("fault", ["missing", "empty", "undecryptable", "no key"])
async def test_with_unusable_credentials_nothing_is_verified(
    house: House, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Found unusable: 503, no dispatcher made or asked, no row written, and the SDK's callback never runs."""
    desk = house.desk
    if fault == "no key":
        house.process.keyring._ring = None
    else:
        await break_secret(house, "encrypt_key", fault)
    rows = await desk.counts()
    pushes = [house.message("hello", "om_1"), challenge()]
    with counted_sdk(monkeypatch) as seen:
        for pushed in pushes:
            answer = await house.push(pushed)
            assert (answer.status_code, answer.json()["code"]) == (503, "verification_material_unavailable")
        assert seen == []
        assert await desk.counts() == rows
    # The same pushes, with credentials, are what the SDK is asked about: the count can count.
    sound = await desk.install("Sound", app_id="cli_2") if fault != "no key" else None
    if sound is not None:
        with counted_sdk(monkeypatch) as seen:
            assert (await house.push(house.message("hello", "om_1", installation_id=sound), sound)).status_code == 200
            assert seen == ["dispatcher", "asked"]


@pytest.mark.spec("DESK-30")
@pytest.mark.parametrize("when", ["before connect", "after connect"])
async def test_a_revoked_installation_is_over_before_the_next_send(house: House, when: str) -> None:
    """DELETE ends it for good and twice alike; what was not yet on the wire, though claimed, is not sent any more."""
    desk = house.desk
    seat = await desk.seat()
    row = await house.say("question", parent=seat.activation)
    await desk.work()
    assert (await desk.row("receipts", row["id"]))["status"] == "completed"
    path = house.installation()
    answers = []

    async def revoke(_: Any = None) -> None:
        answers.append(await house.api.delete(path))

    if when == "before connect":
        await revoke()
    else:
        desk.channel.on_connect = revoke
    await desk.send()
    desk.channel.on_connect = None
    (delivery,) = await desk.rows("deliveries", receipt=row["id"])
    lost = "authorization_revoked_before_delivery"
    assert (delivery["status"], delivery["error_code"]) == ("failed", lost)
    assert (len(desk.channel.connected), desk.channel.sent) == (0 if when == "before connect" else 1, [])
    assert (await desk.row("receipts", row["id"]))["error_code"] == lost

    kept = await desk.row("installations", desk.installation_id)
    desk.clock.advance(SECOND)
    for _ in range(2):
        await revoke()
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert answers[1].json() == answers[2].json() == await house.get(path)
    assert [answer.json()["status"] for answer in answers] == ["revoked"] * 3
    assert len({answer.json()["config_revision"] for answer in answers}) == 1
    assert await desk.row("installations", desk.installation_id) == kept
    assert await desk.count("events", kind="installation.revoked") == 1
    for change in ({"enabled": True}, {"name": "Back"}, {"app_secret": "another"}):
        refused = await house.api.patch(path, json=change)
        assert (refused.status_code, refused.json()["code"]) == (409, "installation_revoked")
    assert await desk.row("installations", desk.installation_id) == kept


@pytest.mark.spec("DESK-275")
async def test_after_a_revocation_pushes_are_known_by_their_secrets_or_not_at_all(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept secrets verify, and a push is rejected by name; forgotten ones are gone from the row: then 503."""
    desk = house.desk
    desk_seat = await desk.seat()
    kept = await desk.row("installations", desk.installation_id)
    names = [f"{name}_ct" for name in SECRETS]
    assert (await house.api.delete(house.installation())).status_code == 200
    after = await desk.row("installations", desk.installation_id)
    assert [after[name] for name in names] == [kept[name] for name in names]
    for text in ("hello", "/bind fdb_" + "0" * 20):
        row = await house.say(text, parent=desk_seat.activation)
        assert (row["status"], row["error_code"]) == ("rejected", "installation_revoked")
    # Verified it was: a forged one is refused and leaves no row.
    forged = await house.push(house.message("hello", "om_forged"), key="another-key")
    assert (forged.status_code, await desk.count("receipts", provider_message_id="om_forged")) == (500, 0)

    assert (await house.api.delete(house.installation(), params={"forget_secrets": "true"})).status_code == 200
    after = await desk.row("installations", desk.installation_id)
    assert [after[name] for name in names] == [None, None, None]
    counts = await desk.counts()
    with counted_sdk(monkeypatch) as seen:
        desk.clock.advance(2 * SECOND)
        for pushed in (house.message("hello", "om_late"), challenge()):
            assert (await house.push(pushed)).status_code == 503
    assert (seen, await desk.counts()) == ([], counts)


@pytest.mark.spec("DESK-40")
async def test_what_does_not_verify_leaves_nothing_and_says_nothing(house: House) -> None:
    """Wrong signature, key or token, of a message or a URL check: one constant 500, no row, no secret in it."""
    desk = house.desk
    message = house.message("hello", "om_1")
    rows = await desk.counts()
    bodies = set()

    def of(payload: dict[str, Any], token: str) -> dict[str, Any]:
        return {**payload, "header": {**payload["header"], "token": token}}

    answers = {
        "wrong key": await house.push(message, key="another-encrypt-key"),
        "key of the other field": await house.push(message, key=SECRETS["verification_token"]),
        "wrong token": await house.push(of(message, "another-token")),
        "empty token": await house.push(of(message, "")),
        "wrong token in a URL check": await house.push({**challenge(), "token": "another-token"}),
    }
    sound = await sound_push(house, message)
    for name, changed in {
        "wrong signature": "0" * 64,
        "somebody else's signature": sound[1][::-1],
        "short signature": sound[1][:-1],
    }.items():
        answers[name] = await house.post(sound[0], with_signature(sound[2], changed))
    answers["changed body"] = await house.post(sound[0].replace(b'"}', b'A"}'), sound[2])
    answers["unsigned"] = await house.post(sound[0], [("content-type", "application/json")])
    for name, answer in answers.items():
        assert (name, answer.status_code, answer.json()["code"]) == (name, 500, "callback_not_accepted")
        bodies.add(answer.content)
        everything = answer.text + repr(answer.headers)
        for secret in SECRETS.values():
            assert secret not in everything, name
    assert len(bodies) == 1
    assert await desk.counts() == rows
    # The very bytes that were tampered with are accepted as they were.
    assert (await house.post(sound[0], sound[2])).status_code == 200


async def sound_push(house: House, payload: Any) -> tuple[bytes, str, list[tuple[str, str]]]:
    """Body, signature and headers of a push that verifies."""
    body = body_of(payload, SECRETS["encrypt_key"])
    at = str(house.desk.clock.now_us() // 1_000_000)
    headers = [pair for pair in headers_for(body, SECRETS["encrypt_key"], at) if pair[0] != "host"]
    return body, dict(headers)["x-lark-signature"], headers


def with_signature(headers: list[tuple[str, str]], signature: str) -> list[tuple[str, str]]:
    return [(name, signature if name == "x-lark-signature" else value) for name, value in headers]


@pytest.mark.spec("DESK-45")
async def test_a_push_is_believed_within_its_window_and_once(house: House) -> None:
    """Signed over nine hours ago or 300 s ahead: rejected by name with 200. Inside, the same bytes make one receipt."""
    desk = house.desk
    now, minute = desk.clock.now_us(), 60 * SECOND
    window, ahead = 9 * 60 * minute, 5 * minute
    signed = {-window: None, -window - SECOND: "late", ahead: None, ahead + SECOND: "late", -(24 * 60 * minute): "late"}
    for number, (offset, late) in enumerate(signed.items()):
        name = f"om_{number}"
        assert (await house.push(house.message("hello", name), at_us=now + offset)).status_code == 200
        (row,) = await desk.rows("receipts", provider_message_id=name)
        outside = (row["status"], row["error_code"]) == ("rejected", "timestamp_outside_window")
        assert outside == (late is not None), offset

    seat = await desk.seat()
    pushed = await sound_push(house, house.message("once", "om_once", parent=seat.activation))
    for wait in (0, 15 * SECOND, 5 * minute, 3 * 60 * minute, window - 10 * 60 * SECOND - 3 * 60 * minute):
        desk.clock.advance(wait)
        assert (await house.post(pushed[0], pushed[2])).status_code == 200
    await desk.work()
    (row,) = await desk.rows("receipts", provider_message_id="om_once")
    assert row["status"] == "completed"
    assert await desk.count("turns") == 1
