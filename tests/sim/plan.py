"""What one seed decides in advance: how many processes, whose clocks are wrong, which faults happen how often."""

from __future__ import annotations

import dataclasses
import random

from frontdesk.kernel.clock import MINUTE, SECOND
from frontdesk.kernel.failpoints import POINTS

PROFILES = ("calm", "crashes", "provider", "people", "clocks", "chaos", "chaos", "chaos")


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Rates are probabilities per occasion; a rate of 0 means that the thing never happens in this seed."""

    seed: int
    profile: str
    processes: int
    persons: int
    duration_s: float
    pause_s: float
    poll_us: int
    delivery_age_us: int
    offsets_us: tuple[int, ...]
    steps: float = 0.0
    crash: float = 0.0
    stop: float = 0.0
    busy: float = 0.0
    rerun: float = 0.0
    lost_wake: float = 0.0
    lag: float = 0.02
    slow: float = 0.0
    wire: float = 0.0
    connect: float = 0.0
    runner: float = 0.0
    late: float = 0.0
    proposal: float = 0.0
    duplicate: float = 0.0
    lost_ack: float = 0.0
    trouble: float = 0.0
    withdraw: float = 0.0
    console: float = 0.0
    ambush: float = 0.0
    pause: float = 0.0
    stall: float = 0.0
    recall: float = 0.0

    @property
    def signed(self) -> bool:
        """Whether pushes carry the provider's signing time: clocks ten minutes apart would have them refused."""
        return not any(self.offsets_us) and not self.steps

    @property
    def may_lose_work(self) -> bool:
        """Whether a turn's lease can lapse while its process works on it, or dies over it."""
        return bool(self.crash or self.stop or self.busy or self.stall or self.steps or any(self.offsets_us))


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    dice = random.Random(f"plan {seed}")
    profile = PROFILES[seed % len(PROFILES)]
    processes = dice.choice((1, 2, 2, 3))
    persons = dice.choice((1, 2, 2, 3))
    duration_s = dice.uniform(40, 160)
    skewed = profile in ("clocks", "chaos") and dice.random() < 0.6
    offsets = tuple(dice.randint(-10 * MINUTE, 10 * MINUTE) if skewed else 0 for _ in range(processes))
    chaos = profile == "chaos"
    some = dice.uniform(0.3, 1.0)

    def rate(value: float, *profiles: str) -> float:
        return value * some if chaos or profile in profiles else 0.0

    return Plan(
        seed=seed,
        profile=profile,
        processes=processes,
        persons=persons,
        duration_s=duration_s,
        pause_s=max(3.5, duration_s * persons / dice.choice((6, 12, 24, 36))),
        poll_us=dice.choice((5, 10, 20)) * SECOND,
        delivery_age_us=dice.choice((3, 20, 60)) * MINUTE if profile != "calm" else 60 * MINUTE,
        offsets_us=offsets,
        steps=rate(0.5, "clocks"),
        crash=rate(0.8, "crashes"),
        stop=rate(0.3, "crashes"),
        busy=rate(0.02, "crashes"),
        rerun=rate(0.05, "calm", "crashes", "people"),
        lost_wake=rate(0.3, "crashes", "people"),
        lag=dice.choice((0.005, 0.02, 0.2)),
        slow=rate(0.2 if profile == "clocks" else 0.05, "provider", "clocks"),
        wire=rate(0.4, "provider"),
        connect=rate(0.15, "provider"),
        late=0.08,
        runner=rate(0.2, "people", "provider"),
        proposal=rate(0.25, "people"),
        duplicate=0.3,
        lost_ack=rate(0.2, "crashes", "provider"),
        trouble=rate(0.9, "people"),
        withdraw=rate(0.25, "people", "clocks"),
        console=rate(0.08, "people"),
        ambush=rate(0.25, "people", "clocks"),
        pause=rate(0.1, "provider"),
        stall=rate(0.01, "crashes", "clocks"),
        recall=rate(0.06, "people"),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Doom:
    """How one life ends by itself: at the nth passing of a failpoint, around its nth commit, or at a moment."""

    point: str | None = None
    nth: int = 1
    commit: str | None = None  # before | after
    after_s: float | None = None


def doom_of(plan: Plan, dice: random.Random) -> Doom:
    """The end of the next life of a process; a Doom of nothing never comes."""
    if dice.random() >= plan.crash:
        return Doom()
    kind = dice.random()
    if kind < 0.6:
        return Doom(point=dice.choice(POINTS), nth=dice.choice((1, 1, 1, 2, 3, 5)))
    if kind < 0.85:
        return Doom(commit=dice.choice(("before", "after")), nth=dice.randint(5, 120))
    return Doom(after_s=dice.uniform(1, 90))
