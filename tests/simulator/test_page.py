"""The chat page through plain forms, as a browser without JavaScript uses it, and its guards."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import httpx2
import pytest

from tests.simulator.harness import Provider, Receiver, Sim


def fields(desk: Provider, **more: str) -> dict[str, str]:
    return {"app": desk.app["app_id"], "person": desk.person["open_id"], **more}


def send(desk: Provider, text: str, **more: str) -> httpx2.Response:
    return desk.sim.page.post("/send", data=fields(desk, text=text, **more))


def chat(desk: Provider, **query: str) -> str:
    answer = desk.sim.page.get("/", params={**fields(desk), **query})
    assert answer.status_code == 200
    return answer.text


def hidden(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" id="{name}" value="([^"]*)"', page)
    assert found
    return html.unescape(found[1])


def last(sim: Sim) -> dict[str, Any]:
    return dict(sim.get("messages")["items"][-1])


def test_an_empty_simulator_leads_to_an_app_a_person_and_a_chat(sim: Sim) -> None:
    assert "Start with an app" in sim.page.get("/").text
    made = sim.page.post("/apps", data={"name": "Front Desk"})
    assert (made.status_code, made.headers["location"]) == (303, "/apps")
    app = sim.get("apps")["items"][0]
    shown = sim.page.get("/apps").text
    assert app["encrypt_key"] in shown
    assert "Who is writing?" in sim.page.get("/").text
    added = sim.page.post("/people", data={"app": app["app_id"], "name": "Ada"})
    assert added.status_code == 303
    opened = sim.page.get(added.headers["location"])
    assert "Say hello to Front Desk" in opened.text
    assert "Ada" in opened.text


def test_the_box_aims_at_the_bots_newest_message(desk: Provider, sim: Sim) -> None:
    first = desk.create("first answer").json()["data"]["message_id"]
    assert hidden(chat(desk), "target") == first
    second = desk.create("second answer").json()["data"]["message_id"]
    page = chat(desk)
    assert hidden(page, "target") == second
    assert "Replying to Front Desk" in page
    sent = send(desk, "my reply", target=second)
    assert sent.status_code == 303
    assert sent.headers["location"].startswith("/?app=cli_")
    assert last(sim)["parent_id"] == second


def test_another_message_or_none_can_be_the_target(desk: Provider, sim: Sim) -> None:
    first = desk.create("first").json()["data"]["message_id"]
    second = desk.create("second").json()["data"]["message_id"]
    assert hidden(chat(desk, reply=first), "target") == first
    send(desk, "to the first", target=first)
    assert last(sim)["parent_id"] == first
    send(desk, "to nobody", target=second, as_new="1")
    assert last(sim)["parent_id"] is None


def test_a_quote_stands_above_the_reply(desk: Provider) -> None:
    question = desk.say("what is it?")
    desk.reply(question, "it is this")
    page = chat(desk)
    assert f'<a class="quote" href="#{question}"><b>You</b> what is it?</a>' in page


def test_own_messages_are_edited_and_recalled(desk: Provider, sim: Sim) -> None:
    send(desk, "tpyo")
    message = last(sim)["message_id"]
    page = chat(desk, edit=message)
    assert ">tpyo</textarea>" in page
    sim.page.post("/edit", data=fields(desk, message=message, text="typo"))
    assert last(sim)["text"] == "typo"
    assert "edited" in chat(desk)
    assert sim.page.post("/recall", data=fields(desk, message=message)).status_code == 303
    page = chat(desk)
    assert "This message was recalled" in page
    assert "typo" not in page
    bot = desk.create().json()["data"]["message_id"]
    assert sim.page.post("/recall", data=fields(desk, message=bot)).status_code == 400


def test_received_text_opens_in_full_and_files_download(desk: Provider, sim: Sim) -> None:
    long = "a line\n" * 600
    message = desk.create(long).json()["data"]["message_id"]
    page = sim.page.get(f"/message/{message}").text
    assert page.count("a line") >= 600
    form = {"file_type": "stream", "file_name": "报告.md"}
    files = {"file": ("x", b"# report", "text/html")}
    key = desk.client.post("/open-apis/im/v1/files", data=form, files=files).json()["data"]["file_key"]
    message = desk.create(msg_type="file", content=json.dumps({"file_key": key})).json()["data"]["message_id"]
    assert f'href="/download/{message}"' in chat(desk)
    answer = sim.page.get(f"/download/{message}")
    assert answer.content == b"# report"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''%E6%8A%A5%E5%91%8A.md"
    assert sim.page.get("/download/om_none").status_code == 404


def test_the_delivery_state_is_shown_and_a_push_can_be_repeated(desk: Provider, receiver: Receiver, sim: Sim) -> None:
    receiver.answer = lambda _: (503, b"")
    sim.control.put(f"/_sim/apps/{desk.app['app_id']}/callback", json={"url": receiver.url})
    desk.say("hello", wait=True)
    page = chat(desk)
    assert "Not accepted yet (answered 503). Waiting for redelivery at" in page
    push = sim.get("pushes")["items"][0]["push_id"]
    assert push in page
    receiver.answer = lambda _: (200, b"")
    assert sim.page.post("/push-again", data=fields(desk, push=push)).status_code == 303
    assert "Delivered to Frontdesk: 200 after 2 tries" in chat(desk)
    desk.say("again", wait=True)
    assert "Delivered to Frontdesk: 200 after 1 try" in chat(desk)
    sim.post("clock", advance_ms=86_400_000)
    assert len(receiver.received) == 4  # URL check, two tries, one: the repeated push is not due again


def test_a_message_whose_answer_was_dropped_is_shown(desk: Provider, sim: Sim) -> None:
    sim.faults({"match": {"route": "send"}, "accept_then_drop": True})
    with pytest.raises(httpx2.RemoteProtocolError):
        desk.create("a lost answer")
    page = chat(desk)
    assert "a lost answer" in page
    assert "its sender was never told" in page


def test_everything_from_outside_is_escaped(sim: Sim) -> None:
    evil = "<script>alert('x')</script>\"&"
    app = sim.post("apps", name=evil)
    person = sim.post("people", name=evil, app_id=app["app_id"])
    sim.post("send", app_id=app["app_id"], person=evil, text=evil)
    query = {"app": app["app_id"], "person": person["open_id"]}
    live = sim.page.get("/live", params=query).json()
    pages = [sim.page.get("/", params=query).text, sim.page.get("/apps").text, live["html"], live["chats"]]
    pages.append(sim.page.get("/message/" + last(sim)["message_id"]).text)
    for page in pages:
        assert "<script>alert" not in page
        assert "&lt;script&gt;" in page


def test_the_policy_allows_no_foreign_code_and_no_framing(desk: Provider, sim: Sim) -> None:
    answer = sim.page.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert " style=" not in answer.text
    assert "onclick" not in answer.text
    assert not re.search(r'(?:src|href)="(?:https?:)?//', answer.text)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_forms_of_other_pages_do_nothing(desk: Provider, sim: Sim, headers: dict[str, str]) -> None:
    answer = sim.page.post("/send", data=fields(desk, text="forged"), headers=headers)
    assert answer.status_code == 403
    assert sim.get("messages")["items"] == []
    own = sim.page.post("/send", data=fields(desk, text="mine"), headers={"Origin": sim.base})
    assert own.status_code == 303


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]:80", ""])
@pytest.mark.parametrize("path", ["/", "/_sim/apps", "/open-apis/bot/v3/info"])
def test_only_loopback_host_names_are_served(sim: Sim, host: str, path: str) -> None:
    assert sim.control.get(path, headers={"Host": host}).status_code == 421
    assert sim.page.get("/", headers={"Host": "localhost:1"}).status_code == 200


def test_the_live_part_answers_304_until_something_changes(desk: Provider, sim: Sim) -> None:
    first = sim.page.get("/live", params=fields(desk))
    tag = {"If-None-Match": first.headers["etag"]}
    assert sim.page.get("/live", params=fields(desk), headers=tag).status_code == 304
    bot = desk.create("news").json()["data"]["message_id"]
    second = sim.page.get("/live", params=fields(desk), headers=tag)
    assert "news" in second.json()["html"]
    assert second.json()["target"] == bot


def test_chinese_browsers_get_chinese(desk: Provider, sim: Sim) -> None:
    page = sim.page.get("/", headers={"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"}).text
    assert '<html lang="zh">' in page
    assert "向 Front Desk 打个招呼" in page
    assert '<html lang="en">' in sim.page.get("/", headers={"Accept-Language": "fr, en;q=0.5, zh;q=0.4"}).text


def test_a_link_by_name_opens_a_chat_and_unknown_ones_are_404(desk: Provider, sim: Sim) -> None:
    assert "Ada – Front Desk" in sim.page.get("/", params={"app": "Front Desk", "person": "Ada"}).text
    assert sim.page.get("/", params={"app": "Front Desk", "person": "Bo"}).status_code == 404
    assert sim.page.get("/", params={"app": "Nothing"}).status_code == 404


def test_every_visible_input_has_a_label(desk: Provider, sim: Sim) -> None:
    desk.create("hello")
    for path in ("/", "/apps"):
        page = sim.page.get(path).text
        labels = set(re.findall(r'<label[^>]* for="([^"]+)"', page))
        inputs = re.findall(r"<(?:input|textarea)\b[^>]*>", page)
        visible = [tag for tag in inputs if 'type="hidden"' not in tag]
        assert visible
        for tag in visible:
            found = re.search(r'\bid="([^"]+)"', tag)
            assert found, tag
            assert found[1] in labels, tag


def test_forms_that_are_too_large_or_empty_are_refused(desk: Provider, sim: Sim) -> None:
    assert send(desk, "x" * 300_000).status_code == 413
    assert send(desk, "   ").status_code == 400
    assert sim.get("messages")["items"] == []
