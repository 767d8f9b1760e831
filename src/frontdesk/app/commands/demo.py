"""`frontdesk demo`: the main job, headless, on real processes, with two SIGKILLs; exit 0 only if all is as expected."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from frontdesk.app.children import Child
from frontdesk.app.commands.options import plain_failures
from frontdesk.app.commands.up import start_parts, start_server
from frontdesk.app.example import Example
from frontdesk.app.installing import initialise
from frontdesk.app.serving import StartRefused

# The shortest lease that the rules of desk.md 8.3 allow: what a kill leaves behind is judged once it has lapsed.
LEASE: Final = "26s"
LAPSE_S: Final = 40.0
FIRST_LINE: Final = "No model is connected; these are search results."


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the demo."""

    name: str
    expected: str
    seen: str

    @property
    def ok(self) -> bool:
        """Seen is what was expected."""
        return self.seen == self.expected


@dataclass(slots=True)
class Stage:
    """The running parts and what the steps remember."""

    data: Path
    example: Example
    children: list[Child]
    steps: list[Step] = field(default_factory=list)
    report: Callable[[Step], None] | None = None

    def note(self, name: str, expected: str, seen: str) -> None:
        """Keep and show one step."""
        step = Step(name, expected, seen)
        self.steps.append(step)
        if self.report is not None:
            self.report(step)

    async def restart(self, failpoint: str | None) -> None:
        """Start the server again on the same data; `failpoint` arms the next SIGKILL."""
        environment = {"FRONTDESK_LEASE": LEASE}
        if failpoint is not None:
            environment["FRONTDESK_FAILPOINTS"] = f"{failpoint}=kill"
        server = await start_server(self.data, 0, self.example.simulator, environment)
        self.children[1] = server
        self.example.server = server.address
        self.example.api.base_url = server.address
        await self.example.connect()


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One document, a step a line.")
@click.option("--keep", is_flag=True, help="Keep the temporary data folder and say where it is.")
@plain_failures
def demo(as_json: bool, keep: bool) -> None:
    """Show the main job with two SIGKILLs in between, in under a minute. Exit 0 only if every step is as expected."""
    raise SystemExit(asyncio.run(_demo(as_json, keep)))


async def _demo(as_json: bool, keep: bool) -> int:
    data = Path(tempfile.mkdtemp(prefix="frontdesk-demo-"))
    steps: list[Step] = []
    failure: str | None = None
    show = None if as_json else _show
    children: list[Child] = []
    if as_json:
        click.echo('{"steps":[')
    try:
        await asyncio.to_thread(initialise, data, None)
        example = await start_parts(data, 0, 0, children, {"FRONTDESK_LEASE": LEASE})
        stage = Stage(data, example, children, steps, show)
        try:
            await _steps(stage)
        finally:
            await example.close()
    except StartRefused as refusal:
        failure = str(refusal)
    finally:
        await asyncio.gather(*(child.stop() for child in children))
    if as_json:
        for step in steps:
            line = {"name": step.name, "expected": step.expected, "seen": step.seen, "ok": step.ok}
            click.echo(json.dumps(line, ensure_ascii=False) + ("," if step is not steps[-1] else ""))
    code = _finish(steps, failure, as_json)
    if keep:
        click.echo(f"kept: {data}", err=True)
    else:
        shutil.rmtree(data, ignore_errors=True)
    return code


def _show(step: Step) -> None:
    mark = "ok " if step.ok else "NOT"
    click.echo(f"{mark} {step.name}\n      {step.seen}" + ("" if step.ok else f"\n      expected: {step.expected}"))


def _finish(steps: list[Step], failure: str | None, as_json: bool) -> int:
    good = sum(step.ok for step in steps)
    ok = failure is None and good == len(steps) == 5
    result = f"{good} of 5 steps as expected" + (f"; {failure}" if failure else "")
    if as_json:
        click.echo("],")
        click.echo(f'"result":{json.dumps(result[:120])},"ok":{json.dumps(ok)}}}')
    else:
        click.echo(result)
    return 0 if ok else 1


async def _steps(stage: Stage) -> None:
    await _bind_and_authorise(stage)
    first = await _ask(stage, "What is Frontdesk?", reply=True)
    await _answered(stage, "2 replies with a question", first, "wire 2; revision = cursor = 1", None)
    second = await _ask(stage, "And who may answer?", reply=False)
    await _answered(stage, "3 types without replying", second, "wire 3; revision = cursor = 2", "history 1 pair")
    await stage.children[1].stop()
    await stage.restart("t7.after")
    third = await _ask(stage, "Are you still there?", reply=True)
    await stage.children[1].ended()
    await stage.restart("t1.after")
    fourth = await _ask(stage, "And now?", reply=True)
    await stage.children[1].ended()
    await stage.restart(None)
    await _unknown(stage, third)
    await _answered_late(stage, fourth)


async def _bind_and_authorise(stage: Stage) -> None:
    example = stage.example
    await example.prepare()
    grant = await example.grant()
    bound = await example.binding()
    state = "active" if bound else "missing"
    seen = f"binding {state}; activation {grant['activation_status']}; wire {await example.wires()}"
    stage.note("1 binds and authorises", "binding active; activation sent; wire 1", seen)


async def _ask(stage: Stage, text: str, *, reply: bool) -> str:
    return await stage.example.say(text, reply=reply)


async def _answered(stage: Stage, name: str, message_id: str, counts: str, history: str | None) -> None:
    """One reply to that message, with the demo runner's first line, and the counts."""
    example = stage.example
    answers = await example.until("the answer", lambda: example.answers_to(message_id))
    await example.until("the turn's commit", lambda: _settled(example))
    line = str(answers[0]["text"]).splitlines()[0]
    extra = f"; history {await _earlier_pairs(example)} pair" if history else ""
    expected = f"1 reply to that message; first line {FIRST_LINE!r}; {counts}" + (f"; {history}" if history else "")
    seen = (
        f"{len(await example.answers_to(message_id))} reply to that message; first line {line!r}; "
        f"wire {await example.wires()}; revision = cursor = {await _revision(example)}{extra}"
    )
    stage.note(name, expected, seen)


async def _settled(example: Example) -> bool:
    listed = await example.call("GET", f"{example.workspace}/deliveries", params={"limit": 1})
    return bool(listed["items"] and listed["items"][0]["status"] == "sent")


async def _revision(example: Example) -> str:
    """The conversation's revision where the grant's cursor equals it (a grant that lags is unusable)."""
    revision = (await example.conversation())["revision"]
    grant = await example.grant()
    return str(revision) if grant["usable"] else f"{revision}, but the grant is {grant['unusable_reason']}"


async def _earlier_pairs(example: Example) -> int:
    turns = await example.call("GET", f"{example.workspace}/conversations/{example.conversation_id}/turns")
    return len(turns["items"]) - 1


async def _unknown(stage: Stage, message_id: str) -> None:
    """Killed between the `sending` commit and the request: unknown, nothing in the chat, no restart sent it."""
    example = stage.example
    delivery = await example.until("the delivery to be judged", lambda: _delivery(example, "indeterminate"), LAPSE_S)
    answers = len(await example.answers_to(message_id))
    turns = await example.call("GET", f"{example.workspace}/conversations/{example.conversation_id}/turns")
    revision = max(
        item["sequence"] for item in turns["items"] if item["status"] == "completed" and item["sequence"] <= 3
    )
    wire = await example.wires() - len(await example.answers_to(await _last_question(example)))
    seen = f"delivery {delivery['status']}; {answers} in the chat; cursor {revision}; wire {wire}"
    stage.note("4 killed at t7.after", "delivery indeterminate; 0 in the chat; cursor 3; wire 3", seen)


async def _last_question(example: Example) -> str:
    seen = await example.simulate(
        "GET", "/_sim/messages", params={"app_id": example.app["app_id"], "sender_type": "user", "limit": 1000}
    )
    return str(seen["items"][-1]["message_id"])


async def _delivery(example: Example, status: str) -> dict[str, Any] | None:
    listed = await example.call("GET", f"{example.workspace}/deliveries", params={"status": status})
    return listed["items"][0] if listed["items"] else None


async def _answered_late(stage: Stage, message_id: str) -> None:
    """Killed after the claim: taken over once the lease lapsed, answered once."""
    example = stage.example
    await example.until("the answer", lambda: example.answers_to(message_id), LAPSE_S)
    await example.until("the turn's commit", lambda: _settled(example))
    listed = await example.call("GET", f"{example.workspace}/receipts", params={"limit": 1})
    seen = (
        f"{len(await example.answers_to(message_id))} answer; attempt_count {listed['items'][0]['attempts']}; "
        f"cursor {await _revision(example)}; wire {await example.wires()}"
    )
    stage.note("5 killed at t1.after", "1 answer; attempt_count 2; cursor 4; wire 4", seen)
