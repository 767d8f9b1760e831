"""One line of `frontdesk doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

OK: Final = "ok"
WRONG: Final = "wrong"
NOTE: Final = "note"  # nothing to judge, or off on purpose


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found in words, which setting to change and what to do. Never a secret."""

    check: str
    status: str
    says: str
    setting: str | None = None
    advice: str | None = None

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "check": self.check,
            "status": self.status,
            "says": self.says,
            "setting": self.setting,
            "advice": self.advice,
        }

    def line(self) -> str:
        """For people; a name from elsewhere must not move the cursor or colour the terminal."""
        parts = [f"{self.status:<5} {self.check}: {self.says}"]
        if self.setting:
            parts.append(f"setting: {self.setting}")
        if self.advice:
            parts.append(f"do: {self.advice}")
        return "".join(each if each.isprintable() else "\ufffd" for each in "; ".join(parts))


def ok(check: str, says: str) -> Finding:
    """It is as it should be."""
    return Finding(check, OK, says)


def note(check: str, says: str, setting: str | None = None, advice: str | None = None) -> Finding:
    """Neither good nor bad."""
    return Finding(check, NOTE, says, setting, advice)


def wrong(check: str, says: str, setting: str | None, advice: str) -> Finding:
    """It is broken; `setting` is None only where no setting changes it."""
    return Finding(check, WRONG, says, setting, advice)
