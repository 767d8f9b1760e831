"""The suite cannot leave this machine, and neither can a process it starts."""

from __future__ import annotations

import socket

import pytest

from tests.support import network_guard
from tests.support.processes import run_python

OUTSIDE = "192.0.2.1"  # TEST-NET-1: never routed
pytestmark = pytest.mark.refuses_network


@pytest.mark.spec("DESK-5")
def test_a_connect_to_another_machine_is_refused_before_a_packet_leaves() -> None:
    """Every test, and every process it starts, runs behind a guard that refuses other machines and fails the test."""
    with network_guard.provoked() as refused, socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.settimeout(5)
        with pytest.raises(network_guard.NetworkRefused):
            sock.connect((OUTSIDE, 9))
        # The kernel was never asked: a socket that had tried would have been given a local address.
        assert sock.getsockname() == ("0.0.0.0", 0)
    assert refused == [f"socket.connect ('{OUTSIDE}', 9)"]


def test_a_datagram_to_another_machine_is_refused() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        with pytest.raises(network_guard.NetworkRefused):
            sock.sendto(b"x", (OUTSIDE, 9))
        with pytest.raises(network_guard.NetworkRefused):
            sock.sendmsg([b"x"], [], 0, (OUTSIDE, 9))
        assert sock.getsockname() == ("0.0.0.0", 0)


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, ("0.0.0.0", 0)),
        (socket.AF_INET, ("", 0)),
        (socket.AF_INET6, ("::", 0)),
        (socket.AF_INET6, ("::ffff:192.0.2.1", 0)),
    ],
)
def test_listening_for_other_machines_is_refused(family: socket.AddressFamily, address: tuple[str, int]) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as sock, pytest.raises(network_guard.NetworkRefused):
        sock.bind(address)


@pytest.mark.parametrize("look_up", [socket.getaddrinfo, lambda name, _port: socket.gethostbyname(name)])
def test_a_name_is_not_looked_up(look_up: object) -> None:
    with pytest.raises(network_guard.NetworkRefused):
        look_up("frontdesk.invalid", 443)  # type: ignore[operator]


def test_loopback_works() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(("localhost", server.getsockname()[1]), timeout=5) as client:
            client.sendall(b"x")
        peer, _ = server.accept()
        with peer:
            assert peer.recv(1) == b"x"
    assert socket.getaddrinfo("127.0.0.1", 80)


CHILD = {
    "a socket": "import socket; socket.create_connection(('192.0.2.1', 9), timeout=5)",
    "asyncio": "import asyncio; asyncio.run(asyncio.open_connection('192.0.2.1', 9))",
    "uvloop": "import asyncio, uvloop; uvloop.run(asyncio.open_connection('192.0.2.1', 9))",
    "uvloop by name": "import asyncio, uvloop; uvloop.run(asyncio.open_connection('frontdesk.invalid', 9))",
    "an HTTP client": "import httpx2; httpx2.get('http://192.0.2.1:9/', timeout=5)",
    "an HTTP client on uvloop": (
        "import httpx2, uvloop\n"
        "async def main():\n"
        "    async with httpx2.AsyncClient(timeout=5) as client: await client.get('http://192.0.2.1:9/')\n"
        "uvloop.run(main())"
    ),
}


@pytest.mark.parametrize("way", CHILD)
def test_a_started_process_is_refused_too(way: str) -> None:
    before = len(network_guard.logged_refusals())
    child = run_python("-c", CHILD[way])
    assert child.returncode == 1
    # An HTTP client may hide the reason in its own error; the log the processes share does not.
    assert any("192.0.2.1" in line or "frontdesk.invalid" in line for line in network_guard.logged_refusals()[before:])


def test_the_guard_is_the_first_thing_a_started_process_loads() -> None:
    child = run_python("-c", "import sitecustomize; print(sitecustomize.__file__)")
    assert child.stdout.strip().endswith("tests/support/guarded/sitecustomize.py")
