"""The demo runner: no model, only search results, said as such in the first line."""

from __future__ import annotations

from frontdesk.runners.demo.notes import load_notes
from frontdesk.runners.demo.runner import DemoRunner

__all__ = ["DemoRunner", "load_notes"]
