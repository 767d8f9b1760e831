"""Section 3's uniques, checks, foreign keys and indexes: they exist, by a list written out here, and they bite."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from frontdesk.app import migrating
from frontdesk.app.schema import METADATA
from frontdesk.storage.postgres import postgres_engine
from frontdesk.storage.sqlite import sqlite_engine
from tests.migration.rows import checks, fill, fresh, listed_values, row
from tests.support.engines import Engine

# Section 3 of the specification, as it stands there. The rest of a line's columns are values.
UNIQUES = {
    "users": ["subject", "username"],
    "workspaces": ["slug"],
    "workspace_members": ["workspace user"],
    "console_sessions": ["digest"],
    "access_tokens": ["digest"],
    "projects": ["workspace slug"],
    "workflows": ["project name"],
    "runs": ["workflow started_by request_id"],
    "turns": ["conversation sequence", "conversation request_id"],
    "proposals": ["turn"],
    "installations": ["workspace channel tenant_key app_id"],
    "binding_challenges": ["code_digest"],
    "bindings": ["installation user tenant_key sender_id"],
    "receipts": ["installation provider_message_id"],
    "reply_grants": ["active_slot", "workspace project created_by create_request_id"],
    "deliveries": [
        "operation_id", "provider_uuid", "receipt", "installation provider_message_id", "dedupe_key", "artifact_slot",
    ],
    "artifact_grants": ["claim_digest", "active_slot", "workspace project created_by create_request_id"],
    "artifacts": ["session artifact_key"],
    "settlements": ["delivery"],
}  # fmt: skip
KEYS = {"artifact_producers": "artifact run", "chat_pacing": "channel app_id chat_id", "workers": "owner"}
PARTIAL = {
    ("turns", "conversation"): {"status": ("running", "completed")},
    ("bindings", "installation tenant_key sender_id"): {"active": (True, False)},
    ("bindings", "installation user"): {"active": (True, False)},
    ("receipts", "reply_grant"): {"status": ("processing", "completed")},
}
INDEXES = {
    "events": ["workspace id", "reply_grant id"],
    "receipts": ["status lease_expires_at", "reply_grant status created_at id", "status not_before"],
    "reply_grants": ["status expires_at"],
    "deliveries": ["status lease_expires_at", "status not_before"],
}
ENUMS = {
    "users.locale": "zh en",
    "access_tokens.kind": "access host results",
    "projects.access": "members administrators",
    "workspace_members.role": "admin maintainer operator viewer",
    "conversations.status": "active closed",
    "turns.surface": "console api channel",
    "turns.status": "running completed proposal failed",
    "proposals.status": "open applied refused stale",
    "installations.inbound": "webhook long_connection",
    "installations.command_language": "zh en",
    "installations.status": "active disabled revoked",
    "receipts.transport": "webhook long_connection history",
    "receipts.execution": "work answer_only",
    "receipts.intent": "binding reply artifact_claim control",
    "receipts.status": "received processing completed proposal rejected retryable_failed permanent_failed",
    "reply_grants.status": "active revoked expired",
    "deliveries.purpose": "activation agent_reply proposal_notice failure_notice artifact_offer artifact_delivery",
    "deliveries.payload_kind": "text file artifact_offer",
    "deliveries.status": "pending connecting sending sent retryable_failed failed indeterminate settled_sent"
    " settled_not_sent",
    "deliveries.read_back_result": "found absent differs unknown",
    "artifact_grants.status": "active redeemed revoked expired failed",
    "settlements.outcome": "settled_sent settled_not_sent",
}
# Rules that are no list of values: what breaks each. A name stands for the constraint's own.
RULES: dict[tuple[str, str], dict[str, Any]] = {
    ("conversations", "revision_not_negative"): {"revision": -1},
    ("conversations", "session_number_positive"): {"session_number": 0},
    ("turns", "sequence_positive"): {"sequence": 0},
    ("turns", "request_id_length"): {"request_id": ""},
    ("turns", "lease_generation_not_negative"): {"lease_generation": -1},
    ("proposals", "version_positive"): {"version": 0},
    ("installations", "config_revision_positive"): {"config_revision": 0},
    ("installations", "lease_generation_not_negative"): {"lease_generation": -1},
    ("bindings", "revision_positive"): {"revision": 0},
    ("receipts", "lease_generation_not_negative"): {"lease_generation": -1},
    ("receipts", "attempt_count_not_negative"): {"attempt_count": -1},
    ("reply_grants", "cursor_not_negative"): {"cursor": -1},
    ("reply_grants", "version_positive"): {"version": 0},
    ("reply_grants", "slot_follows_status"): {"active_slot": None},
    ("artifact_grants", "version_positive"): {"version": 0},
    ("artifact_grants", "slot_follows_status"): {"status": "revoked"},
    ("deliveries", "lease_generation_not_negative"): {"lease_generation": -1},
    ("deliveries", "attempt_count_not_negative"): {"attempt_count": -1},
    ("deliveries", "payload_bounded"): {"payload_bytes": b"x" * 1_048_577},
    ("settlements", "reason_length"): {"reason": ""},
    ("runs", "origin_whole"): {"origin_conversation": None},
    ("events", "kind_named"): {"kind": ""},
}


@pytest.fixture
def filled(engine: Engine) -> Iterator[tuple[sa.Engine, dict[str, dict[str, Any]]]]:
    """A migrated database with one row in every table."""
    made = (
        postgres_engine(engine.url)
        if engine.kind == "postgresql"
        else sqlite_engine(Path(engine.url.removeprefix("sqlite:///")))
    )
    migrating.upgrade(made)
    with made.begin() as connection:
        begin(connection)
        rows = fill(connection)
    yield made, rows
    made.dispose()


def begin(connection: sa.Connection) -> None:
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN")


Try = Callable[..., bool]


@pytest.fixture
def takes(filled: tuple[sa.Engine, dict[str, dict[str, Any]]]) -> Try:
    """Whether the database takes a further row of a table with these values; nothing of it stays."""
    made, rows = filled

    def insert(table: sa.Table, *changes: dict[str, Any]) -> bool:
        with made.connect() as connection:
            transaction = connection.begin()
            begin(connection)
            try:
                for change in changes:
                    # Uniques made of references alone: the row that holds them makes room.
                    if table.name in {"proposals", "settlements", "workspace_members", "artifact_producers"}:
                        connection.execute(sa.delete(table)) if change is changes[0] else None
                    connection.execute(sa.insert(table).values(row(table, rows, **change)))
            except sa.exc.IntegrityError:
                return False
            finally:
                transaction.rollback()
            return True

    return insert


@pytest.mark.spec("DESK-223")
def test_each_rule_of_section_3_exists_and_bites(takes: Try) -> None:
    """Every unique, check, foreign key and index of section 3 is there, and a row that breaks one is refused."""
    for table in METADATA.sorted_tables:
        assert takes(table, base(table)), f"a valid row of {table.name} was refused"
    uniques_bite(takes)
    partial_uniques_bite(takes)
    checks_bite(takes)
    foreign_keys_bite(takes)


def base(table: sa.Table) -> dict[str, Any]:
    """What makes a second row of a table differ from the first where types alone do not."""
    given: dict[str, Any] = {}
    if table.name == "bindings":
        given["active"] = False
    if table.name == "deliveries":
        given["receipt"] = None
    return given


def uniques_bite(takes: Try) -> None:
    declared: dict[str, list[str]] = {}
    for table, constraint in checks(sa.UniqueConstraint):
        declared.setdefault(table.name, []).append(" ".join(column.name for column in constraint.columns))
    assert {name: sorted(each) for name, each in declared.items()} == {
        name: sorted(each) for name, each in UNIQUES.items()
    }
    for name, columns in KEYS.items():
        assert " ".join(column.name for column in METADATA.tables[name].primary_key) == columns
    for name in METADATA.tables:
        for columns in [*UNIQUES.get(name, []), *([KEYS[name]] if name in KEYS else ["id"])]:
            table = METADATA.tables[name]
            same = {column: value(table.c[column]) for column in columns.split() if not table.c[column].foreign_keys}
            if name == "deliveries" and columns == "receipt":
                assert not takes(table, {}, {}), "deliveries.receipt"
                continue
            one, two = {**base(table), **same}, {**base(table), **same}
            assert not takes(table, one, two), f"{name}({columns}) takes a second row"


def value(column: sa.Column[Any]) -> Any:
    listed = listed_values(column.table).get(column.name)
    return listed[0] if listed else fresh(column)


def partial_uniques_bite(takes: Try) -> None:
    declared = {
        (table.name, " ".join(column.name for column in index.columns))
        for table in METADATA.sorted_tables
        for index in table.indexes
        if index.unique
    }
    assert declared == set(PARTIAL)
    for (name, columns), condition in PARTIAL.items():
        table = METADATA.tables[name]
        ((column, (inside, outside)),) = condition.items()
        same = {each: fresh(table.c[each]) for each in columns.split() if not table.c[each].foreign_keys}
        if name == "bindings" and columns == "installation tenant_key sender_id":
            continue  # every row here has one user, whose own unique bites first; see the test below
        assert takes(table, {**same, column: outside}, {**same, column: outside}), f"{name}({columns}) is not partial"
        first = {} if name == "bindings" else {**same, column: inside}
        assert not takes(table, *([first] if first else []), {**same, column: inside}), f"{name}({columns})"


def checks_bite(takes: Try) -> None:
    enums: dict[str, str] = {}
    rules: set[tuple[str, str]] = set()
    for table, constraint in checks(sa.CheckConstraint):
        text = str(constraint.sqltext)
        short = str(constraint.name).removeprefix(f"ck_{table.name}_")
        match = re.fullmatch(r"(?:\w+ IS NULL OR )?(\w+) IN \(.*\)", text)
        if match is None:
            rules.add((table.name, short))
            continue
        column = match[1]
        enums[f"{table.name}.{column}"] = " ".join(listed_values(table)[column])
        slot = {"active_slot": None} if table.name in {"reply_grants", "artifact_grants"} and column == "status" else {}
        assert not takes(table, {**base(table), **slot, column: "zz"}), f"{table.name}.{column} takes anything"
    assert {name: enums.get(name) for name in ENUMS} == ENUMS
    assert rules == set(RULES)
    for (name, rule), broken in RULES.items():
        table = METADATA.tables[name]
        assert not takes(table, {**base(table), **broken}), f"{name}: {rule} does not bite"


def foreign_keys_bite(takes: Try) -> None:
    number = 0
    for table in METADATA.sorted_tables:
        for column in table.columns:
            if column.foreign_keys:
                number += 1
                given = {**base(table), column.name: "nowhere"}
                assert not takes(table, given), f"{table.name}.{column.name} points anywhere"
    assert number > 60


def test_an_account_has_one_active_person(filled: tuple[sa.Engine, dict[str, dict[str, Any]]]) -> None:
    """The partial unique over (installation, tenant, sender) alone: two users, one account."""
    made, rows = filled
    with made.connect() as connection:
        transaction = connection.begin()
        begin(connection)
        other = row(METADATA.tables["users"], rows)
        connection.execute(sa.insert(METADATA.tables["users"]).values(other))
        account = {name: rows["bindings"][name] for name in ("tenant_key", "sender_id")}
        bindings = METADATA.tables["bindings"]
        connection.execute(sa.insert(bindings).values(row(bindings, rows, user=other["id"], active=False, **account)))
        connection.execute(sa.delete(bindings).where(bindings.c.user == other["id"]))
        with pytest.raises(sa.exc.IntegrityError):
            connection.execute(
                sa.insert(bindings).values(row(bindings, rows, user=other["id"], active=True, **account))
            )
        transaction.rollback()


def test_the_indexes_of_section_3_exist(filled: tuple[sa.Engine, dict[str, dict[str, Any]]]) -> None:
    inspector = sa.inspect(filled[0])
    for name, listed in INDEXES.items():
        found = {" ".join(str(each) for each in index["column_names"]) for index in inspector.get_indexes(name)}
        assert set(listed) <= found, name
