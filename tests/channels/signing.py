"""The provider's side of a push, written from its documentation: signing and encryption share no code with the SDK."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from frontdesk.desk.connections.channel import Credentials, RawPush

KEY = "test-encrypt-key"
TOKEN = "test-token"
CREDENTIALS = Credentials("app-secret", KEY, TOKEN)
AT = "1767225600"
NONCE = "nonce-1"

# Check values V12 and V13 of the specification.
V12_CIPHER = (
    "AAECAwQFBgcICQoLDA0OD5OvMiWSFJvmDWXcLMiX3eCh8wnXFy2zY6q8JN7//zyKL4wn1Eeh5Kranf4z5LwWHyv"
    "/Cae4YCfDbQPBbIbF+TRyqWPJ+ufogXXjRJ09Q+UW"
)
V12_BODY = f'{{"encrypt":"{V12_CIPHER}"}}'.encode()
V13_SIGNATURE = "6f05313c76868c5613ccfd17f5c332174cf442ba336eb959302ffa58f39ae3ae"


def encrypted(plaintext: str | bytes, key: str = KEY, iv: bytes = bytes(range(16))) -> str:
    data = plaintext if isinstance(plaintext, bytes) else plaintext.encode("utf-8")
    pad = 16 - len(data) % 16
    cipher = Cipher(algorithms.AES(hashlib.sha256(key.encode()).digest()), modes.CBC(iv)).encryptor()
    return base64.b64encode(iv + cipher.update(data + bytes([pad]) * pad) + cipher.finalize()).decode("ascii")


def signature(body: bytes, key: str = KEY, at: str = AT, nonce: str = NONCE) -> str:
    return hashlib.sha256((at + nonce + key).encode() + body).hexdigest()


def headers_for(body: bytes, key: str = KEY, at: str = AT, nonce: str = NONCE) -> list[tuple[str, str]]:
    return [
        ("host", "desk.example"),
        ("content-type", "application/json"),
        ("x-lark-request-timestamp", at),
        ("x-lark-request-nonce", nonce),
        ("x-lark-signature", signature(body, key, at, nonce)),
        ("x-request-id", "req-1"),
    ]


def body_of(payload: Any, key: str = KEY) -> bytes:
    plaintext = payload if isinstance(payload, str | bytes) else json.dumps(payload, ensure_ascii=False)
    return json.dumps({"encrypt": encrypted(plaintext, key)}, separators=(",", ":")).encode()


def signed(payload: Any, key: str = KEY, at: str = AT) -> RawPush:
    body = body_of(payload, key)
    return RawPush(headers_for(body, key, at), body)


def unsigned(payload: Any, key: str = KEY) -> RawPush:
    return RawPush([("content-type", "application/json")], body_of(payload, key))


def challenge(token: str = TOKEN) -> dict[str, Any]:
    return {"challenge": "ch-1", "token": token, "type": "url_verification"}


def event(kind: str = "im.message.receive_v1", *, token: str = TOKEN, **changes: Any) -> dict[str, Any]:
    """A message event shaped like the provider's; `changes` replace fields of its message."""
    return {
        "schema": "2.0",
        "header": {
            "event_id": "ev-1",
            "event_type": kind,
            "create_time": "1767225600123",
            "token": token,
            "app_id": "cli_1",
            "tenant_key": "t-1",
        },
        "event": {
            "sender": {
                "sender_id": {"open_id": "ou_1", "union_id": "on_1", "user_id": None},
                "sender_type": "user",
                "tenant_key": "t-1",
            },
            "message": {
                "message_id": "om_1",
                "parent_id": "om_0",
                "chat_id": "oc_1",
                "chat_type": "p2p",
                "message_type": "text",
                "create_time": "1767225600000",
                "content": '{"text":"你好 <b>"}',
            }
            | changes,
        },
    }
