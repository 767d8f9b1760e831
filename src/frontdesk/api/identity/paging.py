"""From a verb's page to the wire's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from frontdesk.wire.model import Page, Response
from frontdesk.wire.paging import encode_cursor

Shown = TypeVar("Shown", bound=Response)


def shown(model: type[Shown], found: tuple[Sequence[Any], tuple[int, str] | None]) -> Page[Shown]:
    """Rows as `model`, and the cursor of the next page."""
    rows, following = found
    return Page[model](  # type: ignore[valid-type]  # pydantic builds the model of this item at run time
        items=[model.model_validate(row) for row in rows],
        next_cursor=encode_cursor(*following) if following is not None else None,
    )
