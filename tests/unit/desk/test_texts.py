"""What leaves in chats: tags that ping, and the fixed texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontdesk.desk.outbox import templates
from frontdesk.desk.outbox.neutral import neutralise
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.codes import ROW_CODES, RUNNER_CODES


@pytest.mark.spec("DESK-170")
@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        ('<at user_id="all">', '＜at user_id="all">'),
        ('<AT user_id="all">', '＜AT user_id="all">'),
        ("<At\tx>", "＜At\tx>"),
        ("<at\nuser_id=1>", "＜at\nuser_id=1>"),
        ("<at/>", "＜at/>"),
        ("<at>", "＜at>"),
        ("<at", "＜at"),
        ("hi </at>!", "hi ＜/at>!"),
        ("</A>", "＜/A>"),
        ('<a href="https://e.org">x</a>', '＜a href="https://e.org">x＜/a>'),
        ("<<at>>", "<＜at>>"),
        ("a < b", "a < b"),
        ("a <b", "a <b"),
        ("<atlas>", "<atlas>"),
        ("<address>", "<address>"),
        ("</attic>", "</attic>"),
        ("< at>", "< at>"),
        ("if (x<a) { y = [1]; }", "if (x<a) { y = [1]; }"),
        ("vector<int> v; x << 2; a<=b", "vector<int> v; x << 2; a<=b"),
        ("＜at>", "＜at>"),
    ],
)
def test_tags_that_ping_or_link_lose_their_bracket_and_other_text_stays(text: str, leaves: str) -> None:
    """Every opening or closing `at` or `a` tag in any letter case leaves with `＜`; anything else leaves unchanged."""
    assert neutralise(text) == leaves


@given(st.text(alphabet="<>/atAT ='\"\n＜x"))
def test_neutralising_twice_changes_nothing_and_never_anything_but_the_bracket(text: str) -> None:
    once = neutralise(text)
    assert neutralise(once) == once
    assert once.replace("＜", "<") == text.replace("＜", "<")


@pytest.mark.parametrize("language", ["zh", "en"])
def test_titles_and_summaries_are_neutralised_in_fixed_texts(language: str) -> None:
    assert "<at" not in templates.activation(language, '<at user_id="all">', 0)
    assert "<at" not in templates.proposal_notice(language, '<at user_id="all">', "http://x")


def test_fixed_texts_read_as_10_4_says() -> None:
    until = 1_767_225_600 * SECOND
    assert templates.activation("en", "Quarter", until) == (
        "You can now answer here: reply to this message to continue ‘Quarter’. Valid until 2026-01-01 00:00 UTC."
    )
    assert templates.activation("zh", "季度", until) == (
        "现在可以在这里回答：回复本消息即可继续“季度”。有效期至 2026-01-01 00:00 UTC。"
    )
    assert templates.proposal_notice("en", "Buy", "http://x") == "Buy — needs a decision in Frontdesk: http://x."
    assert templates.proposal_notice("zh", "买", "http://x") == "买 — 需要在 Frontdesk 中决定：http://x。"


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("code", sorted(RUNNER_CODES))
def test_a_failure_notice_gives_the_sentence_of_its_code_and_asks_again(language: str, code: str) -> None:
    text = templates.failure_notice(language, code)
    assert ROW_CODES[code][language == "zh"] in text
    assert text.endswith("请重新提问。" if language == "zh" else "Please ask again.")
