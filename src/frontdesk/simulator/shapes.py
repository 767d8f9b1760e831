"""Ids and secrets in the provider's shapes, and the limits the provider documents."""

from __future__ import annotations

import re
import secrets

TEXT_BODY_BYTES_MAX = 150 * 1024
CARD_BODY_BYTES_MAX = 30 * 1024
FILE_BYTES_MAX = 30 * 1024 * 1024
UPLOAD_REQUEST_BYTES_MAX = 32 * 1024 * 1024
REQUEST_BYTES_MAX = 256 * 1024
UUID_CHARS_MAX = 50
UUID_WINDOW_MS = 3_600_000
TOKEN_SECONDS = 7_200
CHAT_PER_SECOND = 5
PAGE_SIZE_MAX = 50
PAGE_SIZE_DEFAULT = 20
REDELIVERY_MS = (15_000, 300_000, 3_600_000, 21_600_000)
CONNECTIONS_PER_APP_MAX = 50

REQUESTS_KEPT = 10_000
PUSHES_KEPT = 10_000
MESSAGES_KEPT = 50_000
FILES_KEPT = 500
NAME_CHARS_MAX = 60

APP_ID = re.compile(r"cli_[A-Za-z0-9]{1,60}")


def new_app_id() -> str:
    """``cli_`` + 16 hex."""
    return "cli_" + secrets.token_hex(8)


def new_tenant_key() -> str:
    """16 hex."""
    return secrets.token_hex(8)


def new_secret() -> str:
    """32 hex characters: app secret, encrypt key, verification token."""
    return secrets.token_hex(16)


def new_id(prefix: str) -> str:
    """``prefix`` + 32 hex: ``om_`` message, ``oc_`` chat, ``ou_`` person, ``on_`` union, ``psh_`` push."""
    return prefix + secrets.token_hex(16)


def new_token() -> str:
    """A tenant access token."""
    return "t-g1" + secrets.token_hex(20)


def new_file_key() -> str:
    """A file key."""
    return "file_v3_00" + secrets.token_hex(16)
