"""The demo runner: search results that say what they are, the same everywhere, from nothing but the request."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
from typing import Any

import pytest

from frontdesk.desk.conversations import answering
from frontdesk.desk.conversations.runner import (
    EXCERPT_CHARS_MAX,
    Answer,
    Briefing,
    BriefingNote,
    Failed,
    Mode,
    Proposal,
    Replaceability,
    Result,
    Runner,
)
from frontdesk.desk.conversations.search import BriefingToolbox, search_notes
from frontdesk.runners.demo import DemoRunner, load_notes
from tests.unit.runners.requests import make_request
from tests.unit.runners.virtual import run

FIRST_EN = "No model is connected; these are search results."
FIRST_ZH = "未连接模型；以下为检索结果。"
NOTES = load_notes()


def ask(text: str, locale: str = "en", **changes: Any) -> Result:
    """What the demo runner gives under the desk's limits, briefed with the package's notes."""
    request = make_request(text, locale, **{"briefing": Briefing(NOTES), **changes})
    runner: Runner = DemoRunner()
    return run(answering.answer({"demo": runner}, "demo", request, asyncio.Event()))[0]


def answer_of(text: str, locale: str = "en", **changes: Any) -> str:
    result = ask(text, locale, **changes)
    assert isinstance(result, Answer)
    return result.text


OTHER_PROCESS = """
import asyncio, sys
from tests.unit.runners.test_demo import answer_of
sys.stdout.buffer.write(answer_of(sys.argv[1], sys.argv[2]).encode())
"""


@pytest.mark.spec("RUN-2")
@pytest.mark.parametrize(("text", "locale"), [("What is sent when an answer fails?", "en"), ("谁可以回答消息？", "zh")])
def test_the_same_request_gives_the_same_bytes_in_any_process(text: str, locale: str) -> None:
    """The request is frozen and holds all there is: a process with another hash seed answers byte for byte alike."""
    request = make_request(text)
    with pytest.raises(dataclasses.FrozenInstanceError):
        request.text = "other"  # type: ignore[misc]
    assert isinstance(hash(request), int)  # frozen through and through: nothing in it can change
    expected = answer_of(text, locale).encode()
    for seed in ("1", "2"):
        other = subprocess.run(
            [sys.executable, "-c", OTHER_PROCESS, text, locale],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        assert other.stdout == expected


WATCHED = ("open", "socket", "subprocess", "os.", "ctypes", "shutil", "urllib")
_watching: list[list[str]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event.startswith(WATCHED):
        _watching[0].append(event)


sys.addaudithook(_audit)  # cannot be taken away again; it looks only while a test asks it to


@pytest.mark.spec("RUN-52")
def test_it_opens_nothing_and_knows_only_what_the_toolbox_finds() -> None:
    """Files, sockets and processes stay untouched, and an answer holds what the search of its turn gave."""
    note = BriefingNote("Only here", "The word zebra stands here alone.", "notes/only.md", 7)
    request = make_request("Where is the zebra?", briefing=Briefing((note,)))
    runner = DemoRunner()
    toolbox = BriefingToolbox(request.briefing)
    asked: list[tuple[str, int]] = []

    class Watched:
        tools = ()

        async def search(self, query: str, limit: int) -> Any:
            asked.append((query, limit))
            return await toolbox.search(query, limit)

        async def call(self, name: str, arguments: Any) -> str:
            raise AssertionError

    class Silent:
        def note(self, step: Any, text: str = "") -> None:
            return None

    async def work() -> Result:
        stop = asyncio.Event()
        _watching.append(opened)
        try:
            return await runner.run(request, Watched(), Silent(), stop)
        finally:
            _watching.clear()

    opened: list[str] = []
    result = run(work())[0]
    assert opened == []
    assert asked == [("Where is the zebra?", 5)]
    assert isinstance(result, Answer)
    assert (
        result.text
        == f"{FIRST_EN}\n\n1. Only here\nThe word zebra stands here alone.\nSource: notes/only.md, revision 7"
    )
    assert (result.model, result.usage) == (None, None)


@pytest.mark.spec("RUN-53")
def test_its_first_line_says_that_no_model_is_connected() -> None:
    """In the person's language, with and without hits."""
    for text in ("What is Frontdesk?", "And now?", "谁可以回答？", ""):
        assert answer_of(text, "en").split("\n")[0] == FIRST_EN
        assert answer_of(text, "zh").split("\n")[0] == FIRST_ZH


@pytest.mark.spec("RUN-54")
def test_it_lists_at_most_five_hits_or_says_what_it_searched() -> None:
    """Each has title, 300 characters of excerpt, source and revision; with none the search and its result are named."""
    notes = tuple(
        BriefingNote(f"Note {number}", "apple " * 200, f"notes/{number}.md", number) for number in range(1, 8)
    )
    text = answer_of("apple", briefing=Briefing(notes))
    hits = text.split("\n\n")[1:]
    assert len(hits) == 5
    for number, hit in enumerate(hits, start=1):
        title, excerpt, source = hit.split("\n")
        assert (title, source) == (f"{number}. Note {number}", f"Source: notes/{number}.md, revision {number}")
        assert EXCERPT_CHARS_MAX - 10 <= len(excerpt) <= EXCERPT_CHARS_MAX
        assert excerpt.endswith("…")
    assert answer_of("And now?") == f"{FIRST_EN}\n\nSearched 3 notes of this project for “And now?”; nothing was found."
    nothing = answer_of("斑马", "zh")
    assert nothing == f"{FIRST_ZH}\n\n已在本项目的 3 条资料中检索“斑马”，未找到任何内容。"
    unread = answer_of("zebra", briefing=Briefing(NOTES, missing=("knowledge",)))
    assert unread.endswith("Not searched, because it could not be read: knowledge.")


@pytest.mark.spec("RUN-55")
def test_a_task_mark_yields_a_proposal_and_everything_else_an_answer() -> None:
    """Only at the very beginning and only in `work`; the proposal names the project and carries the whole text."""
    for text in ("task: Write the report\nby Friday", "任务：写报告"):
        result = ask(text)
        assert isinstance(result, Proposal)
        assert result.draft.tool == "roster_tasks_submit"
        assert (result.draft.target_kind, result.draft.target_id) == ("project", "prj_1")
        assert text.endswith(str(result.draft.arguments["objective"]))
        assert isinstance(ask(text, mode=Mode.ANSWER_ONLY), Answer)
    long = ask("task: " + "x" * 10_000)
    assert isinstance(long, Proposal)
    assert (len(long.draft.arguments["title"]), len(long.draft.arguments["objective"])) == (160, 4_096)
    for text in (" task: x", "a task: x", "Task: x", "任务:写", "task x", "What about task: x"):
        assert isinstance(ask(text), Answer), text


def test_the_questions_of_the_demo_find_their_note() -> None:
    for text, title in (
        ("What is Frontdesk?", "What is Frontdesk?"),
        ("And who may answer?", "Who may answer?"),
        ("What happens when something fails?", "What happens when something fails?"),
        ("谁可以回答？", "Who may answer?"),
        ("什么是前台？", "What is Frontdesk?"),
        ("出错会怎样", "What happens when something fails?"),
    ):
        assert search_notes(NOTES, text, 5)[0].title == title


def test_the_search_is_bounded_and_survives_any_text() -> None:
    for text in ("", " ", "的", "?!…", "\x00", "\ud800", "x" * 20_000, "字" * 20_000, "a'b''c", "𠀀𠀁"):
        assert len(search_notes(NOTES, text, 5)) <= 3
    assert search_notes(NOTES, "Frontdesk", 0) == ()
    assert search_notes((), "Frontdesk", 5) == ()
    assert search_notes((BriefingNote("Empty", "", "e", 1),), "empty", 5)[0].excerpt == ""


async def test_it_is_replaceable_between_turns_and_active_during_one() -> None:
    runner = DemoRunner()
    entered, leave = asyncio.Event(), asyncio.Event()

    class Slow:
        tools = ()

        async def search(self, query: str, limit: int) -> Any:
            entered.set()
            await leave.wait()
            return ()

        async def call(self, name: str, arguments: Any) -> str:
            raise AssertionError

    class Silent:
        def note(self, step: Any, text: str = "") -> None:
            return None

    assert await runner.replaceable("cnv_1") is Replaceability.YES
    working = asyncio.create_task(runner.run(make_request("zebra"), Slow(), Silent(), asyncio.Event()))
    await entered.wait()
    assert await runner.replaceable("cnv_1") is Replaceability.ACTIVE
    assert await runner.replaceable("cnv_2") is Replaceability.YES
    leave.set()
    await working
    assert await runner.replaceable("cnv_1") is Replaceability.YES
    stopped = asyncio.Event()
    stopped.set()
    assert await runner.run(make_request(), Slow(), Silent(), stopped) == Failed("runner_cancelled")
    report = await runner.check()
    assert (report.configured, report.reachable, report.answer_only, report.problem) == (True, True, True, None)
    await runner.close(1_000)
