"""Simulators for this folder: one shared, reset for each test, on the manual clock or the wall clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulator import harness
from tests.simulator.harness import Provider, Receiver, Sim


@pytest.fixture(scope="module")
def _manual_sim() -> Iterator[Sim]:
    with harness.running(manual_clock=True, start_ms=harness.START_MS, answer_timeout_ms=700) as sim:
        yield sim


@pytest.fixture
def sim(_manual_sim: Sim) -> Sim:
    """A fresh world on the manual clock."""
    _manual_sim.post("reset")
    _manual_sim.post("clock", set_ms=harness.START_MS)
    return _manual_sim


@pytest.fixture
def desk(sim: Sim) -> Iterator[Provider]:
    """An app and a person in a fresh world."""
    with harness.provider(sim) as made:
        yield made


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A callback address."""
    with harness.receiver() as made:
        yield made
