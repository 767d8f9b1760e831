"""What holds for the desk as a whole (desk.md 9.1)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frontdesk.api.metrics import Metrics
from frontdesk.app.routes import ROUTES
from frontdesk.app.schema import METADATA
from frontdesk.desk import connections
from frontdesk.desk.conversations.runner import Answer, Cancel, Proposal, ProposalDraft, Result, TurnRequest
from frontdesk.kernel.codes import ROW_CODES
from frontdesk.wire.operations import OPERATIONS
from tests.contract.desk_world import DeskWorld

ROOT = Path(__file__).resolve().parents[3]

DRAFT = ProposalDraft("roster_tasks_submit", {"task": "t-1"}, "Delete the archive", "task", "t-1", 3)


@pytest.mark.spec("DESK-2")
async def test_a_risky_request_by_message_ends_as_an_open_proposal_that_no_message_can_decide(desk: DeskWorld) -> None:
    """A write asked for in chat becomes an open proposal; whatever is written afterwards, it stays open and undone."""
    seat = await desk.seat()

    async def propose_once(request: TurnRequest, cancel: Cancel) -> Result:
        return Proposal(DRAFT) if request.text == "delete the archive" else Answer("approved and executed")

    desk.runner.behaviour = propose_once
    receipt = await desk.ask("delete the archive", seat)
    await desk.work()
    await desk.send()
    assert (await desk.row("receipts", receipt["id"]))["status"] == "proposal"
    (before,) = await desk.rows("proposals")
    assert before["status"] == "open"
    (notice,) = await desk.rows("deliveries", receipt=receipt["id"])
    for text in ("approve", "/approve", "yes, apply it", f"批准 {before['id']}", f"apply {before['id']}", "/claim x"):
        for parent in (seat.activation, notice["provider_message_id"], None):
            await desk.push(desk.message(text, seat, parent=parent, reply=parent is not None))
            await desk.work()
            await desk.send()
    (after,) = await desk.rows("proposals")
    assert after == before
    deciding = [entry.id for entry in OPERATIONS.values() if "proposal" in entry.id or "decision" in entry.path]
    assert all(OPERATIONS[name].authenticated for name in deciding)


@pytest.mark.spec("DESK-4")
async def test_each_unusable_connection_has_its_own_state_and_sentence(desk: DeskWorld) -> None:
    """Disabled, not reached, unconfigured and revoked are four states, each with words, and each stays put."""

    async def health(installation_id: str) -> tuple[str, str | None]:
        found = await desk.read(
            connections.get_health,
            desk.owner,
            workspace_id=desk.home,
            installation_id=installation_id,
            reply_enabled=True,
            artifact_enabled=True,
            **desk.keys,
        )
        return found.status, found.last_error_code

    disabled = await desk.install("Off", app_id="cli_off")
    unreached = await desk.install("Far", app_id="cli_far")
    blocked = await desk.install("Bare", app_id="cli_bare")
    revoked = await desk.install("Gone", app_id="cli_gone")
    await desk.enable(False, disabled)
    await desk.write(connections.note_connect_result, unreached, ok=False, code="connect_failed")
    await desk.force("installations", blocked, encrypt_key_ct="not a ciphertext")
    await desk.revoke_installation(revoked)
    for _ in range(2):  # stable: reading changes nothing
        assert await health(disabled) == ("disabled", None)
        assert await health(unreached) == ("active", "connect_failed")
        assert await health(blocked) == ("blocked", "credential_unavailable")
        assert await health(revoked) == ("revoked", None)
    refused = {}
    for installation_id in (disabled, revoked):
        received = await desk.push(desk.message("hello", app_id=desk.apps[installation_id]), installation_id)
        refused[installation_id] = received.code
    assert refused == {disabled: "installation_disabled", revoked: "installation_revoked"}
    codes = ["installation_disabled", "installation_revoked", "connect_failed", "credential_unavailable"]
    for language in (0, 1):
        assert len({ROW_CODES[code][language] for code in codes}) == len(codes)


@pytest.mark.spec("DESK-6")
def test_the_receipt_row_is_the_only_queue() -> None:
    """No broker, job table or executor stands beside the receipts; turn uniqueness is the execution gate."""
    tables = set(METADATA.tables)
    assert not {name for name in tables if re.search(r"job|queue|task|outgoing|schedule|broker|celery", name)}
    assert {"receipts", "turns", "deliveries"} <= tables
    unique = {
        tuple(column.name for column in constraint.columns)
        for constraint in METADATA.tables["turns"].constraints
        if type(constraint).__name__ == "UniqueConstraint"
    }
    assert ("conversation", "request_id") in unique
    pinned = (ROOT / "requirements" / "runtime.txt").read_text(encoding="utf-8").lower()
    names = set(re.findall(r"^([a-z0-9_.-]+)==", pinned, re.MULTILINE))
    assert not names & {
        "celery",
        "rq",
        "dramatiq",
        "huey",
        "arq",
        "procrastinate",
        "apscheduler",
        "kombu",
        "redis",
        "pika",
    }


# Every label that uses one of the six words, and which of the six it may use. A new label is classified here first.
WORDS = ("received", "accepted", "answered", "sent", "read back", "settled")
ALLOWED: dict[str, set[str]] = {
    # received: the callback was acknowledged, or a receipt is stored and nothing more
    "metric callbacks received": {"received"},
    "state receipt received": {"received"},
    # sent: the provider gave a message id
    "state delivery sent": {"sent"},
    "field DeliveryRead.sent_at": {"sent"},
    # read back: looked for in the provider's own history
    "operation desk.outbox.read_back": {"read back"},
    "field DeliveryRead.read_back": {"read back"},
    "field Settlement.accept_read_back": {"read back"},
    # settled: a person decided
    "state delivery settled_sent": {"settled", "sent"},
    "state delivery settled_not_sent": {"settled", "sent"},
}


def _labels() -> Iterator[str]:
    for entry in OPERATIONS.values():
        yield f"operation {entry.id}"
        for model in (entry.request, entry.query, entry.response):
            for name, document in _models(model):
                for field in document.get("properties", {}):
                    yield f"field {name}.{field}"
    for outcome in _callback_outcomes():
        yield f"metric callbacks {outcome}"
    for family in Metrics().registry.collect():
        yield f"metric {family.name}"
    for table in METADATA.sorted_tables:
        noun = {"receipts": "receipt", "deliveries": "delivery", "turns": "turn", "reply_grants": "grant"}.get(
            table.name
        )
        if noun is not None:
            yield from (f"state {noun} {state}" for state in _states(noun))


def _models(model: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if model is None or not hasattr(model, "model_json_schema"):
        return
    document = model.model_json_schema()
    yield model.__name__.split("[")[0], document
    yield from document.get("$defs", {}).items()


def _callback_outcomes() -> list[str]:
    from frontdesk.api.desk.callback import Outcome

    return [str(outcome) for outcome in Outcome]


def _states(noun: str) -> tuple[str, ...]:
    from frontdesk.desk.conversations.machine import TURN
    from frontdesk.desk.grants.machine import REPLY_GRANT
    from frontdesk.desk.inbox.machine import RECEIPT
    from frontdesk.desk.outbox.machine import DELIVERY

    return {"receipt": RECEIPT, "delivery": DELIVERY, "turn": TURN, "grant": REPLY_GRANT}[noun].states


@pytest.mark.spec("DESK-273")
def test_the_six_words_are_never_merged() -> None:
    """Received, accepted, answered, sent, read back and settled each label their own thing alone, on every surface."""
    found: dict[str, set[str]] = {}
    for label in _labels():
        plain = label.replace("_", " ").lower()
        used = {word for word in WORDS if re.search(rf"\b{word}\b", plain)}
        if used:
            found[label] = used
    assert found == ALLOWED
    # What means "acknowledged" or "can be bound" says nothing of an answer or of a person.
    assert "metric callbacks answered" not in found
    health = OPERATIONS["desk.connections.health"].response.model_json_schema()["properties"]
    assert "binding_ready" in health
    assert not {"bound", "answered", "sent"} & set(health)
    texts = [
        text for path in (ROOT / "src" / "frontdesk").rglob("*.html") for text in [path.read_text("utf-8").lower()]
    ]
    assert texts
    assert not any(re.search(r"delivered to frontdesk[^.]{0,40}answered", text) for text in texts)
    assert len({entry.id for entry, _ in ROUTES}) == len(ROUTES)
