"""Where messages may go: the hosts an operator listed, and no address outside of them. Pure.

A host that stands in a `target_url` must be listed, as a name or within an address or network; and every address that a
listed name leads to must lie in a listed address or network. So neither a new DNS record nor a foreign URL turns this
server into somebody's way into the network behind it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from frontdesk.kernel.limits import TARGET_URL_CHARS_MAX, WEBHOOK_TARGETS_MAX

DEFAULT_TARGETS: Final = ("127.0.0.0/8", "::1", "localhost")
FORM: Final = "must read http:// or https://, a host, an optional port and path; no user, fragment or blank"
# One entry can't open the internet: these are the widest networks that may be listed.
_WIDEST: Final = {4: 8, 6: 32}
_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]{0,62})(?:\.[a-z0-9_][a-z0-9_-]{0,62})*")

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Ip = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Target:
    """A `target_url`, taken apart. `host` is lower-case and without brackets."""

    url: str
    host: str
    port: int


def target_of(url: str | None) -> Target | None:
    """The target where `url` is one we could post to, whatever is listed; None for anything else."""
    if not url or len(url) > TARGET_URL_CHARS_MAX or not url.isascii() or not url.isprintable():
        return None
    if any(character in url for character in ' "<>\\^`{|}#@'):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    host = parts.hostname or ""
    if parts.scheme not in {"http", "https"} or parts.netloc.endswith(":") or port == 0:
        return None
    if _ip(host) is None and _NAME.fullmatch(host) is None:
        return None
    return Target(url, host, port or (443 if parts.scheme == "https" else 80))


@dataclass(frozen=True, slots=True)
class Targets:
    """The listed names and networks."""

    names: frozenset[str]
    networks: tuple[_Network, ...]

    @staticmethod
    def parse(entries: Sequence[str]) -> Targets:
        """From host names, addresses and networks, 64 at most. Raises ValueError for anything else.

        An IPv4 network is /8 at widest, an IPv6 network /32.
        """
        if len(entries) > WEBHOOK_TARGETS_MAX:
            raise ValueError("too many entries")
        names: set[str] = set()
        networks: list[_Network] = []
        for entry in entries:
            network = _network(entry.removeprefix("[").removesuffix("]"))
            if network is not None:
                networks.append(network)
            elif _NAME.fullmatch(entry.lower()) and not entry.replace(".", "").isdigit():
                names.add(entry.lower())
            else:
                raise ValueError("not a host name, address or network")
        return Targets(frozenset(names), tuple(networks))

    def admit_host(self, host: str) -> bool:
        """Whether a URL may name this host. A name is not looked up."""
        return host in self.names or self.admit_address(host)

    def admit_address(self, address: str) -> bool:
        """Whether a connection may go to this address."""
        ip = _ip(address)
        return ip is not None and any(ip.version == network.version and ip in network for network in self.networks)


def _network(entry: str) -> _Network | None:
    if "%" in entry:
        return None
    try:
        network = ipaddress.ip_network(entry)
    except ValueError:
        return None
    return network if network.prefixlen >= _WIDEST[network.version] else None


def _ip(text: str) -> _Ip | None:
    """The address in its one spelling; an IPv4 address in IPv6's clothes is the IPv4 address."""
    if "%" in text:  # a zone names an interface of one machine
        return None
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return mapped or ip
