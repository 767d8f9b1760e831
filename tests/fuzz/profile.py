"""How far a run fuzzes: a fixed, small number of examples in the suite, as many as asked for with `make fuzz`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings

VARIABLE = "FUZZ"


def factor() -> int:
    """How many times the suite's number of examples: 1, or what `FUZZ` says."""
    return max(1, int(os.environ.get(VARIABLE) or 1))


def bounded(examples: int) -> Callable[[Any], Any]:
    """Settings for one property: the same examples on every run of the suite, other ones with `make fuzz`."""
    wide = factor() > 1
    return settings(
        max_examples=examples * factor(),
        derandomize=not wide,
        database=None,
        deadline=None,
        print_blob=True,
        # Shrinking repeats a failing example; what it did to the world stays. The first failure is the one to read.
        phases=(Phase.explicit, Phase.generate, Phase.shrink) if wide else (Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
