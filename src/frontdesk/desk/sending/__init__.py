"""t5–t9: from a waiting delivery to its one wire request and what is then known of it.

Owns no table. Invariants: authority is judged before connect and again before `sending`; `sending` is committed
before the
wire request; one `sending` commit is followed by at most one wire request; whatever is not a listed outcome is
indeterminate.
"""

from frontdesk.desk.sending.looking import Look, Seen, begin_look, begin_settling_look, look, note_look, weigh
from frontdesk.desk.sending.worker import DeliveryWorker

__all__ = [
    "DeliveryWorker",
    "Look",
    "Seen",
    "begin_look",
    "begin_settling_look",
    "look",
    "note_look",
    "weigh",
]
