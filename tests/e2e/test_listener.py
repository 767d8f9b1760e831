"""`frontdesk listen` as a process of its own, beside a server, against the stand-in (journey 14, first half)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
from collections.abc import Iterator
from typing import Any

import pytest

from frontdesk.app.example import Example
from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.rig import House, until
from tests.support.processes import run_python

HELD_S = 1.0
LEASE_S = 30  # for which a killed listener keeps its place
SILENCE_S = 50  # without a pong, after which a listener ends


async def connected(house: House) -> Example:
    """A connection that receives by long connection and can take pushes too, with its app at the simulator."""
    example = await house.meet(app_name="Listened", title="By long connection")
    await example._find_place()
    app = await example.simulate("POST", "/_sim/apps", json={"name": example.app_name, "transport": "ws"})
    example.app = app
    example.person = await example.simulate("POST", "/_sim/people", json={"name": "Ada", "app_id": app["app_id"]})
    secrets = {name: app[name] for name in ("app_id", "tenant_key", "app_secret", "encrypt_key", "verification_token")}
    body = {"channel": "feishu", "name": "Listened", "inbound": "long_connection", "command_language": "en"}
    example.installation = await example.call("POST", f"{example.workspace}/installations", json=body | secrets)
    url = {"url": example.server + example.installation["callback_path"]}

    async def checked() -> bool:  # the provider waits three seconds for the answer, a busy machine may take longer
        return bool((await example.simulate("PUT", f"/_sim/apps/{app['app_id']}/callback", json=url))["ok"])

    await until("the URL check", checked)
    return example


async def health(example: Example) -> dict[str, Any]:
    path = f"{example.workspace}/installations/{example.installation['id']}/health"
    return dict(await example.call("GET", path))


async def stopped(example: Example) -> bool:
    return bool((await health(example))["long_connection"] == "stopped")


async def delivered(example: Example, *pushes: str) -> None:
    """Wait until each push was acknowledged 200, moving the provider's time on to its next attempt where it was not."""
    for push_id in pushes:

        async def done(push_id: str = push_id) -> bool:
            push = await example.simulate("GET", f"/_sim/pushes/{push_id}")
            if push["state"] == "waiting" and push["attempts"] and push["due_ms"] is not None:
                await example.simulate("POST", "/_sim/clock", json={"advance_ms": 15_000})
            assert push["state"] != "failed", push
            return bool(push["state"] == "delivered")

        await until("the push to be acknowledged", done, 90)


async def push(example: Example, via: str, **body: Any) -> str:
    """Push by one of the ways until it is acknowledged; which push that was."""
    made = await example.simulate("POST", "/_sim/push", json={"via": via, **body})
    await delivered(example, made["push"])
    return str(made["push"])


async def unheard(example: Example, text: str, **more: Any) -> str:
    """A message of the person that the provider keeps to itself, to be pushed by hand."""
    drop = [{"match": {"route": "push", "times": 1}, "drop": True}]
    await example.simulate("POST", "/_sim/faults", json={"faults": drop})
    message = await rig.say(example, text, None, **more)
    await example.simulate("POST", "/_sim/faults", json={"faults": []})
    return message


@contextlib.contextmanager
def writes_held(house: House) -> Iterator[None]:
    """No transaction of this house commits meanwhile; reading goes on."""
    with (house.data / "frontdesk.db.lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kept(receipts: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What became of a message, without what is each row's own."""
    return [
        (row["status"], row["error_code"], row["intent"], row["content_text"], row["reply_grant"]) for row in receipts
    ]


@pytest.mark.spec("DESK-348")
async def test_one_message_by_both_ways_is_one_receipt(copy_house: Copy) -> None:
    """By webhook and by long connection, in either order or at once, a message makes one receipt; one of another app
    or tenant and one of an unsupported kind end the same whichever way they come.
    """
    async with copy_house() as house:
        await house.serve()
        example = await connected(house)
        listener = await house.listener(example.installation["id"])
        assert (await health(example))["long_connection"] == "connected"
        await example.bind()
        await example.converse()
        await example.authorise()
        rows = house.rows("receipts", installation=example.installation["id"])
        assert [(row["intent"], row["transport"]) for row in rows] == [("binding", "long_connection")]

        for ways in (("ws", "webhook"), ("webhook", "ws")):
            message = await unheard(example, f"First by {ways[0]}")
            for way in ways:
                await push(example, way, message_id=message)
            assert house.receipt(message)["transport"] == {"ws": "long_connection", "webhook": "webhook"}[ways[0]]
            await house.answered(message)
        for number in range(4):
            message = await unheard(example, f"At once {number}")
            await asyncio.gather(
                *(push(example, way, message_id=message) for way in ("ws", "webhook", "ws", "webhook"))
            )
            assert house.receipt(message)["status"] in {"received", "processing", "completed"}
            await house.answered(message)

        cases: dict[str, dict[str, Any]] = {
            "another tenant": {"wrong_tenant": True},
            "another app": {"wrong_app": True},
            "a picture": {},
        }
        for what, bent in cases.items():
            ends = []
            for way in ("ws", "webhook"):
                more = {} if bent else {"message_type": "image", "raw_content": '{"image_key":"img_1"}'}
                message = await unheard(example, "odd", **more)
                await push(example, way, message_id=message, **bent)
                ends.append(kept(house.rows("receipts", provider_message_id=message)))
            code = "installation_identity_mismatch" if bent else "unsupported_message_shape"
            assert ends[0] == ends[1], what
            assert [row[:2] for row in ends[0]] == [("rejected", code)], what
        before = house.counts()
        for way in ("ws", "webhook"):
            await push(example, way, app_id=example.app["app_id"], event_type="brand.new_v9", event={"a": 1})
        assert house.counts() == before

        assert await listener.terminate() == 0
        assert await stopped(example)
        assert house.rows("installations", id=example.installation["id"])[0]["lease_owner"] is None


@pytest.mark.engine("sqlite")
@pytest.mark.spec("DESK-346")
async def test_the_acknowledgement_follows_the_commit(copy_house: Copy) -> None:
    """While the commit waits, for a second, nothing is acknowledged; killed before it, the listener has acknowledged
    nothing either, and the message is pushed again and kept once.
    """
    async with copy_house() as house:
        await house.step_clock(0)
        await house.serve("--no-worker")
        example = await connected(house)
        installation = example.installation["id"]
        listener = await house.listener(installation)

        with writes_held(house):
            message = await rig.say(example, "hello", None)
            (attempt,) = await until("the push to be under way", lambda: attempts(example, message))
            held_until = asyncio.get_running_loop().time() + HELD_S
            while asyncio.get_running_loop().time() < held_until:
                assert attempt["status"] is None
                assert not house.rows("receipts", provider_message_id=message)
                await asyncio.sleep(rig.POLL_S)
                attempt = (await attempts(example, message))[0]
        await delivered(example, *await push_ids(example, message))
        assert house.receipt(message)["transport"] == "long_connection"
        assert (await attempts(example, message))[0]["duration_ms"] >= HELD_S * 1000
        assert await listener.terminate() == 0

        listener = await house.listener(installation, failpoint="t0.before")
        message = await rig.say(example, "are you there?", None)
        assert await listener.ended() == -9
        await until("the provider to see it", lambda: closed(example, message))
        assert {each["status"] for each in await attempts(example, message)} == {None}
        assert not house.rows("receipts", provider_message_id=message)
        await house.step_clock(LEASE_S + 1)  # a killed listener keeps its place until its lease has passed
        assert await stopped(example)
        listener = await house.listener(installation)
        await delivered(example, *await push_ids(example, message))
        assert house.receipt(message)["transport"] == "long_connection"
        assert await listener.terminate() == 0


async def attempts(example: Example, message: str) -> list[dict[str, Any]]:
    return [each for found in await rig.pushes_of(example, message) for each in found["attempts"]]


async def push_ids(example: Example, message: str) -> list[str]:
    return [str(found["push_id"]) for found in await rig.pushes_of(example, message)]


async def closed(example: Example, message: str) -> bool:
    """Whether the provider has noticed that the connection went away under its push."""
    return any(each["error"] for each in await attempts(example, message))


IMPORTS = """
import asyncio, importlib.abc, json, sys
seen = []
made = []
new_loop = asyncio.new_event_loop
def counted():
    made.append(1)
    return new_loop()
asyncio.new_event_loop = asyncio.events.new_event_loop = counted

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "lark_channel":
            seen.append([asyncio._get_running_loop() is None, len(made)])
sys.meta_path.insert(0, Watch())
from frontdesk.app.main import main
try:
    main(sys.argv[1:])
finally:
    print("imported", json.dumps(seen), len(made))
"""


@pytest.mark.engine("sqlite")
@pytest.mark.spec("DESK-350", "DESK-351")
async def test_who_may_listen_and_when_a_listener_gives_up(copy_house: Copy) -> None:
    """A second listener refuses to start while the first one's lease is live, and has imported the SDK with no loop
    running; a refused endpoint, a receive task dead behind a blocking client and missing pongs each end the listener
    with a non-zero code and `long_connection: stopped`, within a minute of its own clock.
    """
    async with copy_house() as house:
        await house.serve("--no-worker")
        example = await connected(house)
        installation = example.installation["id"]

        async def fault(*faults: dict[str, Any]) -> None:
            await example.simulate("POST", "/_sim/faults", json={"faults": list(faults)})

        listener = await house.listener(installation)
        words = ["listen", "--data", str(house.data), "--installation", installation]
        second = await asyncio.to_thread(
            run_python,
            "-c",
            IMPORTS,
            *words,
            environment=house.settings() | {"FRONTDESK_TEST_STAGE": ""},
            timeout_s=120,
        )
        assert second.returncode == 1
        assert "another listener is running for this connection" in second.stderr
        (line,) = [text for text in second.stdout.splitlines() if text.startswith("imported ")]
        seen, loops = json.JSONDecoder().raw_decode(line.removeprefix("imported "))[0], int(line.split()[-1])
        assert seen == [[True, 0]], "the SDK was imported once, with no loop running and none made"
        assert loops > 0
        assert listener.running

        # Missing pongs: the socket stands and the client is content.
        await fault({"match": {"route": "pong"}, "drop_before_accept": True})
        house.step_pulse(SILENCE_S + 1)
        await gave_up(example, listener, "no answer to any ping")
        # A dead receive task: cut, and refused when it comes back; its client goes on blocking.
        await fault()
        listener = await house.listener(installation)
        await fault({"match": {"route": "endpoint"}, "status": 200, "code": 1000040350})
        await example.simulate("POST", "/_sim/connections/close", json={})
        await gave_up(example, listener, "the provider's number 1000040350")
        # A refused endpoint, from the start.
        listener = await house.start_listener(installation)
        await gave_up(example, listener, "the provider's number 1000040350")
        assert (await health(example))["last_error_code"] == "connect_failed"


async def gave_up(example: Example, listener: rig.Program, says: str) -> None:
    assert await listener.ended(60) == 1
    assert says in listener.text
    assert await stopped(example)
