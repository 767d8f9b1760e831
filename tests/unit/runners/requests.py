"""Requests and runners for tests that need no database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from frontdesk.desk.conversations.runner import (
    Briefing,
    BriefingNote,
    Cancel,
    Mode,
    Person,
    Progress,
    Replaceability,
    Result,
    RunnerCapabilities,
    RunnerReport,
    Toolbox,
    TurnRequest,
)

NOTE = BriefingNote("Deployment", "Releases happen on Tuesday.\n\nRollback takes five minutes.", "notes/deploy.md", 3)


def make_request(text: str = "What is it?", locale: str = "en", **changes: Any) -> TurnRequest:
    """A live question in a project, briefed with one note."""
    values: dict[str, Any] = {
        "conversation_id": "cnv_1",
        "turn_id": "trn_1",
        "mode": Mode.WORK,
        "text": text,
        "created_at": 1,
        "origin": "live",
        "quoted": None,
        "history": (),
        "briefing": Briefing((NOTE,)),
        "person": Person("usr_1", "Ada", locale),
        "workspace_id": "wsp_1",
        "workspace_name": "Home",
        "project_id": "prj_1",
        "project_name": "First",
        "context": (),
    }
    return TurnRequest(**{**values, **changes})


Behaviour = Callable[[TurnRequest, Progress, Cancel], Awaitable[Any]]


class ScriptedRunner:
    """Counts its calls and does what it is told."""

    name = "scripted"
    capabilities = RunnerCapabilities(
        tools=False, proposals=True, progress=True, answer_only=False, keeps_process=False
    )

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.calls = 0

    async def run(self, request: TurnRequest, toolbox: Toolbox, progress: Progress, cancel: Cancel) -> Result:
        self.calls += 1
        result: Result = await self.behaviour(request, progress, cancel)
        return result

    async def replaceable(self, conversation_id: str, within_ms: int = 5_000) -> Replaceability:
        return Replaceability.YES

    async def check(self) -> RunnerReport:
        return RunnerReport(self.name, configured=True, reachable=True, answer_only=False)

    async def close(self, within_ms: int) -> None:
        return None
