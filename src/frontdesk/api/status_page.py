"""The page at `/`: what this is, whether it is alive and ready, and where to go. It holds no data of anybody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import resources
from typing import Final

from fastapi import Request, Response
from fastapi.responses import HTMLResponse

from frontdesk import __version__
from frontdesk.api.health import Readiness, readiness

_CSP: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)

# The page's files and their media types.
STATIC: Final = {"status.css": "text/css", "icon.svg": "image/svg+xml"}

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Frontdesk</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/status.css">
</head>
<body>
<main>
<h1>Frontdesk</h1>
<p class="lead">The front desk for a team's AI agents: messages signed for, answered once, accounted for.</p>
<dl>
<div><dt>Alive</dt><dd class="yes">yes</dd></div>
<div><dt>Ready</dt><dd class="{ready_class}">{ready}</dd></div>
{checks}
<div><dt>Version</dt><dd>{version}</dd></div>
</dl>
<nav aria-label="Where to go">
{console}<a href="/openapi.json">API description <small>(needs a token)</small></a>
<a href="/healthz">Health</a>
<a href="/readyz">Readiness</a>
</nav>
<p class="hint">From a terminal: <code>frontdesk --help</code>.
The manual is in the <code>docs</code> folder of the project.</p>
</main>
</body>
</html>
"""

_CONSOLE: Final = '<a href="/console/">Console</a>\n'


def page(seen: dict[str, bool], *, console: bool) -> str:
    """The page for the checks' answers; `console` says whether there is one to go to."""
    ready = all(seen.values())
    rows = "\n".join(
        f'<div class="check"><dt>{name}</dt><dd class="{_css(ok)}">{_word(ok)}</dd></div>' for name, ok in seen.items()
    )
    return _PAGE.format(
        ready=_word(ready),
        ready_class=_css(ready),
        checks=rows,
        version=__version__,
        console=_CONSOLE if console else "",
    )


def _word(ok: bool) -> str:
    return "yes" if ok else "not yet"


def _css(ok: bool) -> str:
    return "yes" if ok else "no"


def status_page(checks: Readiness, *, console: bool) -> Callable[[Request], Awaitable[Response]]:
    """The handler of `/`."""

    async def answer(request: Request) -> Response:
        request.scope["operation"] = "api.status_page"
        return HTMLResponse(page(await readiness(checks), console=console), headers={"Content-Security-Policy": _CSP})

    return answer


def static_file(name: str) -> Callable[[Request], Awaitable[Response]]:
    """The handler of one file of the page, by its exact name: nothing is looked up in a folder."""
    content = (resources.files("frontdesk.api") / "static" / name).read_bytes()

    async def answer(request: Request) -> Response:
        request.scope["operation"] = "api.static"
        return Response(content, media_type=STATIC[name], headers={"Cache-Control": "public, max-age=3600"})

    return answer
