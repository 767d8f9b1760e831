"""Reply and artifact grants (desk.md 5.5, 5.6). Terminal states clear the slot; nothing revives a grant."""

from __future__ import annotations

from typing import Final

from frontdesk.kernel.machine import Machine, edge

REPLY_GRANT: Final = Machine(
    name="reply_grant",
    states=("active", "revoked", "expired"),
    initial=frozenset({"active"}),
    edges={"revoke": edge("active", "revoked"), "expire": edge("active", "expired")},
)

ARTIFACT_GRANT: Final = Machine(
    name="artifact_grant",
    states=("active", "redeemed", "revoked", "expired", "failed"),
    initial=frozenset({"active"}),
    edges={
        "redeem": edge("active", "redeemed"),
        "revoke": edge("active", "revoked"),
        "expire": edge("active", "expired"),
        "fail": edge("active", "failed"),
    },
)
