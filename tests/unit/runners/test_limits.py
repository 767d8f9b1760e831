"""A runner within its limits: whatever it does, there is one checked result, in time, and without its texts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from frontdesk.desk.conversations import answering
from frontdesk.desk.conversations import runner as port
from frontdesk.desk.conversations.runner import Answer, Failed, Mode, Proposal, ProposalDraft, Step, TurnRequest
from frontdesk.desk.conversations.search import BriefingToolbox
from frontdesk.kernel.codes import RUNNER_CODES
from tests.unit.runners.requests import Behaviour, ScriptedRunner, make_request
from tests.unit.runners.virtual import run

PLANTED = "planted in an exception"
KIB, MIB = 1_024, 1_048_576
DRAFT = ProposalDraft("roster_tasks_submit", {"title": "t"}, "Create a task", "project", "prj_1", 0)


def limited(
    behaviour: Behaviour, *, request: TurnRequest | None = None, stop_after: float | None = None, **named: Any
) -> tuple[port.Result, float, int]:
    """Result, virtual seconds and calls of a runner that behaves so."""
    runner = ScriptedRunner(behaviour)
    asked = request or make_request()

    async def work() -> port.Result:
        cancel = asyncio.Event()
        if stop_after is not None:
            asyncio.get_running_loop().call_later(stop_after, cancel.set)
        result = await answering.run_with_limits(runner, asked, BriefingToolbox(asked.briefing), cancel, **named)
        for _ in range(5):
            await asyncio.sleep(0)
        return result

    result, seconds = run(work())
    return result, seconds, runner.calls


def gives(result: Any) -> Behaviour:
    async def behave(*_: Any) -> Any:
        return result

    return behave


def raises(error: BaseException) -> Behaviour:
    async def behave(*_: Any) -> Any:
        raise error

    return behave


# ---------------------------------------------------------------------------------------------- one checked result


@pytest.mark.spec("RUN-3")
@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (raises(LookupError(PLANTED)), "runner_output_invalid"),
        (raises(ConnectionError(PLANTED)), "runner_unavailable"),
        (raises(TimeoutError(PLANTED)), "runner_unavailable"),
        (raises(SystemExit(PLANTED)), "runner_output_invalid"),
        (raises(asyncio.CancelledError(PLANTED)), "runner_output_invalid"),
        (gives(None), "runner_output_invalid"),
        (gives(PLANTED), "runner_output_invalid"),
        (gives({"text": PLANTED}), "runner_output_invalid"),
        (gives(Answer("")), "runner_output_invalid"),
        (gives(Answer(" \n")), "runner_output_invalid"),
        (gives(Answer("\ud800")), "runner_output_invalid"),
        (gives(Failed("runner_refused")), "runner_refused"),
    ],
)
def test_whatever_comes_out_of_a_runner_is_one_result_without_its_text(behaviour: Behaviour, code: str) -> None:
    """An exception, a foreign value or an empty text becomes one code of the table, and no text of it is left."""
    result, _, calls = limited(behaviour)
    assert isinstance(result, Failed)
    assert (result.code, calls) == (code, 1)
    assert result.code in RUNNER_CODES
    assert PLANTED not in repr(result)


def test_an_answer_and_a_proposal_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Answer("yes", model="m")
    assert limited(gives(answer))[0] == answer
    assert limited(gives(Proposal(DRAFT)))[0] == Proposal(DRAFT)


def test_a_failure_has_a_code_of_the_table_or_does_not_come_about() -> None:
    for code in RUNNER_CODES:
        assert Failed(code).code == code
    for code in ("interrupted", "", "runner_unknown"):
        with pytest.raises(ValueError, match="failure code"):
            Failed(code)
    named = {value for name, value in vars(port).items() if name.isupper() and isinstance(value, str)}
    assert named == set(RUNNER_CODES)


def test_a_proposal_in_answer_only_is_a_violation() -> None:
    result, _, _ = limited(gives(Proposal(DRAFT)), request=make_request(mode=Mode.ANSWER_ONLY))
    assert result == Failed("answer_only_violation")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"summary": "x" * 2_001}, "runner_output_too_large"),
        ({"diff": "x" * MIB}, "runner_output_too_large"),
        ({"arguments": {"n": float("nan")}}, "runner_output_invalid"),
        ({"summary": " "}, "runner_output_invalid"),
        ({"tool": ""}, "runner_output_invalid"),
        ({"target_id": "x" * 65}, "runner_output_invalid"),
    ],
)
def test_a_proposal_that_could_not_be_stored_is_a_failure(changes: dict[str, Any], code: str) -> None:
    values = {name: getattr(DRAFT, name) for name in ProposalDraft.__slots__}
    result, _, _ = limited(gives(Proposal(ProposalDraft(**{**values, **changes}))))
    assert isinstance(result, Failed)
    assert result.code == code


def test_secrets_in_what_a_runner_says_are_replaced() -> None:
    shaped, configured = "sk-" + "a" * 30, "correct-horse"
    result, _, _ = limited(gives(Answer(f"use {shaped} or {configured}")), secrets=(configured,))
    assert isinstance(result, Answer)
    assert result.text == "use [redacted:api_key] or [redacted:secret]"
    values = {name: getattr(DRAFT, name) for name in ProposalDraft.__slots__} | {"summary": shaped, "diff": configured}
    proposed, _, _ = limited(gives(Proposal(ProposalDraft(**values))), secrets=(configured,))
    assert isinstance(proposed, Proposal)
    assert (proposed.draft.summary, proposed.draft.diff) == ("[redacted:api_key]", "[redacted:secret]")


@pytest.mark.spec("RUN-6")
def test_request_and_answer_are_bounded_to_the_byte() -> None:
    """256 KiB are run and one byte more is refused unasked; 1 MiB of answer passes whole and one byte more fails."""
    empty = answering.request_bytes(make_request(""))
    for size, code, calls in ((256 * KIB, None, 1), (256 * KIB + 1, "runner_input_too_large", 0)):
        request = make_request("字" + "x" * (size - empty - 3))
        assert answering.request_bytes(request) == size
        result, _, called = limited(gives(Answer("yes")), request=request)
        assert (result.code if isinstance(result, Failed) else None, called) == (code, calls)
    exact = "字" + "x" * (MIB - 3)
    assert limited(gives(Answer(exact)))[0] == Answer(exact)
    assert limited(gives(Answer(exact + "x")))[0] == Failed("runner_output_too_large")
    assert limited(gives(Answer("字" * MIB)))[0] == Failed("runner_output_too_large")


# ---------------------------------------------------------------------------------------------- time


async def silence(request: TurnRequest, progress: port.Progress, cancel: port.Cancel) -> Any:
    await cancel.wait()
    return Answer("too late")


def trickle(step: Step, every: float, started: Step | None = None) -> Behaviour:
    async def behave(request: TurnRequest, progress: port.Progress, cancel: port.Cancel) -> Any:
        if started is not None:
            progress.note(started)
        while not cancel.is_set():
            await asyncio.sleep(every)
            progress.note(step)
        return Answer("too late")

    return behave


@pytest.mark.spec("RUN-47")
def test_180_seconds_without_output_end_a_turn_and_keep_alives_are_no_output() -> None:
    """Silence and mere waiting end as idle at 180 s; any output starts the time anew."""
    result, seconds, _ = limited(silence)
    assert (result, round(seconds)) == (Failed("runner_idle_timeout"), 180)
    result, seconds, _ = limited(trickle(Step.WAITING, 10))
    assert isinstance(result, Failed)
    assert (result.code, 180 <= seconds <= 190) == ("runner_idle_timeout", True)

    async def late(request: TurnRequest, progress: port.Progress, cancel: port.Cancel) -> Any:
        for step in (Step.THINKING, Step.TEXT):
            await asyncio.sleep(179)
            progress.note(step)
        await asyncio.sleep(179)
        return Answer("in time")

    assert limited(late)[0] == Answer("in time")


@pytest.mark.spec("RUN-48")
def test_900_seconds_end_a_turn_also_while_output_flows_or_a_tool_works() -> None:
    """The hard limit holds against a trickle, and a tool's silence counts for it alone."""
    for behaviour in (trickle(Step.TEXT, 10), trickle(Step.WAITING, 10, Step.TOOL_STARTED)):
        result, seconds, _ = limited(behaviour)
        assert isinstance(result, Failed)
        assert (result.code, 900 <= seconds <= 910) == ("runner_hard_timeout", True)

    async def after_tool(request: TurnRequest, progress: port.Progress, cancel: port.Cancel) -> Any:
        progress.note(Step.TOOL_STARTED)
        await asyncio.sleep(400)
        progress.note(Step.TOOL_FINISHED)
        return await silence(request, progress, cancel)

    result, seconds, _ = limited(after_tool)
    assert (result, round(seconds)) == (Failed("runner_idle_timeout"), 580)


def test_a_result_that_comes_after_the_deadline_is_dropped_though_the_loop_looks_late() -> None:
    async def block(request: TurnRequest, progress: port.Progress, cancel: port.Cancel) -> Any:
        asyncio.get_running_loop().now += 901  # type: ignore[attr-defined]  # as if the loop had been blocked so long
        return Answer("too late")

    assert limited(block)[0] == Failed("runner_hard_timeout") or limited(block)[0] == Failed("runner_idle_timeout")


@pytest.mark.parametrize(
    ("stubborn", "seconds"),
    [("polite", 10), ("needs_force", 15), ("swallows", 17.5)],
)
def test_a_stopped_runner_is_asked_then_forced_and_given_up_within_8_seconds(stubborn: str, seconds: float) -> None:
    forced: list[str] = []

    async def behave(request: TurnRequest, progress: port.Progress, cancel: port.Cancel) -> Any:
        if stubborn == "polite":
            return await silence(request, progress, cancel)
        for _ in range(3):
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                forced.append(stubborn)
                if stubborn == "needs_force":
                    raise
        return Answer("too late")

    result, took, calls = limited(behave, stop_after=10)
    assert (result, calls) == (Failed("runner_cancelled"), 1)
    assert took == pytest.approx(seconds, abs=0.01)
    assert took - 10 <= 8
    assert bool(forced) == (stubborn != "polite")


def test_stop_wins_over_a_result_of_the_same_moment() -> None:
    async def both(request: TurnRequest, progress: port.Progress, cancel: port.Cancel) -> Any:
        cancel_of_test.set()
        return Answer("too late")

    cancel_of_test = asyncio.Event()

    async def work() -> port.Result:
        request = make_request()
        toolbox = BriefingToolbox(request.briefing)
        return await answering.run_with_limits(ScriptedRunner(both), request, toolbox, cancel_of_test)

    assert run(work())[0] == Failed("runner_cancelled")


def test_cancelling_the_caller_ends_the_runner() -> None:
    ended: list[bool] = []

    async def behave(*_: Any) -> Any:
        try:
            await asyncio.sleep(1_000)
        finally:
            ended.append(True)

    async def work() -> None:
        request = make_request()
        task = asyncio.create_task(
            answering.run_with_limits(
                ScriptedRunner(behave), request, BriefingToolbox(request.briefing), asyncio.Event()
            )
        )
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(work())


def test_a_name_nobody_has_is_not_configured_and_no_other_runner_is_asked() -> None:
    other = ScriptedRunner(gives(Answer("from another")))

    async def work() -> port.Result:
        return await answering.answer({"scripted": other}, "Scripted", make_request(), asyncio.Event())

    assert run(work())[0] == Failed("runner_not_configured")
    assert other.calls == 0
