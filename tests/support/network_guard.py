"""Refuses every socket that leaves this machine, before a packet does.

`install()` puts an audit hook under the `socket` module: connect, sendto, sendmsg and bind to anything but loopback,
and look-ups of any name but localhost, raise `NetworkRefused`. An audit hook cannot be removed, which is the point.
uvloop talks to the kernel without the `socket` module, so its loop is guarded at its own methods.

Not seen: C libraries that open sockets themselves (libpq). Tests only ever give those a unix socket.

The module has no imports from this project: `guarded/sitecustomize.py` loads it by path into child processes.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOG_VARIABLE = "FRONTDESK_TEST_NETWORK_LOG"
LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
LOCAL_FAMILIES = frozenset(
    int(getattr(socket, name)) for name in ("AF_UNIX", "AF_NETLINK") if hasattr(socket, name)
)  # netlink is a conversation with this machine's own kernel
INTERNET_FAMILIES = frozenset({int(socket.AF_INET), int(socket.AF_INET6)})

_lock = threading.Lock()
_refusals: list[str] = []
_installed = False


class NetworkRefused(PermissionError):
    """The network guard refused a socket that would have left this machine."""

    def __init__(self, what: str) -> None:
        super().__init__(errno.EPERM, f"network guard: refused {what}")


def refusals() -> list[str]:
    """What was refused in this process so far, oldest first."""
    with _lock:
        return list(_refusals)


def logged_refusals() -> list[str]:
    """What was refused in this process and in every guarded child that shares its log."""
    path = os.environ.get(LOG_VARIABLE)
    if path is None or not Path(path).exists():
        return refusals()
    return Path(path).read_text(encoding="utf-8").splitlines()


def _refuse(what: str) -> None:
    with _lock:
        _refusals.append(what)
    if path := os.environ.get(LOG_VARIABLE):
        with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as log:  # noqa: PTH123 - no imports at risk
            log.write(f"{os.getpid()} {what}\n")
    raise NetworkRefused(what)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _text(host: Any) -> str:
    return host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else str(host)


def is_local(host: Any) -> bool:
    """Whether a host in a socket address means this machine's loopback. The wildcard address does not."""
    text = _text(host)
    if text.lower().rstrip(".") in LOCAL_NAMES:
        return True
    address = _address(text)
    return address is not None and address.is_loopback


def _check_socket(event: str, sock: Any, address: Any) -> None:
    family = int(getattr(sock, "family", socket.AF_INET))
    if family in LOCAL_FAMILIES or address is None:
        return
    host = address[0] if isinstance(address, tuple) and address else address
    if family in INTERNET_FAMILIES and is_local(host):
        return
    _refuse(f"{event} {address!r}")


def _check_name(event: str, host: Any) -> None:
    """A look-up of a numeric address asks nobody; of any other name it would ask a resolver."""
    if host is None or _text(host) == "" or is_local(host):
        return
    if event == "socket.getaddrinfo" and _address(_text(host)) is not None:
        return
    _refuse(f"{event} {_text(host)!r}")


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not event.startswith("socket."):
        return
    if event in {"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"}:
        _check_socket(event, args[0], args[1])
    elif event in {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}:
        _check_name(event, args[0])
    elif event == "socket.getnameinfo":
        _check_name(event, args[0][0])


def _guard_uvloop() -> None:
    try:
        import uvloop
    except ImportError:
        return
    loop: Any = uvloop.Loop

    async def create_connection(self: Any, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        if host is not None and not is_local(host):
            _refuse(f"uvloop.create_connection {(host, port)!r}")
        return await original["create_connection"](self, factory, host, port, **options)

    async def create_server(self: Any, factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        hosts = [] if options.get("sock") is not None else host if isinstance(host, list | tuple) else [host]
        for each in hosts:
            if each is None or not is_local(each):
                _refuse(f"uvloop.create_server {(each, port)!r}")
        return await original["create_server"](self, factory, host, port, **options)

    async def create_datagram_endpoint(
        self: Any, factory: Any, local_addr: Any = None, remote_addr: Any = None, **options: Any
    ) -> Any:
        for address in (local_addr, remote_addr):
            if isinstance(address, tuple) and not is_local(address[0]):
                _refuse(f"uvloop.create_datagram_endpoint {address!r}")
        return await original["create_datagram_endpoint"](self, factory, local_addr, remote_addr, **options)

    async def getaddrinfo(self: Any, host: Any, port: Any, **options: Any) -> Any:
        _check_name("socket.getaddrinfo", host)
        return await original["getaddrinfo"](self, host, port, **options)

    replacements = (create_connection, create_server, create_datagram_endpoint, getaddrinfo)
    original = {replacement.__name__: getattr(loop, replacement.__name__) for replacement in replacements}
    for replacement in replacements:
        setattr(loop, replacement.__name__, replacement)


def install() -> None:
    """Guard this process for the rest of its life."""
    global _installed  # noqa: PLW0603 - one hook per process, and hooks are process-wide
    if _installed:
        return
    _installed = True
    _guard_uvloop()
    sys.addaudithook(_hook)


@contextlib.contextmanager
def provoked() -> Iterator[list[str]]:
    """Collect the refusals that a test causes on purpose; the list is filled when the block ends."""
    before = len(refusals())
    caught: list[str] = []
    yield caught
    caught.extend(refusals()[before:])
