"""The gate over a real database: sessions, tokens and the bootstrap user, read anew on every request."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from frontdesk.api.application import Surroundings, create_api
from frontdesk.api.authentication import DatabaseAuthenticator
from frontdesk.api.services import Policy, Services
from frontdesk.api.threads import ThreadPool
from frontdesk.app.migrating import upgrade
from frontdesk.app.routes import ROUTES
from frontdesk.identity.model import Actor
from frontdesk.kernel.clock import SystemClock
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.database import Database
from frontdesk.storage.opening import open_database
from tests.http.conftest import FakePorts
from tests.http.test_problems import assert_problem
from tests.support.engines import Engine

BOOTSTRAP = "bootstrap-" + "t" * 32
PASSWORD = "correct horse"


@pytest.fixture
async def services(engine: Engine) -> AsyncIterator[Services]:
    """Services on a migrated database."""
    clock, entropy = SystemClock(), SystemEntropy()
    database = open_database(engine.url, clock, entropy)
    upgrade(database.engine())
    threads = ThreadPool("test", 2)
    yield Services(
        database=database,
        keyring=KeyRing(""),
        channels={},
        clock=clock,
        entropy=entropy,
        policy=Policy(allowed_hosts=("localhost",)),
        threads=threads,
        bootstrap_token=BOOTSTRAP,
    )
    await database.close()
    threads.close()


@pytest.fixture
async def anyone(services: Services) -> AsyncIterator[httpx2.AsyncClient]:
    """A client without credentials of its own."""
    api = create_api(services, ROUTES, FakePorts(), Surroundings())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=api), base_url="http://localhost") as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_from_the_first_start_to_the_last_request(anyone: httpx2.AsyncClient) -> None:
    """Bootstrap makes its user at first use; ended, revoked and disabled are refused at the very next request."""
    me = await anyone.get("/api/v1/me", headers=bearer(BOOTSTRAP))
    assert (me.status_code, me.json()["auth_method"], me.json()["is_platform_admin"]) == (200, "bootstrap", True)
    assert (await anyone.get("/api/v1/me", headers=bearer(BOOTSTRAP))).json()["user"] == me.json()["user"]
    person = {"username": "ada", "display_name": "Ada", "password": PASSWORD}
    made = await anyone.post("/api/v1/users", json=person, headers=bearer(BOOTSTRAP))
    assert made.status_code == 201, made.text
    assert PASSWORD not in made.text

    login = {"username": "ada", "password": "wrong horse"}
    assert_problem(await anyone.post("/api/v1/session", json=login), 401, "login_failed")
    session = (await anyone.post("/api/v1/session", json={**login, "password": PASSWORD})).json()["token"]
    created = await anyone.post("/api/v1/tokens", json={"name": "t", "expires_in_seconds": 60}, headers=bearer(session))
    token = created.json()["token"]
    for credential in (session, token):
        assert (await anyone.get("/api/v1/me", headers=bearer(credential))).json()["user"]["username"] == "ada"

    revoked = await anyone.delete(f"/api/v1/tokens/{created.json()['id']}", headers=bearer(session))
    assert (revoked.status_code, revoked.content) == (204, b"")
    assert_problem(await anyone.get("/api/v1/me", headers=bearer(token)), 401, "unauthenticated")
    assert (await anyone.delete("/api/v1/session", headers=bearer(session))).status_code == 204
    assert_problem(await anyone.get("/api/v1/me", headers=bearer(session)), 401, "unauthenticated")

    again = (await anyone.post("/api/v1/session", json={**login, "password": PASSWORD})).json()["token"]
    disabled = await anyone.patch(
        f"/api/v1/users/{made.json()['id']}", json={"disabled": True}, headers=bearer(BOOTSTRAP)
    )
    assert disabled.status_code == 200
    refused = await anyone.get("/api/v1/me", headers=bearer(again))
    assert refused.status_code in {401, 403}


class _Busy:
    """A database that reads and never writes."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner

    async def read(self, fn: Any) -> Any:
        return await self._inner.read(fn)

    async def write(self, fn: Any) -> Any:
        raise DatabaseBusy


async def test_a_busy_database_does_not_refuse_who_is_known(services: Services, anyone: httpx2.AsyncClient) -> None:
    """Noting that a token was used is put off where the database is busy; the request itself goes on."""
    await anyone.get("/api/v1/me", headers=bearer(BOOTSTRAP))
    asked = {"name": "t", "expires_in_seconds": 60}
    token = (await anyone.post("/api/v1/tokens", json=asked, headers=bearer(BOOTSTRAP))).json()["token"]
    busy = dataclasses.replace(services, database=_Busy(services.database))  # type: ignore[arg-type]
    actor = await DatabaseAuthenticator(busy)(token)
    assert actor.touch_due
    noted = await DatabaseAuthenticator(services)(token)
    assert noted.touch_due
    assert not (await DatabaseAuthenticator(services)(token)).touch_due


async def test_jwt_shaped_bearers_go_to_oidc(services: Services) -> None:
    """A bearer shaped like a JWT is decided by OIDC alone, where it is configured."""
    known = Actor("usr_1", "oidc:x#y", "Y", "", "oidc", is_platform_admin=False)

    async def oidc(text: str) -> Actor:
        assert text == "a.b.c"
        return known

    assert await DatabaseAuthenticator(services, oidc)("a.b.c") is known
