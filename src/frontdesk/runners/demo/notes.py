"""The three notes that brief the demo runner until a roster does. Read once, when the process is put together."""

from __future__ import annotations

from importlib.resources import files

from frontdesk.desk.conversations.runner import BriefingNote

NOTES = ("what-is-frontdesk", "who-may-answer", "what-happens-on-failure")


def load_notes() -> tuple[BriefingNote, ...]:
    """The package's notes; each begins with its title as a Markdown heading. Reads files: never during a turn."""
    folder = files("frontdesk.runners.demo") / "notes"
    return tuple(_note(name, (folder / f"{name}.md").read_text(encoding="utf-8")) for name in NOTES)


def _note(name: str, text: str) -> BriefingNote:
    heading, _, body = text.partition("\n")
    return BriefingNote(heading.removeprefix("# ").strip(), body.strip(), f"notes/{name}.md", 1)
