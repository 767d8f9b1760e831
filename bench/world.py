"""A data folder for benchmarks: one connection, bound people, conversations and grants with their activation `sent`.

Made by the product's own verbs; the activation's provider answer is what a bench makes up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from frontdesk.app.installing import initialise
from frontdesk.app.settings import database_url, load_settings
from frontdesk.channels.registry import build_channels
from frontdesk.desk import connections, conversations, grants, inbox, outbox, runs
from frontdesk.desk.connections.channel import InboundMessage
from frontdesk.desk.grants import CreateGrant
from frontdesk.identity import local_actor
from frontdesk.identity.members import add_member
from frontdesk.identity.users import create_user
from frontdesk.kernel.clock import SystemClock
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.opening import open_database
from frontdesk.storage.tx import Tx


def make_world(
    data: Path,
    app: str,
    tenant: str,
    *,
    encrypt_key: str,
    token: str,
    people: int,
    secret: str = "s",
    chats: Sequence[tuple[str, str]] | None = None,
) -> tuple[str, list[str]]:
    """(callback path, one reply target a person). `chats`: the provider's (person, chat), else made-up ones."""
    known = chats or [(f"ou_{number}", f"oc_{number}") for number in range(people)]
    installed = initialise(data, "bench-password")
    settings = load_settings(data)
    keyring = KeyRing(settings.credential_keys.get_secret_value())
    clock = SystemClock()
    channels = build_channels("https://open.feishu.cn", None, clock, None)  # type: ignore[arg-type]
    database = open_database(database_url(settings, data), clock, SystemEntropy())
    targets: list[str] = []

    def connect(tx: Tx) -> str:
        return connections.create_installation(
            tx,
            local_actor(tx, "owner"),
            workspace_id=installed.workspace_id,
            channels=channels,
            keyring=keyring,
            channel="feishu",
            name="bench",
            app_id=app,
            tenant_key=tenant,
            inbound="webhook",
            secrets={"app_secret": secret, "encrypt_key": encrypt_key, "verification_token": token},
            target_url=None,
            command_language="en",
            provider_zone=None,
            late_answers_enabled=False,
        ).id

    def person(tx: Tx, installation_id: str, number: int) -> None:
        owner = local_actor(tx, "owner")
        name = f"person{number}"
        user = create_user(
            tx,
            owner,
            username=name,
            display_name=name,
            email=None,
            locale=None,
            password_hash=None,
            is_platform_admin=False,
        )
        add_member(tx, owner, installed.workspace_id, user_id=user.id, email=None, role="operator")
        actor = local_actor(tx, name)
        scope = {"workspace_id": installed.workspace_id, "channels": channels, "keyring": keyring}
        code = connections.create_challenge(tx, actor, installation_id=installation_id, **scope).command_text
        bind = InboundMessage(
            app_id=app,
            tenant_key=tenant,
            event_id=f"bind-{number}",
            message_id=f"om_bind_{number}",
            sender_id=known[number][0],
            sender_type="user",
            chat_id=known[number][1],
            chat_type="p2p",
            message_type="text",
            text=code,
            parent_id=None,
            root_id=None,
            created_at_ms=tx.now // 1000,
            signed_at_ms=tx.now // 1000,
            request_hash=f"{number:064x}",
        )
        received = inbox.receive(tx, installation_id, bind, transport="webhook")
        assert received.outcome == "completed", received
        binding = connections.my_binding(
            tx, actor, workspace_id=installed.workspace_id, installation_id=installation_id
        )
        assert binding is not None
        conversation = conversations.create_conversation(
            tx,
            actor,
            installed.workspace_id,
            title=name,
            context={"project_id": installed.project_id},
            find_run=runs.find_run_scope,
        )
        view = grants.create(
            tx,
            actor,
            CreateGrant(
                installed.workspace_id, installed.project_id, f"r{number}", installation_id, binding.id, conversation.id
            ),
            keyring=keyring,
            channels=channels,
            reply_ready=True,
        )
        delivery = outbox.find_activation(tx, view.grant.id)
        assert delivery is not None
        claimed = outbox.claim(tx, delivery, "bench", 60_000_000)
        assert claimed is not None
        sending = outbox.begin(tx, claimed, 60_000_000)
        assert sending is not None
        outbox.confirm(tx, sending, f"om_target_{number}", None)
        targets.append(f"om_target_{number}")

    async def build() -> str:
        installation_id = await database.write(connect)
        for start in range(0, people, 50):
            some = range(start, min(start + 50, people))
            await database.write(lambda tx, some=some: [person(tx, installation_id, number) for number in some])
        await database.close()
        return installation_id

    installation_id = asyncio.run(build())
    return f"/api/v1/channels/feishu/installations/{installation_id}/events", targets
