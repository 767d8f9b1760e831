"""What every test gets: no network, a run folder, real engines, an honest summary."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import network_guard

# At import, before anything else can open a socket; each process of the run writes its own log.
os.environ[network_guard.LOG_VARIABLE] = str(Path(tempfile.gettempdir()) / f"frontdesk-network-{os.getpid()}.log")
network_guard.install()

pytest_plugins = ["tests.support.summary", "tests.support.engines", "tests.support.evidence", "tests.support.secrecy"]


def pytest_unconfigure() -> None:
    """Forget this process's log."""
    Path(os.environ[network_guard.LOG_VARIABLE]).unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def _stays_on_this_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """A refused socket fails its test even where the code under test swallowed the error."""
    before = len(network_guard.logged_refusals())
    yield
    refused = network_guard.logged_refusals()[before:]
    if refused and request.node.get_closest_marker("refuses_network") is None:
        pytest.fail(f"the network guard refused {refused}")


@pytest.fixture(scope="session", autouse=True)
def _the_sdks_process_state_stands() -> Iterator[None]:
    """After all tests of this process: whoever loaded the provider's SDK, its process-wide state is as `load` left it.

    It would be an error of the process's last test, and so of the run.
    """
    yield
    loaded = sys.modules.get("frontdesk.channels.feishu.sdk")
    drifted = loaded.drift() if loaded is not None else ()
    assert drifted == (), f"a test left the SDK's process-wide state changed: {drifted}"
