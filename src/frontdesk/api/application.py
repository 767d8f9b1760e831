"""The API as one ASGI application: callback → gate → routes. Composed here, wired by `app/`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from frontdesk.api import health, openapi, problems, status_page
from frontdesk.api.addresses import ClientAddresses
from frontdesk.api.authentication import DatabaseAuthenticator, Oidc
from frontdesk.api.binding import Call, Handler, bind
from frontdesk.api.desk.callback import OPERATION as CALLBACK_OPERATION
from frontdesk.api.desk.callback import Callback, CallbackPorts, Receive, Scope, Send
from frontdesk.api.desk.refused import LastRefused
from frontdesk.api.gate import App, Authenticate, Gate, GateRules, LoginPage
from frontdesk.api.metrics import CONTENT_TYPE, Metrics, Snapshot
from frontdesk.api.services import Services
from frontdesk.api.threads import Threads
from frontdesk.kernel.errors import Defect, Problem
from frontdesk.wire.operations import OPERATIONS
from frontdesk.wire.registry import Operation

# The framework's own telemetry would record exceptions with their texts, and bodies.
_NO_TELEMETRY: Final[Any] = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}

Routes = Iterable[tuple[Operation, Handler]]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands around the routes, all optional: the console and MCP as `mounts` behind the gate, their public paths.

    `readiness` names what `/readyz` waits for; `snapshot` reads the database's numbers for `/metrics`.
    """

    metrics: Metrics = field(default_factory=Metrics)
    last_refused: LastRefused = field(default_factory=LastRefused)
    readiness: health.Readiness = field(default_factory=dict)
    snapshot: Snapshot | None = None
    authenticate: Authenticate | None = None
    oidc: Oidc | None = None
    callback_threads: Threads | None = None
    mounts: Mapping[str, App] = field(default_factory=dict)
    public: Collection[tuple[str, bytes]] = ()
    public_prefixes: Collection[tuple[str, bytes]] = ()
    login_page: LoginPage | None = None


class Api:
    """The composed application."""

    def __init__(self, callback: Callback, routes: FastAPI) -> None:
        self.callback = callback
        self.routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        await self.callback(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        return self.routes.openapi()


def create_api(
    services: Services, routes: Routes, ports: CallbackPorts, surroundings: Surroundings | None = None
) -> Api:
    """Compose the API. `services.extras` receives `metrics` and `last_refused`, which handlers may look for.

    Raises `Defect` where two routes claim one operation.
    """
    around = surroundings if surroundings is not None else Surroundings()
    services.extras.setdefault("metrics", around.metrics)
    services.extras.setdefault("last_refused", around.last_refused)
    app = _routed(services, routes, around)
    rules = GateRules(
        allowed_hosts=services.policy.allowed_hosts,
        secure=services.policy.secure_cookies,
        metrics_token=services.metrics_token,
        public=around.public,
        public_prefixes=around.public_prefixes,
        login_page=around.login_page,
    )
    authenticate = around.authenticate or DatabaseAuthenticator(services, around.oidc)
    gate = Gate(app, authenticate, rules, clock=services.clock, metrics=around.metrics)
    callback = Callback(
        gate,
        ports,
        channels=services.channels,
        clock=services.clock,
        threads=around.callback_threads or services.threads,
        metrics=around.metrics,
        addresses=ClientAddresses(services.policy.trusted_proxies),
        last_refused=around.last_refused,
    )
    return Api(callback, app)


def _routed(services: Services, routes: Routes, around: Surroundings) -> FastAPI:
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )
    app.state.services = services
    problems.install(app)
    bound: dict[str, Operation] = {}
    for operation, handler in routes:
        if operation.id in bound:
            raise Defect(f"{operation.id} is bound twice")
        bound[operation.id] = operation
        bind(app.router, operation, handler)
    if CALLBACK_OPERATION not in bound:
        _document_callback(app, bound)
    openapi.install(app, bound)
    _add_plain(app, around)
    for prefix, mounted in around.mounts.items():
        app.mount(prefix, mounted)
    return app


def _document_callback(app: FastAPI, bound: dict[str, Operation]) -> None:
    """The callback answers before the gate; its route here is for the document, and for other methods."""
    operation = OPERATIONS.get(CALLBACK_OPERATION)
    if operation is None:
        return

    async def unreachable(_: Call) -> None:
        raise Problem("route_not_found")

    bound[operation.id] = operation
    bind(app.router, operation, unreachable)


def _add_plain(app: FastAPI, around: Surroundings) -> None:
    async def metrics(request: Request) -> Response:
        request.scope["operation"] = "api.metrics"
        actor = request.scope["actor"]
        if not request.scope["scrape"] and not actor.is_platform_admin:
            raise Problem("platform_admin_required")
        return Response(await around.metrics.exposition(around.snapshot), media_type=CONTENT_TYPE)

    async def document(request: Request) -> Response:
        request.scope["operation"] = "api.openapi"
        return JSONResponse(app.openapi())

    for path, endpoint in (
        ("/", status_page.status_page(around.readiness, console="/console" in around.mounts)),
        ("/healthz", health.healthz),
        ("/readyz", health.readyz(around.readiness)),
        *((f"/static/{name}", status_page.static_file(name)) for name in status_page.STATIC),
        ("/metrics", metrics),
        ("/openapi.json", document),
    ):
        app.router.add_route(path, endpoint, methods=["GET"], include_in_schema=False)
