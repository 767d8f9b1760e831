"""The chat page in a real browser: live without reloads, by keyboard, at 375 px, and without JavaScript."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulator.harness import Provider, Sim

CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


def opened(browser: Any, desk: Provider, **context: Any) -> tuple[Any, list[str]]:
    """A tab with the chat, and everything that went wrong on it."""
    page = browser.new_context(viewport={"width": 375, "height": 740}, **context).new_page()
    page.set_default_timeout(10_000)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.goto(f"{desk.sim.base}/?app={desk.app['app_id']}&person={desk.person['open_id']}")
    return page, problems


def last(sim: Sim) -> dict[str, Any]:
    return dict(sim.get("messages")["items"][-1])


def test_answers_appear_and_enter_sends_without_a_reload(browser: Any, desk: Provider, sim: Sim) -> None:
    page, problems = opened(browser, desk)
    page.evaluate("window.stayed = true")
    answer = desk.create("a live answer").json()["data"]["message_id"]
    page.locator("#rows").get_by_text("a live answer").wait_for()
    page.locator("#aim").wait_for()
    page.locator("#message").fill("line one")
    page.locator("#message").press("Shift+Enter")
    page.keyboard.type("line two")
    page.locator("#message").press("Enter")
    page.locator(".mine .bubble").wait_for()
    assert (last(sim)["text"], last(sim)["parent_id"]) == ("line one\nline two", answer)
    assert page.locator("#message").input_value() == ""
    assert page.evaluate("window.stayed") is True
    assert problems == []


def test_another_message_is_chosen_as_target_and_given_up(browser: Any, desk: Provider, sim: Sim) -> None:
    first = desk.create("the first").json()["data"]["message_id"]
    second = desk.create("the second").json()["data"]["message_id"]
    page, problems = opened(browser, desk)
    page.locator(f"#{first} a[data-reply]").focus()
    page.keyboard.press("Enter")
    assert page.locator("#target").input_value() == first
    assert "the first" in page.locator("#aim-quote").inner_text()
    desk.create("the third")
    page.locator("#rows").get_by_text("the third").wait_for()
    assert page.locator("#target").input_value() == first
    page.locator("#message").fill("to the first")
    page.locator("button.send").click()
    page.locator(".mine .bubble").wait_for()
    assert last(sim)["parent_id"] == first
    assert second != first
    assert page.locator("#target").input_value() not in (first, second)
    assert problems == []


def test_nothing_scrolls_sideways_at_375_px(browser: Any, desk: Provider, sim: Sim) -> None:
    desk.create("https://example.invalid/" + "x" * 300)
    sim.post("people", name="W" * 60, app_id=desk.app["app_id"])
    for context in ({}, {"java_script_enabled": False}):
        page, problems = opened(browser, desk, **context)
        for path in (None, "/apps", f"/message/{last(sim)['message_id']}"):
            if path is not None:
                page.goto(desk.sim.base + path)
            wide = page.locator("html").evaluate("node => node.scrollWidth") if not context else 375
            assert wide <= 375
        assert problems == []


def test_the_page_works_without_javascript(browser: Any, desk: Provider, sim: Sim) -> None:
    answer = desk.create("an answer").json()["data"]["message_id"]
    page, _ = opened(browser, desk, java_script_enabled=False)
    page.locator("#message").fill("plain form")
    page.locator("button.send").click()
    page.locator(".mine .bubble").wait_for()
    assert (last(sim)["text"], last(sim)["parent_id"]) == ("plain form", answer)
    page.locator(".mine").get_by_role("button", name="Recall").click()
    page.locator("#rows").get_by_text("This message was recalled").wait_for()
    assert last(sim)["deleted"] is True
