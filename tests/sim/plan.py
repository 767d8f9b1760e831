"""What one seed decides in advance: how many processes, whose clocks are wrong, which faults happen how often.

Eleven seeds of twelve are storms: at least two processes, and besides what chance brings a crash, a leap of ten minutes
between their clocks, a fault of the provider and a withdrawal that are sure to be tried, each kind in its turn. The
twelfth has one cause of trouble alone, so that what must not happen without a cause is seen not to happen.
"""

from __future__ import annotations

import dataclasses
import random

from frontdesk.kernel.clock import MINUTE, SECOND
from frontdesk.kernel.failpoints import POINTS

SINGLE = ("calm", "crashes", "provider", "people", "clocks")
STORM_OF = 12
# How a wire request may end, other than well, and how a connect may fail.
FATES = ("drop", "take_and_drop", "rate", "token", "refuse", "silent", "raise", "not_sent")
CONNECTS = ("connect_failed", "provider_credentials_rejected", "rate_limited", "provider_token_rejected")
# What a person or whoever runs the place takes back; each has its own verb in `people.py`.
REVOCATIONS = ("revoke", "unbind", "switch_off", "disable", "demote", "remove", "close", "archive")


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
    sure_point: str | None = None  # the failpoint at which the first process dies
    sure_fate: str | None = None  # how the first wire request ends
    sure_connect: str | None = None  # how the first connect fails
    sure_revocation: str | None = None
    leap: bool = False

    @property
    def signed(self) -> bool:
        """Whether pushes carry the provider's signing time: clocks ten minutes apart would have them refused."""
        return not any(self.offsets_us) and not self.steps

    @property
    def may_lose_work(self) -> bool:
        """Whether a turn's lease can lapse while its process works on it, or dies over it."""
        return bool(self.crash or self.stop or self.busy or self.stall or self.steps or any(self.offsets_us))


def profile_of(seed: int) -> str:
    """`storm`, or the one cause of trouble that this seed has."""
    turn, place = divmod(seed, STORM_OF)
    return "storm" if place else SINGLE[turn % len(SINGLE)]


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    dice = random.Random(f"plan {seed}")
    profile = profile_of(seed)
    storm = profile == "storm"
    processes = dice.choice((2, 2, 2, 3) if storm else (1, 2, 2, 3))
    persons = dice.choice((1, 1, 2, 2, 3))
    duration_s = dice.uniform(25, 70)
    skewed = profile == "clocks" or (storm and dice.random() < 0.5)
    offsets = tuple(dice.randint(-10 * MINUTE, 10 * MINUTE) if skewed else 0 for _ in range(processes))
    some = dice.uniform(0.3, 1.0)

    def rate(value: float, *profiles: str) -> float:
        return value * some if storm or profile in profiles else 0.0

    plan = Plan(
        seed=seed,
        profile=profile,
        processes=processes,
        persons=persons,
        duration_s=duration_s,
        pause_s=max(3.5, duration_s * persons / dice.choice((5, 8, 11, 15))),
        poll_us=dice.choice((10, 20, 20, 20)) * SECOND,
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
        trouble=rate(0.4 if storm else 0.9, "people"),
        withdraw=rate(0.12 if storm else 0.25, "people", "clocks"),
        console=rate(0.08, "people"),
        ambush=rate(0.15 if storm else 0.25, "people", "clocks"),
        pause=rate(0.1, "provider"),
        stall=rate(0.01, "crashes", "clocks"),
        recall=rate(0.06, "people"),
    )
    return _with_sure_trouble(plan) if storm else plan


def _with_sure_trouble(plan: Plan) -> Plan:
    """Each kind in its turn, at periods that let the kinds of one sort meet every kind of the others."""
    turn = plan.seed - plan.seed // STORM_OF - 1
    point = POINTS[turn % len(POINTS)]
    return dataclasses.replace(
        plan,
        sure_point=point,
        sure_fate=FATES[turn // len(POINTS) % len(FATES)],
        sure_connect=CONNECTS[turn // 5 % len(CONNECTS)] if turn % 5 == 0 else None,
        sure_revocation=REVOCATIONS[(turn + turn // (len(POINTS) * len(FATES))) % len(REVOCATIONS)],
        leap=True,
        runner=0.9 if point.startswith("tF") else plan.runner,
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
