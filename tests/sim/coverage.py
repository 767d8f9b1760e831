"""What the seeds of a run brought about between them: every failpoint, every fault, every withdrawal, often enough."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from frontdesk.kernel.failpoints import POINTS
from tests.sim.plan import CONNECTS, FATES, REVOCATIONS

SEEDS: Final = 2_184  # 182 of one cause and 2,002 storms
TIMES_MIN: Final = 15  # of each kind, over that many seeds
REQUIRED: Final = (
    *(f"death at {point}" for point in POINTS),
    "death before a commit",
    "death after a commit",
    "death of a bolt from the blue",
    *(f"fate {fate}" for fate in FATES),
    *(f"connect {code}" for code in CONNECTS),
    "close failed",
    "send begun too late",
    *(f"act {name}" for name in REVOCATIONS),
    *(
        f"ambush {name}"
        for name in ("revoke", "unbind", "switch_off", "disable", "demote", "remove", "close", "archive")
    ),
    "leap",
    "push again",
    "push again after its 200",
    "push late",
    "push out of order",
    "runner fail",
    "runner raise",
    "runner hang",
    "runner deaf",
)


def rare(happened: Mapping[str, int], times_min: int = TIMES_MIN) -> dict[str, int]:
    """The kinds that occurred less than `times_min` times, and how often each did."""
    return {name: happened.get(name, 0) for name in REQUIRED if happened.get(name, 0) < times_min}


class Ledger:
    """The counters of a run's parts, kept in a folder that all of its processes see."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def enter(self, part: str, happened: Mapping[str, int]) -> None:
        """Keep one part's counters; whole or not at all, however many processes write."""
        draft = self._folder / f".{part}"
        draft.write_text(json.dumps(happened), encoding="utf-8")
        draft.rename(self._folder / f"{part}.json")

    def total(self, parts: Iterable[str]) -> Counter[str] | None:
        """The sum over `parts`, or None while one of them is missing."""
        total: Counter[str] = Counter()
        for part in parts:
            path = self._folder / f"{part}.json"
            if not path.exists():
                return None
            total.update(json.loads(path.read_text(encoding="utf-8")))
        return total
