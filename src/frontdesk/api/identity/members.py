"""HTTP handlers of who belongs to a workspace."""

from __future__ import annotations

from frontdesk.api.binding import Call, Handler
from frontdesk.api.identity.paging import shown
from frontdesk.identity import members
from frontdesk.wire.identity.members import OPERATIONS, MemberAdd, MemberRead
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor
from frontdesk.wire.registry import Operation


async def list_all(call: Call) -> Page[MemberRead]:
    """`identity.members.list`."""
    after = decode_cursor(call.query.cursor)
    found = await call.services.database.read(
        lambda tx: members.list_members(tx, call.actor, call.workspace_id, limit=call.query.limit, after=after)
    )
    return shown(MemberRead, found)


async def add(call: Call) -> MemberRead:
    """`identity.members.add`."""
    body: MemberAdd = call.body
    made = await call.services.database.write(
        lambda tx: members.add_member(
            tx, call.actor, call.workspace_id, role=body.role, user_id=body.user_id, email=body.email
        )
    )
    return MemberRead.model_validate(made)


async def update(call: Call) -> MemberRead:
    """`identity.members.update`."""
    changed = await call.services.database.write(
        lambda tx: members.update_member(tx, call.actor, call.workspace_id, call.member_id, role=call.body.role)
    )
    return MemberRead.model_validate(changed)


async def remove(call: Call) -> None:
    """`identity.members.remove`."""
    await call.services.database.write(
        lambda tx: members.remove_member(tx, call.actor, call.workspace_id, call.member_id)
    )


_HANDLERS: dict[str, Handler] = {
    "identity.members.list": list_all,
    "identity.members.add": add,
    "identity.members.update": update,
    "identity.members.remove": remove,
}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
