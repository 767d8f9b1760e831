"""A module's source, changed on its way in: no file is edited, and text that is no longer there is a loud failure.

Installed before the product is imported, it stands between the file and the compiler, for modules that `import` finds
and for those that are loaded by their path (the migrations).
"""

from __future__ import annotations

import dataclasses
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).resolve().parents[2] / "src" / "frontdesk"


class Stale(LookupError):
    """A mutant names text that its file does not hold exactly once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """In a file below `src/frontdesk`, `old`, which stands there one single time, becomes `new`."""

    file: str
    old: str
    new: str

    @property
    def path(self) -> Path:
        """Where the file is."""
        return SOURCE / self.file

    def applied_to(self, text: str) -> str:
        """The changed text. Raises `Stale`."""
        times = text.count(self.old)
        if times != 1:
            raise Stale(f"{self.file} holds {times} times: {self.old}")
        return text.replace(self.old, self.new)


def changed(path: Path, changes: Sequence[Change]) -> str:
    """The source of a file after those of `changes` that are meant for it."""
    text = path.read_text(encoding="utf-8")
    for change in changes:
        if change.path == path:
            text = change.applied_to(text)
    return text


def install(changes: Sequence[Change]) -> None:
    """From now on these files are loaded changed. Raises `Stale`, and `RuntimeError` where one is loaded already."""
    paths = {change.path: changed(change.path, changes) for change in changes}
    loaded = {str(getattr(module, "__file__", "")) for module in list(sys.modules.values())}
    late = [path.name for path in paths if str(path) in loaded]
    if late:
        raise RuntimeError(f"loaded before they could be changed: {late}")
    whole = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> types.CodeType | None:
        path = Path(self.get_filename(fullname)).resolve()
        text = paths.get(path)
        if text is None:
            return whole(self, fullname)
        compiled: types.CodeType = compile(text, str(path), "exec", dont_inherit=True)  # never from or into a cache
        return compiled

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
