"""The gate's authenticator: identity's read, the bootstrap user's first use, and the note of use once a minute."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from frontdesk.api.services import Services
from frontdesk.identity import BootstrapUserAbsent, authenticate, ensure_bootstrap_user, touch
from frontdesk.identity.model import Actor
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.storage.tx import Tx

Oidc = Callable[[str], Awaitable[Actor]]


class DatabaseAuthenticator:
    """Asks the database on every request: a token revoked or a user disabled a moment ago is refused now.

    `oidc` decides bearers shaped like a JWT, where OIDC is configured.
    """

    def __init__(self, services: Services, oidc: Oidc | None = None) -> None:
        self._database = services.database
        self._bootstrap_token = services.bootstrap_token
        self._oidc = oidc

    async def __call__(self, bearer: str) -> Actor:
        """See `gate.Authenticate`."""
        if self._oidc is not None and bearer.count(".") == 2:
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
