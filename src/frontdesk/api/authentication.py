"""The gate's authenticator: identity's read, the bootstrap user's first use, and the note of use once a minute."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from frontdesk.api.services import Services
from frontdesk.identity import BootstrapUserAbsent, authenticate, ensure_bootstrap_user, touch
from frontdesk.identity.model import Actor
from frontdesk.identity.oidc import find_person, provision_person
from frontdesk.kernel.errors import DatabaseBusy, Problem
from frontdesk.kernel.oncesecret import same_secret
from frontdesk.storage.database import Database
from frontdesk.storage.tx import Tx

if TYPE_CHECKING:
    from frontdesk.identity.oidc.issuer import Issuer

Oidc = Callable[[str], Awaitable[Actor]]


class DatabaseAuthenticator:
    """Asks the database on every request: a token revoked or a user disabled a moment ago is refused now.

    `oidc` decides bearers shaped like a JWT, where OIDC is configured; the bootstrap token may look like anything.
    """

    def __init__(self, services: Services, oidc: Oidc | None = None) -> None:
        self._database = services.database
        self._bootstrap_token = services.bootstrap_token
        self._oidc = oidc

    async def __call__(self, bearer: str) -> Actor:
        """See `gate.Authenticate`."""
        if self._oidc is not None and bearer.count(".") == 2 and not same_secret(bearer, self._bootstrap_token):
            return await self._oidc(bearer)

        def ask(tx: Tx) -> Actor:
            return authenticate(tx, bearer, self._bootstrap_token)

        try:
            actor = await self._database.read(ask)
        except BootstrapUserAbsent:
            await self._database.write(ensure_bootstrap_user)
            actor = await self._database.read(ask)
        if actor.touch_due:
            # A busy database must not refuse who is known: the use is noted at the next request.
            with contextlib.suppress(DatabaseBusy):
                await self._database.write(partial(touch, actor=actor))
        return actor


class OidcBearers:
    """JWT bearers: verified by the issuer's keys, then the user read anew, or made where `provision` is on."""

    def __init__(self, database: Database, issuer: Issuer, audience: str, *, provision: bool) -> None:
        self._database = database
        self._issuer = issuer
        self._audience = audience
        self._provision = provision

    async def __call__(self, bearer: str) -> Actor:
        """The actor. Raises `unauthenticated`, `user_unknown`, `membership_required`, `unavailable`."""
        person = await self._issuer.verify(bearer, self._audience)
        actor = await self._database.read(partial(find_person, person=person))
        if actor is None and self._provision:
            await self._database.write(partial(provision_person, person=person))
            actor = await self._database.read(partial(find_person, person=person))
        if actor is None:
            raise Problem("user_unknown")
        return actor
