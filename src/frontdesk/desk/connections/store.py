"""Statements over installations, challenges and bindings: one function each, no rule beyond its WHERE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, and_, bindparam, case, or_, select, update
from sqlalchemy.exc import IntegrityError

from frontdesk.desk.connections.machine import INSTALLATION
from frontdesk.desk.connections.model import CONNECTION_CAUSES, Binding, Challenge, Installation
from frontdesk.desk.connections.tables import BINDINGS, CHALLENGES, INSTALLATIONS
from frontdesk.kernel import limits
from frontdesk.kernel.machine import Lease
from frontdesk.storage.conflict import try_insert
from frontdesk.storage.guarded import Take, lease_of, note, renew, take_free, transition
from frontdesk.storage.paging import page
from frontdesk.storage.prepared import ById, Prepared
from frontdesk.storage.tx import Tx, for_share, for_update

CHANGEABLE = tuple(state for state in INSTALLATION.states if state not in INSTALLATION.terminal())


# ---------------------------------------------------------------------------------------------- installations


def _installation(row: Mapping[Any, Any]) -> Installation:
    values: dict[str, Any] = {str(name): value for name, value in row.items()}
    return Installation(workspace_id=values.pop("workspace"), **values)


_INSTALLATION = ById(INSTALLATIONS)


def find_installation(tx: Tx, installation_id: str, *, share: bool = False) -> Installation | None:
    """One installation of any workspace; with `share` a racing change is waited for (PostgreSQL)."""
    row = _INSTALLATION.find(tx, installation_id, share=share)
    return None if row is None else installation_of(row)


def prepared_installation() -> Prepared:
    """`find_installation(share=True)` as a part of a bundled reading: binds `row_id`, read by `installation_of`."""
    return _INSTALLATION.held


def installation_of(row: dict[str, Any]) -> Installation:
    """The value of a prepared row, which it uses up."""
    return Installation(workspace_id=row.pop("workspace"), **row)


def find_installation_by_app(
    tx: Tx, workspace_id: str, channel: str, tenant_key: str, app_id: str
) -> Installation | None:
    """The installation that holds this app in this workspace."""
    row = tx.find(
        select(INSTALLATIONS).where(
            INSTALLATIONS.c.workspace == workspace_id,
            INSTALLATIONS.c.channel == channel,
            INSTALLATIONS.c.tenant_key == tenant_key,
            INSTALLATIONS.c.app_id == app_id,
        )
    )
    return None if row is None else _installation(row)


def list_installations(
    tx: Tx, workspace_id: str, limit: int, after: tuple[int, str] | None
) -> tuple[list[Installation], tuple[int, str] | None]:
    """A page of a workspace's installations, newest first."""
    statement = select(INSTALLATIONS).where(INSTALLATIONS.c.workspace == workspace_id)
    rows, following = page(tx, INSTALLATIONS, statement, limit, after)
    return [_installation(row) for row in rows], following


def list_active(tx: Tx, limit: int) -> list[Installation]:
    """Active installations of every workspace, oldest first."""
    column = INSTALLATIONS.c
    statement = select(INSTALLATIONS).where(column.status == "active").order_by(column.created_at, column.id)
    return [_installation(row) for row in tx.rows(statement.limit(limit))]


def try_insert_installation(tx: Tx, values: Mapping[str, Any]) -> bool:
    """Insert an active installation; False where a constraint refused it."""
    return try_insert(
        tx,
        INSTALLATIONS,
        {"status": "active", "config_revision": 1, "created_at": tx.now, "updated_at": tx.now, **values},
    )


def try_change_installation(
    tx: Tx, installation_id: str, event: str | None, values: Mapping[str, Any]
) -> Installation | None:
    """Set `values`, with `event` the status too, and raise the revision; None where it is revoked or absent."""
    changes = {**values, "config_revision": INSTALLATIONS.c.config_revision + 1}
    if event is not None:
        row = transition(tx, INSTALLATIONS, INSTALLATION, event, installation_id, values=changes)
    else:
        row = tx.find(
            update(INSTALLATIONS)
            .where(INSTALLATIONS.c.id == installation_id, INSTALLATIONS.c.status.in_(CHANGEABLE))
            .values(changes | {"updated_at": tx.now})
            .returning(INSTALLATIONS)
        )
    return None if row is None else _installation(row)


def try_revoke_installation(tx: Tx, installation_id: str, revoked_by: str) -> Installation | None:
    """End an installation for good; None where it is ended already or absent."""
    ended = {"revoked_at": tx.now, "revoked_by": revoked_by}
    row = transition(tx, INSTALLATIONS, INSTALLATION, "revoke", installation_id, values=ended)
    return None if row is None else _installation(row)


def try_erase_secrets(tx: Tx, installation_id: str) -> Installation | None:
    """Drop every ciphertext of a revoked installation; None where none is left or it is not revoked."""
    column = INSTALLATIONS.c
    row = tx.find(
        update(INSTALLATIONS)
        .where(
            column.id == installation_id,
            column.status == "revoked",
            or_(
                column.app_secret_ct.is_not(None),
                column.encrypt_key_ct.is_not(None),
                column.verification_token_ct.is_not(None),
            ),
        )
        .values(app_secret_ct=None, encrypt_key_ct=None, verification_token_ct=None, updated_at=tx.now)
        .returning(INSTALLATIONS)
    )
    return None if row is None else _installation(row)


def _of_revision(installation_id: str, config_revision: int | None) -> ColumnElement[bool]:
    same = INSTALLATIONS.c.id == installation_id
    return same if config_revision is None else and_(same, INSTALLATIONS.c.config_revision == config_revision)


def note_reached(tx: Tx, installation_id: str, config_revision: int | None) -> bool:
    """Clear a connection cause and set `last_ready_at`; touches no row without a cause and with a fresh time."""
    column = INSTALLATIONS.c
    caused = column.last_error_code.in_(CONNECTION_CAUSES)
    stale = or_(column.last_ready_at.is_(None), column.last_ready_at <= tx.now - limits.CONNECTED_NOTE_US)
    statement = (
        update(INSTALLATIONS)
        .where(_of_revision(installation_id, config_revision), or_(caused, stale))
        .values(
            last_ready_at=case((stale, tx.now), else_=column.last_ready_at),
            last_error_code=case((caused, None), else_=column.last_error_code),
            last_error_at=case((caused, None), else_=column.last_error_at),
        )
    )
    return tx.execute(statement).rowcount == 1


def note_cause(tx: Tx, installation_id: str, code: str, config_revision: int | None) -> bool:
    """Keep a connection cause and since when it stands; touches no row where it stands already."""
    column = INSTALLATIONS.c
    statement = (
        update(INSTALLATIONS)
        .where(
            _of_revision(installation_id, config_revision),
            or_(column.last_error_code.is_(None), column.last_error_code != code),
        )
        .values(last_error_code=code, last_error_at=tx.now)
    )
    return tx.execute(statement).rowcount == 1


def set_bot_open_id(tx: Tx, installation_id: str, bot_open_id: str, config_revision: int | None) -> bool:
    """Keep the provider's id of the app's own bot; touches no row where it is known."""
    known = INSTALLATIONS.c.bot_open_id
    statement = (
        update(INSTALLATIONS)
        .where(_of_revision(installation_id, config_revision), or_(known.is_(None), known != bot_open_id))
        .values(bot_open_id=bot_open_id)
    )
    return tx.execute(statement).rowcount == 1


# ---------------------------------------------------------------------------------------------- listening


_AS_CONFIGURED = {"updated_at": INSTALLATIONS.c.updated_at}


def try_take_listening(tx: Tx, installation_id: str, owner: str, expires_at: int) -> Lease | None:
    """Take the listener's lease; None while another's is live, and where the installation is revoked or absent."""
    take = Take(owner, expires_at)
    row = take_free(tx, INSTALLATIONS, CHANGEABLE, installation_id, take, values=_AS_CONFIGURED)
    return None if row is None else lease_of(row)


def renew_listening(tx: Tx, installation_id: str, lease: Lease, owner: str, expires_at: int) -> bool:
    """Extend a live listener's lease under its new owner text; False where it is lost or the row is revoked."""
    values = {"lease_owner": owner, **_AS_CONFIGURED}
    return renew(tx, INSTALLATIONS, CHANGEABLE, installation_id, lease, expires_at=expires_at, values=values)


def release_listening(tx: Tx, installation_id: str, lease: Lease) -> bool:
    """Give the lease up, revoked or not; its expiry becomes the moment of that. False where it is another's."""
    values = {"lease_owner": None, "lease_expires_at": tx.now, **_AS_CONFIGURED}
    return note(tx, INSTALLATIONS, INSTALLATION.states, installation_id, lease, values=values)


# ---------------------------------------------------------------------------------------------- challenges


def _challenge(row: RowMapping) -> Challenge:
    return Challenge(
        id=row["id"],
        installation_id=row["installation"],
        user_id=row["user"],
        code_digest=row["code_digest"],
        expires_at=row["expires_at"],
        consumed_at=row["consumed_at"],
    )


def try_insert_challenge(tx: Tx, values: Mapping[str, Any]) -> bool:
    """Insert an open challenge; False where a constraint refused it."""
    return try_insert(tx, CHALLENGES, {"created_at": tx.now, "updated_at": tx.now, **values})


def find_challenge_for_update(tx: Tx, installation_id: str, digest: str) -> Challenge | None:
    """The challenge of a code in this installation, open or not. A racing use of it is waited for (PostgreSQL)."""
    row = tx.find(
        for_update(
            select(CHALLENGES).where(CHALLENGES.c.code_digest == digest, CHALLENGES.c.installation == installation_id)
        )
    )
    return None if row is None else _challenge(row)


def try_consume_challenge(tx: Tx, challenge_id: str) -> bool:
    """Consume an open challenge; False where another use came first or its time is over."""
    column = CHALLENGES.c
    statement = (
        update(CHALLENGES)
        .where(column.id == challenge_id, column.consumed_at.is_(None), column.expires_at > tx.now)
        .values(consumed_at=tx.now, updated_at=tx.now)
    )
    return tx.execute(statement).rowcount == 1


# ---------------------------------------------------------------------------------------------- bindings


def _binding(row: Mapping[Any, Any]) -> Binding:
    values: dict[str, Any] = {str(name): value for name, value in row.items()}
    return Binding(installation_id=values.pop("installation"), user_id=values.pop("user"), **values)


_BINDING = ById(BINDINGS)


def find_binding(tx: Tx, binding_id: str, *, share: bool = False) -> Binding | None:
    """One binding of any installation; with `share` a racing change is waited for (PostgreSQL)."""
    row = _BINDING.find(tx, binding_id, share=share)
    return None if row is None else _binding(row)


def find_binding_in_workspace(tx: Tx, workspace_id: str, binding_id: str) -> Binding | None:
    """One binding of an installation of this workspace."""
    row = tx.find(
        select(BINDINGS)
        .join(INSTALLATIONS, BINDINGS.c.installation == INSTALLATIONS.c.id)
        .where(BINDINGS.c.id == binding_id, INSTALLATIONS.c.workspace == workspace_id)
    )
    return None if row is None else _binding(row)


_OF_SENDER = select(BINDINGS).where(
    BINDINGS.c.installation == bindparam("installation_id"),
    BINDINGS.c.tenant_key == bindparam("tenant_key"),
    BINDINGS.c.sender_id == bindparam("sender_id"),
    BINDINGS.c.active,
)
_FIND_OF_SENDER = Prepared(_OF_SENDER)
_HOLD_OF_SENDER = Prepared(for_share(_OF_SENDER))


def find_active_binding_of_sender(
    tx: Tx, installation_id: str, tenant_key: str, sender_id: str, *, share: bool = False
) -> Binding | None:
    """The active binding of a remote account."""
    prepared = _HOLD_OF_SENDER if share else _FIND_OF_SENDER
    row = prepared.find(tx, {"installation_id": installation_id, "tenant_key": tenant_key, "sender_id": sender_id})
    return None if row is None else _binding(row)


def prepared_binding_of_sender() -> Prepared:
    """`find_active_binding_of_sender` as a part of a bundled reading: `installation_id`, `tenant_key`, `sender_id`."""
    return _FIND_OF_SENDER


def binding_of(row: dict[str, Any]) -> Binding:
    """The value of a prepared row, which it uses up."""
    return Binding(installation_id=row.pop("installation"), user_id=row.pop("user"), **row)


def find_active_binding_of_user(tx: Tx, installation_id: str, user_id: str) -> Binding | None:
    """The active binding of a user in an installation."""
    row = tx.find(
        select(BINDINGS).where(
            BINDINGS.c.installation == installation_id, BINDINGS.c.user == user_id, BINDINGS.c.active
        )
    )
    return None if row is None else _binding(row)


def find_shown_binding(tx: Tx, installation_id: str, user_id: str) -> Binding | None:
    """A user's active binding in an installation, else the inactive one that changed last."""
    row = tx.find(
        select(BINDINGS)
        .where(BINDINGS.c.installation == installation_id, BINDINGS.c.user == user_id)
        .order_by(BINDINGS.c.active.desc(), BINDINGS.c.updated_at.desc(), BINDINGS.c.id.desc())
        .limit(1)
    )
    return None if row is None else _binding(row)


def find_binding_of_pair(tx: Tx, installation_id: str, user_id: str, tenant_key: str, sender_id: str) -> Binding | None:
    """The row of this user with this account, active or not; there is at most one."""
    row = tx.find(
        select(BINDINGS).where(
            BINDINGS.c.installation == installation_id,
            BINDINGS.c.user == user_id,
            BINDINGS.c.tenant_key == tenant_key,
            BINDINGS.c.sender_id == sender_id,
        )
    )
    return None if row is None else _binding(row)


def try_insert_binding(tx: Tx, values: Mapping[str, Any]) -> bool:
    """Insert an active binding of revision 1; False where account or user is bound already."""
    return try_insert(
        tx, BINDINGS, {"active": True, "revision": 1, "created_at": tx.now, "updated_at": tx.now, **values}
    )


def try_activate_binding(tx: Tx, binding_id: str, chat_id: str) -> bool:
    """Make an inactive binding active again, one revision higher; False where account or user is bound meanwhile.

    The partial unique indexes decide. The savepoint keeps the transaction usable after their refusal.
    """
    column = BINDINGS.c
    statement = (
        update(BINDINGS)
        .where(column.id == binding_id, column.active.is_(False))
        .values(
            active=True,
            chat_id=chat_id,
            revision=column.revision + 1,
            revoked_at=None,
            revoked_by=None,
            updated_at=tx.now,
        )
    )
    try:
        with tx.conn.begin_nested():
            return tx.execute(statement).rowcount == 1
    except IntegrityError:
        return False


def try_move_binding(tx: Tx, binding_id: str, chat_id: str) -> Binding | None:
    """Tie an active binding to another private chat, one revision higher; None where it is inactive or there."""
    column = BINDINGS.c
    row = tx.find(
        update(BINDINGS)
        .where(column.id == binding_id, column.active, column.chat_id != chat_id)
        .values(chat_id=chat_id, revision=column.revision + 1, updated_at=tx.now)
        .returning(BINDINGS)
    )
    return None if row is None else _binding(row)


def try_revoke_binding(tx: Tx, binding_id: str, revoked_by: str) -> Binding | None:
    """Make an active binding inactive, one revision higher; None where it is inactive already or absent."""
    column = BINDINGS.c
    row = tx.find(
        update(BINDINGS)
        .where(column.id == binding_id, column.active)
        .values(active=False, revision=column.revision + 1, revoked_at=tx.now, revoked_by=revoked_by, updated_at=tx.now)
        .returning(BINDINGS)
    )
    return None if row is None else _binding(row)
