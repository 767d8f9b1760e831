"""What is not signed by the provider is no push, whatever it says of itself."""

from __future__ import annotations

import json

import pytest

from tests.channels.signing import headers_for
from tests.contract.desk_world import SECRETS, DeskWorld
from tests.contract.inbox.pushing import Provider, payload


@pytest.mark.parametrize("token", ["wrong", "", SECRETS["verification_token"]])
async def test_a_plaintext_event_is_refused_whatever_token_it_names(desk: DeskWorld, token: str) -> None:
    """FC-1: an unsigned plaintext 2.0 message with a wrong token is 400 without a row; so is one with the right token,
    and one under a signature that fits its bytes.
    """
    provider = Provider(desk, patient=True)
    path = f"/api/v1/channels/feishu/installations/{desk.installation_id}/events"
    body = json.dumps(payload("forged", header={"token": token})).encode()
    before = await desk.counts()
    at = str(desk.clock.now_us() // 1_000_000)
    signed = [pair for pair in headers_for(body, SECRETS["encrypt_key"], at) if pair[0] != "host"]
    for headers in ([("content-type", "application/json")], signed):
        answer = await provider.client.post(path, content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "callback_shape_invalid")
    assert await desk.counts() == before


async def test_a_signed_event_whose_inner_token_is_wrong_is_refused(desk: DeskWorld) -> None:
    """FC-1: the token is compared on every event, not on the URL check alone."""
    provider = Provider(desk, patient=True)
    before = await desk.counts()
    assert await provider.push(payload("forged", header={"token": "wrong"})) == 500
    assert await desk.counts() == before
    assert await provider.push(payload("genuine")) == 200
