"""One issuer as a process knows it: what it published, for how long that is believed, and when it is asked again.

All on one event loop; the blocking parts run on the threads handed in. One question is under way at a time, and
questions begin `OIDC_ASK_EVERY_US` apart at least, so tokens with invented key ids cost the issuer nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

from frontdesk.identity.oidc import tokens
from frontdesk.identity.oidc.fetch import IssuerUnusable
from frontdesk.identity.oidc.model import OidcPerson, Published
from frontdesk.kernel.clock import SECOND, Clock
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.limits import OIDC_ASK_EVERY_US, OIDC_KEYS_AGE_US_MAX, OIDC_KEYS_FRESH_US

T = TypeVar("T")

_log = structlog.get_logger("frontdesk.identity")


class Threads(Protocol):
    """Runs a blocking function on a thread."""

    async def run(self, fn: Callable[..., T], *arguments: Any) -> T:
        """The function's result, or what it raises."""
        ...


class Issuer:
    """Verifies tokens of one issuer. `fetch` blocks and raises `IssuerUnusable`.

    Keys are believed for an hour at most and looked at anew after ten minutes of it, beside the requests; a key the
    issuer withdrew is therefore refused after that time, and an issuer that is gone stops being believed.
    """

    def __init__(self, issuer: str, *, clock: Clock, threads: Threads, fetch: Callable[[str], Published]) -> None:
        self.issuer = issuer
        self._clock = clock
        self._threads = threads
        self._fetch = fetch
        self._published: Published | None = None
        self._published_us = 0
        self._asked_us: int | None = None
        self._asking: asyncio.Task[None] | None = None

    async def verify(self, text: str, audience: str) -> OidcPerson:
        """Whom a bearer token (or an ID token, with the client id as audience) names.

        Raises `unauthenticated`, or `unavailable` while it cannot be told because the issuer cannot be asked.
        """
        header = tokens.read_header(text)
        published = await self.published()
        keys = tokens.matching(published.keys, header)
        if not keys:
            keys = tokens.matching((await self._anew(published)).keys, header)
        if not keys:
            raise Problem("unauthenticated")
        now_s = self._clock.now_us() // SECOND
        read = partial(tokens.read_person, issuer=self.issuer, audience=audience, now_s=now_s)
        return await self._threads.run(read, text, keys)

    async def published(self) -> Published:
        """What the issuer publishes, an hour old at most. Raises `unavailable`."""
        held = self._believed()
        if held is not None:
            if self._clock.monotonic_us() - self._published_us >= OIDC_KEYS_FRESH_US:
                self._ask()  # beside this request, which does not wait for it
            return held
        asking = self._ask()
        if asking is not None:
            await asyncio.shield(asking)
        held = self._believed()
        if held is None:
            raise self._unavailable()
        return held

    async def _anew(self, held: Published) -> Published:
        """After a key that `held` lacks: what the issuer says now, or `held` where it was asked a moment ago.

        Raises `unavailable` where the question failed: whether the key is good is unknown then.
        """
        asking = self._ask()
        if asking is None:
            return self._published or held
        await asyncio.shield(asking)
        if self._published is held or self._published is None:
            raise self._unavailable()
        return self._published

    def _believed(self) -> Published | None:
        if self._published is None or self._clock.monotonic_us() - self._published_us >= OIDC_KEYS_AGE_US_MAX:
            return None
        return self._published

    def _ask(self) -> asyncio.Task[None] | None:
        """The question under way, begun now where none is; None where the last one is too short a time ago."""
        if self._asking is not None:
            return self._asking
        if self._asked_us is not None and self._clock.monotonic_us() - self._asked_us < OIDC_ASK_EVERY_US:
            return None
        self._asking = asyncio.get_running_loop().create_task(self._question(), name="oidc-issuer")
        return self._asking

    async def _question(self) -> None:
        """Ask once; a failure leaves what was known, and its age, as they are. Raises nothing."""
        self._asked_us = self._clock.monotonic_us()
        try:
            found = await self._threads.run(self._fetch, self.issuer)
        except IssuerUnusable:
            _log.warning("identity.oidc_issuer", code="unavailable")
        except Exception as error:  # noqa: BLE001 - nobody may be waiting for this task; its text could quote an answer
            _log.error("identity.oidc_issuer", code="internal_error", phase=type(error).__name__)
        else:
            self._published, self._published_us = found, self._clock.monotonic_us()
        finally:
            self._asked_us = self._clock.monotonic_us()  # a failure that took its time is not repeated at once
            self._asking = None

    def _unavailable(self) -> Problem:
        return Problem("unavailable", retry_after_s=max(1, OIDC_ASK_EVERY_US // SECOND))

    async def close(self) -> None:
        """Wait for the question under way, which is bounded; to be called before the threads end."""
        if self._asking is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(self._asking)
