"""A desk on web hooks, on each engine."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator

import pytest

from frontdesk.api.desk import callback
from frontdesk.app import reception
from frontdesk.kernel.clock import ManualClock
from frontdesk.storage.database import Database
from tests.channels import hooks
from tests.channels.provider import Provider, Request
from tests.contract.loopback.site import HookDesk, open_hooks


@pytest.fixture
def peer() -> Iterator[Provider]:
    """A peer that gives each message an id of its own: peer_1, peer_2 …"""
    with Provider() as running:

        def reply(sock: socket.socket, _request: Request) -> None:
            sock.sendall(hooks.took(f"peer_{len(running.requests)}"))

        running.default = reply
        yield running


@pytest.fixture
async def site(
    database: Database, clock: ManualClock, peer: Provider, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[HookDesk]:
    """A desk on web hooks. Its callback waits for a busy machine, where the product would have the push come again."""
    monkeypatch.setattr(reception, "COMMIT_WAIT_S", 60.0)
    monkeypatch.setattr(callback, "_TARGET_WAIT_S", 60.0)
    made = await open_hooks(database, clock, peer)
    yield made
    await made.client.aclose()
