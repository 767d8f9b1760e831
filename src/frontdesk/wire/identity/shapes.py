"""Shapes that several nouns of identity share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from frontdesk.kernel.limits import EMAIL_CHARS_MAX, PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN
from frontdesk.wire.model import Clean, Request, Trim

Username = Annotated[str, Trim, Clean, Field(min_length=1, max_length=255, pattern=r"^[^\s:/]+$")]
# As typed: a password keeps its blanks. A lone surrogate or NUL is no character of any keyboard.
Password = Annotated[str, Clean, Field(min_length=PASSWORD_CHARS_MIN, max_length=PASSWORD_CHARS_MAX)]
Email = Annotated[str, Trim, Clean, Field(min_length=3, max_length=EMAIL_CHARS_MAX, pattern=r"^[^@\s]+@[^@\s]+$")]
Locale = Literal["zh", "en"]
Role = Literal["admin", "maintainer", "operator", "viewer"]
Access = Literal["members", "administrators"]
AuthMethod = Literal["local", "bootstrap", "oidc"]
RunnerName = Annotated[str, Trim, Clean, Field(min_length=1, max_length=64)]


def absent() -> Any:
    """Stands for a key that was not sent; never read, because only sent keys are."""
    return None


class Changes(Request):
    """What to change; a key left out stays as it is, and a body without any key is refused."""

    @model_validator(mode="after")
    def _something(self) -> Changes:
        if not self.model_fields_set:
            raise ValueError("nothing to change")
        return self

    def changes(self) -> dict[str, Any]:
        """The keys that were sent, with their values."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}
