"""Is this push authentic? Shape first, without secrets or SDK; then the pinned SDK in strict mode, nothing else.

A dispatcher is made per push: construction costs a microsecond, the secrets die with it, and no state is shared
between threads.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinMethodType
from typing import Any, Final

from frontdesk.channels.feishu import sdk
from frontdesk.channels.feishu.normalise import normalise
from frontdesk.desk.connections.channel import Challenge, Credentials, RawPush, Refused, Verdict, Verified
from frontdesk.kernel.limits import SIGNATURE_HEADER_CHARS_MAX

SHAPE: Final = Refused("callback_shape_invalid")
REFUSED: Final = Refused("callback_not_accepted")

TIMESTAMP: Final = "X-Lark-Request-Timestamp"
NONCE: Final = "X-Lark-Request-Nonce"
SIGNATURE: Final = "X-Lark-Signature"
REQUEST_ID: Final = "X-Request-Id"
# The SDK looks headers up case-exactly, and servers lower-case them: without this map strict mode refuses everything
# and the default mode verifies nothing.
_CANONICAL: Final = {name.lower(): name for name in (TIMESTAMP, NONCE, SIGNATURE, REQUEST_ID)}

# The whole grammar of an acceptable body: one object, one member `encrypt`, one non-empty string. Possessive repeats
# keep it linear and a depth bomb, a second key or a number fails at its first byte; there is nothing to recurse into.
_PLAIN_HEAD: Final = b'{"encrypt":"'
_PLAIN_TAIL: Final = b'"}'
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_STRING: Final = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_GENERAL: Final = re.compile(
    rf"[ \t\r\n]*+\{{[ \t\r\n]*+({_STRING})[ \t\r\n]*+:[ \t\r\n]*+({_STRING})[ \t\r\n]*+\}}[ \t\r\n]*+"
)


def precheck(push: RawPush) -> Refused | None:
    """Rows 4 and 5: the body's shape and the signature headers, all or none."""
    return None if _body_has_shape(push.body) and _signature_headers(push.headers) is not None else SHAPE


def verify(push: RawPush, credentials: Credentials) -> Verdict:
    """Rows 7 and 8. Asks the SDK only about a push of the right shape; an empty secret refuses everything."""
    key, token = credentials.encrypt_key, credentials.verification_token
    if not key or not token:
        return REFUSED  # the SDK would take this for "do not check"
    headers = _signature_headers(push.headers)
    if headers is None or not _body_has_shape(push.body):
        return SHAPE
    if SIGNATURE not in headers:
        return _challenge(push.body, headers, key, token)
    payloads: list[str] = []
    status, content = Dispatcher(key, token, payloads.append).do(headers, push.body)
    if status != 200:
        return REFUSED
    if not payloads:
        return Challenge(content)
    return Verified((_normalised(payloads[0], int(headers[TIMESTAMP])),))


def _challenge(body: bytes, headers: dict[str, str], key: str, token: str) -> Verdict:
    status, content = Dispatcher(key, token, None, allow_unsigned=True).do(headers, body)
    return Challenge(content) if status == 200 else REFUSED


def _normalised(plaintext: str, signed_at_s: int) -> Any:
    # `normalise` has no input it fails on; should that be wrong, nothing of the message may leave in the error.
    try:
        return normalise(json.loads(plaintext), signed_at_s * 1000)
    except Exception:  # noqa: BLE001 - re-raised as a constant
        raise NormaliseFailed("a verified event could not be normalised") from None


class NormaliseFailed(RuntimeError):
    """A defect of ours: the text is constant, the cause is cut off."""


class Dispatcher:
    """The SDK's dispatcher under guard: strict, with both secrets, and a synchronous capture or none.

    Without `capture` nothing is registered: it answers challenges alone. Only then may unsigned ciphertext be allowed,
    because the provider's URL check comes that way.
    """

    __slots__ = ("_handler",)

    def __init__(
        self,
        encrypt_key: str,
        verification_token: str,
        capture: Callable[[str], object] | None,
        *,
        mode: str = "strict",
        allow_unsigned: bool = False,
    ) -> None:
        if mode != "strict":
            raise ValueError("a dispatcher is strict or not built: other modes take unsigned ciphertext")
        if not encrypt_key:
            raise ValueError("an encrypt key is needed: without one the SDK takes plaintext")
        if not verification_token:
            raise ValueError("a verification token is needed: without one the SDK compares nothing")
        if capture is None:
            settings = sdk.security(mode, allow_unsigned)
            self._handler = sdk.challenge_dispatcher(encrypt_key, verification_token, settings)
            return
        if allow_unsigned:
            raise ValueError("a dispatcher that takes events takes signed ones alone")
        if _is_asynchronous(capture):
            raise TypeError("the capture must be synchronous: the SDK never awaits, and acknowledges all the same")
        build = sdk.capturing_dispatcher()
        self._handler = build(encrypt_key, verification_token, sdk.security(mode, False), capture)

    def do(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Status and content of the SDK's answer; 500 for whatever it could not stand."""
        try:
            response = self._handler.do(sdk.raw_request(headers, body))
        except Exception:  # noqa: BLE001 - the SDK's error path touches the input again and may fail on it
            return 500, b""
        return int(response.status_code), bytes(response.content)


def _is_asynchronous(capture: object) -> bool:
    if isinstance(capture, BuiltinMethodType):
        return False  # `list.append`, which every push uses: never a coroutine, and looking closer costs more than it
    return inspect.iscoroutinefunction(capture) or inspect.iscoroutinefunction(getattr(capture, "__call__", None))  # noqa: B004


def _is_plain(body: bytes) -> bool:
    """The provider's own spelling, which is nearly every push: no blank, base64 alone. Nothing is parsed."""
    if not body.startswith(_PLAIN_HEAD) or not body.endswith(_PLAIN_TAIL) or len(body) <= 14:
        return False
    return not body[12:-2].translate(None, _BASE64)


def _body_has_shape(body: bytes) -> bool:
    if _is_plain(body):
        return True
    try:
        match = _GENERAL.fullmatch(body.decode("utf-8"))
    except UnicodeDecodeError:
        return False
    return match is not None and match[2] != '""' and json.loads(match[1]) == "encrypt"


def _signature_headers(headers: Sequence[tuple[str, str]]) -> dict[str, str] | None:
    """The SDK's headers under its own names; without the three where all are absent; None where they break row 5."""
    found: dict[str, str] = {}
    for name, value in headers:
        canonical = _CANONICAL.get(name)
        if canonical is None:
            continue
        if canonical in found and canonical != REQUEST_ID:
            return None
        found[canonical] = value
    return found if _signature_complete(found) else None


def _signature_complete(found: Mapping[str, str]) -> bool:
    values = [found[name] for name in (TIMESTAMP, NONCE, SIGNATURE) if name in found]
    if not values:
        return True
    if len(values) != 3 or not all(0 < len(value) <= SIGNATURE_HEADER_CHARS_MAX for value in values):
        return False
    timestamp = values[0]
    return timestamp.isascii() and timestamp.isdigit()
