"""Who answers in a simulation: slowly, sometimes not at all, sometimes with a proposal; it counts what it was asked."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from frontdesk.desk.conversations.runner import (
    Answer,
    Cancel,
    Failed,
    Progress,
    Proposal,
    ProposalDraft,
    Replaceability,
    Result,
    RunnerCapabilities,
    RunnerReport,
    Step,
    Toolbox,
    TurnRequest,
)
from tests.sim.life import Life, Violation

if TYPE_CHECKING:
    from tests.sim.world import World

RUNNER = "sim"
FATES = ("fail", "raise", "fail", "raise", "hang", "deaf")


class Asked:
    """What every runner of the installation was asked, in order."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.turns: Counter[str] = Counter()


def answer_to(text: str) -> str:
    """The one answer to a question."""
    return f"answer to {text}"


class SimRunner:
    """The runner of one life."""

    name = RUNNER
    capabilities = RunnerCapabilities(tools=False, proposals=True, progress=True, answer_only=True, keeps_process=False)

    def __init__(self, world: World, life: Life) -> None:
        self._world = world
        self._life = life

    async def run(self, request: TurnRequest, toolbox: Toolbox, progress: Progress, cancel: Cancel) -> Result:
        self._life.check()
        world = self._world
        world.asked.turns[request.turn_id] += 1
        world.asked.texts.append(request.text)
        world.note(f"{self._life.name} asks for {request.text}")
        if world.asked.turns[request.turn_id] > 1:
            raise world.violation(Violation(f"the runner was asked twice for turn {request.turn_id}"))
        world.watch.runner_begins(request)
        fate = world.dice.choice(FATES) if world.chance(world.plan.runner) else "answer"
        await asyncio.sleep(world.dice.choice((0.01, 0.5, 3.0)) * (1 + world.dice.random()))
        world.happened[f"runner {fate}"] += 1
        if fate == "fail":
            return Failed(world.dice.choice(("runner_unavailable", "runner_rate_limited")))
        if fate == "raise":
            raise RuntimeError("the runner broke")
        if fate == "hang":
            await cancel.wait()
            return Failed("runner_cancelled")
        if fate == "deaf":
            await _deaf()
        # One that was deaf has used up the time it is given to end (8 s): it comes back at once, or it is given up.
        if fate == "answer" and world.chance(world.plan.late):
            for _ in range(world.dice.randint(2, 8)):
                progress.note(Step.THINKING)
                await asyncio.sleep(12)
        if world.chance(world.plan.proposal):
            draft = ProposalDraft("sim_tool", {"x": 1}, f"wants {request.text}", "thing", "thing-1", 1)
            return Proposal(draft)
        return Answer(answer_to(request.text))

    async def replaceable(self, conversation_id: str, within_ms: int = 5_000) -> Replaceability:
        return Replaceability.YES

    async def check(self) -> RunnerReport:
        return RunnerReport(self.name, configured=True, reachable=True, answer_only=True)

    async def close(self, within_ms: int) -> None:
        return None


async def _deaf() -> None:
    """Ignores being asked to stop, and the first cancellation of its task as well."""
    try:
        await asyncio.sleep(400)
    except asyncio.CancelledError:
        await asyncio.sleep(1)
