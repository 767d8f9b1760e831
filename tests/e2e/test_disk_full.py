"""A full disk under a SQLite house: the kernel itself refuses what the server writes to the database's log."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.people import listen, own
from tests.e2e.rig import House, Program, until
from tests.e2e.test_database_away import accepted, refused, status_of

CHATS = 4
LIVES = 3
PAGE_BYTES = 4_096  # of the database; one frame of its log is larger
ANSWER_DELAY_MS = 10_000  # of the 20 s that a send may take


@contextlib.contextmanager
def full(server: Program) -> Iterator[None]:
    """No file of the server may grow past its first page: `write` fails wherever the database's log stands by now."""
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    # What else it writes is far smaller, so that nothing but the database feels it.
    assert server.log.stat().st_size < PAGE_BYTES // 2
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (PAGE_BYTES, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


async def wired(house: House, outcome: str) -> float:
    """How many wire requests the server itself knows to have ended so."""
    text = (await house.example.api.get("/metrics")).text
    series = re.escape(f'outcome="{outcome}"}} ')
    found = re.search(rf"^frontdesk_wire_requests_total.*{series}(\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.engine("sqlite")
@pytest.mark.spec("DESK-318")
async def test_a_full_disk(copy_house: Copy, known: list[dict[str, Any]]) -> None:
    """On a full disk nothing is acknowledged and nothing is half kept; with room again the same process goes on. An
    answer whose outcome could not be written stays `sending`, becomes indeterminate, and is not sent again over three
    restarts.
    """
    async with copy_house() as house:
        server = await house.serve(environment={"FRONTDESK_LOG_LEVEL": "error"})
        chats = [own(house, each) for each in known[:CHATS]]
        for chat in chats:
            await listen(chat, house.address)
        await house.answered(await rig.say(house.example, "What is Frontdesk?", None))
        counts = house.counts()
        with full(server):
            messages = await asyncio.gather(*(refused(chat, house, f"Question {n}?") for n, chat in enumerate(chats)))
            example = house.example
            body = {"title": "Another one", "context": {"project_id": example.project_id, "surface": "console"}}
            answer = await example.api.post(f"/api/v1{example.workspace}/conversations", json=body)
            assert answer.status_code in (500, 503), "503 where it is known that nothing was done"
            assert await status_of(house, "/healthz") == 200
            assert house.counts() == counts, "nothing was kept"
        for message in messages:
            await accepted(house, message)
        for chat, message in zip(chats, messages, strict=True):
            await until("an answer", lambda chat=chat, message=message: chat.answers_to(message))
            await until("its end", lambda message=message: house.delivery_is(message, "sent"))
        assert server.running
        await _outcome_not_written(house, server)


async def _outcome_not_written(house: House, server: Program) -> None:
    example = house.example
    wires, known = len(await house.wires()), await wired(house, "sent")
    fault = {"match": {"route": "send", "app": example.app["app_id"], "times": 1}, "delay_ms": ANSWER_DELAY_MS}
    await example.simulate("POST", "/_sim/faults", json={"faults": [fault]})
    message = await rig.say(example, "And who may answer?", None)

    async def arrived() -> bool:
        return len(await house.wires()) > wires

    await until("the request to arrive", arrived, poll_s=0.05)
    with full(server):
        assert house.delivery_is(message, "sending"), "the disk was full before the provider answered"

        async def told() -> bool:
            return await wired(house, "sent") > known

        await until("the provider's answer", told)
        # From before the answer until the end of the process no write could succeed.
        again = await refused(example, house, "Is there room?")
        server.kill()
    (shown,) = await example.answers_to(message)
    for life in range(LIVES):
        server = await house.serve()
        if life == 0:
            await until("it to be unknown", lambda: house.delivery_is(message, "indeterminate"), rig.LAPSE_S)
            await accepted(house, again)
            await house.answered(again)
        await house.answered(await rig.say(example, f"Life {life}?", None))
        server.kill()
    delivery = house.delivery(message)
    assert (delivery["status"], delivery["error_code"]) == ("indeterminate", "send_result_unknown")
    assert [row["message_id"] for row in await house.wires() if row["target_id"] == message] == [shown["message_id"]]
    assert len(await house.wires()) == wires + 2 + LIVES
    rig.once_each(await house.wires())
