"""The two channels of this build with what stands on their other side, for the suite that runs on both."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar

from frontdesk.channels.feishu import FeishuChannel
from frontdesk.channels.loopback import DEFAULT_TARGETS, LoopbackChannel
from frontdesk.desk.connections.channel import Channel, Credentials, Installed, RawPush
from frontdesk.kernel.clock import Clock
from tests.channels import conftest, hooks, signing
from tests.channels.provider import Provider, code, sent

KINDS = {"message": "im.message.receive_v1", "recall": "im.message.recalled_v1", "other": "im.chat.updated_v1"}


class Feishu:
    """The official SDK on one side, the provider's documentation on the other."""

    key, prefix = "feishu", "feishu"
    path = "/open-apis/im/v1/messages/om_1/reply"
    credentials = signing.CREDENTIALS
    fit: ClassVar[dict[str, str | None]] = {
        "app_secret": "anything",
        "encrypt_key": "k",
        "verification_token": "t",
        "target_url": None,
    }
    labels = ("cli_1", "t-1")
    limited_by = 99991400

    def channel(self, provider: Provider, clock: Clock, threads: Any) -> Channel:
        return FeishuChannel(provider.origin, clock, threads)

    def installed(self, _provider: Provider) -> Installed:
        return conftest.installed()

    def push(
        self, kind: str = "message", *, event_id: str = "ev-1", secret: str = signing.KEY, **fields: Any
    ) -> RawPush:
        names = {"id": "message_id", "parent": "parent_id", "root": "root_id", "chat": "chat_id"}
        message = {names.get(name, name): value for name, value in fields.items() if name not in ("sender", "text")}
        if "text" in fields:
            message["content"] = json.dumps({"text": fields["text"]}, ensure_ascii=False)
        if "created_at_ms" in message:
            message["create_time"] = str(message.pop("created_at_ms"))
        payload = signing.event(KINDS[kind], **message)
        payload["header"]["event_id"] = event_id
        if "sender" in fields:
            payload["event"]["sender"]["sender_id"]["open_id"] = fields["sender"]
        if kind == "recall":
            payload["event"] = {"message_id": fields["id"]}
        return signing.signed(payload, secret)

    def forged(self, push: RawPush) -> RawPush:
        headers = [(name, "0" * 64 if name == "x-lark-signature" else value) for name, value in push.headers]
        return replace(push, headers=headers)

    signature_headers = ("x-lark-request-timestamp", "x-lark-request-nonce", "x-lark-signature")

    def took(self, message_id: str) -> bytes:
        return sent(message_id)

    def gone(self) -> bytes:
        return code(230011)

    def limited(self, seconds: int) -> bytes:
        return code(99991400, 429, {"x-ogw-ratelimit-reset": str(seconds)})

    def text_sent(self, body: Any) -> str:
        return str(json.loads(body["content"])["text"])


class Loopback:
    """Signed web hooks."""

    key, prefix = "loopback", "loop"
    path = hooks.PATH
    credentials: Credentials = hooks.CREDENTIALS
    fit: ClassVar[dict[str, str | None]] = {
        "app_secret": hooks.SECRET,
        "encrypt_key": hooks.OTHER_SECRET,
        "verification_token": None,
        "target_url": "http://127.0.0.1:9000/hook",
    }
    labels = ("", "")
    limited_by = 429

    def channel(self, _provider: Provider, clock: Clock, threads: Any) -> Channel:
        return LoopbackChannel(DEFAULT_TARGETS, clock, threads)

    def installed(self, provider: Provider) -> Installed:
        return hooks.installed(hooks.hook(provider))

    def push(
        self, kind: str = "message", *, event_id: str = "wh_1", secret: str = hooks.SECRET, **fields: Any
    ) -> RawPush:
        return hooks.signed(hooks.message(type=kind, **fields), event_id=event_id, secret=secret)

    def forged(self, push: RawPush) -> RawPush:
        wrong = hooks.sign(push.body, secret=hooks.OTHER_SECRET)
        headers = [(name, wrong if name == "webhook-signature" else value) for name, value in push.headers]
        return replace(push, headers=headers)

    signature_headers = ("webhook-id", "webhook-timestamp", "webhook-signature")

    def took(self, message_id: str) -> bytes:
        return hooks.took(message_id)

    def gone(self) -> bytes:
        return hooks.problem(410)

    def limited(self, seconds: int) -> bytes:
        return hooks.problem(429, {"Retry-After": str(seconds)})

    def text_sent(self, body: Any) -> str:
        return str(body["text"])


Side = Feishu | Loopback
SIDES: tuple[Side, ...] = (Feishu(), Loopback())
