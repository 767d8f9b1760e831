"""The one seam in place of the SDK's sync requester: each of its requests becomes the `Call` that asked for it.

The SDK's own requester follows redirects (a 307 posts twice), reads proxies and netrc from the environment, never ends
on a dripping answer and keeps sockets open. A `Call` does none of that, and notes what classification goes by.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from frontdesk.channels import transport
from frontdesk.channels.transport import Answer, CallEnded, Proxy
from frontdesk.kernel.clock import Clock

# A page of history: fifty messages of 150 kB, escaped twice, with room to spare.
ANSWER_BYTES_MAX: Final = 33_554_432


@dataclass(frozen=True, slots=True)
class Response:
    """What the SDK reads of a response."""

    status_code: int
    headers: dict[str, str]
    content: bytes


def response_of(answer: Answer) -> Response:
    """An answer as the SDK reads it."""
    return Response(answer.status, dict(answer.headers), answer.body)


class Call(transport.Call):
    """A call that the SDK makes its request through."""

    def __init__(self, clock: Clock, bound_us: int, proxy: Proxy | None, start_before_us: int | None = None) -> None:
        super().__init__(clock, bound_us, proxy, start_before_us, answer_bytes_max=ANSWER_BYTES_MAX)

    def run(self, request: Callable[[], object]) -> None:
        """See `transport.Call.run`.

        Whatever the SDK makes of the answer, and whatever it raises on it, is of no interest: we read the raw one.
        """
        token = _current.set(self)
        try:
            super().run(request)
        finally:
            _current.reset(token)


_current: contextvars.ContextVar[Call | None] = contextvars.ContextVar("frontdesk_feishu_call", default=None)


def requester(_config: object) -> tuple[Callable[..., Response], dict[str, object]]:
    """What the SDK calls instead of its own `_sync_requester`."""
    return _request, {}


def _request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    params: Any = None,
    data: Any = None,
    timeout: object = None,  # noqa: ARG001 - the SDK's per-read bound; ours holds for the whole call
) -> Response:
    call = _current.get()
    if call is None:
        raise CallEnded("a request outside of any call")
    return response_of(call.exchange(method, url, headers, params, data))
