"""The test hooks of a real process refuse what they do not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from frontdesk.app.rehearsal import change_limits
from frontdesk.kernel import limits


def test_bounds_are_changed_only_by_name_and_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage's `limits` changes whole-number bounds of the product; an unknown name or another value changes none."""
    for name in ("PAGE_MAX", "SCAN_PAGE"):
        monkeypatch.setattr(limits, name, getattr(limits, name))
    change_limits(tmp_path)
    before = limits.PAGE_MAX
    for wrong in (
        '{"PAGE_MAX": 7, "NO_SUCH": 1}',
        '{"PAGE_MAX": 7, "SCAN_PAGE": "8"}',
        '{"annotations": 1}',
        "[1]",
        "{",
    ):
        (tmp_path / "limits").write_text(wrong)
        with pytest.raises(ValueError, match="limits"):
            change_limits(tmp_path)
        assert before == limits.PAGE_MAX
    (tmp_path / "limits").write_text('{"PAGE_MAX": 7, "SCAN_PAGE": 8}')
    change_limits(tmp_path)
    assert (limits.PAGE_MAX, limits.SCAN_PAGE) == (7, 8)
