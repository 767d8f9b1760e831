"""Running a runner within its limits: one request in, exactly one checked result out, whatever the runner does.

No transaction is open here. Deadlines follow the running loop's clock, which never steps back; a result that comes
after cancellation or a deadline is dropped, and no exception's text leaves this module.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Final

from frontdesk.desk.conversations import proposals
from frontdesk.desk.conversations import runner as port
from frontdesk.desk.conversations.search import BriefingToolbox
from frontdesk.kernel import limits
from frontdesk.kernel.canonical import NotCanonical, canonical_bytes
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.secret_shapes import redact

POLITE_S: Final = 5.0  # how long a runner may take to end by itself once asked
FORCED_S: Final = limits.RUNNER_CANCEL_US / SECOND - POLITE_S - 0.5  # and once its task was cancelled; 8 s in all


def request_bytes(request: port.TurnRequest) -> int:
    """Size of a request as UTF-8 JSON."""
    return len(json.dumps(request.document(), ensure_ascii=False).encode("utf-8", "surrogatepass"))


async def answer(
    runners: port.Runners,
    name: str,
    request: port.TurnRequest,
    cancel: port.Cancel,
    *,
    toolbox: port.Toolbox | None = None,
    progress: port.Progress | None = None,
    secrets: tuple[str, ...] = (),
) -> port.Result:
    """The result of the named runner. A name that is not there is `runner_not_configured`, never another runner."""
    runner = runners.get(name)
    if runner is None:
        return port.Failed(port.NOT_CONFIGURED)
    tools = BriefingToolbox(request.briefing) if toolbox is None else toolbox
    return await run_with_limits(runner, request, tools, cancel, progress=progress, secrets=secrets)


async def run_with_limits(
    runner: port.Runner,
    request: port.TurnRequest,
    toolbox: port.Toolbox,
    cancel: port.Cancel,
    *,
    progress: port.Progress | None = None,
    secrets: tuple[str, ...] = (),
) -> port.Result:
    """Call a runner once, within its idle and hard limit, and check what it gave.

    Once `cancel` is set, or a limit has passed, the runner is asked to end, after 5 s its task is cancelled, and this
    returns `Failed` within 8 s whatever it does. Cancelling the caller cancels the runner.
    """
    if request_bytes(request) > limits.RUNNER_REQUEST_BYTES_MAX:
        return port.Failed(port.INPUT_TOO_LARGE)
    watch = _Watch(request, progress)
    stop = asyncio.Event()
    work = asyncio.create_task(_call(runner, request, toolbox, watch, stop), name=f"runner {request.turn_id}")
    asked = asyncio.create_task(_wait_for(cancel), name=f"stop {request.turn_id}")
    work.add_done_callback(watch.ended)
    try:
        code = await _until_done_or_stopped(work, asked, cancel, watch)
        if code is not None:
            stop.set()
            await _ended(work)
            return port.Failed(code)
    except asyncio.CancelledError:
        stop.set()
        work.cancel()
        await asyncio.wait({work}, timeout=FORCED_S)
        raise
    finally:
        asked.cancel()
    if work.cancelled():
        return port.Failed(port.OUTPUT_INVALID, "the runner cancelled itself")
    return _checked(work.result(), request.mode, secrets)


async def _call(
    runner: port.Runner, request: port.TurnRequest, toolbox: port.Toolbox, progress: port.Progress, stop: port.Cancel
) -> object:
    """What the runner returned; an exception out of it becomes a code, and its text stays here."""
    try:
        return await runner.run(request, toolbox, progress, stop)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a runner is foreign code, whatever it raises ends its turn alone
        code = port.UNAVAILABLE if isinstance(error, OSError) else port.OUTPUT_INVALID
        return port.Failed(code, f"the runner raised {type(error).__name__}")


async def _wait_for(cancel: port.Cancel) -> None:
    await cancel.wait()


async def _until_done_or_stopped(
    work: asyncio.Task[object], asked: asyncio.Task[None], cancel: port.Cancel, watch: _Watch
) -> str | None:
    """None once the runner returned in time, else the code that ends its turn."""
    while True:
        if cancel.is_set():
            return port.CANCELLED
        code, remaining = watch.next_limit()
        if remaining <= 0:
            return code
        if work.done():
            return None
        # No idle limit can pass sooner than an idle time from now, so one look in that time misses none.
        await asyncio.wait({work, asked}, timeout=min(remaining, watch.idle_s), return_when=asyncio.FIRST_COMPLETED)


async def _ended(work: asyncio.Task[object]) -> None:
    """Wait for the asked runner to end, then for its cancelled task; give up on one that swallows even that."""
    await asyncio.wait({work}, timeout=POLITE_S)
    if not work.done():
        work.cancel()
        await asyncio.wait({work}, timeout=FORCED_S)


def _checked(result: object, mode: port.Mode, secrets: tuple[str, ...]) -> port.Result:
    """The result, redacted, or the code that its shape stands for."""
    if isinstance(result, port.Failed):
        return result
    if isinstance(result, port.Answer):
        return _checked_answer(result, secrets)
    if isinstance(result, port.Proposal):
        return _checked_proposal(result, mode, secrets)
    return port.Failed(port.OUTPUT_INVALID, "the runner returned something else than a result")


def _checked_answer(result: port.Answer, secrets: tuple[str, ...]) -> port.Result:
    text = redact(result.text, secrets)
    size = _utf8_bytes(text)
    if size is None or not text.strip():
        return port.Failed(port.OUTPUT_INVALID)
    if max(size, len(result.text)) > limits.RUNNER_ANSWER_BYTES_MAX:
        return port.Failed(port.OUTPUT_TOO_LARGE)
    return replace(result, text=text)


def _checked_proposal(result: port.Proposal, mode: port.Mode, secrets: tuple[str, ...]) -> port.Result:
    if mode is port.Mode.ANSWER_ONLY:
        return port.Failed(port.ANSWER_ONLY_VIOLATION)
    draft = result.draft
    try:
        size = len(canonical_bytes(dict(draft.arguments))) + len((draft.diff or "").encode("utf-8"))
        draft.summary.encode("utf-8")
    except (NotCanonical, UnicodeError):
        return port.Failed(port.OUTPUT_INVALID)
    if size > limits.RUNNER_ANSWER_BYTES_MAX or len(draft.summary) > proposals.SUMMARY_CHARS_MAX:
        return port.Failed(port.OUTPUT_TOO_LARGE)
    named = 0 < len(draft.tool) <= proposals.TOOL_CHARS_MAX and 0 < len(draft.target_id) <= proposals.TARGET_CHARS_MAX
    if not named or not 0 < len(draft.target_kind) <= proposals.TARGET_CHARS_MAX or not draft.summary.strip():
        return port.Failed(port.OUTPUT_INVALID)
    clean = replace(
        draft,
        summary=redact(draft.summary, secrets),
        diff=None if draft.diff is None else redact(draft.diff, secrets),
    )
    return replace(result, draft=clean)


def _utf8_bytes(text: str) -> int | None:
    try:
        return len(text.encode("utf-8"))
    except UnicodeError:
        return None  # a lone surrogate: no text that anybody could be sent


class _Watch:
    """Stands between runner and progress: passes steps on and remembers when the last output came."""

    def __init__(self, request: port.TurnRequest, progress: port.Progress | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._progress = progress
        self._started = self._loop.time()
        self._last_output = self._started
        self._ended_at: float | None = None
        self._open_tools = 0
        self.idle_s = request.idle_us / SECOND
        self._hard_s = request.hard_us / SECOND

    def note(self, step: port.Step, text: str = "") -> None:
        """See `Progress.note`."""
        if step is port.Step.TOOL_STARTED:
            self._open_tools += 1
        elif step is port.Step.TOOL_FINISHED:
            self._open_tools = max(0, self._open_tools - 1)
        if step is not port.Step.WAITING:
            self._last_output = self._loop.time()
        if self._progress is not None:
            self._progress.note(step, text)

    def ended(self, task: asyncio.Task[object]) -> None:
        """The runner's task is done: remember when, for a loop that was blocked looks at it later."""
        self._ended_at = self._loop.time()
        if not task.cancelled():
            task.exception()  # a dropped task's exception is nobody's business; asking keeps the loop from reporting it

    def next_limit(self) -> tuple[str, float]:
        """Which limit comes first and how many seconds are left. Waiting for a tool counts for the hard one alone."""
        now = self._loop.time() if self._ended_at is None else self._ended_at
        hard = self._started + self._hard_s - now
        idle = self._last_output + self.idle_s - now
        if self._open_tools or hard <= idle:
            return port.HARD_TIMEOUT, hard
        return port.IDLE_TIMEOUT, idle
