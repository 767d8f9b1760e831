"""Every fault knob for provider routes, seen at the wire."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx2
import pytest

from tests.simulator.harness import Provider, Sim


def fault(sim: Sim, route: str = "send", **knobs: Any) -> None:
    match = {"route": route, **knobs.pop("match", {})}
    sim.faults({"match": match, **knobs})


def messages(sim: Sim) -> int:
    return len(sim.get("messages")["items"])


def test_accept_then_drop_stores_the_message_and_cuts_the_connection(desk: Provider, sim: Sim) -> None:
    fault(sim, accept_then_drop=True)
    with pytest.raises(httpx2.RemoteProtocolError):
        desk.create(uuid="u")
    (row,) = sim.requests("create")
    assert (row["outcome"], row["accepted"], row["status"]) == ("accepted_dropped", True, None)
    (message,) = sim.get("messages")["items"]
    assert (message["answer_dropped"], message["uuid"]) == (True, "u")
    sim.faults()
    assert desk.create(uuid="u").json()["data"]["message_id"] == message["message_id"]
    assert messages(sim) == 1


def test_drop_before_accept_stores_nothing_but_the_request_is_counted(desk: Provider, sim: Sim) -> None:
    fault(sim, drop_before_accept=True)
    with pytest.raises(httpx2.RemoteProtocolError):
        desk.create()
    assert sim.requests("create")[0]["outcome"] == "dropped"
    assert (messages(sim), sim.get("requests")["sends"]) == (0, 1)


def test_delay_before_the_answer_and_before_acceptance(desk: Provider, sim: Sim) -> None:
    fault(sim, delay_ms=400)
    with pytest.raises(httpx2.ReadTimeout):
        desk.client.post("/open-apis/im/v1/messages?receive_id_type=chat_id", json=body(desk), timeout=0.15)
    assert messages(sim) == 1
    fault(sim, delay_ms=400, delay_at="accept")
    with pytest.raises(httpx2.ReadTimeout):
        desk.client.post("/open-apis/im/v1/messages?receive_id_type=chat_id", json=body(desk), timeout=0.15)
    assert messages(sim) == 1
    sim.until(lambda: messages(sim) == 2)  # the client is gone, the request is carried out all the same


def body(desk: Provider) -> dict[str, str]:
    return {"receive_id": desk.chat, "msg_type": "text", "content": '{"text":"x"}'}


def test_status_code_and_headers(desk: Provider, sim: Sim) -> None:
    fault(sim, status=429, code=99991400, headers={"x-ogw-ratelimit-reset": "2"})
    answer = desk.create()
    assert (answer.status_code, answer.json()["code"]) == (429, 99991400)
    assert answer.headers["x-ogw-ratelimit-reset"] == "2"
    fault(sim, status=500)
    assert (desk.create().status_code, desk.create().json()["code"]) == (500, 500)
    fault(sim, status=403, code=99991672)
    assert desk.create().status_code == 403
    fault(sim, code=230020, status=200)
    assert (desk.create().status_code, desk.create().json()["code"]) == (200, 230020)
    assert messages(sim) == 0
    assert sim.requests("create")[0]["outcome"] == "fault"
    fault(sim, status=500, accept=True)
    assert desk.create().status_code == 500
    assert messages(sim) == 1


@pytest.mark.parametrize(("kind", "expected"), [("html", b"<html>"), ("empty", b""), ("{}", b"{}")])
def test_other_bodies_come_after_acceptance(desk: Provider, sim: Sim, kind: str, expected: bytes) -> None:
    fault(sim, body=kind)
    answer = desk.create()
    assert answer.status_code == 200
    assert answer.content[: len(expected) or 1] == expected
    assert messages(sim) == 1
    fault(sim, body=kind, accept=False)
    desk.create()
    assert messages(sim) == 1


def test_truncated_dripped_and_stalled_answers(desk: Provider, sim: Sim) -> None:
    fault(sim, body="truncated")
    with pytest.raises(httpx2.RemoteProtocolError):
        desk.create()
    fault(sim, body="drip", drip_ms=1)
    assert desk.create().json()["code"] == 0
    fault(sim, body="drip_head", drip_ms=1)
    with pytest.raises(httpx2.RemoteProtocolError):
        desk.create()
    assert messages(sim) == 3
    fault(sim, stall=True)
    with pytest.raises(httpx2.ReadTimeout):
        desk.client.post("/open-apis/im/v1/messages?receive_id_type=chat_id", json=body(desk), timeout=0.2)
    assert messages(sim) == 3
    assert sim.requests("create")[-1]["outcome"] == "stalled"


def test_a_dripping_answer_outlives_per_read_timeouts(desk: Provider, sim: Sim) -> None:
    fault(sim, body="drip", drip_ms=100)
    started = time.monotonic()
    with desk.client.stream(
        "POST", "/open-apis/im/v1/messages?receive_id_type=chat_id", json=body(desk), timeout=0.3
    ) as answer:
        received = 0
        for _ in answer.iter_raw():
            received += 1
            if time.monotonic() - started > 0.6:
                break
    assert received >= 4


def test_redirects_are_not_carried_out(desk: Provider, sim: Sim) -> None:
    fault(sim, redirect="/elsewhere")
    answer = desk.create()
    assert (answer.status_code, answer.headers["location"], answer.content) == (307, "/elsewhere", b"")
    fault(sim, redirect="302 /elsewhere")
    assert desk.create().status_code == 302
    assert messages(sim) == 0


def test_an_empty_message_id(desk: Provider, sim: Sim) -> None:
    fault(sim, message_id="")
    answer = desk.create().json()
    assert (answer["code"], answer["data"]["message_id"]) == (0, "")
    assert messages(sim) == 1


def test_token_expired_ends_the_presented_token(desk: Provider, sim: Sim) -> None:
    fault(sim, token_expired=True, match={"times": 1})
    assert desk.create().json()["code"] == 99991663
    assert desk.create().json()["code"] == 99991663
    desk.log_in()
    assert desk.create().json()["code"] == 0


def test_reads_reordered_and_pages_repeated(desk: Provider, sim: Sim) -> None:
    ids = [desk.say(str(number)) for number in range(4)]
    fault(sim, "list", reorder="reverse")
    assert [item["message_id"] for item in desk.list().json()["data"]["items"]] == ids[::-1]
    fault(sim, "list", reorder="shuffle")
    assert sorted(item["message_id"] for item in desk.list().json()["data"]["items"]) == sorted(ids)
    fault(sim, "list", repeat_page=True)
    first = desk.list(page_size=2).json()["data"]
    second = desk.list(page_size=2, page_token=first["page_token"]).json()["data"]
    assert [item["message_id"] for item in second["items"]] == ids[:2]
    assert (second["has_more"], second["page_token"]) == (True, first["page_token"])


def test_the_nth_page_fails(desk: Provider, sim: Sim) -> None:
    for number in range(4):
        desk.say(str(number))
    fault(sim, "list", status=500, match={"nth": 2})
    assert [desk.list(page_size=2).status_code for _ in range(3)] == [200, 500, 200]
    (row,) = sim.get("faults")["items"]
    assert (row["match"]["seen"], row["match"]["applied"]) == (3, 1)


def test_another_body_or_sender_on_reads(desk: Provider, sim: Sim) -> None:
    first, second = desk.say("first"), desk.say("second")
    fault(sim, "read", rewrite={"message_id": first, "text": "other", "sender_id": "ou_x", "parent_id": "om_p"})
    items = {item["message_id"]: item for item in desk.list().json()["data"]["items"]}
    assert json.loads(items[first]["body"]["content"]) == {"text": "other"}
    assert (items[first]["sender"]["id"], items[first]["parent_id"]) == ("ou_x", "om_p")
    assert json.loads(items[second]["body"]["content"]) == {"text": "second"}
    assert json.loads(desk.fetch(first).json()["data"]["items"][0]["body"]["content"]) == {"text": "other"}


def test_date_offset_and_absent(desk: Provider, sim: Sim) -> None:
    fault(sim, "any", date_offset_ms=400_000)
    assert desk.list().headers["date"] == "Thu, 01 Jan 2026 00:06:40 GMT"
    fault(sim, "any", no_date=True)
    assert "date" not in desk.list().headers


def test_a_message_changes_between_two_reads(desk: Provider, sim: Sim) -> None:
    question = desk.say("before")
    fault(sim, "get", then={"edit": question, "text": "after"}, match={"nth": 1})
    texts = [json.loads(desk.fetch(question).json()["data"]["items"][0]["body"]["content"])["text"] for _ in range(2)]
    assert texts == ["before", "after"]
    fault(sim, "list", then={"recall": "newest_person"}, match={"nth": 1})
    assert [desk.list().json()["data"]["items"][0]["deleted"] for _ in range(2)] == [False, True]


def test_matching_by_app_chat_nth_and_times(desk: Provider, sim: Sim) -> None:
    other = sim.post("people", name="Bo", app_id=desk.app["app_id"])
    fault(sim, status=500, match={"chat": other["chat_id"]})
    assert desk.create().status_code == 200
    assert desk.create(receive_id=other["chat_id"]).status_code == 500
    fault(sim, status=500, match={"app": "cli_other"})
    assert desk.create().status_code == 200
    fault(sim, status=500, match={"nth": 2, "times": 2})
    assert [desk.create().status_code for _ in range(4)] == [200, 500, 500, 200]
    sim.faults(
        {"match": {"route": "list", "nth": 1}, "status": 500},
        {"match": {"route": "read"}, "status": 403},
    )
    assert [desk.list().status_code for _ in range(2)] == [500, 403]


@pytest.mark.parametrize(
    "row",
    [
        {"match": {"route": "nowhere"}, "drop": True},
        {"match": {"route": "send"}, "unknown": 1},
        {"match": {"route": "send"}, "status": "500"},
        {"match": {"route": "send"}, "duplicate": 1},
        {"match": {"route": "push"}, "accept_then_drop": True},
        {"match": {"route": "send"}, "headers": {"a": "b\r\nc"}},
        {"match": {"route": "send", "seen": 1}},
        {"match": {"route": "list"}, "then": {"other": 1}},
        "text",
    ],
)
def test_unknown_knobs_and_bad_values_are_refused_and_change_nothing(sim: Sim, row: object) -> None:
    fault(sim, status=500)
    answer = sim.control.post("/_sim/faults", json={"faults": [row]})
    assert answer.status_code == 400
    assert len(sim.get("faults")["items"]) == 1
