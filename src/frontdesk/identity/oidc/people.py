"""Users by an issuer's word: found, made at their first sign-in where that is wanted, or added by hand before it."""

from __future__ import annotations

from typing import Any

from frontdesk.identity import store
from frontdesk.identity.model import Actor, User, normal_email
from frontdesk.identity.oidc.model import OidcPerson, subject_of
from frontdesk.identity.tables import USERS
from frontdesk.kernel.errors import Defect, Problem, invalid
from frontdesk.kernel.limits import EMAIL_CHARS_MAX, NAME_CHARS_MAX, OIDC_SUBJECT_CHARS_MAX
from frontdesk.storage.tx import Tx


def find_person(tx: Tx, person: OidcPerson) -> Actor | None:
    """The user as an OIDC login lets them act, read now; None for an unknown subject.

    Never a platform administrator, whatever the token claims and whatever the row says. Raises `membership_required`
    for a disabled user.
    """
    row = store.find_user_by_subject(tx, person.subject)
    if row is None:
        return None
    if row["disabled_at"] is not None:
        raise Problem("membership_required")
    return Actor(row["id"], row["subject"], row["display_name"], row["email"], "oidc", is_platform_admin=False)


def provision_person(tx: Tx, person: OidcPerson) -> None:
    """Make the user of a first sign-in, a member of nothing. Idempotent, also between processes.

    Later sign-ins change nothing of the row: name and language are the person's own by then.
    """
    if store.find_user_by_subject(tx, person.subject) is None:
        _insert(tx, person.subject, person.display_name, person.email)


def add_person(tx: Tx, issuer: str, sub: str, *, display_name: str, email: str | None = None) -> tuple[User, bool]:
    """Make the user of somebody who may sign in, before they do: for administration on the machine itself.

    The user, and whether it was made now; one that is there stays as it is, also where it is disabled. Raises
    `request_invalid` for a text out of bounds.
    """
    if not sub or len(sub) > OIDC_SUBJECT_CHARS_MAX or not sub.isprintable():
        raise invalid("subject", "out of bounds")
    if not display_name.strip() or len(display_name) > NAME_CHARS_MAX:
        raise invalid("display_name", "out of bounds")
    address = normal_email(email or "")
    if len(address) > EMAIL_CHARS_MAX:
        raise invalid("email", "out of bounds")
    subject = subject_of(issuer, sub)
    made = _insert(tx, subject, display_name.strip(), address) is not None
    row = store.find_user_by_subject(tx, subject)
    if row is None:
        raise Defect("a user row was refused by something else than its subject")
    return store.user_of(row), made


def _insert(tx: Tx, subject: str, display_name: str, email: str) -> str | None:
    """The new user's id, or None where another transaction was first."""
    values: dict[str, Any] = {"subject": subject, "email": normal_email(email), "display_name": display_name}
    return store.insert_row(tx, USERS, "usr", {**values, "is_platform_admin": False})
