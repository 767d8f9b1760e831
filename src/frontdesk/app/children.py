"""Child processes of `up` and `demo`. They watch a pipe on their stdin, so that they end with their parent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from frontdesk.app.serving import StartRefused

READY_S: Final = 40.0
STOP_S: Final = 22.0
_READY: Final = re.compile(r"(?:frontdesk|simulator) ready (https?://\S+)")
_SENTENCE: Final = re.compile(r"^frontdesk: (.+)$", re.MULTILINE)


class Child:
    """One running child with its address. `log` keeps its stderr."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, address: str, log: Path) -> None:
        self.name = name
        self.process = process
        self.address = address
        self._log = log

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self.process.pid

    async def ended(self) -> int:
        """Wait for the child's own end; its exit code (negative: the signal)."""
        return await self.process.wait()

    async def stop(self) -> None:
        """Ask (end of stdin, SIGTERM), wait, and only then insist (SIGKILL)."""
        if self.process.returncode is None:
            if self.process.stdin is not None:
                self.process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await self.process.wait()
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    self.process.kill()
                await self.process.wait()

    async def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    def sentence(self) -> str:
        """Why the child ended, in its own words where it has any."""
        return _last_sentence(self._log) or f"see {self._log}"


async def start_child(
    name: str, words: Sequence[str], data: Path, environment: Mapping[str, str] | None = None
) -> Child:
    """Start `frontdesk <words>` and wait for its ready line. Raises `StartRefused` with the child's own sentence."""
    logs = data / "logs"
    logs.mkdir(mode=0o700, exist_ok=True)
    log = logs / f"{name}.log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "frontdesk",
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=descriptor,
            env={**os.environ, **(environment or {})},
        )
    finally:
        os.close(descriptor)
    address = None
    try:
        async with asyncio.timeout(READY_S):
            address = await _ready_line(process)
    except TimeoutError:
        process.kill()
    if address is None:
        await process.wait()
        raise StartRefused(f"{name} did not start: {_last_sentence(log) or f'see {log}'}")
    return Child(name, process, address, log)


async def _ready_line(process: asyncio.subprocess.Process) -> str | None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        match = _READY.search(line.decode("utf-8", "replace"))
        if match:
            return match[1]
    return None


def _last_sentence(log: Path) -> str | None:
    try:
        found = _SENTENCE.findall(log.read_text(encoding="utf-8", errors="replace")[-20_000:])
    except OSError:
        return None
    return found[-1] if found else None
