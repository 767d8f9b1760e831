"""HTTP handlers of the caller's own account."""

from __future__ import annotations

from frontdesk.api.binding import Call, Handler
from frontdesk.identity import users
from frontdesk.identity.model import Actor, OwnMembership, User
from frontdesk.storage.tx import Tx
from frontdesk.wire.identity.me import OPERATIONS, MeRead, OwnMembershipRead
from frontdesk.wire.identity.users import UserRead
from frontdesk.wire.registry import Operation


async def get(call: Call) -> MeRead:
    """`identity.me.get`."""
    found = await call.services.database.read(lambda tx: users.get_me(tx, call.actor))
    return _shown(call.actor, found)


async def update(call: Call) -> MeRead:
    """`identity.me.update`."""

    def change(tx: Tx) -> tuple[User, list[OwnMembership]]:
        users.update_me(tx, call.actor, call.body.changes())
        return users.get_me(tx, call.actor)

    return _shown(call.actor, await call.services.database.write(change))


def _shown(actor: Actor, found: tuple[User, list[OwnMembership]]) -> MeRead:
    user, memberships = found
    return MeRead.model_validate(
        {
            "user": UserRead.model_validate(user),
            "auth_method": actor.auth_method,
            "is_platform_admin": actor.is_platform_admin,
            "memberships": [OwnMembershipRead.model_validate(each) for each in memberships],
        }
    )


_HANDLERS: dict[str, Handler] = {"identity.me.get": get, "identity.me.update": update}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
