"""Journey 10: answers switched off, a connection disabled, a connection revoked."""

from __future__ import annotations

from typing import Any

from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.rig import House

OFF = {"FRONTDESK_REPLY_ENABLED": "false", "FRONTDESK_ARTIFACT_ENABLED": "false"}


async def pushed(house: House, text: str) -> tuple[str, dict[str, Any]]:
    """A message whose push was answered; its id and its receipt."""
    message = await rig.say(house.example, text, None, wait=True)
    return message, house.receipt(message)


async def test_off_disabled_and_revoked(copy_house: Copy) -> None:
    """With answers off a message is received, waits, and is answered once after they are on. Under a disabled
    connection it is rejected, also when the same is pushed again after the connection was enabled; a new one is
    answered. Under a revoked one messages are rejected for good.
    """
    async with copy_house() as house:
        example = house.example
        server = await house.serve(environment=OFF)
        await house.listen()
        wires = len(await house.wires())
        waiting, receipt = await pushed(house, "Is anybody there?")
        assert (receipt["status"], receipt["attempt_count"]) == ("received", 0)
        health = await example.call("GET", f"{example.workspace}/installations/{example.installation['id']}/health")
        assert (health["reply_execution_ready"], health["callback_ready"]) == (False, True)
        assert await server.terminate() == 0
        assert house.receipt(waiting)["status"] == "received"
        assert len(await house.wires()) == wires

        await house.serve()
        await house.answered(waiting)
        assert len(await house.wires()) == wires + 1
        assert len(house.asked()) == 1

        path = f"{example.workspace}/installations/{example.installation['id']}"
        await example.call("PATCH", path, json={"enabled": False})
        refused, receipt = await pushed(house, "And now?")
        assert (receipt["status"], receipt["error_code"]) == ("rejected", "installation_disabled")
        await example.call("PATCH", path, json={"enabled": True})
        (push,) = await rig.pushes_of(example, refused)
        await example.simulate("POST", "/_sim/push", json={"message_id": refused, "wait": True})
        assert len(house.rows("receipts", provider_message_id=refused)) == 1
        assert (house.receipt(refused)["status"], house.receipt(refused)["updated_at"]) == (
            "rejected",
            receipt["updated_at"],
        ), push
        await house.answered((await pushed(house, "And after that?"))[0])

        await example.call("DELETE", path)
        for text in ("Still there?", "Really not?"):
            _, receipt = await pushed(house, text)
            assert (receipt["status"], receipt["error_code"]) == ("rejected", "installation_revoked")
        answer = await example.api.patch("/api/v1" + path, json={"enabled": True})
        assert (answer.status_code, answer.json()["code"]) == (409, "installation_revoked")
        assert len(await house.wires()) == wires + 2
        rig.once_each(await house.wires())
