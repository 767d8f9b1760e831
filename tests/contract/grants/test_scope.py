"""Scope is written once: derived at the insert, named by no UPDATE of the product, changed by nothing that happens."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import frontdesk
from frontdesk.app.schema import METADATA
from frontdesk.desk import connections, grants, outbox
from frontdesk.desk.connections.channel import ConnectFailed, RefusedRetry, Unknown
from frontdesk.desk.conversations.runner import Answer
from frontdesk.kernel.clock import HOUR, MINUTE
from frontdesk.wire.operations import OPERATIONS
from tests.contract.desk_world import DeskWorld, Seat
from tests.contract.grants.scenes import change_context, move_chat, scene

# Section 3 of the specification: the columns it marks as scope, under the names the tables give them.
SCOPE = {
    "installations": "app_id tenant_key",
    "reply_grants": "installation binding bound_user project workflow run conversation context_hash binding_revision "
    "chat_id created_by create_request_id create_request_hash",
    "deliveries": "operation_id provider_uuid installation reply_grant artifact_grant receipt purpose chat_id "
    "reply_to_message_id payload_kind text payload_bytes file_name media_type template_version payload_hash "
    "request_hash",
    "artifact_grants": "reply_grant conversation project workflow run artifact session content_hash title media_type "
    "simulated created_by create_request_id create_request_hash claim_digest",
}
COLUMNS = {table: frozenset(names.split()) for table, names in SCOPE.items()}
ROOMS = {"connections": "installations", "grants": "reply_grants artifact_grants", "outbox": "deliveries"}
WRITES = frozenset({"transition", "note", "update"})
SOURCE = Path(frontdesk.__file__).parent


def functions(room: str) -> Iterator[ast.FunctionDef]:
    for path in sorted((SOURCE / "desk" / room).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def called(function: ast.FunctionDef) -> set[str]:
    """Names of what a function calls: `f(…)` and `store.f(…)`."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.add(node.func.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "store":
            found.add(node.attr)
    return found


def named(function: ast.FunctionDef) -> set[str]:
    """Column names that a function could set: keys of its dicts, keywords of its `.values(…)`."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            found |= {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "values":
            found |= {keyword.arg for keyword in node.keywords if keyword.arg}
    return found


def updaters(room: str) -> dict[str, ast.FunctionDef]:
    """Functions of a room that update a row, themselves or through another of the room."""
    every = {function.name: function for function in functions(room)}
    found: dict[str, ast.FunctionDef] = {}
    writes = set(WRITES)
    while more := {name for name, function in every.items() if name not in found and called(function) & writes}:
        found |= {name: every[name] for name in more}
        writes |= more
    return found


# Functions that update one row and insert another; what they name of the scope is the insert's.
ALSO_INSERT = {"create", "reserve_slot", "_bind"}


@pytest.mark.parametrize("room", ROOMS)
def test_no_statement_of_the_product_updates_a_scope_column(room: str) -> None:
    """Whatever function leads to an UPDATE of the room names none of its tables' scope columns."""
    scope = frozenset().union(*(COLUMNS[table] for table in ROOMS[room].split()))
    for name, function in updaters(room).items():
        if name in ALSO_INSERT or "purge" in name:  # retention empties what is kept too long, and nothing else
            continue
        assert not named(function) & scope, f"{room}: {name}"
    assert len(updaters(room)) > 3


async def busy_days(desk: DeskWorld) -> Seat:
    """Everything that can happen to a grant, its deliveries and its installation."""
    seat = await desk.seat(expires_in_seconds=3 * 86_400)
    desk.channel.connects.extend([None, ConnectFailed("connect_failed")])
    desk.channel.outcomes.extend([RefusedRetry("rate_limited", None, 1_000), Unknown()])
    for text in ("one", "two", "three"):
        await desk.ask(text, seat)
        await desk.work()
        for _ in range(3):
            await desk.send()
            desk.clock.advance(20 * MINUTE)

    async def long(*_: Any) -> Answer:
        return Answer("long " * 40_000)

    desk.runner.behaviour = long
    await desk.ask("as a file", seat)
    await desk.work()
    await desk.send()
    (unknown,) = [row for row in await desk.rows("deliveries") if row["status"] == "indeterminate"]
    reason = {"outcome": "settled_sent", "reason": "seen"}
    await desk.write(outbox.settle, desk.owner, desk.home, unknown["id"], **reason, read_back=None)
    await desk.ask("too late", seat)
    await desk.work()
    desk.clock.advance(5 * HOUR)
    await desk.send()
    await desk.write(
        connections.update_installation,
        desk.owner,
        workspace_id=desk.home,
        installation_id=seat.installation_id,
        changes={"name": "Renamed", "enabled": False},
        **desk.keys,
    )
    await desk.enable(True)
    short = await desk.seat(binding_id=seat.binding_id, title="Short", expires_in_seconds=300)
    desk.clock.advance(HOUR)
    await desk.write(grants.expire_due, 100)
    await desk.revoke(seat.grant_id)
    assert (await desk.row("reply_grants", short.grant_id))["status"] == "expired"
    return seat


@pytest.mark.spec("DESK-81")
async def test_scope_is_derived_once_and_changes_never(desk: DeskWorld) -> None:
    """Scope, chat and user come from conversation and binding; no operation, statement or later event changes them.

    Each UPDATE that the desk issues over busy days is looked at, and each row at its end; the test above reads the
    statements that were not issued.
    """
    for room in ROOMS:
        test_no_statement_of_the_product_updates_a_scope_column(room)
    assert all(COLUMNS[table] <= set(METADATA.tables[table].c.keys()) for table in COLUMNS)
    ways = {(entry.method, entry.id) for entry in OPERATIONS.values() if "/reply-grants" in entry.path}
    assert {method for method, _ in ways} <= {"GET", "POST", "DELETE"}
    assert {name for method, name in ways if method == "POST"} <= {"desk.grants.create", "desk.artifact_grants.create"}

    born: dict[tuple[str, str], dict[str, Any]] = {}
    updated: list[tuple[str, set[str]]] = []

    def watch(_connection: Any, statement: Any, *_: Any) -> None:
        if isinstance(statement, sa.Update) and statement.table.name in COLUMNS:
            updated.append(
                (statement.table.name, {getattr(column, "name", column) for column in statement._values or {}})
            )

    async def look() -> None:
        for table, names in COLUMNS.items():
            for row in await desk.rows(table):
                now = {name: row[name] for name in names}
                assert born.setdefault((table, row["id"]), now) == now, table

    found = await scene(desk)
    await look()
    row = await desk.row("reply_grants", found.seat.grant_id)
    binding = await desk.row("bindings", found.seat.binding_id)
    conversation = await desk.row("conversations", found.seat.conversation_id)
    assert (row["bound_user"], row["binding"]) == (binding["user"], binding["id"])
    assert (row["chat_id"], row["binding_revision"]) == (binding["chat_id"], binding["revision"])
    assert (row["project"], row["workflow"], row["run"]) == (found.project_id, found.workflow_id, found.run_id)
    assert (row["conversation"], row["context_hash"]) == (conversation["id"], conversation["context_hash"])

    engine = desk.database.engine()
    sa.event.listen(engine, "before_execute", watch)
    await move_chat(desk, found)
    await change_context(desk, found)
    await look()
    await busy_days(desk)
    sa.event.remove(engine, "before_execute", watch)
    await look()
    assert {table for table, _ in updated} == {"installations", "reply_grants", "deliveries"}
    for table, names in updated:
        assert names, "an UPDATE whose columns could not be read"
        assert not names & COLUMNS[table], (table, names & COLUMNS[table])
    statuses = {row["status"] for row in await desk.rows("deliveries")}
    assert {"sent", "settled_sent", "failed"} <= statuses
