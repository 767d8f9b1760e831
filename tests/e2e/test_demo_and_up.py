"""`frontdesk demo` and `frontdesk up` as a person, a script or a service manager starts them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.e2e import rig
from tests.e2e.rig import Program, until

# Everything but a line feed and printable text.
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def descendants(pid: int) -> list[int]:
    """The processes a process started, and theirs."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def name_of(pid: int) -> str:
    """Which of the two children a process is."""
    return "simulator" if b"simulator" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") else "serve"


def lives(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


@contextlib.asynccontextmanager
async def up(folder: Path, *words: str) -> AsyncIterator[Program]:
    """`frontdesk up` without a terminal, and none of its processes left afterwards."""
    async with rig._start_slot():
        program = rig.start("up", ["up", "--data", str(folder / "data"), *words], folder / "logs")
    try:
        yield program
    finally:
        program.clear()


FREE = ("--port", "0", "--simulator-port", "0")


async def ready(program: Program) -> list[int]:
    """Wait for `ready`; the processes it started."""
    await program.ready(r"^ready$")
    children = descendants(program.process.pid)
    assert len(children) == 2, "a server and a simulator"
    return children


async def gone(children: list[int]) -> None:
    """Wait until none of the processes is left."""
    await until("every child to end", lambda: not any(lives(pid) for pid in children))


@pytest.mark.spec("DESK-396")
async def test_up_reaches_ready_and_leaves_nothing(tmp_path: Path) -> None:
    """Without a terminal `up` asks nothing and prints no control character, names its addresses, says `ready` with
    the chat waiting for a reply, and after SIGTERM or its own SIGKILL none of its processes is left.
    """
    async with up(tmp_path, *FREE) as program:
        children = await ready(program)
        text = program.text
        assert not CONTROL.search(text), repr(text)
        lines = text.splitlines()
        assert [line.split()[0] for line in lines[-3:-1]] == ["Chat", "Server"]
        assert lines[-1] == "ready"
        chat, server = (line.split()[-1] for line in lines[-3:-1])
        async with httpx2.AsyncClient(trust_env=False, timeout=20) as anyone:
            assert (await anyone.get(server)).status_code == 200
            page = (await anyone.get(chat)).text
        assert page.count('<article class="row theirs') == 1, "the activation waits for a reply"
        assert await program.terminate(30) == 0
        await gone(children)
        assert not CONTROL.search(program.text), repr(program.text)
    async with up(tmp_path, *FREE) as program:  # on the same data: what was made is used again
        children = await ready(program)
        assert "Password" not in program.text
        program.process.send_signal(signal.SIGKILL)
        await program.ended()
        await gone(children)


@pytest.mark.spec("DESK-396")
async def test_up_ends_with_a_sentence_when_a_part_of_it_cannot_live(tmp_path: Path) -> None:
    """A busy port or a dead child ends `up` non-zero with a sentence, and nothing of it is left."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for option in (("--port", str(port), "--simulator-port", "0"), ("--port", "0", "--simulator-port", str(port))):
            async with up(tmp_path, *option) as program:
                await until("a child", lambda program=program: descendants(program.process.pid) or not program.running)
                assert await program.ended(60) == 1
                last = program.text.splitlines()[-1]
                assert re.fullmatch(rf"frontdesk: \w+ did not start: .*\bport {port}\b.*", last), program.text
                assert "Traceback" not in program.text
    for number in (0, 1):
        async with up(tmp_path, *FREE) as program:
            children = await ready(program)
            victim = children[number]
            name = name_of(victim)
            os.kill(victim, signal.SIGKILL)
            assert await program.ended(40) == 1
            assert program.text.splitlines()[-1].startswith(f"frontdesk: {name} ended by itself"), program.text
            assert "Traceback" not in program.text
            await gone(children)


@pytest.mark.spec("DESK-396")
async def test_the_demo_exits_0_exactly_when_each_step_is_as_expected(tmp_path: Path) -> None:
    """`demo --json` prints one document, a step a line and a last line of at most 180 bytes, and exits 0 when all
    five steps are as expected, else 1.
    """
    good, bad = await asyncio.gather(
        rig.run("demo", ["demo", "--json"], tmp_path / "good"),
        rig.run("demo", ["demo", "--json"], tmp_path / "bad", {"FRONTDESK_REPLY_ENABLED": "false"}),
    )
    assert good.process.returncode == 0, good.text
    lines = good.text.splitlines()
    assert lines[0] == '{"steps":['
    assert lines[-1] == '"result":"5 of 5 steps as expected","ok":true}'
    document = json.loads(good.text)
    assert [list(step) for step in document["steps"]] == [["name", "expected", "seen", "ok"]] * 5
    assert all(step["ok"] and step["seen"] == step["expected"] for step in document["steps"])
    assert [json.loads(line.rstrip(",")) for line in lines[1:6]] == document["steps"]

    assert bad.process.returncode == 1
    document = json.loads(bad.text)
    assert document["ok"] is False
    assert document["result"].startswith("0 of 5 steps as expected; ")
    for program in (good, bad):
        last = program.text.splitlines()[-1]
        assert len(last.encode()) <= 180
        assert "Traceback" not in program.text
