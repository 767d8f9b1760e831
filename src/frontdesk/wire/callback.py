"""The callback on the wire: documented like every operation, served before the gate by `api/desk/callback.py`."""

from __future__ import annotations

from frontdesk.wire.registry import Operation

CALLBACK = Operation(
    id="desk.inbox.callback",
    method="POST",
    path="/channels/{channel}/installations/{installation_id}/events",
    summary="Take a provider's signed push; 200 says that it was received, no more",
    right="none (signature)",
    errors=(
        "callback_shape_invalid",
        "body_malformed",
        "installation_not_found",
        "body_too_large",
        "encoding_unsupported",
        "rate_limited",
        "callback_not_accepted",
        "verification_material_unavailable",
    ),
    status=200,
    authenticated=False,
    cli=False,
)

OPERATIONS: tuple[Operation, ...] = (CALLBACK,)
