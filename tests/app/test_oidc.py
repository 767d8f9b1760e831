"""An issuer in a whole server: from the settings to a person who comes in, and what `doctor` says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from frontdesk.app.commands.users import user
from frontdesk.app.finding import NOTE, OK
from tests.app.conftest import Serve, tables
from tests.app.test_doctor import look, of, one, wrong_checks
from tests.support import oidc_issuer
from tests.support.oidc_issuer import AUDIENCE, LocalIssuer


@pytest.fixture
def issuer() -> Iterator[LocalIssuer]:
    made = LocalIssuer()
    yield made
    made.close()


async def command(data: Path, issuer: str, *words: str) -> Result:
    """`frontdesk user oidc …`, on a thread: it runs a loop of its own."""
    environment = {"FRONTDESK_OIDC_ISSUER": issuer, "FRONTDESK_OIDC_AUDIENCE": AUDIENCE if issuer else ""}
    given = ["oidc", *words, "--data", str(data)]
    return await asyncio.to_thread(CliRunner().invoke, user, given, env=environment)


async def test_a_person_who_was_let_in_by_hand(data: Path, serve: Serve, issuer: LocalIssuer) -> None:
    settings = {"oidc_issuer": issuer.address, "oidc_audience": AUDIENCE}
    made = await command(data, issuer.address, "ada", "--name", "Ada", "--email", "Ada@Example.org")
    assert made.exit_code == 0, made.output
    again = await command(data, issuer.address, "ada", "--name", "Else")
    assert (again.exit_code, "nothing was changed" in again.output) == (1, True)
    for words in (("", "--name", "x"), ("x" * 256, "--name", "x"), ("bob", "--name", " ")):
        assert (await command(data, issuer.address, *words)).exit_code == 1
    assert "oidc_issuer is not set" in (await command(data, "", "bob", "--name", "Bob")).output
    assert len(tables(data / "frontdesk.db")["users"]) == 2  # with the owner
    async with serve(data, **settings) as running:
        me = await running.client(issuer.token("ada")).get("/api/v1/me")
        assert (me.status_code, me.json()["user"]["display_name"]) == (200, "Ada")
        assert me.json()["user"]["email"] == "ada@example.org"
        stranger = await running.client(issuer.token("bob")).get("/api/v1/me")
        assert (stranger.status_code, stranger.json()["code"]) == (403, "user_unknown")
    assert len(tables(data / "frontdesk.db")["users"]) == 2


async def test_without_an_audience_no_bearer_of_the_issuer_is_taken(
    data: Path, serve: Serve, issuer: LocalIssuer
) -> None:
    settings = {"oidc_issuer": issuer.address, "oidc_client_id": AUDIENCE, "oidc_provision": "true"}
    async with serve(data, **settings) as running:
        answer = await running.client(issuer.token("ada")).get("/api/v1/me")
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert issuer.asked == []


@pytest.mark.parametrize("proxy", ["", "127.0.0.1"])
async def test_a_cookie_is_secure_behind_a_proxy(data: Path, serve: Serve, proxy: str) -> None:
    async with serve(data, behind_proxy=proxy) as running:
        origin = running.address.replace("http:", "https:" if proxy else "http:")
        body = {"username": "owner", "password": "correct horse battery", "cookie": True}
        answer = await running.client().post("/api/v1/session", json=body, headers={"Origin": origin})
        assert answer.status_code == 201, answer.text
        assert answer.headers["set-cookie"].endswith("; HttpOnly; SameSite=Lax" + ("; Secure" if proxy else ""))


async def test_what_doctor_says_of_the_issuer(data: Path, issuer: LocalIssuer) -> None:
    """Nothing where none is configured; that it answers, or what is wrong with it and which setting to change."""
    assert of(await look(data), "oidc") == []
    both = {"oidc_issuer": issuer.address, "oidc_audience": AUDIENCE}
    found = await look(data, **both)
    assert "signing keys that fit: 2" in one(found, "oidc", OK).says
    assert "user oidc" in one(found, "oidc", NOTE).says
    found = await look(data, oidc_issuer=issuer.address, oidc_client_id="desk", oidc_provision="true")
    assert [each.setting for each in of(found, "oidc")] == [None, "oidc_audience", "oidc_provision"]
    issuer.described = {"token_endpoint": None}
    assert "sign in at" in one(await look(data, **both, oidc_client_id="desk"), "oidc").says
    issuer.described = {"issuer": issuer.address + "/"}
    assert "another issuer" in one(await look(data, **both), "oidc").says
    issuer.answer = lambda handler: oidc_issuer.send(handler, None)
    found = await look(data, **both)
    assert one(found, "oidc").setting == "oidc_issuer"
    assert "oidc" in wrong_checks(found)
