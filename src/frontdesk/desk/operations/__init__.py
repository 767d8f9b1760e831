"""What operators see and do of the whole desk: counts and ages, dead letters, the live tail, retention.

Owns no table. Invariants: nothing here sends, resends or runs anything again; nothing here shows text, people or chats;
retention touches no row that is still open.
"""

from frontdesk.desk.operations.dead_letters import DeadLetter, Filter, acknowledge, list_dead_letters
from frontdesk.desk.operations.numbers import DeskNumbers, overview, read_numbers
from frontdesk.desk.operations.retention import Purged, Retention
from frontdesk.desk.operations.tail import Tail, TailEvent, read_tail

__all__ = [
    "DeadLetter",
    "DeskNumbers",
    "Filter",
    "Purged",
    "Retention",
    "Tail",
    "TailEvent",
    "acknowledge",
    "list_dead_letters",
    "overview",
    "read_numbers",
    "read_tail",
]
