"""What must hold after every commit and at every wire request. Written from the specification, not from the product.

Transactions are serial on the one thread, so the state right after a commit is the state in which it was judged: a
`sending` committed while authority does not hold in that very state is one committed after the revocation.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from frontdesk.kernel import limits
from tests.sim.life import Life, Violation
from tests.sim.mirror import Change, Mirror, Row

if TYPE_CHECKING:
    from frontdesk.desk.conversations.runner import TurnRequest
    from tests.sim.provider import Push, Wire
    from tests.sim.world import World

_WAITING: Final = frozenset({"received", "retryable_failed"})
_OPEN: Final = _WAITING | {"processing"}
_ENDS: Final = frozenset({"processing", "retryable_failed", "rejected", "permanent_failed"})
STEPS: Final[dict[str, dict[str | None, frozenset[str]]]] = {
    "receipts": {  # desk.md 5.2
        None: frozenset({"received", "rejected", "completed"}),
        "received": _ENDS,
        "retryable_failed": _ENDS,
        "processing": frozenset({"completed", "proposal", "retryable_failed", "permanent_failed"}),
        "completed": frozenset({"permanent_failed"}),
        "proposal": frozenset({"permanent_failed"}),
    },
    "deliveries": {  # desk.md 5.7
        None: frozenset({"pending"}),
        "pending": frozenset({"connecting", "failed"}),
        "retryable_failed": frozenset({"connecting", "failed"}),
        "connecting": frozenset({"sending", "retryable_failed", "failed"}),
        "sending": frozenset({"sent", "failed", "retryable_failed", "indeterminate"}),
        "indeterminate": frozenset({"settled_sent", "settled_not_sent"}),
    },
    "turns": {None: frozenset({"running"}), "running": frozenset({"completed", "proposal", "failed"})},
    "reply_grants": {None: frozenset({"active"}), "active": frozenset({"revoked", "expired"})},
    "conversations": {None: frozenset({"active"}), "active": frozenset({"closed"})},
}
LOST_CODES: Final = ("authorization_revoked_before_delivery", "conversation_revision_changed")
PROOFS: Final = frozenset({"not_sent_connection", "rate_limited", "provider_token_rejected"})
EXPORTERS: Final = frozenset({"admin", "maintainer", "operator"})
SNAPSHOT: Final = (
    "operation_id provider_uuid purpose reply_grant receipt chat_id reply_to_message_id payload_kind text payload_hash "
    "request_hash dedupe_key"
).split()


class Watch:
    """The invariants of one simulation."""

    def __init__(self, world: World, mirror: Mirror) -> None:
        self._world = world
        self._mirror = mirror
        self.commits = 0
        self.begun: Counter[str] = Counter()  # `sending` commits per operation
        self._covered_until_us: dict[str, int] = {}
        self.questions: Counter[str] = Counter()

    def _refuse(self, text: str) -> None:
        raise self._world.violation(Violation(text))

    def _demand(self, holds: Any, text: str) -> None:
        if not holds:
            self._refuse(text)

    # ------------------------------------------------------------------------------------------ commits

    def committed(self, life: Life) -> None:
        """Look at what a transaction of `life` wrote."""
        changes = self._mirror.look()
        if not changes:
            return
        self.commits += 1
        now = life.clock.now_us()
        for change in changes:
            self._step(change)
            if change.table in ("receipts", "deliveries") and change.before is not None and change.after is not None:
                self._lease(change, life, now)
            check = getattr(self, f"_{change.table}", None)
            if check is not None:
                check(change, now)
        self._whole(changes)
        self._authorised(changes, now)
        for change in changes:
            if change.became("sending") or change.became("processing"):
                self._world.people.rush()
            if change.became("processing") or change.became("connecting") or change.became("pending"):
                self._world.people.tempt((change.after or {})["reply_grant"])

    def _step(self, change: Change) -> None:
        steps = STEPS.get(change.table)
        if steps is None:
            return
        before, after = change.moved()
        self._demand(after is not None, f"a row of {change.table} was deleted")
        if before != after:
            allowed = steps.get(before, frozenset())
            self._demand(
                after in allowed, f"{change.table} {change.id}: {before} -> {after} is no step of the specification"
            )
            if before is not None:
                code = (change.after or {}).get("error_code")
                self._world.note(f"{change.table} {change.id[-6:]}: {before} -> {after} {code or ''}")

    def _lease(self, change: Change, life: Life, now: int) -> None:
        """A held row is written by its holder while it holds, or taken once the lease has passed, one generation up."""
        old, new = change.before or {}, change.after or {}
        what = f"{change.table} {change.id}: {old['status']} -> {new['status']}"
        rise = new["lease_generation"] - old["lease_generation"]
        self._demand(rise in (0, 1), f"{what}: generation moved by {rise}")
        held = old["status"] in ("processing", "connecting", "sending")
        if not held:
            claimed = new["status"] in ("processing", "connecting")
            self._demand(rise == int(claimed), f"{what}: a claim raises the generation, nothing else does")
            if claimed:
                self._demand(old["not_before"] <= now, f"{what}: claimed before it was due")
            return
        if rise:
            self._demand(old["lease_expires_at"] <= now, f"{what}: a live lease was taken")
            allowed = {"processing": "processing", "connecting": "retryable_failed", "sending": "indeterminate"}
            self._demand(new["status"] == allowed[old["status"]], f"{what}: not what becomes of a lapsed lease")
            return
        if all(old[name] == new[name] for name in ("status", "lease_owner", "lease_expires_at", "error_code")):
            return
        self._demand(old["lease_owner"] == life.owner, f"{what}: written by {life.name}, which does not hold it")
        live = old["lease_expires_at"] > now
        taking = new["status"] == "sending" or new["status"] == old["status"]
        self._demand(live or not taking, f"{what}: begun or renewed on a lapsed lease")

    def _receipts(self, change: Change, now: int) -> None:
        old, new = change.before, change.after or {}
        if change.became("processing") and new["reply_grant"] is not None:
            for other_id, other in self._mirror.rows("receipts", reply_grant=new["reply_grant"]):
                earlier = (other["created_at"], other_id) < (new["created_at"], change.id)
                self._demand(
                    not earlier or other["status"] not in _OPEN, f"receipt {change.id} was claimed before {other_id}"
                )
        if old is not None and old["status"] in ("completed", "proposal") and new["status"] == "permanent_failed":
            self._demand(new["error_code"] in LOST_CODES, f"receipt {change.id} ended twice, with {new['error_code']}")
        self._demand(new["attempt_count"] <= limits.RECEIPT_ATTEMPTS_MAX + 1, f"receipt {change.id}: too many attempts")

    def _deliveries(self, change: Change, now: int) -> None:
        old, new = change.before, change.after or {}
        self._demand(new["attempt_count"] <= limits.DELIVERY_ATTEMPTS_MAX, f"delivery {change.id}: too many attempts")
        if old is None:
            return
        for name in SNAPSHOT:
            self._demand(old[name] == new[name], f"delivery {change.id}: {name} changed")
        operation = new["operation_id"]
        if change.became("sending"):
            self.begun[operation] += 1
            lease_us = new["lease_expires_at"] - now
            self._covered_until_us[operation] = self._world.true.monotonic_us() + lease_us
        if old["status"] != "sending" or new["status"] == "sending":
            return
        attempts = self._world.provider.attempts.get(operation, [])
        began = len(attempts) == self.begun[operation]  # the send of this very `sending`
        last = attempts[-1] if began else None
        ended = last.ended if last is not None else "nothing sent"
        if new["status"] == "sent":
            shown = [each.message_id for each in self._world.provider.visible(operation)]
            self._demand(
                new["provider_message_id"] in shown, f"delivery {change.id} is sent, and nothing is in the chat"
            )
        elif new["status"] == "retryable_failed":
            proven = ended == "retry" or (began and last is None and new["error_code"] == "not_sent_connection")
            self._demand(
                proven and new["error_code"] in PROOFS, f"delivery {change.id} is retried without proof ({ended})"
            )
        elif new["status"] == "failed":
            self._demand(
                ended in ("refused", "retry") or (began and last is None),
                f"delivery {change.id} failed, but the request ended {ended}",
            )

    def _conversations(self, change: Change, now: int) -> None:
        old, new = change.before, change.after or {}
        if old is not None:
            rise = new["revision"] - old["revision"]
            self._demand(rise in (0, 1), f"conversation {change.id}: revision moved by {rise}")

    def _reply_grants(self, change: Change, now: int) -> None:
        old, new = change.before, change.after or {}
        if old is not None and new["cursor"] != old["cursor"]:
            self._demand(new["cursor"] == old["cursor"] + 1, f"grant {change.id}: cursor jumped")
            turns = self._mirror.rows("turns", conversation=new["conversation"], committed_revision=new["cursor"])
            self._demand(
                len(turns) == 1 and turns[0][1]["surface"] == "channel", f"grant {change.id}: cursor without turn"
            )

    def _turns(self, change: Change, now: int) -> None:
        old, new = change.before, change.after or {}
        if old is not None and old["status"] != "running":
            self._demand(old == new, f"turn {change.id} changed after its end")
        if new["status"] in ("completed", "proposal") and (old is None or old["status"] == "running"):
            conversation = self._mirror.tables["conversations"][new["conversation"]]
            self._demand(conversation["status"] == "active", f"turn {change.id} was stored in a closed conversation")
            self._demand(conversation["revision"] == new["committed_revision"], f"turn {change.id}: another revision")

    def _whole(self, changes: list[Change]) -> None:
        """Rules about several rows at once."""
        mirror = self._mirror
        touched = {change.table for change in changes}
        if touched & {"reply_grants", "conversations"}:
            for grant_id, grant in mirror.rows("reply_grants"):
                revision = mirror.tables["conversations"][grant["conversation"]]["revision"]
                self._demand(grant["cursor"] <= revision, f"grant {grant_id}: cursor ahead of the revision")
        if "receipts" in touched:
            self._alone("receipts", "reply_grant", mirror.rows("receipts", status="processing"))
            self._alone("receipts", "provider_message_id", mirror.rows("receipts"))
        if "turns" in touched:
            self._alone("turns", "conversation", mirror.rows("turns", status="running"))
            self._alone("turns", "request_id", mirror.rows("turns"))
            places = Counter((turn["conversation"], turn["sequence"]) for _, turn in mirror.rows("turns"))
            self._demand(max(places.values()) == 1, "two turns have one sequence")
        if "deliveries" in touched:
            self._alone("deliveries", "receipt", mirror.rows("deliveries"))
            self._alone("deliveries", "reply_grant", mirror.rows("deliveries", purpose="activation"))

    def _alone(self, table: str, column: str, rows: list[tuple[str, Row]]) -> None:
        counted = Counter(row[column] for _, row in rows if row[column] is not None)
        for value, times in counted.items():
            self._demand(times == 1, f"{times} rows of {table} with {column} {value}")

    # ------------------------------------------------------------------------------------------ authority

    def _authorised(self, changes: list[Change], now: int) -> None:
        for change in changes:
            row = change.after or {}
            grant_id: str | None = None
            if change.table == "deliveries" and (
                change.became("sending") or (change.before is None and row["receipt"])
            ):
                grant_id = row["reply_grant"]
            elif change.table == "turns" and change.before is None and row["surface"] == "channel":
                # While a turn runs its receipt is in work, and that names the grant.
                named = [
                    receipt["reply_grant"]
                    for _, receipt in self._mirror.rows("receipts", status="processing", turn=change.id)
                ]
                self._demand(len(named) == 1, f"turn {change.id} began without its receipt")
                grant_id = named[0]
            if grant_id is not None:
                reason = self.reason_against(grant_id, now)
                self._demand(reason is None, f"{change.table} {change.id} -> {row['status']} although {reason}")

    def reason_against(self, grant_id: str, now: int) -> str | None:
        """Why nothing may be done under a grant at this moment (desk.md 5.5), or None; from the rows as they are."""
        tables = self._mirror.tables
        grant = tables["reply_grants"][grant_id]
        binding = tables["bindings"][grant["binding"]]
        conversation = tables["conversations"][grant["conversation"]]
        user = grant["bound_user"]
        members = self._mirror.rows("workspace_members", workspace=conversation["workspace"], user=user)
        same_binding = binding["revision"] == grant["binding_revision"] and binding["chat_id"] == grant["chat_id"]
        holds = {
            "the grant has ended": grant["status"] == "active" and grant["expires_at"] > now,
            "the installation is off": tables["installations"][grant["installation"]]["status"] == "active",
            "the binding has ended": binding["active"] and same_binding and binding["user"] == user,
            "the user is disabled": tables["users"][user]["disabled_at"] is None,
            "the workspace is off": tables["workspaces"][conversation["workspace"]]["active"],
            "the person lost the right": bool(members) and members[0][1]["role"] in EXPORTERS,
            "the conversation is closed": conversation["status"] == "active" and conversation["owner_user"] == user,
            "the context changed": conversation["context_hash"] == grant["context_hash"],
            "the project is archived": tables["projects"][grant["project"]]["archived_at"] is None,
            "the conversation moved on": conversation["revision"] == grant["cursor"],
        }
        return next((reason for reason, right in holds.items() if not right), None)

    # ------------------------------------------------------------------------------------------ outside

    def wire_begins(self, wire: Wire, earlier: list[Wire]) -> None:
        """A wire request leaves: committed as `sending` by its process, covered by its lease, never a second one."""
        rows = self._mirror.rows("deliveries", operation_id=wire.operation_id)
        self._demand(len(rows) == 1, f"a wire request of an unknown operation {wire.operation_id}")
        row = rows[0][1]
        for before in earlier:
            self._demand(
                before.ended == "retry", f"second wire request of {wire.operation_id}: the first {before.ended}"
            )
        attempts = self._world.provider.attempts.get(wire.operation_id, [])
        self._demand(
            len(attempts) < self.begun[wire.operation_id], f"a wire request of {wire.operation_id} without `sending`"
        )
        mine = row["status"] == "sending" and row["lease_owner"] == wire.life.owner
        # Another process's clock may be ahead and have called it unknown meanwhile; then it stays the one request.
        lapsed = row["status"] in ("indeterminate", "settled_sent", "settled_not_sent")
        self._demand(mine or lapsed, f"a wire request of {wire.operation_id} in state {row['status']}")
        margin_us = limits.SEND_TIMEOUT_US + limits.CLOSE_TIMEOUT_US
        covered = self._covered_until_us[wire.operation_id] - margin_us
        self._demand(self._world.true.monotonic_us() <= covered, f"{wire.operation_id}: begun past its lease's cover")
        same = (wire.uuid, wire.chat_id, wire.reply_to) == (
            row["provider_uuid"],
            row["chat_id"],
            row["reply_to_message_id"],
        )
        self._demand(same and (row["text"] in (None, wire.content)), f"{wire.operation_id}: not its snapshot")

    def acknowledged(self, push: Push) -> None:
        """A push was answered 200."""
        kind, _, message_id = push.key.partition(":")
        if kind == "message":
            found = self._mirror.rows("receipts", provider_message_id=message_id)
            self._demand(len(found) == 1, f"{message_id} was acknowledged and has no receipt")

    def runner_begins(self, request: TurnRequest) -> None:
        """The runner is asked: for a committed running turn, and once for a question."""
        turn = self._mirror.tables["turns"].get(request.turn_id)
        self._demand(turn is not None, f"the runner is asked for turn {request.turn_id}, which is not committed")
        self.questions[request.text] += 1
        self._demand(self.questions[request.text] == 1, f"the runner is asked again: {request.text}")
