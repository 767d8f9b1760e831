"""The two programs of docs/guides/connect-loopback.md, taken from the page and run as processes of their own."""

from __future__ import annotations

import base64
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.rig import House, Program, free_port, until
from tests.support.processes import guarded_environment

GUIDE = Path(__file__).resolve().parent.parent.parent / "docs" / "guides" / "connect-loopback.md"


class Chat:
    """A chat of one, as the guide builds it: a secret, `peer.py` and `say.py` in a folder."""

    def __init__(self, house: House, folder: Path) -> None:
        self._house = house
        self._folder = folder
        self.secret = "whsec_" + base64.b64encode(bytes(range(40))).decode()
        self.port = free_port()
        self.installation: dict[str, Any] = {}
        folder.mkdir()
        (folder / "hook.secret").write_text(self.secret + "\n")
        blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
        for name, block in zip(("peer.py", "say.py"), blocks, strict=True):
            (folder / name).write_text(block)

    @property
    def target(self) -> str:
        """Where the peer takes messages."""
        return f"http://127.0.0.1:{self.port}/"

    async def start(self) -> None:
        """The side that takes messages."""
        self.peer = self._run("peer.py", str(self.port))

        def listening() -> bool:
            assert self.peer.running, self.peer.text
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        await until("the peer to listen", listening, 60.0)

    async def say(self, *words: str) -> str:
        """Run `say.py`; the message's id."""
        hook = self._house.address + self.installation["callback_path"]
        program = self._run("say.py", *words, HOOK=hook)
        assert await program.ended(60.0) == 0, program.text
        status, message = program.text.split()
        assert status == "200"
        return message

    def _run(self, script: str, *words: str, **environment: str) -> Program:
        """Start one of the two in the chat's folder; it ends with the house."""
        log = self._folder / f"{len(list(self._folder.iterdir())):03}-{script}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, script, *words],
                cwd=self._folder,
                env=guarded_environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        program = Program(script, process, log)
        self._house.programs.append(program)
        return program

    def heard(self) -> list[tuple[str, str, str]]:
        """What the peer printed so far: our message's id, the message it answers, its text."""
        found = re.split(r"^(peer_\d+) answers (\S+)\n", self.peer.text, flags=re.MULTILINE)[1:]
        return [(found[index], found[index + 1], found[index + 2].strip()) for index in range(0, len(found), 3)]
