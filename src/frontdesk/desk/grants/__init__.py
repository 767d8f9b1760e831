"""Reply grants: a person's revocable permission that replies from one bound chat continue one conversation.

Owns the nouns reply grant and artifact grant. Invariants: one active grant per (workspace, conversation, person) by the
unique slot; terminal states are never left; the cursor moves only by its own committed turn; every use re-reads
everything that `authority.judge` names; the connector capability is built by `authority` alone.
"""

from frontdesk.desk.grants.authority import Judgement, build_access, judge, read_grant, scope_reason
from frontdesk.desk.grants.model import GrantView, ReceiptFacts, ReplyGrant, lost_code
from frontdesk.desk.grants.service import (
    CreateGrant,
    CreateRaced,
    create,
    expire_due,
    find_grant,
    get,
    list_grants,
    lock_grants,
    resolve_race,
    revoke,
    set_project_access,
    sole_usable,
    timeline,
)

__all__ = [
    "CreateGrant",
    "CreateRaced",
    "GrantView",
    "Judgement",
    "ReceiptFacts",
    "ReplyGrant",
    "build_access",
    "create",
    "expire_due",
    "find_grant",
    "get",
    "judge",
    "list_grants",
    "lock_grants",
    "lost_code",
    "read_grant",
    "resolve_race",
    "revoke",
    "scope_reason",
    "set_project_access",
    "sole_usable",
    "timeline",
]
