"""Installation transitions (desk.md 5.1). `blocked` is computed from the secrets on each read and never stored."""

from __future__ import annotations

from typing import Final

from frontdesk.kernel.machine import Machine, edge

INSTALLATION: Final = Machine(
    name="installation",
    states=("active", "disabled", "revoked"),
    initial=frozenset({"active"}),
    edges={
        "disable": edge("active disabled", "disabled"),
        "enable": edge("active disabled", "active"),
        "revoke": edge("active disabled", "revoked"),
    },
)
