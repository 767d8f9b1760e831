"""What is kept of a text: commands and secrets never, an ordinary one in full."""

from __future__ import annotations

import html
import io
import logging
from typing import Any

import pytest
import structlog

from frontdesk.desk.inbox.intent import detect
from tests.contract.desk_world import DeskWorld
from tests.contract.inbox.pushing import Provider, payload

CLAIM = "fdc_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
BINDING = "fdb_0123456789ABCDEFGHJK"
FULL_WIDTH_CLAIM = "".join(chr(ord(letter) + 0xFEE0) for letter in CLAIM)

CLAIMS = [
    f"/claim {CLAIM}",
    f"领取 {CLAIM}",
    "/claim",
    "领取",
    "/CLAIM something",
    f"  \n\t/claim {CLAIM}",
    f"\u3000\u3000领取 {CLAIM}",
    f"\u200b\u200c\u200d\u2060\ufeff/claim {CLAIM}",
    f"@_user_1 /claim {CLAIM}",
    f"@_all\u3000领取 {CLAIM}",
    f"@_user_1 \u200b@_user_2  /claim {CLAIM}",
    f"\ufe0f\u3164/claim {CLAIM}",
    f"／ｃｌａｉｍ {CLAIM}",
    f"please send {CLAIM} to me",
    f"x{CLAIM}y",
    f"{CLAIM[:9]}\u200b{CLAIM[9:]}",
    f"{CLAIM[:9]}\u00ad{CLAIM[9:]}",
    f"{CLAIM[:-1]}a\u0301 with a mark upon its last letter",
    FULL_WIDTH_CLAIM,
    f"{BINDING} and {CLAIM}",
]
BINDINGS = [
    f"/bind {BINDING}",
    f"绑定 {BINDING}",
    "/bind",
    "绑定",
    f"\u3000@_user_1\u200b绑定 {BINDING}",
    f"my code is {BINDING}, is it not?",
    BINDING.lower(),
    f"FDB_{BINDING[4:].lower()}",
    f"{BINDING[:6]}\u2060{BINDING[6:]}",
    f"{BINDING[:-1]}a\u0301",
]
ORDINARY = [
    "claim the prize /claim",
    "what does 领取 mean",
    "fdc_ is a prefix",
    "fdc_" + "A" * 31,
    "fdb_" + "0" * 19,
    "a @_user_1 in the middle",
    "How do I bind it?",
]
SECRETS = ["password=hunter22", "sk-" + "a" * 24, "ghp_" + "a" * 36, "-----BEGIN RSA PRIVATE KEY-----"]


@pytest.mark.parametrize("text", CLAIMS)
def test_a_claim_is_seen_however_it_is_dressed(text: str) -> None:
    assert detect(text).kind == "artifact_claim"


@pytest.mark.parametrize("text", BINDINGS)
def test_a_binding_is_seen_however_it_is_dressed(text: str) -> None:
    assert detect(text).kind == "binding"


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_text_is_an_ordinary_text(text: str) -> None:
    assert detect(text).kind == "reply"


def test_the_code_is_found_without_its_dress() -> None:
    assert detect(f"{CLAIM[:9]}\u200b{CLAIM[9:]}").code == CLAIM
    assert detect(FULL_WIDTH_CLAIM).code == CLAIM
    assert detect(f"my code is {BINDING}, is it not?").code == BINDING
    assert "fdc_" not in repr(detect(CLAIM))


@pytest.mark.spec("DESK-68")
async def test_a_dressed_claim_is_neither_stored_nor_run(desk: DeskWorld) -> None:
    """Claims behind white space, invisible or full-width characters and mentions leave a placeholder and no turn."""
    seat = await desk.seat()
    for text in CLAIMS:
        row = await desk.ask(text, seat)
        assert (row["intent"], row["status"]) == ("artifact_claim", "rejected"), text
        assert row["content_text"] == "[artifact claim]"
        desk.clock.advance(3_000_000)
    await desk.work()
    assert desk.runner.requests == []
    everything = await desk.everything()
    for trace in (CLAIM, CLAIM[9:], FULL_WIDTH_CLAIM):
        assert trace not in everything


@pytest.mark.spec("DESK-296")
async def test_a_one_time_secret_anywhere_takes_its_path_and_is_never_kept(
    desk: DeskWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A text with a claim or a binding code, in any letter case, is that command; no table, log or runner has it."""
    seat = await desk.seat()
    fresh = await desk.challenge(await desk.people.person("mate", "operator"))
    provider = Provider(desk)
    secrets = [CLAIM, BINDING, BINDING.lower(), fresh, fresh.lower()]
    logged = io.StringIO()
    caplog.set_level(logging.DEBUG)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(logged), cache_logger_on_first_use=False)
    try:
        for number, secret in enumerate(secrets):
            for place, text in enumerate((secret, f"could you {secret} please", f"a{secret}b")):
                message = payload(text, message_id=f"om_s_{number}_{place}", parent_id=seat.activation)
                assert await provider.push(message) == 200
                desk.clock.advance(3_000_000)
        # A refused one, of which the log tells: so that it is seen to be read here.
        forged = payload(CLAIM, message_id="om_f", header={"token": "wrong"}, parent_id=seat.activation)
        assert await provider.push(forged) == 500
        await desk.work()
        await desk.send()
    finally:
        structlog.reset_defaults()
    rows = [row for row in await desk.rows("receipts") if row["provider_message_id"].startswith("om_s_")]
    expected = {"om_s_0": "artifact_claim"}
    for row in rows:
        intent = expected.get(row["provider_message_id"][:6], "binding")
        assert row["intent"] == intent
        assert row["content_text"] == ("[artifact claim]" if intent == "artifact_claim" else "[binding]")
    assert len(rows) == 15
    assert desk.runner.requests == []
    everything = (await desk.everything() + logged.getvalue() + caplog.text).lower()
    assert "desk.inbox.callback" in everything
    for secret in secrets:
        assert secret.lower() not in everything


@pytest.mark.spec("DESK-71")
async def test_an_ordinary_text_is_kept_and_run_character_by_character(desk: DeskWorld) -> None:
    """What a person wrote is stored whole and reaches the runner as written, with no entity in place of a character."""
    seat = await desk.seat()
    texts = [
        "<b>5 > 3 & 'x' \"y\"</b> &amp; &lt;",
        "  leading and trailing  \n",
        "\u200bzero\u00adwidth ＡＢＣ é e\u0301 👩‍👩‍👧",
        "<" * 5_000,
    ]
    provider = Provider(desk)
    for number, text in enumerate(texts):
        assert await provider.push(payload(text, message_id=f"om_t_{number}", parent_id=seat.activation)) == 200
        desk.clock.advance(1)
    rows = await desk.rows("receipts", intent="reply")
    assert [row["content_text"] for row in rows] == texts
    await desk.work()
    assert [request.text for request in desk.runner.requests] == texts
    assert [turn["user_content"] for turn in await desk.rows("turns")] == texts
    assert html.escape(texts[0]) not in await desk.everything()


async def refusals(desk: DeskWorld) -> dict[str, dict[str, Any]]:
    """One rejected receipt of every kind that reception makes, by its code."""
    seat = await desk.seat()
    marker = "planted-text"
    rows = [
        await desk.ask(marker, seat, app_id="cli_other"),
        await desk.ask(marker, seat, signed_at_ms=0),
        await desk.ask(marker, seat, sender="ou_stranger"),
        await desk.ask(marker, seat, parent="om_forged"),
        await desk.ask(f"{marker} password=hunter22", seat),
        await desk.ask(f"/claim {marker}", seat),
        await desk.ask(f"/bind {marker}", seat),
        await desk.receipt(await desk.push(desk.message(None, seat))),
    ]
    desk.unaddressed = "refuse"
    rows.append(await desk.ask(marker, seat, reply=False))
    await desk.push(desk.message("early", seat, message_id="om_early"))
    rows.append(await desk.receipt(await desk.push(desk.recall("om_early"))))
    desk.clock.advance(61_000_000)
    for number in range(20):
        await desk.ask(f"fill {number}", seat)
    rows.append(await desk.ask(marker, seat))
    rows += [await desk.ask(f"{marker} {number}", seat) for number in range(10)]
    await desk.enable(False)
    rows.append(await desk.ask(marker, seat))
    await desk.revoke_installation()
    rows.append(await desk.ask(marker, seat))
    return {row["error_code"]: row for row in rows}


@pytest.mark.spec("DESK-295")
async def test_a_refused_receipt_keeps_a_placeholder_its_hash_and_its_code(desk: DeskWorld) -> None:
    """Whatever reception refuses keeps no word of the text, only a placeholder, the hash and the code."""
    rows = await refusals(desk)
    assert set(rows) == {
        "installation_identity_mismatch",
        "timestamp_outside_window",
        "principal_not_bound",
        "reply_grant_unavailable",
        "credential_text_refused",
        "artifact_claim_invalid",
        "binding_challenge_invalid",
        "unsupported_message_shape",
        "reply_target_required",
        "message_recalled",
        "inbox_full",
        "sender_rate_limited",
        "installation_disabled",
        "installation_revoked",
    }
    placeholders = {"artifact_claim": "[artifact claim]", "binding": "[binding]", "reply": "[not kept]"}
    for code, row in rows.items():
        assert row["status"] == "rejected", code
        assert row["content_text"] == placeholders[row["intent"]], code
        assert len(row["request_hash"]) == 64
        assert row["processed_at"] is not None
    everything = await desk.everything()
    assert "planted-text" not in everything
    assert "hunter22" not in everything


@pytest.mark.parametrize("text", SECRETS)
async def test_credential_looking_text_is_refused_and_not_kept(desk: DeskWorld, text: str) -> None:
    seat = await desk.seat()
    row = await desk.ask(f"use {text} for it", seat)
    assert (row["status"], row["error_code"]) == ("rejected", "credential_text_refused")
    await desk.work()
    assert desk.runner.requests == []
    assert text not in await desk.everything()
