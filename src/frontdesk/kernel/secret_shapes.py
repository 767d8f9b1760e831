"""The one list of texts that look like credentials, used to refuse messages and to redact what a model wrote."""

from __future__ import annotations

import re
from typing import Final

from frontdesk.kernel.disguises import views

SHAPES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("private_key", re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----")),
    ("aws_key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("google_key", re.compile(r"\bAIza[0-9A-Za-z_\-]{35}\b")),
    ("api_key", re.compile(r"\bsk-(?:[A-Za-z0-9]+-)*[A-Za-z0-9_\-]{20,}")),
    ("github_token", re.compile(r"\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{36,}\b|\bgithub_pat_[A-Za-z0-9_]{22,}\b")),
    ("slack_token", re.compile(r"\bxox[abeoprs]-[A-Za-z0-9\-]{10,}")),
    ("jwt", re.compile(r"\beyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{10,}")),
    ("password", re.compile(r"(?i)\b(?:password|passwd|pwd)\s*=\s*[^\s,;]{4,}")),
    ("frontdesk_token", re.compile(r"\bfd[tuhp]_[A-Za-z0-9_\-]{43}")),
)


# Every shape holds one of these in lower case: a text without any has none, which is nearly every text, and that is
# cheap to
# see. A test keeps the two lists together.
_MARKS: Final = (
    "private key",
    "akia",
    "asia",
    "aiza",
    "sk-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "xox",
    "eyj",
    "pass",
    "pwd",
    "fdt_",
    "fdu_",
    "fdh_",
    "fdp_",
)


def find_secret_shape(text: str) -> str | None:
    """Name of the first credential shape in `text`, or None. A shape is a guess: it proves nothing either way."""
    lowered = text.casefold()  # as the patterns do: `ſ` counts as `s`
    if not any(mark in lowered for mark in _MARKS):
        return None
    for kind, pattern in SHAPES:
        if pattern.search(text):
            return kind
    return None


def find_secret_in_disguise(text: str) -> str | None:
    """As `find_secret_shape`, whatever invisible characters, full-width letters or marks stand in the shape.

    For every door where a person's text comes in. A text split over several messages is seen by neither.
    """
    if text.isascii():
        return find_secret_shape(text)
    return next(filter(None, map(find_secret_shape, (text, *views(text)))), None)


def redact(text: str, secrets: tuple[str, ...] = ()) -> str:
    """`text` with known `secrets` (8 characters and longer) and credential shapes replaced by `[redacted:<kind>]`."""
    for secret in secrets:
        if len(secret) >= 8:
            text = text.replace(secret, "[redacted:secret]")
    for kind, pattern in SHAPES:
        text = pattern.sub(f"[redacted:{kind}]", text)
    return text
