"""Binding a registry entry to a handler: one place builds every route, its models, its errors and its documentation.

FastAPI routes and documents; parsing and rendering are ours (`OperationRoute`), because the framework's own parsing
takes NaN and numbers in texts, and its errors quote the input.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from frontdesk.api import parsing
from frontdesk.api.services import Services
from frontdesk.identity.model import Actor
from frontdesk.kernel.errors import Problem
from frontdesk.wire.registry import Operation

PREFIX: Final = "/api/v1"
_PATH_PARAMETER_CHARS_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated call: who asks, what for, and the services to do it with.

    `actor` is None on the few operations that need no credentials; their handlers don't look at it.
    """

    services: Services
    actor: Actor
    path: dict[str, str]
    body: Any
    query: Any
    request: Request

    def __getattr__(self, name: str) -> str:
        """Path parameters by name: `call.workspace_id`."""
        try:
            return self.path[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True, slots=True)
class WithStatus:
    """A result that answers with another status than the operation's own (202 for what goes on in the background)."""

    body: Any
    status: int


Handler = Callable[[Call], Awaitable[Any]]


class OperationRoute(APIRoute):
    """The route of one operation, whose endpoint carries the request handler that `bind` made."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler instead of the framework's own parsing."""
        handle: Callable[[Request], Coroutine[Any, Any, Response]] = getattr(self.endpoint, "handle")  # noqa: B009
        return handle


def bind(router: APIRouter, operation: Operation, handler: Handler) -> None:
    """Add the route of `operation`. The handler returns its model, `WithStatus`, a Response, or None for 204."""

    async def endpoint(**arguments: Any) -> Any:
        raise NotImplementedError  # documentation alone: OperationRoute answers with `handle`

    endpoint.__signature__ = _signature(operation)  # type: ignore[attr-defined]
    endpoint.__name__ = operation.id.replace(".", "_")
    endpoint.__doc__ = operation.summary
    endpoint.handle = _request_handler(operation, handler)  # type: ignore[attr-defined]
    router.add_api_route(
        PREFIX + operation.path,
        endpoint,
        methods=[operation.method],
        operation_id=operation.id,
        summary=operation.summary,
        status_code=operation.success_status,
        response_model=operation.response,
        response_class=Response if operation.response is None else _json_response_class(),
        tags=[".".join(operation.id.split(".")[:2])],
        openapi_extra={"x-right": operation.right, "x-errors": list(operation.errors)},
        route_class_override=OperationRoute,
    )


def _request_handler(operation: Operation, handler: Handler) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    response = TypeAdapter(operation.response) if operation.response is not None else None
    query = parsing.QueryParser(operation.query)
    body = parsing.BodyParser(operation.request)

    async def handle(request: Request) -> Response:
        request.scope["operation"] = operation.id
        path = request.path_params
        _check_path(path)
        asked = query.parse(request.query_params.multi_items())
        told = await body.parse(request)
        actor: Actor = request.scope.get("actor")  # type: ignore[assignment]
        result = await handler(Call(request.app.state.services, actor, path, told, asked, request))
        return _rendered(operation, response, result)

    return handle


def _rendered(operation: Operation, adapter: TypeAdapter[Any] | None, result: Any) -> Response:
    if isinstance(result, Response):
        return result
    status = operation.success_status
    if isinstance(result, WithStatus):
        result, status = result.body, result.status
    if adapter is None:
        return Response(status_code=status)
    # Validated so that an answer has exactly the documented fields, whatever the handler was given by a room.
    shown = adapter.dump_json(adapter.validate_python(result, from_attributes=True), by_alias=True)
    return Response(shown, status, media_type="application/json")


def _check_path(path: dict[str, str]) -> None:
    """A path parameter no id can look like names nothing; it never reaches a statement."""
    for value in path.values():
        if len(value) > _PATH_PARAMETER_CHARS_MAX or not value.isprintable():
            raise Problem("route_not_found")


def _json_response_class() -> Any:
    from fastapi.responses import JSONResponse

    return JSONResponse


def _signature(operation: Operation) -> inspect.Signature:
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("request", keyword, annotation=Request)]
    parameters += [inspect.Parameter(name, keyword, annotation=str) for name in operation.path_parameters]
    if operation.request is not None:
        parameters.append(inspect.Parameter("body", keyword, annotation=operation.request))
    if operation.query is not None:
        parameters.append(inspect.Parameter("query", keyword, annotation=Annotated[operation.query, Query()]))
    return inspect.Signature(parameters)
