"""Asking an issuer for its documents: bounded in size and as a whole in time, nothing followed, no proxy, no cookie.

`Fetcher` blocks, so it is called on a worker thread. A redirect is an answer like any other that is not 200: unusable.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import httpx2
from pydantic_core import from_json

from frontdesk.identity.oidc import tokens
from frontdesk.identity.oidc.addresses import checked_endpoint, discovery_url, is_plain
from frontdesk.identity.oidc.model import Published
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.limits import OIDC_DOCUMENT_BYTES_MAX, OIDC_FETCH_US


class IssuerUnusable(Exception):
    """The issuer did not answer, or its answer is not what an issuer says. The text is a fixed sentence of ours."""


class Fetcher:
    """Reads what an issuer publishes. `tls` is asked for the trusted authorities once https is needed."""

    def __init__(self, tls: Callable[[], ssl.SSLContext]) -> None:
        self._tls = tls

    def __call__(self, issuer: str) -> Published:
        """Discovery, then the keys it names. Raises `IssuerUnusable`. Takes `OIDC_FETCH_US` at most for each of both.

        The discovery document must name exactly this issuer; an https issuer cannot send us to plain http.
        """
        described = self._get(discovery_url(issuer))
        if described.get("issuer") != issuer:
            raise IssuerUnusable("the discovery document names another issuer")
        plain = is_plain(issuer)
        try:
            keys_url = checked_endpoint(described.get("jwks_uri"), plain=plain)
        except ValueError:
            raise IssuerUnusable("the discovery document names no usable jwks_uri") from None
        keys = tokens.read_keys(self._get(keys_url))
        if not keys:
            raise IssuerUnusable("the issuer publishes no RS256 or ES256 signing key")
        return Published(
            keys=keys,
            authorization_endpoint=_endpoint(described.get("authorization_endpoint"), plain=plain),
            token_endpoint=_endpoint(described.get("token_endpoint"), plain=plain),
        )

    def _get(self, url: str) -> dict[str, Any]:
        # Nothing is verified on plain http, and loading authorities for it would take longer than the question.
        verify: ssl.SSLContext | bool = False if is_plain(url) else self._tls()
        # A loop of its own for one request: asyncio's timeout is the only bound here that covers a dripping answer.
        try:
            body = asyncio.run(_read(url, verify))
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, OSError, ValueError):
            raise IssuerUnusable("the issuer did not answer in time") from None
        try:
            document = from_json(body, allow_inf_nan=False)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise IssuerUnusable("the issuer answered something else than a JSON object")
        return document


async def _read(url: str, verify: ssl.SSLContext | bool) -> bytes:
    bound_s = OIDC_FETCH_US / SECOND
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    async with (
        asyncio.timeout(bound_s),
        httpx2.AsyncClient(verify=verify, trust_env=False, follow_redirects=False, timeout=bound_s) as client,
        client.stream("GET", url, headers=headers) as answer,
    ):
        if answer.status_code != 200:
            raise IssuerUnusable("the issuer refused, or pointed elsewhere")
        if answer.headers.get("content-encoding", "identity").lower() != "identity":
            raise IssuerUnusable("the issuer compressed its answer unasked")
        held = bytearray()
        async for piece in answer.aiter_bytes():
            held += piece
            if len(held) > OIDC_DOCUMENT_BYTES_MAX:
                raise IssuerUnusable("the issuer's answer is larger than we hold")
        return bytes(held)


def _endpoint(value: object, *, plain: bool) -> str | None:
    try:
        return checked_endpoint(value, plain=plain)
    except ValueError:
        return None
