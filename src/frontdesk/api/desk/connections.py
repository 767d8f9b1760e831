"""HTTP handlers of connections. Each is one transaction, but the probe: read, ask the provider, note."""

from __future__ import annotations

from typing import Any

from frontdesk.api.binding import Call, Handler
from frontdesk.desk import connections
from frontdesk.desk.connections.channel import RawPush
from frontdesk.wire.desk.connections import (
    OPERATIONS,
    BindingRead,
    ChallengeCreated,
    HealthRead,
    InstallationRead,
    MyBinding,
    ProbeRead,
)
from frontdesk.wire.model import Page
from frontdesk.wire.paging import decode_cursor, encode_cursor
from frontdesk.wire.registry import Operation


def _scope(call: Call) -> dict[str, Any]:
    """What every verb about installations is told."""
    return {
        "workspace_id": call.workspace_id,
        "channels": call.services.channels,
        "keyring": call.services.keyring,
    }


async def list_installations(call: Call) -> Page[InstallationRead]:
    """`desk.connections.list`."""
    after = decode_cursor(call.query.cursor)
    page = await call.services.database.read(
        lambda tx: connections.list_installations(tx, call.actor, limit=call.query.limit, after=after, **_scope(call))
    )
    return Page[InstallationRead](
        items=[InstallationRead.model_validate(item) for item in page.items],
        next_cursor=encode_cursor(*page.after) if page.after else None,
    )


async def get_installation(call: Call) -> InstallationRead:
    """`desk.connections.get`."""
    found = await call.services.database.read(
        lambda tx: connections.get_installation(tx, call.actor, installation_id=call.installation_id, **_scope(call))
    )
    return InstallationRead.model_validate(found)


async def create_installation(call: Call) -> InstallationRead:
    """`desk.connections.create`."""
    body = call.body
    made = await call.services.database.write(
        lambda tx: connections.create_installation(
            tx,
            call.actor,
            channel=body.channel,
            name=body.name,
            app_id=body.app_id,
            tenant_key=body.tenant_key,
            inbound=body.inbound,
            secrets=body.secrets(),
            target_url=body.target_url,
            command_language=body.command_language,
            provider_zone=body.provider_zone,
            late_answers_enabled=body.late_answers_enabled,
            **_scope(call),
        )
    )
    return InstallationRead.model_validate(made)


async def update_installation(call: Call) -> InstallationRead:
    """`desk.connections.update`."""
    changed = await call.services.database.write(
        lambda tx: connections.update_installation(
            tx, call.actor, installation_id=call.installation_id, changes=call.body.changes(), **_scope(call)
        )
    )
    return InstallationRead.model_validate(changed)


async def revoke_installation(call: Call) -> InstallationRead:
    """`desk.connections.revoke`."""
    revoked = await call.services.database.write(
        lambda tx: connections.revoke_installation(
            tx,
            call.actor,
            installation_id=call.installation_id,
            forget_secrets=call.query.forget_secrets,
            **_scope(call),
        )
    )
    return InstallationRead.model_validate(revoked)


async def health(call: Call) -> HealthRead:
    """`desk.connections.health`. A process with a worker answers for it; another reads the workers' rows."""
    policy = call.services.policy
    worker = call.services.extras.get("worker_snapshot")
    found = await call.services.database.read(
        lambda tx: connections.get_health(
            tx,
            call.actor,
            installation_id=call.installation_id,
            reply_enabled=policy.reply_enabled,
            artifact_enabled=policy.artifact_enabled,
            worker=worker() if worker is not None else None,
            **_scope(call),
        )
    )
    return HealthRead.model_validate(found)


async def probe(call: Call) -> ProbeRead:
    """`desk.connections.probe`. No transaction is open while the provider is asked."""
    database = call.services.database
    target = await database.read(
        lambda tx: connections.probe_target(tx, call.actor, installation_id=call.installation_id, **_scope(call))
    )
    report = await target.channel.probe(target.installed)
    verification = await _verification(call, target)
    await database.write(lambda tx: connections.note_probe(tx, target, report))
    return ProbeRead(
        token=report.token,
        bot_info=report.bot_info,
        verification=verification,
        provider_code=report.provider_code,
    )


async def _verification(call: Call, target: connections.ProbeTarget) -> str:
    last_refused = call.services.extras.get("last_refused")
    push: RawPush | None = last_refused.get(target.installed.installation_id) if last_refused is not None else None
    credentials = target.installed.credentials
    if push is None or credentials.encrypt_key is None or credentials.verification_token is None:
        return "ok"
    swapped = await call.services.threads.run(target.channel.verifies_swapped, push, credentials)
    return "credentials_swapped" if swapped else "ok"


async def my_binding(call: Call) -> MyBinding:
    """`desk.connections.my_binding`."""
    found = await call.services.database.read(
        lambda tx: connections.my_binding(
            tx, call.actor, workspace_id=call.workspace_id, installation_id=call.installation_id
        )
    )
    return MyBinding(binding=None if found is None else BindingRead.model_validate(found))


async def challenge(call: Call) -> ChallengeCreated:
    """`desk.connections.challenge`."""
    issued = await call.services.database.write(
        lambda tx: connections.create_challenge(tx, call.actor, installation_id=call.installation_id, **_scope(call))
    )
    return ChallengeCreated.model_validate(issued)


async def unbind(call: Call) -> BindingRead:
    """`desk.connections.unbind`."""
    found = await call.services.database.write(
        lambda tx: connections.unbind(tx, call.actor, workspace_id=call.workspace_id, binding_id=call.binding_id)
    )
    return BindingRead.model_validate(found)


_HANDLERS: dict[str, Handler] = {
    "desk.connections.list": list_installations,
    "desk.connections.get": get_installation,
    "desk.connections.create": create_installation,
    "desk.connections.update": update_installation,
    "desk.connections.revoke": revoke_installation,
    "desk.connections.health": health,
    "desk.connections.probe": probe,
    "desk.connections.my_binding": my_binding,
    "desk.connections.challenge": challenge,
    "desk.connections.unbind": unbind,
}

ROUTES: tuple[tuple[Operation, Handler], ...] = tuple((entry, _HANDLERS[entry.id]) for entry in OPERATIONS)
