"""HTTP handlers of logging in and out.

A login is two transactions with the slow hash between them on a thread; the second looks again at what the first read.
"""

from __future__ import annotations

from fastapi import Response

from frontdesk.api import cookies
from frontdesk.api.addresses import ClientAddresses
from frontdesk.api.binding import Call, Handler
from frontdesk.identity import sessions
from frontdesk.identity.model import NewSession
from frontdesk.identity.passwords import verify_password
from frontdesk.identity.throttle import LoginThrottle
from frontdesk.kernel.errors import DatabaseBusy, Problem
from frontdesk.wire.identity.sessions import OPERATIONS, CookieSessionCreated, SessionCreate, SessionCreated
from frontdesk.wire.registry import Operation

THROTTLE = "login_throttle"


async def create(call: Call) -> SessionCreated | Response:
    """`identity.session.create`. An unknown user, a wrong password and a disabled one answer alike, equally late.

    A session for a cookie needs this host's own `Origin`, so that no other site logs a browser in as somebody else.
    """
    body: SessionCreate = call.body
    secure = call.services.policy.secure_cookies
    if body.cookie and not cookies.same_site(call.request.scope, secure=secure):
        raise Problem("origin_not_allowed")
    throttle = _throttle(call)
    address = ClientAddresses(call.services.policy.trusted_proxies).of(call.request.scope)
    attempt = throttle.begin(body.username, address)
    try:
        made = await _log_in(call, body)
    except DatabaseBusy:
        throttle.take_back(attempt)  # nothing was decided
        raise
    throttle.take_back(attempt)
    if not body.cookie:
        return SessionCreated(token=made.token, expires_at=made.expires_at)
    shown = CookieSessionCreated(csrf_token=made.csrf_token, expires_at=made.expires_at)
    return _with_cookie(201, cookies.set_cookie(made.token, secure=secure), shown.model_dump_json())


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


async def end(call: Call) -> Response | None:
    """`identity.session.end`; takes the cookie back from a browser."""
    await call.services.database.write(lambda tx: sessions.end_session(tx, call.actor))
    if not call.request.scope.get("by_cookie"):
        return None
    return _with_cookie(204, cookies.clear_cookie(secure=call.services.policy.secure_cookies), "")


def _with_cookie(status: int, cookie: str, body: str) -> Response:
    media = "application/json" if body else None
    return Response(body, status, media_type=media, headers={"Set-Cookie": cookie})


_HANDLERS: dict[str, Handler] = {"identity.session.create": create, "identity.session.end": end}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
