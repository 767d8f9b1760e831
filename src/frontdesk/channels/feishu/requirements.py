"""What must be switched on in the provider's console for this channel to work: data; the guide is tested against it.

Each typed request of the SDK that `sdk.py` builds names the permission it needs; each event what it is for.
"""

from __future__ import annotations

from typing import Final

from frontdesk.channels.feishu.normalise import RECALL, RECEIVE

EVENTS: Final = {
    RECEIVE: "a message to the bot",
    RECALL: "a message was recalled",
}
# The request's name in the SDK (`<name>_request`) → the permission of the app.
REQUESTS: Final = {
    "create_message": "im:message:send_as_bot",
    "reply_message": "im:message:send_as_bot",
    "create_file": "im:resource",
    "list_message": "im:message",
}
# Receiving an event needs its own permission.
EVENT_PERMISSIONS: Final = {RECEIVE: "im:message", RECALL: "im:message"}
# Raw addresses that every app may call.
WITHOUT_PERMISSION: Final = ("/open-apis/auth/v3/tenant_access_token/internal", "/open-apis/bot/v3/info")

PERMISSIONS: Final = frozenset(REQUESTS.values()) | frozenset(EVENT_PERMISSIONS.values())
