"""Who may talk to the simulator: loopback ``Host`` everywhere, the page's ``Origin`` for forms, the control token."""

from __future__ import annotations

import hmac

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from frontdesk.simulator.config import is_loopback_host


def host_allowed(host: str) -> bool:
    """Whether a ``Host`` header names loopback; anything else is a rebound name and refused."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
    return bool(name) and is_loopback_host(name)


class LoopbackHosts:
    """Refuses every request whose ``Host`` is not a loopback name, so a web page cannot rebind its name to us."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes good requests on."""
        if scope["type"] == "http":
            hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
            if len(hosts) != 1 or not host_allowed(hosts[0]):
                await PlainTextResponse("This address is for loopback host names only.\n", 421)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def same_origin(request: Request) -> bool:
    """Whether a form was sent by the page itself.

    Browsers send ``Origin`` with every cross-site form; where it is absent, ``Sec-Fetch-Site`` decides, and a client
    that sends neither is no browser and holds no one's session.
    """
    origin = request.headers.get("origin")
    if origin is not None:
        return origin == f"{request.url.scheme}://{request.headers.get('host', '')}"
    return request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def token_matches(request: Request, token: str) -> bool:
    """Whether the request carries the simulator token, compared in constant time."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
