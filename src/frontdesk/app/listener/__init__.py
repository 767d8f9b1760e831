"""The listener: one process for one installation's long connection (`frontdesk listen`).

`process.py` holds the lease, supervises and ends; `taking.py` is the callback: one event, one commit, one answer.

Invariants: an event is acknowledged after its commit or not at all; while the lease is not held nothing new is begun;
what ends the process is one of `Ending`, and none of its texts holds anything of the provider's.
"""

from __future__ import annotations

from frontdesk.app.listener.endings import Ending
from frontdesk.app.listener.process import Listener, Patience

__all__ = ["Ending", "Listener", "Patience"]
