"""Shapes shared by every request and response model."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from frontdesk.kernel.clock import to_rfc3339
from frontdesk.kernel.limits import PAGE_DEFAULT, PAGE_MAX, REASON_CHARS_MAX, REQUEST_ID_CHARS_MAX

Item = TypeVar("Item", bound=BaseModel)


class Request(BaseModel):
    """A request body or query: unknown keys are refused, numbers are not guessed from texts."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=False, hide_input_in_errors=True)


class Response(BaseModel):
    """A response body; built from rows, with exactly the listed fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)


def _no_surrogate(text: str) -> str:
    text.encode("utf-8")  # a lone surrogate has no UTF-8 form: UnicodeEncodeError is a ValueError
    if "\x00" in text:
        raise ValueError("NUL is not allowed")
    return text


def _trim(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


Clean = AfterValidator(_no_surrogate)
Trim = BeforeValidator(_trim)

RequestId = Annotated[str, Trim, Clean, Field(min_length=1, max_length=REQUEST_ID_CHARS_MAX)]
Name = Annotated[str, Trim, Clean, Field(min_length=1, max_length=255)]
Reason = Annotated[str, Trim, Clean, Field(min_length=1, max_length=REASON_CHARS_MAX)]
Identifier = Annotated[str, Clean, Field(min_length=1, max_length=64)]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$")]

# Microseconds inside, RFC 3339 with Z outside.
Instant = Annotated[int, PlainSerializer(to_rfc3339, return_type=str)]


class PageQuery(Request):
    """Paging of every list: newest first."""

    limit: int = Field(default=PAGE_DEFAULT, ge=1, le=PAGE_MAX)
    cursor: Annotated[str, Field(min_length=1, max_length=200)] | None = None


class Page(Response, Generic[Item]):
    """One page; `next_cursor` is null on the last."""

    items: list[Item]
    next_cursor: str | None


class ProblemError(Response):
    """Where a request is wrong: a path and a reason, never a value."""

    path: str
    reason: str


class ProblemBody(Response):
    """RFC 9457 problem."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retry: Literal["never", "after_reread", "same_request"]
    errors: list[ProblemError] | None = None
