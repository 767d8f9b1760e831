"""Problems on HTTP: the one translation of a stable code into a status and an RFC 9457 body.

Every error of every route leaves through here, so no stack, driver text, provider text or value can.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from frontdesk.kernel.codes import PROBLEMS, Kind
from frontdesk.kernel.errors import DatabaseBusy, FieldError, Problem
from frontdesk.kernel.limits import VALIDATION_ERRORS_MAX

MEDIA_TYPE: Final = "application/problem+json"
UNAVAILABLE_RETRY_S: Final = 1

STATUS: Final[Mapping[Kind, int]] = {
    Kind.MALFORMED: 400,
    Kind.UNAUTHENTICATED: 401,
    Kind.FORBIDDEN: 403,
    Kind.ABSENT: 404,
    Kind.METHOD: 405,
    Kind.CONFLICT: 409,
    Kind.TOO_LARGE: 413,
    Kind.MEDIA: 415,
    Kind.INVALID: 422,
    Kind.LIMITED: 429,
    Kind.REFUSED: 500,
    Kind.UPSTREAM: 502,
    Kind.UNAVAILABLE: 503,
}

# What the framework itself refuses, by its status.
_FRAMEWORK: Final[Mapping[int, str]] = {
    400: "body_malformed",
    401: "unauthenticated",
    404: "route_not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "encoding_unsupported",
    422: "request_invalid",
}

_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")

# pydantic's own messages may quote the input ("Input tag 'x'", "invalid literal for int(): 'x'"), so reasons are ours:
# a fixed sentence per error type, filled in from the schema's own bounds alone.
_REASONS: Final[Mapping[str, str]] = {
    "missing": "is required",
    "extra_forbidden": "unknown key",
    "string_type": "must be a text",
    "string_too_short": "must have a length of at least {min_length}",
    "string_too_long": "must have a length of at most {max_length}",
    "string_pattern_mismatch": "does not match {pattern}",
    "too_short": "must have a length of at least {min_length}",
    "too_long": "must have a length of at most {max_length}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "value_error": "is not acceptable",
    "assertion_error": "is not acceptable",
    "json_invalid": "is not valid JSON",
}

_log = structlog.get_logger("frontdesk.api")


def status_of(code: str) -> int:
    """The HTTP status of a problem code."""
    return STATUS[PROBLEMS[code].kind]


def document(problem: Problem) -> dict[str, Any]:
    """The problem as RFC 9457 members."""
    entry = problem.entry
    body: dict[str, Any] = {
        "type": f"urn:frontdesk:problem:{entry.code}",
        "title": entry.code.replace("_", " ").capitalize(),
        "status": STATUS[entry.kind],
        "detail": entry.en,
        "code": entry.code,
        "retry": entry.retry.value,
    }
    if problem.errors:
        body["errors"] = [{"path": error.path, "reason": error.reason} for error in problem.errors]
    return body


def headers_of(problem: Problem) -> dict[str, str]:
    """What a problem says in headers: how to authenticate, when to come again."""
    headers: dict[str, str] = {}
    if problem.entry.kind is Kind.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    wait = problem.retry_after_s
    if wait is None and problem.entry.kind is Kind.LIMITED:
        wait = UNAVAILABLE_RETRY_S
    if wait is not None:
        headers["Retry-After"] = str(wait)
    return headers


def encoded(problem: Problem) -> bytes:
    """The body as it travels."""
    return json.dumps(document(problem), ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def render(problem: Problem) -> Response:
    """The answer for a problem."""
    return Response(encoded(problem), STATUS[problem.entry.kind], media_type=MEDIA_TYPE, headers=headers_of(problem))


def from_exception(error: BaseException) -> Problem:
    """The problem an exception stands for; whatever is not foreseen is `internal_error`, and says nothing."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, DatabaseBusy):
        return Problem("unavailable", retry_after_s=UNAVAILABLE_RETRY_S)
    return Problem("internal_error")


def log_defect(operation: str, error: BaseException) -> None:
    """Record an unforeseen exception: its class and where it was raised, never its text, which may quote anything."""
    _log.error(operation, code="internal_error", phase=f"{type(error).__name__} {where(error)}")


def where(error: BaseException) -> str:
    """`module:line` of the innermost frame."""
    trace = error.__traceback__
    if trace is None:
        return "unknown"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"


def invalid_from(errors: Iterable[Mapping[str, Any]], *, at: str = "") -> Problem:
    """A 422 from pydantic's error list. `at` names what was validated where an error has no path of its own."""
    first: list[FieldError] = []
    for error in errors:
        first.append(FieldError(path_text(error["loc"]) or at or "body", _reason(error)))
        if len(first) == VALIDATION_ERRORS_MAX:
            break
    return Problem("request_invalid", errors=first)


def invalid_model(error: ValidationError, *, at: str = "") -> Problem:
    """A 422 from one failed validation."""
    return invalid_from(error.errors(include_url=False, include_input=False, include_context=True), at=at)


def path_text(location: Sequence[str | int]) -> str:
    """`context.project_id`; a key that does not look like a name is shown as `*`, as it may be a misplaced value."""
    return ".".join(str(part) if _KEY.fullmatch(str(part)) else "*" for part in location)


def _reason(error: Mapping[str, Any]) -> str:
    kind = str(error["type"])
    template = _REASONS.get(kind)
    if template is None:
        return kind.replace("_", " ")
    try:
        return template.format_map(error.get("ctx", {}))
    except KeyError:
        return kind.replace("_", " ")


def install(app: FastAPI) -> None:
    """Make every refusal of `app`, its own or the framework's, one of ours."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(DatabaseBusy, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_framework)
    app.add_exception_handler(ClientDisconnect, _on_gone)  # type: ignore[arg-type]  # None: no answer at all
    # The framework answers with this and raises on; the gate, outside of it, records the defect.
    app.add_exception_handler(Exception, _on_problem)


async def _on_problem(request: Request, error: Exception) -> Response:
    return answer(request.scope, from_exception(error))


async def _on_gone(request: Request, _: Exception) -> None:
    """Nobody is there to answer."""
    request.scope["problem_code"] = "client_disconnected"


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if any(each["type"] == "json_invalid" for each in error.errors()):
        return answer(request.scope, Problem("body_malformed"))
    # The framework puts the kind of parameter first ("body", "query"); ours names the field.
    errors = [{**each, "loc": tuple(each["loc"])[1:]} for each in error.errors()]
    return answer(request.scope, invalid_from(errors))


async def _on_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = answer(request.scope, Problem(_FRAMEWORK.get(error.status_code, "internal_error")))
    if error.headers is not None and "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    return response


def answer(scope: Any, problem: Problem) -> Response:
    """Render, and leave the code in the scope for the access log."""
    scope["problem_code"] = problem.code
    return render(problem)
