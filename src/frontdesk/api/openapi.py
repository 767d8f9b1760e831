"""The OpenAPI document: every operation with its credentials, its right and the problems it can answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from frontdesk import __version__
from frontdesk.api import problems
from frontdesk.kernel.codes import PROBLEMS
from frontdesk.wire.model import ProblemBody
from frontdesk.wire.registry import COMMON_ERRORS, Operation

_BEARER: Final = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An access token, a session from `POST /api/v1/session`, or the bootstrap token.",
    },
    "console_session": {
        "type": "apiKey",
        "in": "cookie",
        "name": "frontdesk_session",
        "description": "A browser's session; writes also need a same-site `Origin` and the form token `X-CSRF-Token`.",
    },
}
_SECURITY: Final[list[dict[str, list[str]]]] = [{"bearer": []}, {"console_session": []}]
_PROBLEM_REF: Final = {"$ref": "#/components/schemas/ProblemBody"}
_TEXT: Final = {"text/html": {"schema": {"type": "string"}}}

# What the gate refuses before any operation, whatever it takes.
_GATE: Final = ("host_not_allowed", "encoding_unsupported", "body_malformed", "body_too_large")

_JSON: Final[dict[str, Any]] = {"application/json": {"schema": {}}}
# Pages and answers beside the API's own operations: (method, path, operation id, summary, media types, public).
_PLAIN: Final[tuple[tuple[str, str, str, str, dict[str, Any], bool], ...]] = (
    ("get", "/", "api.status_page", "A plain status page without data", _TEXT, True),
    ("get", "/healthz", "api.healthz", "Whether the process lives", _JSON, True),
    ("get", "/readyz", "api.readyz", "Whether it is ready; 503 until it is", _JSON, True),
    ("get", "/static/status.css", "api.static", "The status page's style", {"text/css": {"schema": {}}}, True),
    ("get", "/static/icon.svg", "api.icon", "The status page's icon", {"image/svg+xml": {"schema": {}}}, True),
    ("get", "/metrics", "api.metrics", "Prometheus metrics", {"text/plain": {"schema": {"type": "string"}}}, False),
    ("get", "/openapi.json", "api.openapi", "This document", _JSON, False),
)


def install(app: FastAPI, operations: Mapping[str, Operation]) -> None:
    """Make `app.openapi()` ours. The document is built once, when first asked for."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = build(app, operations)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def build(app: FastAPI, operations: Mapping[str, Operation]) -> dict[str, Any]:
    """The whole document."""
    schema = get_openapi(
        title="Frontdesk",
        version=__version__,
        summary="The front desk for a team's AI agents.",
        routes=app.routes,
    )
    components = schema.setdefault("components", {})
    components["securitySchemes"] = _BEARER
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    model = ProblemBody.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    schemas.update(model.pop("$defs", {}))
    schemas["ProblemBody"] = model
    schema["security"] = _SECURITY
    for path, methods in schema["paths"].items():
        for method, described in methods.items():
            operation = operations.get(described.get("operationId", ""))
            if operation is not None:
                _describe(described, operation)
            else:
                raise AssertionError(f"{method} {path} is not in the registry")
    for method, path, operation_id, summary, content, public in _PLAIN:
        schema["paths"].setdefault(path, {})[method] = _plain(path, operation_id, summary, content, public)
    return schema


def _describe(described: dict[str, Any], operation: Operation) -> None:
    if not operation.authenticated:
        described["security"] = []
    responses = described["responses"]
    responses.pop("422", None)
    codes = (*COMMON_ERRORS, *operation.errors, "internal_error") if operation.authenticated else operation.errors
    if operation.path_parameters:
        codes = (*codes, "route_not_found")  # a parameter that no id can look like
    if operation.authenticated:
        codes = (*codes, *_GATE, "origin_not_allowed")
    elif operation.path_parameters:
        # A channel that does not exist is any other path, and any other path needs credentials.
        codes = (*codes, "unauthenticated", "membership_required", "user_unknown", *_GATE, "origin_not_allowed")
    else:
        codes = (*codes, *_GATE, "request_invalid", "rate_limited", "unavailable", "internal_error")
    for status, listed in sorted(_by_status(codes).items()):
        responses[str(status)] = {
            "description": "; ".join(f"`{code}`: {PROBLEMS[code].en}" for code in listed),
            "content": {problems.MEDIA_TYPE: {"schema": _PROBLEM_REF}},
        }
    described["x-gate"] = operation.gate


def _by_status(codes: Iterable[str]) -> dict[int, list[str]]:
    grouped: dict[int, list[str]] = {}
    for code in dict.fromkeys(codes):
        grouped.setdefault(problems.status_of(code), []).append(code)
    return grouped


def _plain(path: str, operation_id: str, summary: str, content: dict[str, Any], public: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation_id,
        "summary": summary,
        "tags": ["api"],
        "responses": {"200": {"description": "OK", "content": content}},
    }
    if path == "/readyz":
        described["responses"]["503"] = {"description": "Not ready", "content": content}
    if public:
        described["security"] = []
    else:
        problem = {"description": "`unauthenticated`", "content": {problems.MEDIA_TYPE: {"schema": _PROBLEM_REF}}}
        described["responses"]["401"] = problem
    return described
