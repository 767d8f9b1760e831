"""What the channel tests share: thread seams, a clock, a provider, and the SDK's global state left as it was set."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from frontdesk.channels.feishu import FeishuChannel, sdk
from frontdesk.desk.connections.channel import Credentials, Installed, OutboundMessage
from frontdesk.kernel.clock import SystemClock
from tests.channels.provider import Provider


class InlineThreads:
    """Runs the work where it is asked for, as the simulation does."""

    async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        return fn(*args)


class PoolThreads:
    """Runs the work on real threads, all there from the start: a pool that grows would spoil a count of threads."""

    def __init__(self, workers: int) -> None:
        self.executor = ThreadPoolExecutor(workers, thread_name_prefix="test-worker")
        together = threading.Barrier(workers)
        for started in [self.executor.submit(together.wait, 10) for _ in range(workers)]:
            started.result()

    async def run(self, fn: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self.executor, fn, *args)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running


@pytest.fixture
def channel(provider: Provider) -> FeishuChannel:
    return FeishuChannel(provider.origin, SystemClock(), InlineThreads())


@pytest.fixture
def pool() -> Iterator[PoolThreads]:
    threads = PoolThreads(8)
    yield threads
    threads.executor.shutdown(wait=True)


@pytest.fixture(autouse=True)
def _sdk_state_stays() -> Iterator[None]:
    """Whatever a test does, the SDK's process-wide state is afterwards as `load` left it."""
    yield
    assert sdk.drift() == ()


def installed(secret: str = "app-secret", app_id: str = "cli_1") -> Installed:
    return Installed("ins_1", app_id, "t-1", None, Credentials(secret))


def message(**changes: Any) -> OutboundMessage:
    fields: dict[str, Any] = {
        "operation_id": "dlv_1",
        "provider_uuid": "0190f7c0-0000-7000-8000-000000000001",
        "chat_id": "oc_1",
        "reply_to": "om_1",
        "text": "好的，<done>",
    } | changes
    return OutboundMessage(**fields)
