"""Tenant tokens: our own cache, because the SDK's is process-wide, ignores the secret and never drops a refused token.

Keyed by app, origin and a digest of the secret, so a token fetched with an old secret is never found again. However
many deliveries ask at once, the provider is asked once. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from frontdesk.desk.connections.channel import ConnectFailed
from frontdesk.kernel.clock import SECOND, Clock
from frontdesk.kernel.limits import PROVIDER_TOKEN_MARGIN_US

_KEPT_MAX: Final = 256

TokenKey = tuple[str, str, bytes]


@dataclass(frozen=True, slots=True)
class Token:
    """A tenant token and how long the provider said it lives."""

    value: str = field(repr=False)
    expires_in_s: int


Fetch = Callable[[], Awaitable[Token]]


def token_key(app_id: str, origin: str, app_secret: str) -> TokenKey:
    """Whose token: the secret takes part by its digest alone."""
    return app_id, origin, hashlib.sha256(app_secret.encode("utf-8", "surrogatepass")).digest()


class _Asking:
    """One request under way and those who wait for it."""

    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.token: Token | None = None
        self.failure: ConnectFailed | None = None


class TokenCache:
    """Tokens still good for longer than the margin."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[TokenKey, tuple[Token, int]] = OrderedDict()
        self._asking: dict[TokenKey, _Asking] = {}

    async def get(self, key: TokenKey, fetch: Fetch) -> str:
        """The token of `key`, asked for where none is kept. Raises what `fetch` raises, to all who waited for it."""
        while True:
            kept = self._kept.get(key)
            if kept is not None and self._clock.monotonic_us() < kept[1]:
                self._kept.move_to_end(key)
                return kept[0].value
            asking = self._asking.get(key)
            if asking is None:
                return (await self.renew(key, fetch)).value
            await asking.done.wait()
            if asking.failure is not None:
                raise asking.failure
            if asking.token is not None:
                return asking.token.value
            # Whoever asked was cancelled: the next in line asks.

    async def renew(self, key: TokenKey, fetch: Fetch) -> Token:
        """Ask now, whatever is kept, and keep the answer."""
        asking = self._asking[key] = _Asking()
        asked_at = self._clock.monotonic_us()
        try:
            token = asking.token = await fetch()
        except ConnectFailed as failure:
            asking.failure = failure
            raise
        finally:
            if self._asking.get(key) is asking:
                del self._asking[key]
            asking.done.set()
        self._keep(key, token, asked_at + token.expires_in_s * SECOND - PROVIDER_TOKEN_MARGIN_US)
        return token

    def drop(self, key: TokenKey, value: str) -> None:
        """Forget a token the provider refused, unless a newer one has taken its place."""
        kept = self._kept.get(key)
        if kept is not None and kept[0].value == value:
            del self._kept[key]

    def _keep(self, key: TokenKey, token: Token, until_us: int) -> None:
        if until_us <= self._clock.monotonic_us():
            return
        self._kept[key] = (token, until_us)
        self._kept.move_to_end(key)
        while len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
