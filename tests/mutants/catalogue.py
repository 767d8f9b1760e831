"""The single guards of the promise, each with the tests that must notice when it is gone.

Where two guards stand behind one another (the look before a write and the write's own WHERE, the look for a row and the
constraint), a mutant takes both: one alone is no hole, and a test can't and need not see it. One engine is enough to
notice, and it is the quicker one wherever both have the guard.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from tests.mutants.substitution import Change

GUARDED = "storage/guarded.py"
CALLBACK = "api/desk/callback.py"
SCHEMA = "app/migrations/versions/v0001_main_job.py"
STEPS = "desk/sending/steps.py"
SWEEP = "tests/contract/storage/test_transitions.py"
LEASES = "tests/contract/answering/test_leases.py"
SENDING = "tests/contract/sending/test_sending.py"
RACING = "tests/contract/grants/test_racing.py"
ARRIVAL = "tests/contract/inbox/test_arrival.py"
SNAPSHOTS = "tests/contract/sending/test_snapshots.py"
COMMITS = "tests/contract/storage/test_commits.py"
ORDER = "tests/http/test_callback_order.py"


@dataclasses.dataclass(frozen=True, slots=True)
class Mutant:
    """One guard taken out, or turned by one step."""

    name: str
    guard: str
    changes: tuple[Change, ...]
    tests: tuple[str, ...]
    engine: str


def _mutant(name: str, guard: str, tests: str, *changes: tuple[str, str, str], engine: str = "sqlite") -> Mutant:
    return Mutant(name, guard, tuple(Change(*change) for change in changes), tuple(tests.split()), engine)


_LEASES: Final = (
    _mutant(
        "generation",
        "the lease's generation in a transition's WHERE",
        f"{SWEEP}::test_a_stale_holder_writes_nothing",
        (
            GUARDED,
            'column.lease_generation == bindparam("guard_generation"),',
            'column.lease_generation >= 0 * bindparam("guard_generation"),',
        ),
    ),
    _mutant(
        "owner",
        "the lease's owner in a transition's WHERE",
        f"{SWEEP}::test_a_stale_holder_writes_nothing",
        (
            GUARDED,
            'column.lease_owner == bindparam("guard_owner"),',
            '(column.lease_owner == bindparam("guard_owner")) | column.lease_owner.is_not(None),',
        ),
    ),
    _mutant(
        "live",
        "the expiry in the WHERE of what begins to send",
        f"{SWEEP}::test_a_stale_holder_writes_nothing {LEASES}::test_a_live_lease_is_never_taken_and_a_lapsed_one_once",
        (GUARDED, 'guards.append(column.lease_expires_at > bindparam("guard_now"))', "pass"),
    ),
    _mutant(
        "live_at_its_end",
        "`>` of a live lease in the WHERE",
        f"{SWEEP}::test_a_stale_holder_writes_nothing {LEASES}::test_a_live_lease_is_never_taken_and_a_lapsed_one_once",
        (
            GUARDED,
            'column.lease_expires_at > bindparam("guard_now")',
            'column.lease_expires_at >= bindparam("guard_now")',
        ),
    ),
    _mutant(
        "lapsed",
        "the expiry in the WHERE of who takes over",
        f"{SWEEP}::test_what_is_not_due_is_not_claimed_and_a_live_lease_is_not_taken",
        (GUARDED, 'guards.append(column.lease_expires_at <= bindparam("guard_now"))', "pass"),
    ),
    _mutant(
        "lapsed_at_its_end",
        "`<=` of a lapsed lease in the WHERE",
        f"{SWEEP}::test_a_guarded_update_passes_exactly_where_the_table_lists_the_pair",
        (
            GUARDED,
            'column.lease_expires_at <= bindparam("guard_now")',
            'column.lease_expires_at < bindparam("guard_now")',
        ),
    ),
    _mutant(
        "lapsed_receipts",
        "`<=` of a lapsed lease where receipts are looked for",
        f"{LEASES}::test_a_live_lease_is_never_taken_and_a_lapsed_one_once",
        ("desk/inbox/store.py", 'R.lease_expires_at <= bindparam("now")', 'R.lease_expires_at < bindparam("now")'),
    ),
    _mutant(
        "lapsed_deliveries",
        "`<=` of a lapsed lease where deliveries are looked for",
        f"{LEASES}::test_a_live_lease_is_never_taken_and_a_lapsed_one_once",
        ("desk/outbox/store.py", 'D.lease_expires_at <= bindparam("now")', 'D.lease_expires_at < bindparam("now")'),
    ),
    _mutant(
        "generation_rises",
        "the generation that a claim and a takeover raise",
        f"{SWEEP}::test_a_guarded_update_passes_exactly_where_the_table_lists_the_pair",
        (
            GUARDED,
            'values["lease_generation"] = column.lease_generation + 1',
            'values["lease_generation"] = column.lease_generation + 0',
        ),
    ),
    _mutant(
        "due",
        "the due time in a claim's WHERE",
        f"{SWEEP}::test_what_is_not_due_is_not_claimed_and_a_live_lease_is_not_taken",
        (GUARDED, 'guards.append(column.not_before <= bindparam("guard_now"))', "pass"),
    ),
    _mutant(
        "state",
        "the state in a transition's WHERE",
        f"{SWEEP}::test_a_guarded_update_passes_exactly_where_the_table_lists_the_pair",
        (GUARDED, "column.status.in_(sorted(edge.sources)),", "column.status.is_not(None),"),
    ),
    _mutant(
        "held_generation",
        "the lease's generation in a renewal's WHERE",
        f"{SWEEP}::test_a_lease_is_renewed_by_its_holder_alone_and_only_while_it_is_live",
        (GUARDED, "        column.lease_generation == lease.generation,\n", ""),
    ),
    _mutant(
        "held_owner",
        "the lease's owner in a renewal's WHERE",
        f"{SWEEP}::test_a_lease_is_renewed_by_its_holder_alone_and_only_while_it_is_live",
        (GUARDED, "        column.lease_owner == lease.owner,\n", ""),
    ),
    _mutant(
        "renewal",
        "the expiry in a renewal's WHERE",
        f"{SWEEP}::test_a_lease_is_renewed_by_its_holder_alone_and_only_while_it_is_live",
        (GUARDED, ".where(table.c.lease_expires_at > tx.now)", ""),
    ),
    _mutant(
        "own",
        "the fence that t1b, t3, t4 and tF read first",
        "tests/contract/answering/test_changes.py::test_a_late_worker_writes_nothing",
        (
            "desk/inbox/working.py",
            'if row is None or row["status"] != "processing" or not held(row, receipt.lease, now=tx.now):',
            "if row is None:",
        ),
    ),
)

_SENDING: Final = (
    _mutant(
        "authority_at_t7",
        "the authority asked again before `sending`",
        f"{SENDING}::test_without_authority_nothing_is_sent",
        (STEPS, "    reason = _reason(tx, attempt.delivery)\n    current", "    reason = None\n    current"),
    ),
    _mutant(
        "authority_at_t5",
        "the authority asked before connecting",
        f"{SENDING}::test_without_authority_nothing_is_sent",
        (STEPS, "    reason = _reason(tx, delivery)\n    if", "    reason = None\n    if"),
    ),
    _mutant(
        "expiry_at_t7",
        "the expiry before sending, as looked at and in the WHERE",
        f"{LEASES}::test_a_lapsed_lease_is_neither_renewed_nor_sent_under",
        (STEPS, " or not current.lease.live(tx.now)", ""),
        (GUARDED, 'guards.append(column.lease_expires_at > bindparam("guard_now"))', "pass"),
    ),
    _mutant(
        "cover",
        "the lease that must cover the request that is begun",
        "tests/contract/sending/test_cover.py::test_a_request_is_told_until_when_its_lease_covers_it",
        (STEPS, "start_before_us=start_before_us,", "start_before_us=None,"),
    ),
    _mutant(
        "unknown",
        "what is not known is not sent again",
        f"{SENDING}::test_from_the_commit_on_what_is_not_known_is_unknown",
        (
            "desk/outbox/machine.py",
            '"lose": edge("sending", "indeterminate", Fence.HELD)',
            '"lose": edge("sending", "retryable_failed", Fence.HELD)',
        ),
    ),
    _mutant(
        "recovery_of_sending",
        "recovery sends nothing that was being sent",
        "tests/contract/answering/test_recovery.py::test_a_lapsed_send_is_unknown_for_good",
        (
            "desk/outbox/machine.py",
            '"lapse": edge("sending", "indeterminate", Fence.LAPSED)',
            '"lapse": edge("sending", "retryable_failed", Fence.LAPSED)',
        ),
    ),
    _mutant(
        "late_confirm",
        "what is settled takes no late word of its worker",
        "tests/contract/sending/test_settling.py::test_a_settlement_and_a_late_write_have_one_winner",
        (
            "desk/outbox/machine.py",
            '"confirm": edge("sending", "sent", Fence.HELD)',
            '"confirm": edge("sending indeterminate settled_sent settled_not_sent", "sent")',
        ),
    ),
    _mutant(
        "share",
        "FOR SHARE in the authority query",
        f"{RACING}::test_a_revocation_waits_for_a_step_that_was_allowed",
        ("storage/tx.py", "return statement.with_for_update(read=True)", "return statement"),
        engine="postgresql",
    ),
    _mutant(
        "dedupe_key",
        "one delivery for one dedupe key",
        f"{SNAPSHOTS}::test_the_database_admits_one_delivery_of_a_kind",
        (SCHEMA, '        sa.UniqueConstraint("dedupe_key", name=op.f("uq_deliveries_dedupe_key")),\n', ""),
    ),
    _mutant(
        "operation_id",
        "one delivery for one operation id",
        "tests/migration/test_constraints.py::test_each_rule_of_section_3_exists_and_bites",
        (SCHEMA, '        sa.UniqueConstraint("operation_id", name=op.f("uq_deliveries_operation_id")),\n', ""),
    ),
    _mutant(
        "provider_uuid",
        "one delivery for one uuid of the provider",
        "tests/migration/test_constraints.py::test_each_rule_of_section_3_exists_and_bites",
        (SCHEMA, '        sa.UniqueConstraint("provider_uuid", name=op.f("uq_deliveries_provider_uuid")),\n', ""),
    ),
    _mutant(
        "delivery_of_receipt",
        "one delivery for one receipt",
        f"{SNAPSHOTS}::test_the_database_admits_one_delivery_of_a_kind",
        (SCHEMA, '        sa.UniqueConstraint("receipt", name=op.f("uq_deliveries_receipt")),\n', ""),
    ),
)

_ROWS: Final = (
    _mutant(
        "message_id",
        "one receipt for one message of the provider",
        f"{ARRIVAL}::test_one_message_is_one_receipt_however_often_it_is_pushed",
        (
            SCHEMA,
            (
                '        sa.UniqueConstraint(\n            "installation", "provider_message_id", '
                'name=op.f("uq_receipts_installation_provider_message_id")\n        ),\n'
            ),
            "",
        ),
        (
            "storage/prepared.py",
            "        statement = statement.on_conflict_do_nothing(index_elements=list(self._key))\n",
            "",
        ),
        (
            "desk/inbox/reception.py",
            "return None if around.known is None else _known(around.known, message)",
            "return None",
        ),
    ),
    _mutant(
        "one_in_work",
        "one receipt of a grant in work",
        f"{LEASES}::test_of_two_sessions_that_saw_it_free_one_claims",
        (
            SCHEMA,
            '        ["reply_grant"],\n        unique=True,\n        sqlite_where=sa.text("status = \'processing\'")',
            '        ["reply_grant"],\n        unique=False,\n        sqlite_where=sa.text("status = \'processing\'")',
        ),
    ),
    _mutant(
        "arrival",
        "no receipt is claimed before an earlier one of its grant",
        "tests/contract/inbox/test_pressure.py::test_receipts_of_a_grant_run_in_the_order_they_arrived",
        ("desk/inbox/store.py", ', R.execution == "work", ~blocked', ', R.execution == "work"'),
    ),
    _mutant(
        "cursor",
        "the cursor's compare-and-set",
        "tests/property/test_transitions.py::test_a_cursor_moves_from_exactly_one_revision",
        ("desk/grants/store.py", "R.id == grant_id, R.cursor == expected", "R.id == grant_id"),
    ),
    _mutant(
        "revision",
        "revision = cursor before an answer is kept",
        "tests/contract/answering/test_changes.py::test_a_conversation_that_moved_or_a_lease_that_went_takes_no_answer",
        ("desk/grants/authority.py", "if needs_cursor and conversation.revision != grant.cursor:", "if False:"),
        ("desk/conversations/store.py", "column.revision == expected_revision", "column.revision >= 0"),
    ),
    _mutant(
        "running_turn",
        "a turn that was running is not run again",
        "tests/contract/answering/test_recovery.py::test_a_running_turn_is_not_run_again",
        (
            "desk/inbox/claiming.py",
            "    if turn is None or receipt.reply_grant_id is None:\n        return False\n    if turn.running:",
            (
                "    if turn is None or receipt.reply_grant_id is None or turn.running:\n        return False\n"
                "    if turn.running:"
            ),
        ),
    ),
    _mutant(
        "group_commit",
        "a write of a group waits for the group's commit",
        f"{COMMITS}::test_no_caller_is_told_before_the_commit_that_holds_its_write",
        (
            "storage/sqlite.py",
            "        job.wakes = tx.wakes\n        job.end(False, value)\n",
            (
                "        job.wakes = tx.wakes\n        job.end(False, value)\n        deliver([job])\n"
                "        __import__('time').sleep(0.2)  # the loop gets its turn before the commit does\n"
            ),
        ),
    ),
)

_CALLBACK: Final = (
    _mutant(
        "row_1",
        "callback row 1: the installation exists",
        f"{ORDER} tests/http/test_callback.py::test_only_the_exact_path",
        (CALLBACK, "        if target is None:\n            return _UNKNOWN\n        if wait_s", "        if wait_s"),
        (CALLBACK, "_PATH.fullmatch(raw_path)", "_PATH.match(raw_path)"),
    ),
    _mutant(
        "row_1_path",
        "callback row 1: the raw path matches exactly",
        "tests/http/test_callback.py::test_only_the_exact_path",
        (CALLBACK, "_PATH.fullmatch(raw_path)", "_PATH.match(raw_path)"),
    ),
    _mutant(
        "row_2",
        "callback row 2: the client's budget",
        f"{ORDER} tests/http/test_callback.py::test_refused_requests_cost_their_client",
        (CALLBACK, "if wait_s := self._clients.wait_s(client):", "if wait_s := 0:"),
    ),
    _mutant(
        "rows_1_2_swapped",
        "callback rows 1 and 2 in their order",
        ORDER,
        (
            CALLBACK,
            (
                "        if target is None:\n            return _UNKNOWN\n"
                "        if wait_s := self._clients.wait_s(client):\n"
                "            return _limited(Outcome.CLIENT_LIMITED, wait_s, close=True)\n"
            ),
            (
                "        if wait_s := self._clients.wait_s(client):\n"
                "            return _limited(Outcome.CLIENT_LIMITED, wait_s, close=True)\n"
                "        if target is None:\n            return _UNKNOWN\n"
            ),
        ),
    ),
    _mutant(
        "row_3_encoding",
        "callback row 3: the encoding",
        ORDER,
        (CALLBACK, 'if name == b"content-encoding" and value.strip().lower() != b"identity":', "if False:"),
    ),
    _mutant(
        "row_3_length",
        "callback row 3: the declared length is a number",
        "tests/http/test_callback.py::test_sizes",
        (
            CALLBACK,
            "malformed = malformed or length is not None or not value.isdigit()",
            "malformed = not value.isdigit()",
        ),
    ),
    _mutant(
        "row_3_size",
        "callback row 3: the declared size",
        ORDER,
        (
            CALLBACK,
            "if length is not None and (len(length) > 9 or int(length) > limits.CALLBACK_BODY_BYTES_MAX):",
            "if False:",
        ),
    ),
    _mutant(
        "row_3_streamed",
        "callback row 3: the body is counted while it streams",
        "tests/http/test_callback.py::test_sizes",
        (CALLBACK, "    while size <= limits.CALLBACK_BODY_BYTES_MAX:\n", "    while True:\n"),
    ),
    _mutant(
        "rows_2_3_swapped",
        "callback rows 2 and 3 in their order",
        ORDER,
        (
            CALLBACK,
            (
                "        if wait_s := self._clients.wait_s(client):\n"
                "            return _limited(Outcome.CLIENT_LIMITED, wait_s, close=True)\n"
                "        body = await _read(scope, receive)\n"
                "        if not isinstance(body, bytes):\n            return body\n"
            ),
            (
                "        body = await _read(scope, receive)\n"
                "        if not isinstance(body, bytes):\n            return body\n"
                "        if wait_s := self._clients.wait_s(client):\n"
                "            return _limited(Outcome.CLIENT_LIMITED, wait_s, close=True)\n"
            ),
        ),
    ),
    _mutant(
        "rows_4_5",
        "callback rows 4 and 5: the shape, before any secret",
        f"{ORDER} tests/http/test_callback.py::test_a_wrong_shape",
        (CALLBACK, "        if channel.precheck(push) is not None:\n            return _SHAPE\n", ""),
    ),
    _mutant(
        "row_4",
        "row 4 of the real channel: one object with one cipher text",
        "tests/channels/test_verify.py::test_only_one_object_with_one_cipher_text_is_a_push",
        (
            "channels/feishu/verify.py",
            "return None if _body_has_shape(push.body) and _signature_headers(push.headers) is not None else SHAPE",
            "return None if _signature_headers(push.headers) is not None else SHAPE",
        ),
        (
            "channels/feishu/verify.py",
            "if headers is None or not _body_has_shape(push.body):",
            "if headers is None:",
        ),
    ),
    _mutant(
        "row_5",
        "row 5 of the real channel: the signature's headers, all or none",
        "tests/channels/test_verify.py::test_signature_headers_come_exactly_once_or_not_at_all",
        (
            "channels/feishu/verify.py",
            "return None if _body_has_shape(push.body) and _signature_headers(push.headers) is not None else SHAPE",
            "return None if _body_has_shape(push.body) else SHAPE",
        ),
    ),
    _mutant(
        "row_6",
        "callback row 6: usable secrets, before anything is verified",
        ORDER,
        (
            CALLBACK,
            "        except CredentialUnavailable:\n            return _MATERIAL\n",
            "        except CredentialUnavailable:\n            credentials = Credentials(app_secret='')\n",
        ),
    ),
    _mutant(
        "row_7",
        "callback row 7: what does not verify is refused",
        f"{ORDER} tests/http/test_callback.py::test_a_forgery",
        (
            CALLBACK,
            '            return _SHAPE if verdict.code == "callback_shape_invalid" else _NOT_AUTHENTIC\n',
            "            return _RECEIVED\n",
        ),
    ),
    _mutant(
        "row_8",
        "row 8 of the real channel: what the SDK does not confirm",
        "tests/channels/test_verify.py::test_what_the_sdk_does_not_confirm_is_refused",
        (
            "channels/feishu/verify.py",
            "    if status != 200:\n        return REFUSED\n    if not payloads",
            "    if not payloads",
        ),
    ),
    _mutant(
        "row_9",
        "callback row 9: the installation's budget",
        f"{ORDER} tests/http/test_callback.py::test_garbage_costs_the_installation_nothing",
        (CALLBACK, "if wait_s := self._installations.take(target.installation_id):", "if wait_s := 0:"),
    ),
    _mutant(
        "rows_7_9_swapped",
        "callback rows 7 and 9 in their order",
        f"{ORDER} tests/http/test_callback.py::test_garbage_costs_the_installation_nothing",
        (
            CALLBACK,
            "        verdict = await self._threads.run(channel.verify, push, credentials)\n",
            (
                "        if wait_s := self._installations.take(target.installation_id):\n"
                "            return _limited(Outcome.INSTALLATION_LIMITED, wait_s)\n"
                "        verdict = await self._threads.run(channel.verify, push, credentials)\n"
            ),
        ),
    ),
    _mutant(
        "row_10",
        "callback row 10: no 200 before the commit",
        "tests/http/test_callback.py::test_a_raising_channel_and_a_raising_commit",
        (
            CALLBACK,
            "            await self._ports.receive(target, events)\n",
            "            asyncio.ensure_future(self._ports.receive(target, events))\n",
        ),
    ),
)

MUTANTS: Final = {mutant.name: mutant for mutant in (*_LEASES, *_SENDING, *_ROWS, *_CALLBACK)}
