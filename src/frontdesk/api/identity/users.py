"""HTTP handlers of accounts. A password is hashed on a thread, outside of any transaction."""

from __future__ import annotations

from typing import cast

from frontdesk.api.binding import Call, Handler
from frontdesk.api.identity.paging import shown
from frontdesk.identity import users
from frontdesk.identity.model import UserChanges
from frontdesk.identity.passwords import hash_password
from frontdesk.identity.rights import require_platform_admin
from frontdesk.wire.identity.users import OPERATIONS, UserCreate, UserRead, UserUpdate
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor
from frontdesk.wire.registry import Operation


async def list_all(call: Call) -> Page[UserRead]:
    """`identity.users.list`."""
    after = decode_cursor(call.query.cursor)
    found = await call.services.database.read(
        lambda tx: users.list_users(tx, call.actor, limit=call.query.limit, after=after)
    )
    return shown(UserRead, found)


async def create(call: Call) -> UserRead:
    """`identity.users.create`."""
    body: UserCreate = call.body
    password_hash = await _hash(call, body.password)
    made = await call.services.database.write(
        lambda tx: users.create_user(
            tx,
            call.actor,
            username=body.username,
            display_name=body.display_name,
            email=body.email,
            locale=body.locale,
            password_hash=password_hash,
            is_platform_admin=body.is_platform_admin,
        )
    )
    return UserRead.model_validate(made)


async def update(call: Call) -> UserRead:
    """`identity.users.update`."""
    body: UserUpdate = call.body
    sent = body.changes()
    password_hash = await _hash(call, sent.pop("password", None))
    if password_hash is not None:
        sent["password_hash"] = password_hash
    if "email" in sent:
        sent["email"] = sent["email"] or ""
    changes = cast("UserChanges", sent)
    changed = await call.services.database.write(lambda tx: users.update_user(tx, call.actor, call.user_id, changes))
    return UserRead.model_validate(changed)


async def _hash(call: Call, password: str | None) -> str | None:
    """The text to store. Asked after the right: a stranger must not make the server compute."""
    if password is None:
        return None
    require_platform_admin(call.actor)
    hashed: str = await call.services.threads.run(hash_password, password, call.services.entropy)
    return hashed


_HANDLERS: dict[str, Handler] = {
    "identity.users.list": list_all,
    "identity.users.create": create,
    "identity.users.update": update,
}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
