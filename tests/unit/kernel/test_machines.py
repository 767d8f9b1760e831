"""Transition tables: what they list is legal, nothing else is, and what is derived from them says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sqlalchemy import CheckConstraint

from frontdesk.app.schema import METADATA
from frontdesk.kernel.machine import Fence, Lease, Machine, edge
from tests.unit.kernel.machines import MACHINES

SOURCE = Path(__file__).resolve().parents[3] / "src" / "frontdesk"


def test_no_transition_table_of_the_product_is_left_out_here() -> None:
    declared = [
        name
        for path in SOURCE.rglob("machine.py")
        for name in re.findall(r"^(\w+): Final = Machine\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert len(declared) == len(MACHINES)


@pytest.mark.parametrize("table", MACHINES)
def test_every_pair_of_state_and_event_is_legal_exactly_where_it_is_listed(table: str) -> None:
    machine = MACHINES[table]
    for state in machine.states:
        for event, listed in machine.edges.items():
            assert machine.legal(state, event) is (state in listed.sources)
        assert not machine.legal(state, "no such event")
    assert machine.reachable() == set(machine.states)
    left = {source for listed in machine.edges.values() for source in listed.sources}
    assert machine.terminal() == set(machine.states) - left
    assert machine.terminal(), "a life that never ends"


@pytest.mark.parametrize("table", MACHINES)
def test_the_check_of_the_status_column_lists_exactly_the_states(table: str) -> None:
    checks = [
        str(each.sqltext)
        for each in METADATA.tables[table].constraints
        if isinstance(each, CheckConstraint) and str(each.name).endswith("status_known")
    ]
    assert len(checks) == 1
    assert re.findall(r"'([a-z_]+)'", checks[0]) == list(MACHINES[table].states)


@pytest.mark.parametrize("table", MACHINES)
def test_the_diagram_shows_every_edge_and_no_other(table: str) -> None:
    machine = MACHINES[table]
    arrows = set(re.findall(r"^    (\S+) --> ([a-z_]+): ([a-z_]+)$", machine.mermaid(), re.MULTILINE))
    assert arrows == {
        (source, listed.target, event) for event, listed in machine.edges.items() for source in listed.sources
    }
    assert set(re.findall(r"\[\*\] --> (\S+)", machine.mermaid())) == machine.initial
    assert set(re.findall(r"(\S+) --> \[\*\]", machine.mermaid())) == machine.terminal()


@pytest.mark.parametrize("table", MACHINES)
def test_what_takes_a_lease_or_gives_it_up_says_so_by_its_fence(table: str) -> None:
    """A fenced edge stands only on a table with a lease, and a claim only on one with `not_before`."""
    columns = METADATA.tables[table].c
    for event, listed in MACHINES[table].edges.items():
        if listed.fence is not Fence.NONE:
            assert {"lease_owner", "lease_generation", "lease_expires_at"} <= set(columns.keys()), event
        if listed.fence is Fence.CLAIM:
            assert "not_before" in columns, event


@pytest.mark.parametrize(
    ("initial", "edges", "what"),
    [
        ({"a"}, {"go": edge("a", "c")}, "unknown state"),
        ({"a"}, {"go": edge("x", "b")}, "unknown state"),
        ({"a"}, {"go": edge("", "b")}, "unknown state"),
        ({"z"}, {"go": edge("a", "b")}, "starts in an unknown state"),
        ({"a"}, {"go": edge("b", "a")}, "can never reach"),
    ],
)
def test_a_table_that_does_not_hold_together_is_refused(initial: set[str], edges: dict[str, object], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Machine("thing", ("a", "b"), frozenset(initial), edges)  # type: ignore[arg-type]


def test_a_lease_is_live_exactly_while_its_expiry_lies_ahead() -> None:
    """Section 1.3: live while `expires_at > now`, to be taken while `expires_at <= now`; the two never overlap."""
    lease = Lease("w", 1, 100)
    assert [lease.live(now) for now in (99, 100, 101)] == [True, False, False]
