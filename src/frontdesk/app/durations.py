"""Durations of the settings: `250ms 30s 10m 4h 7d`, and nothing else."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

_FORM: Final = re.compile(r"(0|[1-9][0-9]{0,8})(ms|s|m|h|d)")
_UNIT_US: Final = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}


def parse_duration(text: Any) -> int:
    """Microseconds of a duration text. Raises ValueError for any other notation."""
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("write a duration as 250ms, 30s, 10m, 4h or 7d")
    return int(match[1]) * _UNIT_US[match[2]]


DurationUs = Annotated[int, BeforeValidator(parse_duration)]
