"""Who is calling: the peer's address, or the one that a listed proxy forwards. Nobody else's word is taken."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any, Final

_FORWARDED: Final = b"x-forwarded-for"
UNKNOWN: Final = "unknown"

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ClientAddresses:
    """Client addresses behind `trusted` proxies (addresses or networks). Raises ValueError for anything else."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self._trusted: tuple[_Network, ...] = tuple(ipaddress.ip_network(each, strict=False) for each in trusted)

    def of(self, scope: Any) -> str:
        """The client's address as text; `unknown` for a peer without one (a unix socket)."""
        client = scope.get("client")
        peer = str(client[0]) if client else UNKNOWN
        if not self._trusted or not self._is_trusted(peer):
            return peer
        # Read from the right: everything left of the first address that is no proxy of ours was written by strangers.
        forwarded = [
            part.strip()
            for name, value in scope["headers"]
            if name == _FORWARDED
            for part in value.decode("latin-1").split(",")
        ]
        for text in reversed(forwarded):
            address = _parse(text)
            if address is None:
                return peer
            if not self._is_trusted(str(address)):
                return str(address)
        return peer

    def _is_trusted(self, text: str) -> bool:
        address = _parse(text)
        return address is not None and any(address in network for network in self._trusted)


def _parse(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
