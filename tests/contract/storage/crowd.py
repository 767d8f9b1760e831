"""A crowd of processes on one database: `python crowd.py <url> <out> <role>…`, one process a role, all let go together.

Everything is imported once; each process is forked from here, opens the database for itself and waits at the gate.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

from frontdesk.desk import inbox, outbox
from frontdesk.desk.connections.channel import InboundMessage
from frontdesk.desk.conversations.request import fixed_briefing
from frontdesk.desk.inbox import Parts, claiming, store
from frontdesk.desk.inbox.claiming import Claim
from frontdesk.kernel.clock import ManualClock
from frontdesk.kernel.errors import DatabaseBusy
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.opening import open_database
from tests.contract.conftest import TimedDatabase
from tests.contract.desk_world import FakeChannel

ROUNDS = 5
PARTS = Parts(
    channels={"feishu": FakeChannel()},  # type: ignore[dict-item]
    keyring=KeyRing(""),
    runners={},
    default_runner="none",
    briefer=fixed_briefing(()),
    failure_notices=True,
    oversize_answer="file",
    public_url="http://desk.test",
)


def message(name: str, installation: str, parent: str) -> InboundMessage:
    """A message of the person at the chat."""
    now_ms = ManualClock().now_us() // 1000
    return InboundMessage(
        app_id="cli_1",
        tenant_key="t-1",
        event_id=f"ev_{name}",
        message_id=f"om_{name}",
        sender_id="ou_1",
        sender_type="user",
        chat_id="oc_1",
        chat_type="p2p",
        message_type="text",
        text=f"from {name}",
        parent_id=parent,
        root_id=None,
        created_at_ms=now_ms,
        signed_at_ms=now_ms,
        request_hash=name.encode().hex().ljust(64, "0")[:64],
    )


async def play(url: str, name: str, installation: str, parent: str) -> Counter[str]:
    """One process's part; what happened, counted. Busy is what nobody should see."""
    clock = ManualClock()
    database = TimedDatabase(open_database(url, clock, SystemEntropy()), clock)
    seen: Counter[str] = Counter()
    role = name.split("-", maxsplit=1)[0]
    for number in range(1 if role == "append" else ROUNDS):
        try:
            if role in {"append", "web"}:
                event = message(f"{name}-{number}", installation, parent)
                done = await database.write(
                    lambda tx, event=event: inbox.receive(tx, installation, event, transport="webhook")
                )
                seen[done.outcome] += 1
            elif role == "worker":
                # Read in one transaction, then write in the next what was read: where a deferred one would go stale.
                heads = await database.read(lambda tx: list(store.heads(tx, 10)))
                order = Claim(f"{name}-{number}", 30_000_000, 1)
                taken = await database.write(lambda tx, order=order: claiming.claim(tx, order, PARTS))
                seen["claimed"] += len(taken)
                seen["looked"] += bool(heads)
            else:
                seen["swept"] += await database.write(lambda tx: outbox.settle_lapsed(tx, 10))
                seen["recovered"] += await database.write(lambda tx: claiming.recover(tx, name, 30_000_000, 100, PARTS))
        except DatabaseBusy:
            seen["busy"] += 1
    await database.close()
    return seen


def main(url: str, out: str, installation: str, parent: str, names: list[str]) -> int:
    """Fork one process a name, open the gate, wait for all. The exit status is the number of those that failed."""
    gate, opener = os.pipe()
    children = []
    for name in names:
        child = os.fork()
        if child == 0:
            os.close(opener)
            os.read(gate, 1)  # until the opener is closed everywhere
            try:
                seen = asyncio.run(play(url, name, installation, parent))
                Path(out, name).write_text(repr(dict(seen)), encoding="utf-8")
            finally:
                os._exit(0 if Path(out, name).exists() else 1)
        children.append(child)
    os.close(gate)
    os.close(opener)
    return sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5], sys.argv[5:]))
