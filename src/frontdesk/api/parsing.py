"""What a request says, parsed strictly: one JSON object of the documented shape, and the documented query parameters.

Unknown keys and parameters, repeated parameters, NaN, lone surrogates, NUL, nesting bombs and numbers written as texts
are refused here, on every operation, naming the path and never the value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from frontdesk.api.problems import invalid_model, path_text
from frontdesk.kernel.errors import Problem, invalid
from frontdesk.kernel.limits import JSON_DEPTH_MAX


class QueryParser:
    """Query parameters of one operation; without a model every parameter is unknown."""

    def __init__(self, model: type[BaseModel] | None) -> None:
        self._model = model
        fields = model.model_fields if model is not None else {}
        self._lists = {name for name, field in fields.items() if _is_list(field.annotation)}

    def parse(self, pairs: Iterable[tuple[str, str]]) -> BaseModel | None:
        """The query model. Raises `request_invalid`."""
        values: dict[str, Any] = {}
        for name, value in pairs:
            if "\x00" in value:
                raise invalid(path_text((name,)), "NUL is not allowed")
            if name in self._lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise invalid(path_text((name,)), "given more than once")
            else:
                values[name] = value
        if self._model is None:
            if values:
                raise invalid(path_text((next(iter(values)),)), "unknown parameter")
            return None
        try:
            return self._model.model_validate(values)
        except ValidationError as error:
            raise invalid_model(error, at="query") from None


class BodyParser:
    """The JSON body of one operation; without a model only an empty body or `{}` is taken."""

    def __init__(self, model: type[BaseModel] | None) -> None:
        self._model = model

    async def parse(self, request: Request) -> BaseModel | None:
        """The request model. Raises `body_malformed` or `request_invalid`."""
        raw = await request.body()
        if self._model is None:
            if raw.strip() not in {b"", b"{}"}:
                raise invalid("body", "this operation takes no body")
            return None
        if not raw.strip():
            raise invalid("body", "is required")
        if not _is_json(request.headers.get("content-type")):
            raise invalid("content-type", "must be application/json")
        check_json(raw)
        try:
            # JSON mode and strict: a number stays a number, and only what JSON can say is taken for it.
            return self._model.model_validate_json(raw, strict=True)
        except ValidationError as error:
            raise invalid_model(error) from None


def check_json(raw: bytes) -> None:
    """Raises `body_malformed` for what is not JSON, nested too deep or beyond a number; `request_invalid` for a NUL."""
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError:
        raise Problem("body_malformed") from None
    _check_value(value, ())


def _is_json(content_type: str | None) -> bool:
    if content_type is None:
        return True
    media = content_type.partition(";")[0].strip().lower()
    return media == "application/json" or (media.startswith("application/") and media.endswith("+json"))


def _check_value(value: Any, path: tuple[str | int, ...]) -> None:
    if isinstance(value, str):
        if "\x00" in value:
            raise invalid(path_text(path) or "body", "NUL is not allowed")
    elif isinstance(value, dict):
        _check_depth(path)
        for key, child in value.items():
            _check_value(key, (*path, key))
            _check_value(child, (*path, key))
    elif isinstance(value, list):
        _check_depth(path)
        for index, child in enumerate(value):
            _check_value(child, (*path, index))
    elif isinstance(value, float) and not math.isfinite(value):
        raise Problem("body_malformed")  # 1e999 is well-formed text for no number


def _check_depth(path: tuple[str | int, ...]) -> None:
    if len(path) >= JSON_DEPTH_MAX:
        raise Problem("body_malformed")


def _is_list(annotation: Any) -> bool:
    origin = getattr(annotation, "__origin__", annotation)
    if origin in {list, tuple, set, frozenset}:
        return True
    return any(_is_list(argument) for argument in getattr(annotation, "__args__", ()))
