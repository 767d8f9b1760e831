"""The one vocabulary of state: a pure transition table from which CHECKs, guarded UPDATEs, diagrams and sweeps derive.

A table lists every legal (event, sources → target) with the fence its write must carry. Anything not listed is refused.
The lease model is owner + generation + expiry (Kleppmann's fencing token, here `generation`): a claim raises the
generation in one conditional UPDATE; late writes carry owner and generation in their WHERE and touch zero rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Fence(StrEnum):
    """What the WHERE of a transition demands of the lease."""

    NONE = "none"  # no lease involved
    CLAIM = "claim"  # takes a lease: generation + 1; the row must be due
    HELD = "held"  # owner and generation match; the lease may have lapsed but was not taken over
    LIVE = "live"  # owner and generation match and the expiry lies ahead
    LAPSED = "lapsed"  # the lease's expiry has passed: generation + 1, whoever asks


@dataclass(frozen=True, slots=True)
class Edge:
    """One legal transition: from any of `sources` to `target`."""

    sources: frozenset[str]
    target: str
    fence: Fence = Fence.NONE
    keeps_lease: bool = False


@dataclass(frozen=True, slots=True)
class Lease:
    """The fence of one holder: what every late write must present."""

    owner: str
    generation: int
    expires_at: int

    def live(self, now: int) -> bool:
        """True while the expiry lies ahead of `now`; the exact complement of what a taker needs."""
        return self.expires_at > now


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """A durable thing's whole life. `name` is the noun, `initial` the states a row may be inserted in."""

    name: str
    states: tuple[str, ...]
    initial: frozenset[str]
    edges: Mapping[str, Edge]

    def __post_init__(self) -> None:
        known = set(self.states)
        for event, edge in self.edges.items():
            if not edge.sources or not edge.sources <= known or edge.target not in known:
                raise ValueError(f"{self.name}.{event} names an unknown state")
        if not self.initial <= known:
            raise ValueError(f"{self.name} starts in an unknown state")
        unreachable = known - self.reachable()
        if unreachable:
            raise ValueError(f"{self.name} can never reach {sorted(unreachable)}")

    def reachable(self) -> set[str]:
        """Every state that some row can come to."""
        seen = set(self.initial)
        grew = True
        while grew:
            grew = False
            for edge in self.edges.values():
                if edge.sources & seen and edge.target not in seen:
                    seen.add(edge.target)
                    grew = True
        return seen

    def terminal(self) -> frozenset[str]:
        """States that no event leaves."""
        left = {source for edge in self.edges.values() for source in edge.sources}
        return frozenset(set(self.states) - left)

    def legal(self, state: str, event: str) -> bool:
        """True where the table lists `event` for `state`."""
        return event in self.edges and state in self.edges[event].sources

    def mermaid(self) -> str:
        """The published diagram, generated."""
        lines = ["stateDiagram-v2"]
        lines += [f"    [*] --> {state}" for state in self.states if state in self.initial]
        for event, edge in self.edges.items():
            for source in self.states:
                if source in edge.sources:
                    lines.append(f"    {source} --> {edge.target}: {event}")
        lines += [f"    {state} --> [*]" for state in self.states if state in self.terminal()]
        return "\n".join(lines) + "\n"


def edge(sources: str | Iterable[str], target: str, fence: Fence = Fence.NONE, *, keeps_lease: bool = False) -> Edge:
    """Shorthand: `edge("a b", "c")` lists one transition from `a` or `b` to `c`."""
    names = sources.split() if isinstance(sources, str) else sources
    return Edge(frozenset(names), target, fence, keeps_lease)
