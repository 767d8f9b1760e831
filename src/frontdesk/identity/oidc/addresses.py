"""Which addresses an issuer and its endpoints may have: https, or plain http that stays on this machine."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from frontdesk.kernel.limits import OIDC_ISSUER_CHARS_MAX, OIDC_URL_CHARS_MAX

_DISCOVERY: Final = "/.well-known/openid-configuration"


def checked_issuer(text: str) -> str:
    """`text` where it can be an issuer (OpenID Connect Core 2: no query, no fragment). Raises ValueError."""
    if len(text) > OIDC_ISSUER_CHARS_MAX or "?" in text or "#" in text:
        raise ValueError("an issuer is an address without query and fragment")
    return checked_endpoint(text, plain=True)


def checked_endpoint(text: object, *, plain: bool) -> str:
    """An address that may be asked. `plain` lets http to this machine pass. Raises ValueError for anything else.

    Does not look a name up: `localhost` and loopback literals alone are this machine.
    """
    if not isinstance(text, str) or len(text) > OIDC_URL_CHARS_MAX or not text.isascii() or not text.isprintable():
        raise ValueError("no usable address")
    parts = urlsplit(text)
    host = parts.hostname or ""
    local = plain and parts.scheme == "http" and _is_loopback(host)
    if not (parts.scheme == "https" or local) or not host or " " in text or "\\" in text:
        raise ValueError("an address is https, or http on this machine")
    if "@" in parts.netloc or parts.netloc.endswith(":") or parts.port == 0 or parts.fragment:
        raise ValueError("an address has a usable port, no user and no fragment")
    return text


def is_plain(address: str) -> bool:
    """Whether a checked address is plain http."""
    return address.startswith("http:")


def discovery_url(issuer: str) -> str:
    """Where an issuer describes itself (OpenID Connect Discovery 4)."""
    return issuer.rstrip("/") + _DISCOVERY


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
