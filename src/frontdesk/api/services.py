"""What handlers may use, handed in once by `app/wiring.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from frontdesk.api.threads import Threads
from frontdesk.desk.connections.channel import Channels
from frontdesk.kernel.clock import Clock
from frontdesk.kernel.ids import Entropy
from frontdesk.kernel.secretbox import KeyRing
from frontdesk.storage.database import Database


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that verbs need, as plain values."""

    reply_enabled: bool = False
    artifact_enabled: bool = False
    failure_notices: bool = True
    unaddressed_messages: str = "only_grant"  # or "refuse"
    oversize_answer: str = "file"  # or "refuse"
    lease_us: int = 30_000_000
    delivery_age_max_us: int = 4 * 3_600_000_000
    shutdown_grace_us: int = 25_000_000
    worker_receipts: int = 8
    default_runner: str = "demo"
    public_url: str = "http://127.0.0.1:8080"
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    trusted_proxies: tuple[str, ...] = ()
    secure_cookies: bool = False  # browsers come over https: TLS here, or a proxy that ends it


@dataclass(frozen=True, slots=True)
class Services:
    """One process's parts. Nothing here is a global; tests build their own."""

    database: Database
    keyring: KeyRing
    channels: Channels
    clock: Clock
    entropy: Entropy
    policy: Policy
    threads: Threads
    bootstrap_token: str = field(default="", repr=False)
    metrics_token: str = field(default="", repr=False)
    extras: dict[str, Any] = field(default_factory=dict)
