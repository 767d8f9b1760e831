"""Chat texts (desk.md 10.4), versioned: a stored snapshot names the version it was rendered with."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from frontdesk.desk.outbox.neutral import neutralise
from frontdesk.kernel.codes import sentence

TEMPLATE_VERSION: Final = 1


def _time(instant_us: int) -> str:
    return datetime.fromtimestamp(instant_us / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def activation(language: str, title: str, expires_at: int) -> str:
    """Tells the person that replies are now possible, and until when."""
    title = neutralise(title)
    if language == "zh":
        return f"现在可以在这里回答：回复本消息即可继续“{title}”。有效期至 {_time(expires_at)}。"
    return f"You can now answer here: reply to this message to continue ‘{title}’. Valid until {_time(expires_at)}."


def proposal_notice(language: str, summary: str, link: str) -> str:
    """Summary and console link of an open proposal; it can't be decided by message."""
    summary = neutralise(summary)
    if language == "zh":
        return f"{summary} — 需要在 Frontdesk 中决定：{link}。"
    return f"{summary} — needs a decision in Frontdesk: {link}."


def failure_notice(language: str, code: str) -> str:
    """Says that a question was not answered, and why in the fixed sentence of the code; nothing of the turn itself."""
    if language == "zh":
        return f"未能回答：{sentence(code, 'zh')}请重新提问。"
    return f"This could not be answered: {sentence(code, 'en')} Please ask again."
