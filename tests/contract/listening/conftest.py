"""One simulator for this folder, on the manual clock, patient with acknowledgements; a fresh world for each test."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from tests.contract.desk_world import TENANT, DeskWorld
from tests.contract.listening.world import ListeningWorld, open_world
from tests.simulator import harness
from tests.simulator.harness import Provider, Sim


@pytest.fixture(scope="module")
def _patient_sim() -> Iterator[Sim]:
    with harness.running(manual_clock=True, start_ms=harness.START_MS, answer_timeout_ms=60_000) as sim:
        yield sim


@pytest.fixture
def provider(_patient_sim: Sim) -> Iterator[Provider]:
    """An app of the desk's tenant, and a person."""
    _patient_sim.post("reset")
    _patient_sim.faults()
    _patient_sim.post("clock", set_ms=harness.START_MS)
    app = _patient_sim.post("apps", name="Listened", tenant_key=TENANT)
    person = _patient_sim.post("people", name="Ada", app_id=app["app_id"])
    with httpx2.Client(base_url=_patient_sim.base, trust_env=False, verify=False, timeout=70) as client:
        yield Provider(_patient_sim, app, person, client)


@pytest.fixture
async def world(desk: DeskWorld, provider: Provider) -> ListeningWorld:
    """A desk that receives from the provider's app."""
    return await open_world(desk, provider)
