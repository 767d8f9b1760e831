"""A browser's session: the cookie that carries it, and what a write by cookie must show besides (desk.md 2.1, 2.4).

A browser sends a cookie along whoever made it ask. So a write needs two things another site cannot supply: an `Origin`
that is this host's, and the session's form token, in a header or in the form itself.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from frontdesk.identity.model import SESSION_PREFIX
from frontdesk.kernel.clock import SECOND
from frontdesk.kernel.limits import FORM_FIELDS_MAX, SESSION_ABSOLUTE_US

Scope = MutableMapping[str, Any]

SESSION_COOKIE: Final = "frontdesk_session"
CSRF_HEADER: Final = "x-csrf-token"
CSRF_FIELD: Final = "csrf_token"
_COOKIE: Final = SESSION_COOKIE.encode("ascii")
_SESSION: Final = SESSION_PREFIX.encode("ascii")  # a cookie carries a session, never a token
_FORM: Final = b"application/x-www-form-urlencoded"


def session_of(scope: Scope) -> bytes | None:
    """What a session cookie of the request carries, if it looks like a session at all."""
    for value in _headers(scope, b"cookie"):
        for pair in value.split(b";"):
            key, _, text = pair.strip().partition(b"=")
            if key == _COOKIE and text.startswith(_SESSION):
                return text
    return None


def set_cookie(token: str, *, secure: bool) -> str:
    """The `Set-Cookie` of a new session. Scripts cannot read it, other sites' posts do not carry it."""
    return _cookie(token, SESSION_ABSOLUTE_US // SECOND, secure=secure)


def clear_cookie(*, secure: bool) -> str:
    """The `Set-Cookie` that takes a session's cookie back."""
    return _cookie("", 0, secure=secure)


def _cookie(value: str, age_s: int, *, secure: bool) -> str:
    end = "; Secure" if secure else ""
    return f"{SESSION_COOKIE}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax{end}"


def same_site(scope: Scope, *, secure: bool) -> bool:
    """Whether the request names exactly one origin, and that is the host it was sent to; `secure`: over https."""
    origins = [value.decode("latin-1") for value in _headers(scope, b"origin")]
    hosts = [value.decode("latin-1").lower() for value in _headers(scope, b"host")]
    if len(origins) != 1 or len(hosts) != 1:
        return False
    try:
        parts = urlsplit(origins[0])
    except ValueError:  # no address at all, as `http://[`
        return False
    return parts.netloc.lower() == hosts[0] and (parts.scheme == "https" or not secure)


def csrf_header(scope: Scope) -> str | None:
    """The form token in the request's header; None where there is none or more than one."""
    found = _headers(scope, CSRF_HEADER.encode("ascii"))
    return found[0].decode("latin-1") if len(found) == 1 else None


def is_form(scope: Scope) -> bool:
    """Whether the body is a form whose token can be read. Not multipart: an upload sends the header."""
    found = _headers(scope, b"content-type")
    return len(found) == 1 and found[0].partition(b";")[0].strip().lower() == _FORM


def csrf_field(body: bytes) -> str | None:
    """The form token among a form's fields; None where there is none, more than one, or no form."""
    try:
        fields = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX)
    except ValueError:
        return None
    found = [value for name, value in fields if name == CSRF_FIELD]
    return found[0] if len(found) == 1 else None


def _headers(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]
