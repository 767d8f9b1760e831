"""Is it alive, is it ready: two public answers without data, for service managers and load balancers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog
from fastapi import Request, Response
from fastapi.responses import JSONResponse

Check = Callable[[], Awaitable[bool]]
Readiness = Mapping[str, Check]

CHECK_TIMEOUT_S: Final = 2.0
_log = structlog.get_logger("frontdesk.api")


async def readiness(checks: Readiness) -> dict[str, bool]:
    """Every check's answer; one that fails, raises or takes too long is False. All run at once."""
    answers = await asyncio.gather(*(_ask(name, check) for name, check in checks.items()))
    return dict(zip(checks, answers, strict=True))


async def _ask(name: str, check: Check) -> bool:
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return bool(await check())
    except Exception as error:  # noqa: BLE001 - whatever is wrong, the answer is "not ready"
        _log.warning("api.readyz", phase=name, code=type(error).__name__)
        return False


async def healthz(request: Request) -> Response:
    """200 while the process lives."""
    request.scope["operation"] = "api.healthz"
    return JSONResponse({"alive": True})


def readyz(checks: Readiness) -> Callable[[Request], Awaitable[Response]]:
    """200 where every check holds, else 503 with the names of those that don't."""

    async def answer(request: Request) -> Response:
        request.scope["operation"] = "api.readyz"
        seen = await readiness(checks)
        ready = all(seen.values())
        return JSONResponse({"ready": ready, "checks": seen}, 200 if ready else 503)

    return answer
