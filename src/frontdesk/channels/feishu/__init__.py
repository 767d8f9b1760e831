"""The Feishu/Lark channel: the desk's port on the official SDK, whose traps stay behind this door.

Inbound, `verify` lets the SDK check signature, cipher and token, and `normalise` turns what it decrypted into the
desk's own words. Outbound, `outbound` makes exactly one wire request per act through `transport`, and `codes` says what
each answer means. `line` is the long connection, on the SDK's own client guarded by `line_client`. Only `sdk` and
`line_client` reach `lark_channel`: the first imports it, when a push is first verified or a connection first asked for,
and the second takes its WebSocket client; a deployment without Feishu never loads it.

Owns no tables. Invariants: a secret lives as long as one call; no provider text is kept, logged or raised; what is not
a listed proof is unknown.
"""

from __future__ import annotations

from frontdesk.channels.feishu.outbound import FeishuChannel

__all__ = ["FeishuChannel"]
