"""The loopback channel: signed web hooks in both directions, and the proof that the desk's port is neutral.

Whatever holds the secret may be the chat: a test, a script, another program of the house. Inbound, `verify` checks the
signature and `normalise` says what the body is to the desk. Outbound, each message is one signed POST to the
installation's `target_url`, whose host must be listed (`targets`), whose name must lead to a listed address, and whose
answer means what `answers` says. It keeps no history: a look at what was sent is always `unknown`.

Owns no tables. Invariants: a secret lives as long as one request or session; no text of the other side is kept, logged
or raised; a connection goes to an address that was judged, never to one looked up again; what is not a listed proof is
unknown.
"""

from __future__ import annotations

from frontdesk.channels.loopback.outbound import LoopbackChannel
from frontdesk.channels.loopback.targets import DEFAULT_TARGETS, Targets

__all__ = ["DEFAULT_TARGETS", "LoopbackChannel", "Targets"]
