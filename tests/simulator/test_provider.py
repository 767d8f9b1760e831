"""The provider's rules, over plain HTTP."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.simulator.harness import START_MS, Provider, Sim


def test_tokens_need_the_right_secret_and_end_after_two_hours(desk: Provider, sim: Sim) -> None:
    assert desk.token("wrong")["code"] == 10014
    assert desk.token()["expire"] == 7200
    assert desk.create().json()["code"] == 0
    sim.post("clock", advance_ms=7_200_000)
    late = desk.create()
    assert (late.status_code, late.json()["code"]) == (400, 99991663)
    desk.client.headers["Authorization"] = "Bearer made-up"
    assert desk.client.get("/open-apis/bot/v3/info").json()["code"] == 99991663


def test_bot_info_names_the_bot(desk: Provider) -> None:
    bot = desk.client.get("/open-apis/bot/v3/info").json()["bot"]
    assert bot["app_name"] == "Front Desk"
    assert bot["open_id"] == desk.app["bot_open_id"]


def test_a_created_message_and_a_reply_carry_ids_and_the_thread(desk: Provider) -> None:
    question = desk.say()
    first = desk.reply(question, "first").json()["data"]
    second = desk.reply(first["message_id"], "second").json()["data"]
    assert first["message_id"].startswith("om_")
    assert (first["parent_id"], first["root_id"]) == (question, question)
    assert (second["parent_id"], second["root_id"]) == (first["message_id"], question)
    assert json.loads(first["body"]["content"]) == {"text": "first"}
    plain = desk.create().json()["data"]
    assert "parent_id" not in plain
    assert plain["chat_id"] == desk.chat


def test_unknown_chats_and_foreign_chats_look_alike(desk: Provider, sim: Sim) -> None:
    other = sim.post("apps", name="Other")
    stranger = sim.post("people", name="Bo", app_id=other["app_id"])
    assert desk.create(receive_id="oc_nowhere").json()["code"] == 230002
    assert desk.create(receive_id=stranger["chat_id"]).json()["code"] == 230002
    theirs = sim.post("send", app_id=other["app_id"], person="Bo", text="hi")["message_id"]
    assert desk.reply(theirs).json()["code"] == 231003
    assert desk.fetch(theirs).json()["code"] == 231003


def test_limits_of_uuid_and_body(desk: Provider) -> None:
    assert desk.create(uuid="u" * 51).json()["code"] == 99992402
    assert desk.create(uuid="u" * 50).json()["code"] == 0
    assert desk.create("x" * 153_600).json()["code"] == 230025
    assert desk.create("x" * 150_000).json()["code"] == 0
    assert desk.create(msg_type="post", content=json.dumps({"a": "x" * 30_720})).json()["code"] == 230025
    assert desk.create(content="not json").json()["code"] == 230001


def test_one_uuid_makes_one_message_for_an_hour(desk: Provider, sim: Sim) -> None:
    first = desk.create("one", uuid="same").json()["data"]["message_id"]
    sim.post("clock", advance_ms=3_599_999)
    again = desk.create("two", uuid="same").json()["data"]
    assert again["message_id"] == first
    assert json.loads(again["body"]["content"]) == {"text": "one"}
    assert [row["outcome"] for row in sim.requests("create")] == ["accepted", "replayed"]
    sim.post("clock", advance_ms=1)
    assert desk.create("three", uuid="same").json()["data"]["message_id"] != first
    assert len(sim.get("messages")["items"]) == 2


def test_more_than_five_a_second_in_a_chat_are_refused(desk: Provider, sim: Sim) -> None:
    assert [desk.create(str(n)).json()["code"] for n in range(6)] == [0, 0, 0, 0, 0, 230020]
    for _ in range(10):
        sim.post("clock", advance_ms=200)
        assert desk.create("paced").json()["code"] == 0
    other = sim.post("people", name="Bo", app_id=desk.app["app_id"])
    assert desk.create(receive_id=other["chat_id"]).json()["code"] == 0


def test_upload_keeps_name_type_and_bytes(desk: Provider, sim: Sim) -> None:
    data = bytes(range(256)) * 10
    form = {"file_type": "stream", "file_name": "报告 1.md"}
    sent = desk.client.post("/open-apis/im/v1/files", data=form, files={"file": ("报告 1.md", data, "text/markdown")})
    key = sent.json()["data"]["file_key"]
    (file,) = sim.get("files")["items"]
    assert (file["file_name"], file["media_type"], file["size_bytes"]) == ("报告 1.md", "text/markdown", 2560)
    assert file["sha256"] == hashlib.sha256(data).hexdigest()
    assert sim.control.get(f"/_sim/files/{key}").content == data
    message = desk.create(msg_type="file", content=json.dumps({"file_key": key})).json()["data"]["message_id"]
    got = desk.client.get(f"/open-apis/im/v1/messages/{message}/resources/{key}?type=file")
    assert got.content == data
    assert got.headers["content-type"] == "text/markdown"
    assert "%E6%8A%A5%E5%91%8A" in got.headers["content-disposition"]
    assert desk.create(msg_type="file", content='{"file_key":"made-up"}').json()["code"] == 230001


def test_empty_and_oversized_files_are_refused(desk: Provider) -> None:
    form = {"file_type": "stream", "file_name": "a"}

    def upload(data: bytes) -> int:
        files = {"file": ("a", data, "text/plain")}
        return int(desk.client.post("/open-apis/im/v1/files", data=form, files=files).json()["code"])

    assert upload(b"") == 234010
    assert upload(b"x" * (30 * 1024 * 1024 + 1)) == 234006
    assert upload(b"x" * 30_000_000) == 0
    assert desk.client.post("/open-apis/im/v1/files", content=b"x" * 33_600_000).status_code == 413
    assert desk.client.post("/open-apis/im/v1/files", json={}).json()["code"] == 230001


def test_history_is_paged_in_order_within_whole_seconds(desk: Provider, sim: Sim) -> None:
    ids = []
    for number in range(7):
        ids.append(desk.say(f"q{number}"))
        sim.post("clock", advance_ms=1_000)
    seen: list[str] = []
    token = ""
    while True:
        data = desk.list(page_size=3, page_token=token, sort_type="ByCreateTimeAsc").json()["data"]
        seen += [item["message_id"] for item in data["items"]]
        if not data["has_more"]:
            break
        token = data["page_token"]
    assert seen == ids
    start = START_MS // 1_000
    window = desk.list(start_time=start + 2, end_time=start + 4).json()["data"]["items"]
    assert [item["message_id"] for item in window] == ids[2:5]
    newest = desk.list(sort_type="ByCreateTimeDesc", page_size=1).json()["data"]
    assert [item["message_id"] for item in newest["items"]] == [ids[-1]]
    item = newest["items"][0]
    assert item["sender"] == {
        "id": desk.person["open_id"],
        "id_type": "open_id",
        "sender_type": "user",
        "tenant_key": desk.app["tenant_key"],
    }
    assert item["create_time"] == str(START_MS + 6_000)


@pytest.mark.parametrize("query", [{"page_size": 51}, {"page_token": "x"}, {"container_id_type": "thread"}])
def test_bad_list_queries_are_refused(desk: Provider, query: dict[str, object]) -> None:
    assert desk.list(**query).json()["code"] == 99992402


def test_people_recall_and_edit_and_a_reply_to_a_recalled_message_is_230011(desk: Provider, sim: Sim) -> None:
    """History shows edits and recalls; a reply to a recalled message is refused with 230011 and makes nothing."""
    question = desk.say("first words")
    sim.post("edit", message_id=question, text="other words")
    item = desk.fetch(question).json()["data"]["items"][0]
    assert (item["updated"], json.loads(item["body"]["content"])) == (True, {"text": "other words"})
    sim.post("recall", message_id=question)
    item = desk.fetch(question).json()["data"]["items"][0]
    assert item["deleted"] is True
    assert "other words" not in item["body"]["content"]
    refused = desk.reply(question)
    assert (refused.status_code, refused.json()["code"]) == (400, 230011)
    assert sim.requests("reply")[0]["outcome"] == "refused"
    assert len(sim.get("messages")["items"]) == 1


def test_the_bot_recalls_and_edits_its_own_messages_only(desk: Provider) -> None:
    question = desk.say()
    answer = desk.reply(question).json()["data"]["message_id"]
    path = f"/open-apis/im/v1/messages/{answer}"
    edited = desk.client.put(path, json={"msg_type": "text", "content": '{"text":"better"}'})
    assert edited.json()["data"]["updated"] is True
    assert desk.client.delete(f"/open-apis/im/v1/messages/{question}").json()["code"] == 230026
    assert desk.client.delete(path).json()["code"] == 0
    assert desk.client.delete(path).json()["code"] == 230011


def test_every_answer_has_a_date_by_the_simulators_clock_and_title_case_names(desk: Provider, sim: Sim) -> None:
    sim.post("clock", set_ms=1_767_229_200_000)
    answer = desk.client.get("/open-apis/bot/v3/info")
    names = [name for name, _ in answer.headers.raw]
    assert b"Content-Type" in names
    assert answer.headers["date"] == "Thu, 01 Jan 2026 01:00:00 GMT"


def test_wire_requests_are_counted_by_kind_with_uuid_and_sizes(desk: Provider, sim: Sim) -> None:
    question = desk.say()
    desk.reply(question, "text that is not recorded", uuid="u-1")
    desk.create(uuid="u-2")
    desk.client.get("/open-apis/nowhere")
    listed = sim.get("requests")
    assert listed["counts"] == {"token": 1, "reply": 1, "create": 1, "unknown": 1}
    assert listed["sends"] == 2
    reply = next(row for row in listed["items"] if row["kind"] == "reply")
    assert (reply["uuid"], reply["target_id"], reply["chat_id"]) == ("u-1", question, desk.chat)
    assert reply["request_bytes"] > 50
    assert reply["response_bytes"] > 100
    assert (reply["outcome"], reply["status"], reply["code"]) == ("accepted", 200, 0)
    assert "not recorded" not in json.dumps(listed)
    after = sim.get("requests", after=reply["id"], limit=1)
    assert [row["kind"] for row in after["items"]] == ["create"]
    assert after["next_after"] == after["items"][0]["id"]


@pytest.mark.parametrize("text", ['"\\ud800"', "[" * 5_000, "7", "", "null", '{"a":'])
def test_bodies_that_are_no_unicode_json_object_are_refused_and_counted(desk: Provider, sim: Sim, text: str) -> None:
    raw = '{"receive_id":"' + desk.chat + '","msg_type":"text","content":' + text + "}" if "ud800" in text else text
    answer = desk.client.post("/open-apis/im/v1/messages?receive_id_type=chat_id", content=raw.encode())
    assert (answer.status_code, answer.json()["code"]) == (400, 230001)
    assert sim.requests("create")[0]["outcome"] == "refused"
    assert sim.control.post("/_sim/send", content=raw.encode()).status_code == 400
