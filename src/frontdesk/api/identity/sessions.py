"""HTTP handlers of logging in and out.

A login is two transactions with the slow hash between them on a thread; the second looks again at what the first read.
"""

from __future__ import annotations

from frontdesk.api.addresses import ClientAddresses
from frontdesk.api.binding import Call, Handler
from frontdesk.identity import sessions
from frontdesk.identity.model import NewSession
from frontdesk.identity.passwords import verify_password
from frontdesk.identity.throttle import LoginThrottle
from frontdesk.kernel.errors import DatabaseBusy, Problem
from frontdesk.wire.identity.sessions import OPERATIONS, SessionCreate, SessionCreated
from frontdesk.wire.registry import Operation

THROTTLE = "login_throttle"


async def create(call: Call) -> SessionCreated:
    """`identity.session.create`. An unknown user, a wrong password and a disabled one answer alike, equally late."""
    body: SessionCreate = call.body
    throttle = _throttle(call)
    address = ClientAddresses(call.services.policy.trusted_proxies).of(call.request.scope)
    attempt = throttle.begin(body.username, address)
    try:
        made = await _log_in(call, body)
    except DatabaseBusy:
        throttle.take_back(attempt)  # nothing was decided
        raise
    throttle.take_back(attempt)
    return SessionCreated(token=made.token, expires_at=made.expires_at)


async def _log_in(call: Call, body: SessionCreate) -> NewSession:
    login = await call.services.database.read(lambda tx: sessions.find_login(tx, body.username))
    stored = None if login is None else login.password_hash
    matches = await call.services.threads.run(verify_password, body.password, stored)
    if login is None or not matches:
        raise Problem("login_failed")
    return await call.services.database.write(lambda tx: sessions.create_session(tx, login))


def _throttle(call: Call) -> LoginThrottle:
    found: LoginThrottle = call.services.extras.setdefault(THROTTLE, LoginThrottle(call.services.clock))
    return found


async def end(call: Call) -> None:
    """`identity.session.end`."""
    await call.services.database.write(lambda tx: sessions.end_session(tx, call.actor))


_HANDLERS: dict[str, Handler] = {"identity.session.create": create, "identity.session.end": end}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
