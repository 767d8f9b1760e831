"""What we rely on in the pinned wheel, and what we guard against. An upgrade that changes it fails here first."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from frontdesk.channels.feishu import sdk
from tests.channels.signing import (
    AT,
    KEY,
    NONCE,
    TOKEN,
    V12_BODY,
    V13_SIGNATURE,
    body_of,
    challenge,
    event,
    signature,
)


@pytest.fixture(autouse=True)
def _loaded() -> None:
    sdk.load()


def dispatcher(mode: str | None, key: str = KEY, token: str = TOKEN, seen: list[Any] | None = None) -> Any:
    from lark_channel import EventDispatcherHandler, SecurityConfig

    settings = SecurityConfig(mode=mode) if mode else None
    seen = seen if seen is not None else []
    return (
        EventDispatcherHandler.builder(key, token, security=settings)
        .register_p2_customized_event("im.message.receive_v1", seen.append)
        .build()
    )


def canonical(body: bytes, **changes: str) -> dict[str, str]:
    return {
        "X-Lark-Request-Timestamp": AT,
        "X-Lark-Request-Nonce": NONCE,
        "X-Lark-Signature": signature(body),
    } | changes


def status(handler: Any, headers: dict[str, str], body: bytes) -> int:
    return int(handler.do(sdk.raw_request(headers, body)).status_code)


@pytest.mark.spec("DESK-258")
def test_the_pinned_version_is_installed_with_its_licence_notice() -> None:
    """The wheel under test is exactly the recorded version, and its licence texts come with it."""
    distribution = importlib.metadata.distribution(sdk.DISTRIBUTION)
    assert distribution.version == sdk.VERSION == "1.4.0"
    assert distribution.metadata["License"] == "MIT AND BSD-3-Clause"
    names = {Path(str(file)).name for file in distribution.files or []}
    assert {"LICENSE", "THIRD_PARTY_NOTICES.md"} <= names
    assert "lark-channel-sdk[fastapi]==1.4.0" in Path("pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.spec("DESK-258")
def test_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build whose installed SDK differs from the tested one does not start to use it."""
    monkeypatch.setattr(sdk, "_loaded", type(sdk._loaded)())
    monkeypatch.setattr(sdk.metadata, "version", lambda _name: "1.4.1")
    with pytest.raises(sdk.SdkUnusable, match=r"1\.4\.1"):
        sdk.load()


@pytest.mark.spec("DESK-47")
def test_the_default_mode_dispatches_unsigned_ciphertext() -> None:
    """Outside strict mode the SDK takes ciphertext without a signature: why ours is never built that way."""
    seen: list[Any] = []
    body = body_of(event())
    assert status(dispatcher(None, seen=seen), {}, body) == 200
    assert len(seen) == 1
    assert status(dispatcher("strict", seen=seen), {}, body) == 500
    assert len(seen) == 1


@pytest.mark.spec("DESK-47")
@pytest.mark.parametrize("mode", [None, "strict"])
def test_empty_credentials_dispatch_anybodys_plaintext(mode: str | None) -> None:
    """With empty key and token the SDK takes plaintext from anyone, in strict mode too."""
    seen: list[Any] = []
    body = json.dumps(event(token="forged")).encode()
    assert status(dispatcher(mode, "", "", seen), {}, body) == 200
    assert len(seen) == 1


def test_an_empty_token_is_not_compared() -> None:
    seen: list[Any] = []
    body = body_of(event(token="forged"))
    assert status(dispatcher("strict", KEY, "", seen), canonical(body), body) == 200
    assert len(seen) == 1


def test_header_names_are_looked_up_case_exactly() -> None:
    """Lower-case names: the default mode does not verify at all, strict refuses a valid signature."""
    body = body_of(event())
    lowered = {name.lower(): value for name, value in canonical(body).items()}
    forged = lowered | {"x-lark-signature": "0" * 64}
    seen: list[Any] = []
    assert status(dispatcher(None, seen=seen), forged, body) == 200
    assert len(seen) == 1
    assert status(dispatcher("strict"), lowered, body) == 500
    assert status(dispatcher("strict"), canonical(body), body) == 200


def test_strict_mode_refuses_the_providers_own_url_check() -> None:
    body = body_of(challenge())
    assert status(dispatcher("strict"), {}, body) == 500
    assert status(dispatcher("strict"), canonical(body), body) == 200
    handler = sdk.challenge_dispatcher(KEY, TOKEN, sdk.security("strict", True))
    assert status(handler, {}, body) == 200
    assert status(handler, {}, body_of(challenge("other"))) == 500
    assert status(handler, {}, body_of(event())) == 500


def test_signed_plaintext_passes_strict_mode_so_the_shape_is_ours_to_check() -> None:
    seen: list[Any] = []
    body = json.dumps(event()).encode()
    assert status(dispatcher("strict", seen=seen), canonical(body), body) == 200
    assert len(seen) == 1


def test_there_is_neither_freshness_nor_dedupe() -> None:
    seen: list[Any] = []
    handler = dispatcher("strict", seen=seen)
    body = body_of(event())
    old = canonical(body, **{"X-Lark-Request-Timestamp": "946684800"})
    old["X-Lark-Signature"] = signature(body, at="946684800")
    assert [status(handler, old, body), status(handler, old, body)] == [200, 200]
    assert len(seen) == 2


def test_an_event_type_nobody_registered_is_a_500() -> None:
    body = body_of(event("im.chat.updated_v1"))
    assert status(dispatcher("strict"), canonical(body), body) == 500


def test_an_asynchronous_callback_is_acknowledged_and_never_awaited() -> None:
    from lark_channel import EventDispatcherHandler, SecurityConfig

    ran: list[Any] = []

    async def callback(data: Any) -> None:
        ran.append(data)

    handler = (
        EventDispatcherHandler.builder(KEY, TOKEN, security=SecurityConfig(mode="strict"))
        .register_p2_customized_event("im.message.receive_v1", callback)
        .build()
    )
    body = body_of(event())
    with pytest.warns(RuntimeWarning, match="never awaited"):
        assert status(handler, canonical(body), body) == 200
    assert ran == []


def test_a_callbacks_exception_is_logged_with_its_text() -> None:
    """Why the capture never raises and the logger is muted."""
    from lark_channel import EventDispatcherHandler, SecurityConfig

    def callback(_data: Any) -> None:
        raise ValueError("MARKER-IN-EXCEPTION")

    handler = (
        EventDispatcherHandler.builder(KEY, TOKEN, security=SecurityConfig(mode="strict"))
        .register_p2_customized_event("im.message.receive_v1", callback)
        .build()
    )
    records: list[str] = []

    class Keep(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            records.append(record.getMessage())
            return False

    keep, logger, body = Keep(), logging.getLogger(sdk.LOGGER), body_of(event())
    muted = list(logger.filters)
    logger.filters[:] = [keep]
    logger.setLevel(logging.ERROR)
    try:
        assert status(handler, canonical(body), body) == 500
    finally:
        logger.filters[:] = muted
        sdk.silence()
    assert any("MARKER-IN-EXCEPTION" in text for text in records)


def test_the_builder_returns_the_base_class_and_an_override_sees_every_event_whole() -> None:
    from lark_channel import EventDispatcherHandler

    assert type(EventDispatcherHandler.builder(KEY, TOKEN).build()) is EventDispatcherHandler
    seen: list[str] = []
    handler = sdk.capturing_dispatcher()(KEY, TOKEN, sdk.security("strict", False), seen.append)
    payload = event("brand.new_v9") | {"extra": {"kept": True}}
    body = body_of(payload)
    assert status(handler, canonical(body), body) == 200
    assert json.loads(seen[0]) == payload


@pytest.mark.spec("DESK-38")
def test_the_sdk_agrees_with_the_check_values() -> None:
    """V12 and V13, made without the SDK, are what the SDK's own verification accepts."""
    assert body_of('{"challenge":"ch-1","token":"test-token","type":"url_verification"}') == V12_BODY
    assert signature(V12_BODY) == V13_SIGNATURE
    response = dispatcher("strict").do(sdk.raw_request(canonical(V12_BODY), V12_BODY))
    assert (response.status_code, json.loads(response.content)) == (200, {"challenge": "ch-1"})


def test_a_client_without_credentials_cannot_ask_for_a_token() -> None:
    from lark_channel.core.exception import NoAuthorizationException

    client = sdk.client("http://127.0.0.1:1")
    with pytest.raises(NoAuthorizationException):
        client.im.v1.message.create(sdk.create_request("oc_1", "text", "{}", "u"), sdk.with_token(""))


@pytest.mark.spec("DESK-219")
def test_the_sdks_logger_says_nothing_before_and_after_construction(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Inbound, outbound and long-connection objects may reset the level as they like: no record gets out; ours do."""
    from lark_channel import EventDispatcherHandler, FeishuChannel
    from lark_channel.core.enum import LogLevel
    from lark_channel.ws.client import Client as LongConnection

    logger = logging.getLogger(sdk.LOGGER)

    def speak() -> None:
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL):
            logger.log(level, "SDK-MARKER")

    speak()
    sdk.client("http://127.0.0.1:1")
    assert logger.level >= logging.WARNING
    speak()
    EventDispatcherHandler.builder(KEY, TOKEN, level=LogLevel.DEBUG)
    speak()
    loop = asyncio.new_event_loop()  # these two take the thread's loop, or make one and forget it
    asyncio.set_event_loop(loop)
    try:
        LongConnection("cli_1", "secret", log_level=LogLevel.DEBUG)
        speak()
        FeishuChannel(app_id="cli_1", app_secret="secret", transport="webhook", log_level=LogLevel.DEBUG)
        speak()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    sdk.silence()
    logging.getLogger("frontdesk").error("OUR-MARKER")
    out, err = capfd.readouterr()
    assert "SDK-MARKER" not in out + err + caplog.text
    assert "OUR-MARKER" in caplog.text


def test_drift_names_what_was_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    from lark_channel.core.http import transport
    from lark_channel.core.token import TokenManager

    logger = logging.getLogger(sdk.LOGGER)
    with monkeypatch.context() as patch:
        patch.setattr(transport, "_sync_requester", lambda _config: None)
        patch.setitem(TokenManager.cache.cache, "self_tenant_token:cli_1", "t")
        patch.setattr(logger, "level", logging.DEBUG)
        patch.setattr(logger, "handlers", [logging.StreamHandler()])
        patch.setattr(logger, "filters", [])
        assert sdk.drift() == ("request_seam", "token_cache", "logger_level", "logger_handlers", "logger_filter")
    assert sdk.drift() == ()


SET_ONCE = """
import sys, types
from frontdesk.channels.feishu import FeishuChannel, sdk
from frontdesk.channels.registry import build_channels
from frontdesk.kernel.clock import SystemClock
from tests.channels.conftest import InlineThreads
from tests.channels.signing import CREDENTIALS, event, signed

written = []
class Watched(types.ModuleType):
    def __setattr__(self, name, value):
        written.append(name)
        super().__setattr__(name, value)

import_aside = sdk._import_aside
def watching():
    import_aside()
    sdk._transport_module().__class__ = Watched
sdk._import_aside = watching

assert "lark_channel" not in sys.modules, "loaded before anything asked for it"
for round in range(2):
    made = build_channels(
        feishu_domain="https://open.feishu.cn", outbound_proxy=None, clock=SystemClock(), threads=InlineThreads()
    )
    assert round or "lark_channel" not in sys.modules, "loaded by being configured"
    for number in range(3):
        assert made["feishu"].verify(signed(event()), CREDENTIALS)
        sdk.client("https://open.feishu.cn")
        sdk.load()
assert written == [sdk._SEAM], written
assert sdk.drift() == ()
print("set once")
"""


@pytest.mark.timeout(300)
@pytest.mark.spec("DESK-344")
def test_the_sdks_process_state_is_set_once_and_a_run_that_changes_it_fails() -> None:
    """Seam, logger and token cache are set at the first use alone, and each run of tests ends by looking at them.

    Proved on runs of their own: one process in which everything is built twice, and a run of a test that leaves a token
    in the SDK's cache, which must not end well; without that leftover it does.
    """
    once = subprocess.run([sys.executable, "-c", SET_ONCE], capture_output=True, text=True, timeout=240, check=False)
    assert (once.returncode, once.stdout) == (0, "set once\n"), once.stderr

    case = Path(__file__).with_name("drifting.py")
    plugins = [f"-pno:{name}" for name in ("schemathesis", "hypothesispytest", "playwright", "cacheprovider")]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *plugins, str(case)]
    leaving = {"nothing": 0, "everything": 1}
    runs = {
        leaves: subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "FRONTDESK_TEST_DRIFT": leaves}
        )
        for leaves in leaving
    }
    for leaves, status in leaving.items():
        said = runs[leaves].communicate(timeout=240)[0]
        assert (leaves, runs[leaves].returncode) == (leaves, status), said
        assert ("('request_seam', 'token_cache', 'logger_level')" in said) == bool(status), said
