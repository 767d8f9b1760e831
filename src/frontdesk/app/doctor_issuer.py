"""What `frontdesk doctor` asks the OIDC issuer, where one is configured: what a sign-in would need, and no more."""

from __future__ import annotations

import asyncio

from frontdesk.app.finding import Finding, note, ok, wrong
from frontdesk.app.settings import Settings
from frontdesk.channels.transport import tls_context


async def examine(settings: Settings) -> list[Finding]:
    """Discovery and keys, asked as the server asks them; nothing where no issuer is configured."""
    if not settings.oidc_issuer:
        return []
    found = [await asyncio.to_thread(_published, settings.oidc_issuer, bool(settings.oidc_client_id))]
    if not settings.oidc_audience:
        advice = "set it where programs are to come with the issuer's tokens"
        found.append(note("oidc", "bearer tokens of the issuer are refused", "oidc_audience", advice))
    who = (
        "is made a user at the first sign-in"
        if settings.oidc_provision
        else "needs a user made by `frontdesk user oidc`"
    )
    found.append(note("oidc", f"whoever the issuer vouches for {who}", "oidc_provision"))
    return found


def _published(issuer: str, has_client: bool) -> Finding:
    from frontdesk.identity.oidc.fetch import Fetcher, IssuerUnusable

    try:
        published = Fetcher(tls_context)(issuer)
    except IssuerUnusable as error:
        advice = "correct it to what the issuer calls itself, or open the way to it: name, firewall, certificate"
        return wrong("oidc", str(error), "oidc_issuer", advice)
    count = len(published.keys)
    said = f"{issuer} answers; signing keys that fit: {count}"
    if has_client and not (published.authorization_endpoint and published.token_endpoint):
        advice = "name an issuer that offers the authorization code flow, or unset oidc_client_id"
        return wrong("oidc", f"{said}; it names no usable endpoints to sign in at", "oidc_issuer", advice)
    return ok("oidc", said)
