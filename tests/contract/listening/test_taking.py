"""Events of the long connection: acknowledged after their commit, taken as the webhook's are."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest

from frontdesk.app.listener import Ending
from frontdesk.desk import connections, inbox
from frontdesk.kernel import limits
from frontdesk.kernel.failpoints import Failpoints
from frontdesk.kernel.secretbox import KeyRing, new_key
from frontdesk.storage.tx import Tx
from tests.contract.listening.world import QUICK, WAIT_S, ListeningWorld, until


class Hold:
    """A reception whose commit waits: the transaction is open until `release`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self._free = threading.Event(), threading.Event()
        receive = inbox.receive

        def slow(tx: Tx, *arguments: Any, **named: Any) -> Any:
            received = receive(tx, *arguments, **named)
            self.began.set()
            assert self._free.wait(WAIT_S)
            return received

        monkeypatch.setattr(inbox, "receive", slow)

    def release(self) -> None:
        self._free.set()


async def test_a_message_is_kept_and_then_acknowledged(world: ListeningWorld) -> None:
    async with world.listening() as running:
        said = await world.say("hello", wait=True)
        assert await world.statuses(said) == [200]
        (receipt,) = await world.receipts(said)
        assert (receipt["transport"], receipt["status"], receipt["error_code"]) == (
            "long_connection",
            "rejected",
            "principal_not_bound",
        )
        running.stop.set()
        assert await running.ended() is Ending.ASKED
    assert await world.state() == "stopped"
    assert await world.events() == [("connecting", None), ("connected", None), ("stopped", None)]


async def test_nothing_is_acknowledged_while_the_commit_is_open(
    world: ListeningWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.listening():
        hold = Hold(monkeypatch)
        said = await world.say("hello")
        await until("the transaction", hold.began.is_set)
        assert await world.statuses(said) == [None]
        assert await world.receipts(said) == []
        hold.release()
        await world.acknowledged(said, 200)
        assert len(await world.receipts(said)) == 1


async def test_asked_to_stop_it_ends_the_event_in_hand_and_takes_no_other(
    world: ListeningWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = dataclasses.replace(QUICK, close_s=WAIT_S)
    async with world.listening(patience=patience) as running:
        hold = Hold(monkeypatch)
        said = await world.say("in hand")
        await until("the transaction", hold.began.is_set)
        running.stop.set()
        await until("the listener to stop", lambda: running.line_is_stopping)
        behind = await world.say("too late")
        hold.release()
        assert await running.ended() is Ending.ASKED
        await world.acknowledged(said, 200)
        assert len(await world.receipts(said)) == 1
        assert await world.receipts(behind) == []
        assert 200 not in await world.statuses(behind)
    async with world.listening():
        await world.later(15)
        await world.taken(behind)
        assert len(await world.receipts(behind)) == 1


@pytest.mark.spec("DESK-347")
async def test_a_failing_callback_is_acknowledged_500_and_the_event_pushed_again(world: ListeningWorld) -> None:
    """Where taking an event raises, the provider gets `code` 500 and pushes it again; it ends as one receipt."""
    hits: list[str] = []

    def fail_first(point: str) -> None:
        hits.append(point)
        if len(hits) == 1:
            raise RuntimeError("planted")

    async with world.listening(failpoints=Failpoints(observer=fail_first)):
        said = await world.say("hello", wait=True)
        assert await world.statuses(said) == [500]
        assert await world.receipts(said) == []
        await world.later(15)
        assert await world.statuses(said) == [500, 200]
        assert len(await world.receipts(said)) == 1
        again = await world.push(message_id=said)
        assert again["attempts"][0]["status"] == 200
        assert len(await world.receipts(said)) == 1


@pytest.mark.engine("sqlite")
@pytest.mark.spec("DESK-349")
async def test_a_slow_event_neither_stops_later_ones_nor_drops_the_connection(
    world: ListeningWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event over its two seconds is refused; those behind it are taken on the same connection, and so is it later,
    once.
    """
    patience = dataclasses.replace(QUICK, commit_wait_s=limits.CALLBACK_COMMIT_WAIT_US / 1_000_000)
    assert patience.commit_wait_s == 2
    async with world.listening(patience=patience):
        hold = Hold(monkeypatch)
        slow = await world.say("slow")
        await until("the transaction", hold.began.is_set)
        await world.acknowledged(slow, 500)
        (attempt,) = await world.attempts(slow)
        assert attempt["duration_ms"] >= 2_000
        monkeypatch.undo()
        hold.release()
        for said in (await world.say("next"), await world.say("and the one after"), slow):
            await world.taken(said)
            assert len(await world.receipts(said)) == 1
        (line,) = await world.lines()
        assert line["closed_ms"] is None
        assert line["pings"] >= 1


@pytest.mark.engine("sqlite")
async def test_events_behind_a_slow_one_wait_their_turn(world: ListeningWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.listening():
        hold = Hold(monkeypatch)
        first = await world.say("first")
        await until("the transaction", hold.began.is_set)
        second = await world.say("second")
        hold.release()
        await world.acknowledged(first, 200)
        await world.acknowledged(second, 200)
        texts = [row["provider_message_id"] for row in await world.desk.rows("receipts")]
        assert sorted(texts) == sorted([first, second])
        assert len(await world.lines()) == 1


@pytest.mark.engine("sqlite")
async def test_fragments_are_one_event(world: ListeningWorld) -> None:
    async with world.listening():
        said = await world.say("in three parts ✂ " * 40)
        await world.acknowledged(said, 200)
        push = await world.push(message_id=said, fragments=3)
        assert push["attempts"][0]["status"] == 200
        assert len(await world.receipts(said)) == 1


ODD = {
    "text": ("not json", 500),
    "cut": ("{", 500),
    "list": ("[]", 200),
    "bare": ('{"schema":"2.0"}', 200),
    "surrogate": ('"\\ud800"', 200),
    "deep": ("[" * 5_000 + "]" * 5_000, 500),
    "digits": ("1" * 200_000, 500),
}


@pytest.mark.engine("sqlite")
@pytest.mark.parametrize("kind", ODD)
async def test_what_is_no_event_leaves_no_row_and_the_listener_alive(world: ListeningWorld, kind: str) -> None:
    payload, expected = ODD[kind]
    async with world.listening() as running:
        before = await world.desk.counts()
        odd = await world.push(app_id=world.app_id, payload=payload, redeliver=False)
        assert odd["attempts"][0]["status"] == expected
        assert await world.desk.counts() == before
        said = await world.say("still there", wait=True)
        assert await world.statuses(said) == [200]
        assert not running.task.done()


@pytest.mark.engine("sqlite")
async def test_other_bots_groups_own_messages_and_unknown_types_leave_no_row(world: ListeningWorld) -> None:
    bot = str(world.provider.app["bot_open_id"])
    await world.desk.force("installations", world.installation_id, bot_open_id=bot)
    message = {
        "message_id": "om_" + "1" * 32,
        "chat_id": world.provider.chat,
        "chat_type": "p2p",
        "message_type": "text",
        "content": '{"text":"x"}',
        "create_time": "1767225600000",
    }

    def event(sender_type: str = "user", sender: str = "ou_x", **changes: Any) -> dict[str, Any]:
        who = {"sender_id": {"open_id": sender}, "sender_type": sender_type}
        return {"sender": who, "message": message | changes}

    async with world.listening():
        before = await world.desk.counts()
        for body in (event("app"), event(sender=bot), event(chat_type="group"), event(message_id=7)):
            pushed = await world.push(app_id=world.app_id, event_type="im.message.receive_v1", event=body)
            assert pushed["attempts"][0]["status"] == 200
        pushed = await world.push(app_id=world.app_id, event_type="brand.new_v9", event={"a": 1})
        assert pushed["attempts"][0]["status"] == 200
        assert await world.desk.counts() == before


async def test_a_recall_reaches_the_receipt(world: ListeningWorld) -> None:
    seat = await world.desk.seat(
        installation_id=world.installation_id, sender=world.provider.person["open_id"], chat=world.provider.chat
    )
    async with world.listening():
        said = await world.say("a question", wait=True)
        (receipt,) = await world.receipts(said)
        assert (receipt["status"], receipt["reply_grant"]) == ("received", seat.grant_id)
        await world.call(world.sim.post, "recall", message_id=said, wait=True)
        (receipt,) = await world.receipts(said)
        assert (receipt["status"], receipt["error_code"]) == ("rejected", "message_recalled")


@pytest.mark.engine("sqlite")
async def test_budgets_hold_here_too(world: ListeningWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SENDER_MESSAGES_PER_MINUTE", 1)
    monkeypatch.setattr(limits, "CALLBACK_BURST", 3)
    async with world.listening():
        said = [await world.say(f"number {number}", wait=True) for number in range(4)]
        codes = [(await world.receipts(each))[0]["error_code"] for each in said[:3]]
        assert codes == ["principal_not_bound", "sender_rate_limited", "sender_rate_limited"]
        assert await world.statuses(said[3]) == [500]  # over the connection's own budget: the provider comes again
        assert await world.receipts(said[3]) == []
        world.pulse.advance(limits.LISTENER_LOOK_US)
        await world.later(15)
        assert await world.statuses(said[3]) == [500, 200]


@pytest.mark.engine("sqlite")
async def test_a_disabled_connections_messages_are_recorded_as_refused(world: ListeningWorld) -> None:
    async with world.listening():
        await world.desk.enable(False, world.installation_id)
        said = await world.say("while it is off", wait=True)
        assert await world.statuses(said) == [200]
        await world.desk.enable(True, world.installation_id)
        await world.push(message_id=said)
        assert [row["error_code"] for row in await world.receipts(said)] == ["installation_disabled"]


# ---------------------------------------------------------------------------------------------- what it is trusted for


async def test_a_changed_app_secret_ends_the_trust_in_the_connection(world: ListeningWorld) -> None:
    async with world.listening() as running:
        await world.desk.write(
            connections.update_installation,
            world.desk.owner,
            workspace_id=world.desk.home,
            installation_id=world.installation_id,
            changes={"app_secret": "another"},
            **world.desk.keys,
        )
        said = await world.say("over the old connection", wait=True)
        assert await world.statuses(said) == [500]
        assert await running.ended() is Ending.SECRET_CHANGED
    assert await world.receipts(said) == []
    assert (await world.installation()).last_error_code is None  # nobody refused us


@pytest.mark.engine("sqlite")
async def test_secrets_encrypted_anew_are_the_same_secrets(world: ListeningWorld) -> None:
    async with world.listening() as running:
        secret = str(world.provider.app["app_secret"])
        await world.desk.force("installations", world.installation_id, app_secret_ct=KeyRing(world.key).encrypt(secret))
        said = await world.say("hello", wait=True)
        assert await world.statuses(said) == [200]
        assert not running.task.done()


@pytest.mark.engine("sqlite")
async def test_an_app_secret_that_cannot_be_read_any_more_ends_it(world: ListeningWorld) -> None:
    async with world.listening() as running:
        unreadable = KeyRing(new_key()).encrypt("x")
        await world.desk.force("installations", world.installation_id, app_secret_ct=unreadable)
        said = await world.say("hello", wait=True)
        assert await world.statuses(said) == [500]
        assert await running.ended() is Ending.SECRET_CHANGED
    assert await world.receipts(said) == []
