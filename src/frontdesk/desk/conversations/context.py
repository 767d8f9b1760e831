"""What a conversation is about: at most five named scalars, normalised and hashed (desk.md 3, check value V7). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from frontdesk.kernel.canonical import canonical_digest
from frontdesk.kernel.errors import Problem
from frontdesk.kernel.limits import CONTEXT_VALUE_CHARS_MAX

if TYPE_CHECKING:
    from frontdesk.storage.tx import Tx

CONTEXT_KEYS: Final = ("project_id", "workflow_id", "run_id", "source_id", "surface")


@dataclass(frozen=True, slots=True)
class RunScope:
    """Where a run belongs, as the context's proof needs it."""

    run_id: str
    workspace_id: str
    project_id: str
    workflow_id: str
    archived: bool


RunFinder = Callable[["Tx", str], RunScope | None]
"""How this room asks for a run. The runs room stands above this one, so its look-up is handed in."""


def normalise_context(raw: Mapping[str, Any]) -> dict[str, str]:
    """The context with absent keys left out and its rules checked; ownership is proven elsewhere.

    Null means absent. Raises `conversation_context_invalid` for an unknown key, a value that is not a text of 1..255
    characters, a source together with a project, a workflow without its project or a run without its workflow.
    """
    context: dict[str, str] = {}
    for key, value in raw.items():
        if key not in CONTEXT_KEYS:
            raise Problem("conversation_context_invalid")
        if value is None:
            continue
        if not isinstance(value, str) or not 1 <= len(value) <= CONTEXT_VALUE_CHARS_MAX or not storable(value):
            raise Problem("conversation_context_invalid")
        context[key] = value
    if "source_id" in context and "project_id" in context:
        raise Problem("conversation_context_invalid")
    if "workflow_id" in context and "project_id" not in context:
        raise Problem("conversation_context_invalid")
    if "run_id" in context and "workflow_id" not in context:
        raise Problem("conversation_context_invalid")
    return context


def context_hash(context: Mapping[str, str]) -> str:
    """Digest of a normalised context (V7): the frozen identity that a grant compares with."""
    return canonical_digest({"schema": "conversation-context-v1", "context": dict(context)})


def storable(value: str) -> bool:
    """Whether a text can name anything in a database."""
    # A lone surrogate has no UTF-8 form and NUL no place in PostgreSQL's text: neither names anything that exists.
    return "\x00" not in value and not any(0xD800 <= ord(character) <= 0xDFFF for character in value)
