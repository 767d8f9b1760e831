"""Journey 6: authority withdrawn while the runner thinks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from frontdesk.app.example import Example, open_example
from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.people import Colleague, join, listen, own
from tests.e2e.rig import House, until

GRANT_SECONDS = 300  # the shortest that a grant can be given
LOST = "authorization_revoked_before_delivery"


@dataclass
class Case:
    """One person's chat and what takes their authority away."""

    name: str
    example: Example
    withdraw: Callable[[], Awaitable[Any]]
    message: str = ""


async def colleagues(house: House, prepared: dict[str, Any], number: int) -> tuple[Colleague, Example]:
    """A new operator who has bound and authorised a chat of their own with one of the prepared apps."""
    colleague = await join(house, "operator")
    example = open_example(house.address, house.simulator, colleague.token, "")
    example.sim.headers["Authorization"] = house.example.sim.headers["Authorization"]
    house.clients += [example.api, example.sim]
    example.app_name, example.title, example.person_name = (
        prepared["app_name"],
        f"Colleague {number}",
        f"Colleague {number}",
    )
    await example.prepare()
    return colleague, example


async def short_grant(example: Example) -> None:
    """Exchange the chat's grant for the shortest one."""
    await example.call("DELETE", f"{example.project}/reply-grants/{example.grant_id}")
    binding = await example.binding()
    assert binding is not None
    body = {
        "request_id": "short",
        "installation_id": example.installation["id"],
        "binding_id": binding["id"],
        "conversation_id": example.conversation_id,
        "expires_in_seconds": GRANT_SECONDS,
    }
    example.grant_id = (await example.call("POST", f"{example.project}/reply-grants", json=body))["id"]

    async def activated() -> bool:
        return bool((await example.grant())["activation_status"] == "sent")

    await until("the activation", activated)


async def cases_of(house: House, copies: list[dict[str, Any]]) -> list[Case]:
    """Eight chats, each with its own way to lose authority."""
    first = house.example
    chats = [own(house, copies[number]) for number in range(1, 6)]
    for example in chats:
        await listen(example, house.address)
    revoked, unbound, disabled, gone, expiring = chats
    await short_grant(expiring)
    made = [await colleagues(house, copies[number], number) for number in range(6, 9)]
    (off, off_chat), (out, out_chat), (low, low_chat) = made
    installations = f"{first.workspace}/installations"
    members = f"{first.workspace}/members"

    async def unbind() -> None:
        binding = await unbound.binding()
        assert binding is not None
        await first.call("DELETE", f"{first.workspace}/bindings/{binding['id']}")

    async def expire() -> None:
        await house.step_clock(GRANT_SECONDS + 10)

        async def expired() -> bool:
            return bool((await expiring.grant())["status"] == "expired")

        await until("the grant to expire", expired)

    call = first.call
    return [
        Case("revoke the grant", revoked, lambda: call("DELETE", f"{first.project}/reply-grants/{revoked.grant_id}")),
        Case("unbind", unbound, unbind),
        Case(
            "disable the installation",
            disabled,
            lambda: call("PATCH", f"{installations}/{disabled.installation['id']}", json={"enabled": False}),
        ),
        Case("revoke the installation", gone, lambda: call("DELETE", f"{installations}/{gone.installation['id']}")),
        Case("disable the user", off_chat, lambda: call("PATCH", f"/users/{off.user_id}", json={"disabled": True})),
        Case("remove the member", out_chat, lambda: call("DELETE", f"{members}/{out.member_id}")),
        Case(
            "demote to viewer", low_chat, lambda: call("PATCH", f"{members}/{low.member_id}", json={"role": "viewer"})
        ),
        # Last, because the clock is everybody's.
        Case("let it expire", expiring, expire),
    ]


@pytest.mark.spec("DESK-112")
async def test_authority_withdrawn_while_the_runner_thinks(copy_house: Copy, known: list[dict[str, Any]]) -> None:
    """Grant revoked or expired, binding or installation gone, user disabled, membership or EXPORT lost while the
    runner works: nothing is sent, the receipt says `authorization_revoked_before_delivery`, and the turn is kept with
    its answer, revision and cursor advanced, so that the next grant's history is truthful.
    """
    async with copy_house() as house:
        await house.step_clock(0)
        # Leases that outlive the step of the clock that lets the grant expire.
        await house.serve(environment={"FRONTDESK_LEASE": "10m"})
        await house.listen()
        cases = await cases_of(house, known)
        wires = [len(await rig.wires_of(case.example)) for case in cases]
        house.hold()
        for case in cases:
            case.message = await rig.say(case.example, f"While you {case.name}?")
        await house.held(len(cases))
        for case in cases:
            await case.withdraw()
        house.release()
        await asyncio.gather(*(_ended(house, case) for case in cases))
        wrong = [line for case in cases if (line := _judged(house, case))]
        assert not wrong, "\n".join(wrong)
        await _next_grant_knows(house, cases[0])
        # The last answer is out; whatever else was going to be sent would have been due before it.
        assert [len(await rig.wires_of(case.example)) for case in cases[1:]] == wires[1:]
        assert len(await rig.wires_of(cases[0].example)) == wires[0] + 2  # the new activation and its answer


async def _ended(house: House, case: Case) -> None:
    def final() -> bool:
        return bool(house.receipt(case.message)["processed_at"])

    await until(f"the receipt to end ({case.name})", final)


def _judged(house: House, case: Case) -> str:
    """What is not as it should be, or nothing."""
    receipt = house.receipt(case.message)
    (turn,) = house.rows("turns", conversation=case.example.conversation_id)
    conversation = house.rows("conversations", id=case.example.conversation_id)[0]
    grant = house.rows("reply_grants", id=case.example.grant_id)[0]
    seen = (
        (receipt["status"], receipt["error_code"]),
        (turn["status"], turn["committed_revision"], bool(turn["response"])),
        (conversation["revision"], grant["cursor"]),
        house.rows("deliveries", receipt=receipt["id"]),
        grant["active_slot"] is None or grant["status"] == "active",
    )
    expected = (("permanent_failed", LOST), ("completed", 1, True), (1, 1), [], True)
    return "" if seen == expected else f"{case.name}: {seen}"


async def _next_grant_knows(house: House, case: Case) -> None:
    """A new grant of the same conversation starts from the turn that was kept."""
    example = case.example
    assert house.rows("reply_grants", id=example.grant_id)[0]["active_slot"] is None
    await example.authorise()
    message = await rig.say(example, "And now?")

    def sent() -> bool:
        found = house.rows("receipts", provider_message_id=message)
        return bool(found) and bool(house.rows("deliveries", receipt=found[0]["id"], status="sent"))

    await until("the answer under the new grant", sent)
    (kept, _) = house.rows("turns", conversation=example.conversation_id)
    (pair,) = house.asked()[-1]["history"]
    assert pair[0] == kept["user_content"] == f"While you {case.name}?"
