"""HTTP handlers of the caller's own tokens."""

from __future__ import annotations

from frontdesk.api.binding import Call, Handler
from frontdesk.api.identity.paging import shown
from frontdesk.identity import tokens
from frontdesk.wire.identity.tokens import OPERATIONS, TokenCreate, TokenCreated, TokenRead
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor
from frontdesk.wire.registry import Operation


async def create(call: Call) -> TokenCreated:
    """`identity.tokens.create`. The secret is in this answer alone."""
    body: TokenCreate = call.body
    made = await call.services.database.write(
        lambda tx: tokens.create_token(
            tx,
            call.actor,
            name=body.name,
            expires_in_seconds=body.expires_in_seconds,
            kind=body.kind,
            workspace_id=body.workspace_id,
            rights=body.rights,
            project_ids=body.project_ids,
            platform_admin=body.platform_admin,
        )
    )
    return TokenCreated(**dict(TokenRead.model_validate(made.record)), token=made.token)


async def list_own(call: Call) -> Page[TokenRead]:
    """`identity.tokens.list`."""
    after = decode_cursor(call.query.cursor)
    found = await call.services.database.read(
        lambda tx: tokens.list_tokens(tx, call.actor, limit=call.query.limit, after=after)
    )
    return shown(TokenRead, found)


async def revoke(call: Call) -> None:
    """`identity.tokens.revoke`."""
    await call.services.database.write(lambda tx: tokens.revoke_token(tx, call.actor, call.token_id))


_HANDLERS: dict[str, Handler] = {
    "identity.tokens.create": create,
    "identity.tokens.list": list_own,
    "identity.tokens.revoke": revoke,
}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
