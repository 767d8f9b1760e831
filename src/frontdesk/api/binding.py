"""Binding a registry entry to a handler: one place builds every route, its models, its errors and its documentation."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from frontdesk.api.services import Services
from frontdesk.identity.model import Actor
from frontdesk.kernel.errors import invalid
from frontdesk.wire.registry import Operation


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated call: who asks, what for, and the services to do it with."""

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


Handler = Callable[[Call], Awaitable[Any]]


def bind(router: APIRouter, operation: Operation, handler: Handler) -> None:
    """Add the route of `operation`. The handler returns the response model, or None for 204."""

    async def endpoint(**arguments: Any) -> Any:
        request: Request = arguments.pop("request")
        body = arguments.pop("body", None)
        query = arguments.pop("query", None)
        if operation.query is None and request.query_params:
            raise invalid("query", "unknown parameter")
        call = Call(request.app.state.services, request.scope.get("actor"), arguments, body, query, request)  # type: ignore[arg-type]
        result = await handler(call)
        if operation.response is None:
            return Response(status_code=operation.status)
        return result

    endpoint.__signature__ = _signature(operation)  # type: ignore[attr-defined]
    endpoint.__name__ = operation.id.replace(".", "_")
    endpoint.__doc__ = operation.summary
    router.add_api_route(
        "/api/v1" + operation.path,
        endpoint,
        methods=[operation.method],
        operation_id=operation.id,
        summary=operation.summary,
        status_code=operation.status,
        response_model=operation.response,
        response_class=Response if operation.response is None else _default_response_class(),
        tags=[".".join(operation.id.split(".")[:2])],
        openapi_extra={"x-right": operation.right, "x-errors": list(operation.errors)},
    )


def _default_response_class() -> Any:
    from fastapi.responses import JSONResponse

    return JSONResponse


def _signature(operation: Operation) -> inspect.Signature:
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("request", keyword, annotation=Request)]
    parameters += [inspect.Parameter(name, keyword, annotation=str) for name in operation.path_parameters]
    if operation.request is not None:
        parameters.append(inspect.Parameter("body", keyword, annotation=operation.request))
    if operation.query is not None:
        query: type[BaseModel] = operation.query
        parameters.append(inspect.Parameter("query", keyword, annotation=Annotated[query, Query()]))
    return inspect.Signature(parameters)
