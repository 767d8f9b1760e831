"""OIDC bearers over HTTP, with an issuer on loopback that is asked over real HTTP, on each engine."""

from __future__ import annotations

import asyncio
import hmac
import math
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import sqlalchemy as sa

from frontdesk.api.application import Surroundings, create_api
from frontdesk.api.authentication import OidcBearers
from frontdesk.api.services import Policy, Services
from frontdesk.api.threads import ThreadPool
from frontdesk.app.routes import ROUTES
from frontdesk.app.schema import METADATA
from frontdesk.channels.transport import tls_context
from frontdesk.identity.authentication import ensure_bootstrap_user
from frontdesk.identity.members import add_member
from frontdesk.identity.oidc import OidcPerson, add_person, provision_person, subject_of
from frontdesk.identity.oidc.fetch import Fetcher
from frontdesk.identity.oidc.issuer import Issuer
from frontdesk.identity.users import update_user
from frontdesk.kernel.clock import HOUR, MINUTE, SECOND, ManualClock
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.kernel.limits import OIDC_ASK_EVERY_US
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx
from tests.contract.world import World, race
from tests.support import oidc_issuer
from tests.support.oidc_issuer import AUDIENCE, DISCOVERY, KEYS, LocalIssuer, ec_key, rsa_key, token

BOOTSTRAP = "bootstrap.with.dots-" + "b" * 32


@dataclass
class Site:
    """The composed API with an issuer configured."""

    world: World
    clock: ManualClock
    peer: LocalIssuer
    issuer: Issuer
    threads: ThreadPool

    def api(self, *, provision: bool, bootstrap: str = BOOTSTRAP) -> httpx2.AsyncClient:
        """A client without credentials of its own."""
        services = Services(
            database=self.world.database,
            keyring=KeyRing(""),
            channels={},
            clock=self.clock,
            entropy=SystemEntropy(),
            policy=Policy(allowed_hosts=("localhost",)),
            threads=self.threads,
            bootstrap_token=bootstrap,
        )
        oidc = OidcBearers(self.world.database, self.issuer, AUDIENCE, provision=provision)
        routes = [(operation, handler) for operation, handler in ROUTES if operation.id.startswith("identity.")]
        api = create_api(services, routes, None, Surroundings(oidc=oidc))  # type: ignore[arg-type]
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=api), base_url="http://localhost/api/v1")

    @property
    def now_s(self) -> int:
        return self.clock.now_us() // SECOND

    def token(self, sub: str, **more: Any) -> str:
        return self.peer.token(sub, self.now_s, **more)

    async def known(self, sub: str, **values: Any) -> str:
        """A user of this issuer; the id."""

        def make(tx: Tx) -> str:
            user, _ = add_person(tx, self.peer.address, sub, display_name=sub.title())
            if values:
                update_user(tx, self.world.owner, user.id, values)  # type: ignore[arg-type]
            return user.id

        return await self.world.database.write(make)

    async def users(self) -> list[dict[str, Any]]:
        """Users of any issuer."""
        table = METADATA.tables["users"]
        statement = sa.select(table).where(table.c.subject.like("oidc:%"))
        return [dict(row) for row in await self.world.database.read(lambda tx: tx.rows(statement))]


@pytest.fixture
def peer() -> Iterator[LocalIssuer]:
    made = LocalIssuer()
    yield made
    made.close()


@pytest.fixture
async def site(world: World, clock: ManualClock, peer: LocalIssuer) -> AsyncIterator[Site]:
    threads = ThreadPool("oidc-test", 4)
    issuer = Issuer(peer.address, clock=clock, threads=threads, fetch=Fetcher(tls_context))
    yield Site(world, clock, peer, issuer, threads)
    await issuer.close()
    threads.close()


async def seen(client: httpx2.AsyncClient, bearer: str, path: str = "/me") -> tuple[int, str]:
    """Status and code, or the auth method."""
    answer = await client.get(path, headers={"Authorization": f"Bearer {bearer}"})
    body = answer.json()
    return answer.status_code, body.get("code", body.get("auth_method", ""))


BAD = (401, "unauthenticated")


def forged(site: Site) -> dict[str, str]:
    """Tokens of a known person, each with one thing wrong."""
    now, key, other = site.now_s, rsa_key(), rsa_key(1)

    def said(**changes: Any) -> dict[str, Any]:
        claims = {**site.peer.claims("ada", now), **changes}
        return {name: value for name, value in claims.items() if value is not ...}

    def signed(**changes: Any) -> str:
        return token(said(**changes), key)

    good = token(said(), key)
    head, body, mark = good.split(".")
    pem = oidc_issuer.public_pem(key)
    listed = oidc_issuer.encoded(b'{"alg":["RS256"],"kid":"rsa"}')
    return {
        "another issuer": signed(iss="https://id.example.org"),
        "the issuer with a slash": signed(iss=site.peer.address + "/"),
        "no issuer": signed(iss=...),
        "another audience": signed(aud="somebody-else"),
        "other audiences": signed(aud=["a", "b"]),
        "part of the audience": signed(aud=AUDIENCE[:-1]),
        "no audience": signed(aud=...),
        "an audience of another type": signed(aud={AUDIENCE: True}),
        "another key": token(said(), other),
        "an unknown key": token(said(), other, kid="rsa-2"),
        "no key named, of two": token(said(), other, kid=None),
        "the other type's key": token(said(), key, kid="ec"),
        "an EC key of somebody": token(said(), ec_key(1), algorithm="ES256", kid="ec"),
        "no signature": token(said(), None, algorithm="none"),
        "no signature, no key": token(said(), None, algorithm="none", kid=None),
        "None": token(said(), None, algorithm="none").replace(head, oidc_issuer.encoded(b'{"alg":"None","kid":"rsa"}')),
        "HMAC with the public key": token(said(), pem, algorithm="HS256"),
        "HMAC with the modulus": token(said(), oidc_issuer.rsa_jwk("x", key)["n"].encode(), algorithm="HS256"),
        "the right key, RS512": token(said(), key, algorithm="RS512"),
        "the right key, PSS": token(said(), key, algorithm="PS256"),
        "RS256 said, ECDSA made": f"{head}.{body}.{token(said(), ec_key(), algorithm='ES256', kid='ec').split('.')[2]}",
        "another body": f"{head}.{token(said(sub='bob'), other).split('.')[1]}.{mark}",
        "a cut signature": good[:-8],
        "no signature part": f"{head}.{body}.",
        "an unknown critical header": token(said(), key, crit=["x"], x=1),
        "a key in the header": token(said(), other, jwk=oidc_issuer.rsa_jwk("rsa", other)),
        "no end": signed(exp=...),
        "an end that is text": signed(exp=str(now + 300)),
        "an end that is true": signed(exp=True),
        "an end that never comes": signed(exp=math.nan),
        "an end out of leeway": signed(exp=now - 60),
        "a beginning out of leeway": signed(nbf=now + 61),
        "a beginning that is text": signed(nbf="now"),
        "nobody": signed(sub=...),
        "an empty name": signed(sub=""),
        "a name that is a number": signed(sub=7),
        "a name with a line": signed(sub="ada\n"),
        "a name too long": signed(sub="a" * 256),
        "no object": token([said()], key),  # type: ignore[arg-type]
        "no token": "a.b.c",
        "nothing": "..",
        "deep": ".".join((oidc_issuer.encoded(b"[" * 2_900), "e30", "AA")),
        "no header": f"{oidc_issuer.encoded(b'null')}.{body}.{mark}",
        "an algorithm that is a list": f"{listed}.{body}.{mark}",
    }


@pytest.mark.spec("DESK-261")
async def test_what_an_issuer_did_not_sign_for_us_now_is_nobody(site: Site) -> None:
    """Another issuer, audience, key, algorithm (`none`, HS256 with the public key, RS512), time or form of a token is
    401 `unauthenticated` and makes nobody; the same claims under the published RS256 and ES256 keys are let in.
    """
    await site.known("ada")
    async with site.api(provision=True) as client:
        for what, bearer in forged(site).items():
            assert await seen(client, bearer) == BAD, what
        assert len(await site.users()) == 1
        for algorithm in ("RS256", "ES256"):
            assert await seen(client, site.token("ada", algorithm=algorithm)) == (200, "oidc")


async def test_what_of_a_token_is_taken_as_it_comes(site: Site) -> None:
    now, key = site.now_s, rsa_key()
    await site.known("ada")
    async with site.api(provision=False) as client:
        for changes in (
            {"exp": now - 59},
            {"nbf": now + 60},
            {"exp": now + 0.5},
            {"aud": ["x", AUDIENCE]},
            {"unheard": [{"of": None}]},
        ):
            assert await seen(client, token({**site.peer.claims("ada", now), **changes}, key)) == (200, "oidc"), changes
        thumb = token(site.peer.claims("ada", now), key, x5t="t" * 600, unheard=1)
        assert await seen(client, thumb) == (200, "oidc")
        site.peer.published = [oidc_issuer.rsa_jwk("rsa", key)]
        site.clock.advance(HOUR)
        bearer = token(site.peer.claims("ada", site.now_s), key, kid=None)
        assert await seen(client, bearer) == (200, "oidc")  # the only key there is needs no name


@pytest.mark.spec("DESK-261")
async def test_no_token_of_an_issuer_makes_a_platform_administrator(site: Site) -> None:
    """Whatever the token claims, and also where the user's row says so, an OIDC person has no power over the platform,
    and no token made by them has.
    """
    await site.known("ada", is_platform_admin=True)
    claims = {"is_platform_admin": True, "platform_admin": True, "roles": ["admin"], "groups": ["owner"], "admin": True}
    bearer = {"Authorization": f"Bearer {site.token('ada', **claims)}"}
    asked = {"name": "t", "expires_in_seconds": 60}
    async with site.api(provision=False) as client:
        assert (await client.get("/me", headers=bearer)).json()["is_platform_admin"] is False
        for refused in (
            await client.get("/users", headers=bearer),
            await client.post("/workspaces", headers=bearer, json={"name": "x", "slug": "x"}),
            await client.post("/tokens", headers=bearer, json={**asked, "platform_admin": True}),
        ):
            assert (refused.status_code, refused.json()["code"]) == (403, "platform_admin_required")
        made = (await client.post("/tokens", headers=bearer, json=asked)).json()
        assert (made["auth_method"], made["platform_admin"]) == ("oidc", False)
        assert await seen(client, made["token"], "/users") == (403, "platform_admin_required")


@pytest.mark.spec("DESK-261")
async def test_the_bootstrap_token_is_compared_in_constant_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """`hmac.compare_digest` alone decides about the bootstrap token, whatever is presented, and however it looks."""
    await site.world.database.write(ensure_bootstrap_user)
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def noted(given: bytes, expected: bytes) -> bool:
        compared.append((given, expected))
        return real(given, expected)

    for right in (BOOTSTRAP, BOOTSTRAP.replace(".", "-")):  # one looks like a token of the issuer, one like nothing
        monkeypatch.setattr(hmac, "compare_digest", noted)
        near = right[:-1] + "x"
        async with site.api(provision=False, bootstrap=right) as client:
            assert await seen(client, right) == (200, "bootstrap")
            assert await seen(client, near) == BAD
            assert {(right.encode(), right.encode()), (near.encode(), right.encode())} <= set(compared)
            monkeypatch.setattr(hmac, "compare_digest", lambda given, expected: False)
            assert await seen(client, right) == BAD


@pytest.mark.spec("DESK-337")
async def test_an_unknown_subject_is_nobody_until_provisioning_is_on(site: Site) -> None:
    """Without provisioning an unknown subject is 403 `user_unknown` and leaves no row; with it a user appears who is a
    member of nothing, and the same token is let in from then on.
    """
    async with site.api(provision=False) as client:
        assert await seen(client, site.token("new")) == (403, "user_unknown")
        assert await site.users() == []
    named = {"name": "Nova\u202e  Ng", "email": "Nova@Example.org", "email_verified": True}
    async with site.api(provision=True) as client:
        answer = await client.get("/me", headers={"Authorization": f"Bearer {site.token('new', **named)}"})
        assert (answer.status_code, answer.json()["memberships"], answer.json()["auth_method"]) == (200, [], "oidc")
        (row,) = await site.users()
        assert (row["subject"], row["username"], row["password_hash"]) == (f"oidc:{site.peer.address}#new", None, None)
        assert (row["display_name"], row["email"], row["is_platform_admin"]) == ("Nova  Ng", "nova@example.org", False)
        home = f"/workspaces/{site.world.workspace_id}/projects"
        assert await seen(client, site.token("new"), home) == (403, "membership_required")
        # What the issuer has not verified is nobody's address: members are added by it.
        assert await seen(client, site.token("mallory", email="owner@example.org", name="")) == (200, "oidc")
        (mallory,) = [each for each in await site.users() if each["subject"].endswith("#mallory")]
        assert (mallory["email"], mallory["display_name"]) == ("", "mallory")
        long = {"email": "İ" * 308 + "@example.org", "email_verified": True, "name": "n" * 300}
        assert await seen(client, site.token("long", **long)) == (200, "oidc")
        (row,) = [each for each in await site.users() if each["subject"].endswith("#long")]
        assert (row["email"], row["display_name"]) == ("", "n" * 255)
    async with site.api(provision=False) as client:
        assert await seen(client, site.token("new")) == (200, "oidc")


@pytest.mark.spec("DESK-337")
async def test_two_first_sign_ins_at_once_make_one_user(site: Site, open_session: Callable[[], Database]) -> None:
    """Two processes that meet an unknown subject at the same moment make one row, and both let the person in."""
    person = OidcPerson(subject_of(site.peer.address, "twin"), "Twin", "")
    outcomes = await race([open_session(), open_session()], *[lambda tx: provision_person(tx, person)] * 2)
    assert outcomes == [None, None]
    async with site.api(provision=True) as client:
        bearers = [site.token("both"), site.token("both"), site.token("twin"), site.token("twin")]
        assert await asyncio.gather(*(seen(client, bearer) for bearer in bearers)) == [(200, "oidc")] * 4
    assert sorted(each["subject"].partition("#")[2] for each in await site.users()) == ["both", "twin"]


async def test_a_member_of_an_issuer_works_like_any_other_and_is_gone_at_once(site: Site) -> None:
    world = site.world
    user_id = await site.known("ada")
    await world.database.write(
        lambda tx: add_member(tx, world.owner, world.workspace_id, role="operator", user_id=user_id)
    )
    home = f"/workspaces/{world.workspace_id}/projects"
    async with site.api(provision=True) as client:
        assert (await seen(client, site.token("ada"), home))[0] == 200
        await world.database.write(lambda tx: update_user(tx, world.owner, user_id, {"disabled": True}))
        assert await seen(client, site.token("ada"), home) == (403, "membership_required")
        assert await seen(client, site.token("ada")) == (403, "membership_required")
    assert len(await site.users()) == 1


# ------------------------------------------------------------------------------------------- asking the issuer


async def test_the_issuer_is_asked_once_however_many_come(site: Site) -> None:
    await site.known("ada")
    async with site.api(provision=False) as client:
        good = [site.token("ada") for _ in range(10)]
        invented = [token(site.peer.claims("ada", site.now_s), rsa_key(1), kid=f"k{each}") for each in range(30)]
        answers = await asyncio.gather(*(seen(client, bearer) for bearer in good + invented))
        assert answers == [(200, "oidc")] * 10 + [BAD] * 30
        assert site.peer.asked == [DISCOVERY, KEYS]
        site.clock.advance(OIDC_ASK_EVERY_US)
        assert await asyncio.gather(*(seen(client, bearer) for bearer in invented)) == [BAD] * 30
        assert site.peer.asked == [DISCOVERY, KEYS] * 2


async def test_a_new_key_is_found_and_a_withdrawn_one_forgotten(site: Site) -> None:
    await site.known("ada")
    async with site.api(provision=False) as client:
        assert await seen(client, site.token("ada")) == (200, "oidc")
        site.peer.published.append(oidc_issuer.rsa_jwk("rsa-2", rsa_key(1)))
        site.clock.advance(OIDC_ASK_EVERY_US)
        newer = token(site.peer.claims("ada", site.now_s), rsa_key(1), kid="rsa-2")
        assert await seen(client, newer) == (200, "oidc")
        del site.peer.published[0]
        site.clock.advance(10 * MINUTE)
        later = site.token("ada", iat=site.now_s)
        assert await seen(client, later) == (200, "oidc")  # beside this request the issuer is asked
        await site.issuer.close()
        assert await seen(client, later) == BAD


async def test_an_issuer_that_is_gone_is_believed_for_an_hour_and_then_nobody_is(site: Site) -> None:
    await site.known("ada")
    site.peer.answer = lambda handler: oidc_issuer.send(handler, {"error": "down"}, 500)
    async with site.api(provision=True) as client:
        refused = await client.get("/me", headers={"Authorization": f"Bearer {site.token('ada')}"})
        assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (
            503,
            "unavailable",
            "10",
        )
        asked = len(site.peer.asked)
        assert await seen(client, site.token("ada")) == (503, "unavailable")  # at once, and without asking
        assert len(site.peer.asked) == asked
        site.peer.answer = None
        site.clock.advance(OIDC_ASK_EVERY_US)
        assert await seen(client, site.token("ada")) == (200, "oidc")
        site.peer.answer = lambda handler: oidc_issuer.send(handler, {"error": "down"}, 500)
        site.clock.advance(HOUR - 1)
        assert await seen(client, site.token("ada")) == (200, "oidc")
        # Whether an unknown key is good cannot be told while the issuer is gone.
        await site.issuer.close()
        site.clock.advance(OIDC_ASK_EVERY_US)
        assert await seen(client, token(site.peer.claims("ada", site.now_s), rsa_key(1), kid="new")) == (
            503,
            "unavailable",
        )
        assert await seen(client, site.token("ada")) == (503, "unavailable")
        assert await seen(client, BOOTSTRAP) == (200, "bootstrap")  # everybody else is not concerned


async def test_a_client_that_goes_away_does_not_end_the_question(site: Site) -> None:
    await site.known("ada")
    reached, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait(handler: Any) -> bool:
        loop.call_soon_threadsafe(reached.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(30)
        return False

    site.peer.answer = wait
    first = asyncio.ensure_future(site.issuer.verify(site.token("ada"), AUDIENCE))
    second = asyncio.ensure_future(site.issuer.verify(site.token("ada"), AUDIENCE))
    await asyncio.wait_for(reached.wait(), 30)
    first.cancel()
    site.peer.answer = None
    go_on.set()
    assert (await second).subject == f"oidc:{site.peer.address}#ada"
    with pytest.raises(asyncio.CancelledError):
        await first
    assert site.peer.asked == [DISCOVERY, KEYS]
