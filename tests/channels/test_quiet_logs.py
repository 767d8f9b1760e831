"""What the transport and the libraries below it log holds no token, secret, address of a request or text."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
import structlog

from frontdesk.app.telemetry import configure_logging
from frontdesk.channels.feishu import FeishuChannel, sdk
from frontdesk.desk.connections.channel import Unknown
from tests.channels.conftest import installed, message
from tests.channels.provider import BOT_PATH, TOKEN_PATH, Provider, answer, token

TENANT_TOKEN = "t-planted-tenant-token-4711"
LIBRARIES = ("httpx", "httpx2", "httpcore", "urllib3", "requests", "requests_toolbelt", "Lark", "asyncio", "websockets")


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """The product's log at INFO, with every library talking as much as it can."""
    sdk.load()  # which sets levels of its own
    root, configuration = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in LIBRARIES}
    kept = io.StringIO()
    configure_logging("info")
    structlog.configure(logger_factory=structlog.WriteLoggerFactory(file=kept))
    root.setLevel(logging.DEBUG)
    for name in LIBRARIES:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield kept
    structlog.configure(**configuration)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


@pytest.mark.tells
async def test_a_log_at_info_holds_no_token_of_the_provider(
    provider: Provider, channel: FeishuChannel, logged: io.StringIO
) -> None:
    """FC-60: calls that succeed and calls that fail, with an answer that echoes the token, leave neither token nor app
    secret nor request address nor text in the log, though every library below logs at DEBUG.
    """
    provider.on(TOKEN_PATH, token(TENANT_TOKEN))
    provider.on(BOT_PATH, answer({"code": 0, "bot": {"open_id": "ou_bot"}}))
    place = installed("planted-app-secret-4711")
    session = await channel.connect(place)
    await channel.send(session, message(text="planted-text-4711"))
    await channel.probe(place)
    echo = {"code": 1, "msg": f"Bearer {TENANT_TOKEN} planted-app-secret-4711"}
    for path in ("/open-apis/im/v1/messages/om_1/reply", "/open-apis/im/v1/messages"):
        provider.on(path, answer(echo, 500, {"X-Echo": TENANT_TOKEN}))
    assert isinstance(await channel.send(session, message(text="planted-text-4711")), Unknown)
    await channel.history(session, "oc_1", 0, 1)
    await channel.close(session)
    logging.getLogger("urllib3.connectionpool").info("GET /bot%s/x", TENANT_TOKEN)  # as the report's library does it
    logging.getLogger("Lark").error("failed", exc_info=ValueError(TENANT_TOKEN))
    text = logged.getvalue()
    assert '"operation": "urllib3.connectionpool"' in text
    for planted in (TENANT_TOKEN, "planted", "/open-apis/", "4711"):
        assert planted not in text
