"""The demo runner answers by searching what the turn was briefed with. It opens no socket, file or process."""

from __future__ import annotations

from collections import Counter
from typing import Final

from frontdesk.desk.conversations.runner import (
    Answer,
    Cancel,
    Failed,
    Hit,
    Mode,
    Progress,
    Proposal,
    ProposalDraft,
    Replaceability,
    RunnerCapabilities,
    RunnerReport,
    Step,
    Toolbox,
    ToolStep,
    TurnRequest,
)

HITS_MAX: Final = 5
TASK_TITLE_CHARS_MAX: Final = 160
TASK_OBJECTIVE_CHARS_MAX: Final = 4_096
ECHO_CHARS_MAX: Final = 200
TASK_MARKS: Final = ("task:", "任务：")
TEMPLATE_VERSION: Final = 1

_TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "first": "No model is connected; these are search results.",
        "source": "Source: {source}, revision {revision}",
        "nothing": "Searched {count} notes of this project for “{query}”; nothing was found.",
        "unread": "Not searched, because it could not be read: {missing}.",
        "task": "Create the task “{title}”",
    },
    "zh": {
        "first": "未连接模型；以下为检索结果。",
        "source": "来源：{source}，版本 {revision}",
        "nothing": "已在本项目的 {count} 条资料中检索“{query}”，未找到任何内容。",
        "unread": "以下部分无法读取，未检索：{missing}。",
        "task": "创建任务“{title}”",
    },
}


class DemoRunner:
    """See the module. The same request gives the same bytes in any process."""

    name = "demo"
    capabilities = RunnerCapabilities(tools=False, proposals=True, progress=True, answer_only=True, keeps_process=False)

    def __init__(self) -> None:
        self._working: Counter[str] = Counter()

    async def run(
        self, request: TurnRequest, toolbox: Toolbox, progress: Progress, cancel: Cancel
    ) -> Answer | Proposal | Failed:
        """See `Runner.run`."""
        self._working[request.conversation_id] += 1
        try:
            if cancel.is_set():
                return Failed("runner_cancelled")
            task = _asked_task(request)
            if task is not None:
                return _task_proposal(request, task)
            progress.note(Step.TOOL_STARTED, "search")
            hits = (await toolbox.search(request.text, HITS_MAX))[:HITS_MAX]
            progress.note(Step.TOOL_FINISHED, "search")
            return Answer(
                _answer_text(request, hits),
                tool_trace=(ToolStep("search", "found" if hits else "nothing_found"),),
                template_version=TEMPLATE_VERSION,
            )
        finally:
            self._working[request.conversation_id] -= 1
            self._working += Counter()  # drops what fell to zero

    async def replaceable(self, conversation_id: str, within_ms: int = 5_000) -> Replaceability:  # noqa: ARG002
        """See `Runner.replaceable`: it keeps no process, so only a turn in work holds it."""
        return Replaceability.ACTIVE if self._working[conversation_id] else Replaceability.YES

    async def check(self) -> RunnerReport:
        """See `Runner.check`: there is nothing that could be missing."""
        return RunnerReport(self.name, configured=True, reachable=True, answer_only=True)

    async def close(self, within_ms: int) -> None:
        """See `Runner.close`: nothing is kept alive."""


def _texts(request: TurnRequest) -> dict[str, str]:
    return _TEXTS["zh" if request.person.locale == "zh" else "en"]


def _answer_text(request: TurnRequest, hits: tuple[Hit, ...]) -> str:
    texts = _texts(request)
    blocks = [texts["first"]]
    for place, hit in enumerate(hits, start=1):
        source = texts["source"].format(source=hit.source, revision=hit.revision)
        blocks.append(f"{place}. {hit.title}\n{hit.excerpt}\n{source}")
    if not hits:
        blocks.append(
            texts["nothing"].format(count=len(request.briefing.notes), query=_shortened(request.text, ECHO_CHARS_MAX))
        )
    if request.briefing.missing:
        blocks.append(texts["unread"].format(missing=", ".join(request.briefing.missing)))
    return "\n\n".join(blocks)


def _asked_task(request: TurnRequest) -> str | None:
    """What follows the task mark, or None where the message is to be answered."""
    if request.mode is not Mode.WORK or request.project_id is None:
        return None
    for mark in TASK_MARKS:
        if request.text.startswith(mark):
            return request.text.removeprefix(mark).strip() or None
    return None


def _task_proposal(request: TurnRequest, task: str) -> Proposal:
    title = _shortened(task, TASK_TITLE_CHARS_MAX)
    draft = ProposalDraft(
        tool="roster_tasks_submit",
        arguments={"title": title, "objective": _cut(task, TASK_OBJECTIVE_CHARS_MAX), "work_kind": "chat"},
        summary=_texts(request)["task"].format(title=title),
        target_kind="project",
        target_id=request.project_id or "",
        target_version=0,
        diff=None,
    )
    return Proposal(draft, template_version=TEMPLATE_VERSION)


def _shortened(text: str, characters: int) -> str:
    """One line of at most `characters`."""
    return _cut(" ".join(text.split()), characters)


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1].rstrip() + "…"
