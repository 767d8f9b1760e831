"""The process: where it listens, who may control it, how it ends, what survives a kill."""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

import frontdesk
from frontdesk.simulator import SimulatorConfig, SimulatorError
from tests.simulator import harness
from tests.simulator.harness import TOKEN, Provider, Sim


def test_it_prints_one_line_and_ends_with_0_on_sigterm_and_sigint() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        process = harness.spawn()
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("simulator ready http://127.0.0.1:")
        assert httpx2.get(line.split()[-1] + "/", trust_env=False).status_code == 200
        process.send_signal(number)
        out, errors = process.communicate(timeout=10)
        assert (process.returncode, out, errors) == (0, "", "")


def test_it_ends_when_stdin_ends() -> None:
    process = harness.spawn(exit_with_stdin=True)
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.readline()
    process.stdin.close()
    assert process.wait(10) == 0
    process.stdin = None
    assert process.communicate(timeout=5) == ("", "")


def test_a_stalled_request_does_not_hold_up_the_end() -> None:
    with harness.running() as sim, harness.provider(sim) as desk:
        sim.faults({"match": {"route": "send"}, "stall": True})
        with pytest.raises(httpx2.ReadTimeout):
            desk.client.post("/open-apis/im/v1/messages?receive_id_type=chat_id", json={}, timeout=0.2)
        sim.process.terminate()
        assert sim.process.wait(8) == 0


@pytest.mark.spec("DESK-254")
def test_other_addresses_than_loopback_are_refused() -> None:
    """The simulator refuses every host that is not loopback before it binds anything."""
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.org", "", "127.0.0.1.example.org"):
        with pytest.raises(SimulatorError, match="loopback"):
            SimulatorConfig(token=TOKEN, host=host)
    for host in ("127.0.0.1", "127.0.0.2", "localhost", "::1", "[::1]"):
        SimulatorConfig(token=TOKEN, host=host)
    process = harness.spawn(host="0.0.0.0")
    process.wait(20)
    status, errors = harness.finish(process)
    assert status != 0
    assert "binds loopback addresses only" in errors


def test_a_short_token_and_a_busy_port_are_refused() -> None:
    with pytest.raises(SimulatorError, match="16 characters"):
        SimulatorConfig(token="x" * 15)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = harness.spawn(port=taken.getsockname()[1])
        process.wait(20)
        status, errors = harness.finish(process)
    assert status != 0
    assert "cannot use 127.0.0.1 port" in errors


@pytest.mark.spec("DESK-254")
def test_every_control_route_demands_the_token(sim: Sim) -> None:
    """Without the token, or with another, each route under /_sim/ answers 401 and changes nothing."""
    from frontdesk.simulator.server import create_app

    app = create_app(SimulatorConfig(token=TOKEN, port=0))
    routes = [route for route in app.routes if str(getattr(route, "path", "")).startswith("/_sim/")]
    assert len(routes) >= 20
    for route in routes:
        for method in getattr(route, "methods", None) or set():
            path = route.path.format(app_id="cli_1", push_id="p", file_key="f")  # type: ignore[attr-defined]
            for headers in ({}, {"Authorization": "Bearer " + "x" * 24}, {"Authorization": TOKEN}):
                answer = sim.page.request(method, path, headers=headers, json={"name": "x"})
                assert answer.status_code == 401, (method, path)
    assert sim.get("apps")["items"] == []


@pytest.mark.spec("DESK-254")
def test_the_production_app_cannot_have_these_routes() -> None:
    """Nothing but the commands that start a simulator imports it, so no wiring of the server can mount its routes."""
    package = Path(frontdesk.__file__).parent
    importers = set()
    for path in package.rglob("*.py"):
        inside = path.relative_to(package).as_posix()
        if inside.startswith(("simulator/", "app/commands/")):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            if any(name.startswith("frontdesk.simulator") for name in names):
                importers.add(inside)
    assert importers == set()


# -- what survives a kill ----------------------------------------------------------------------------------------------


def killed(sim: Sim) -> None:
    os.kill(sim.process.pid, signal.SIGKILL)
    sim.process.wait(10)


def test_apps_people_messages_tokens_files_and_uuids_survive_a_kill(tmp_path: Path) -> None:
    state = str(tmp_path / "sim.db")
    with harness.running(state=state) as sim, harness.provider(sim) as desk:
        question = desk.say("before")
        first = desk.reply(question, "answer", uuid="u-1").json()["data"]["message_id"]
        files = {"file": ("f", b"bytes", "text/plain")}
        form = {"file_type": "stream", "file_name": "f"}
        key = desk.client.post("/open-apis/im/v1/files", data=form, files=files).json()["data"]["file_key"]
        headers = dict(desk.client.headers)
        before = sim.get("messages")["items"]
        counts = sim.get("requests")["counts"]
        killed(sim)
    assert [path.name for path in tmp_path.glob("sim.db*") if path.stat().st_mode & 0o077] == []
    with harness.running(state=state) as sim:
        assert sim.get("messages")["items"] == before
        assert sim.get("requests")["counts"] == counts
        assert sim.get("apps")["items"] == [desk.app]
        with httpx2.Client(base_url=sim.base, headers=headers, trust_env=False) as client:
            again = Provider(sim, desk.app, desk.person, client)
            assert again.reply(question, "answer", uuid="u-1").json()["data"]["message_id"] == first
            assert again.client.get(f"/open-apis/im/v1/files/{key}").content == b"bytes"
        assert sim.get("requests")["items"][-2]["id"] == counts_total(counts) + 1


def counts_total(counts: dict[str, Any]) -> int:
    return sum(counts.values())


def test_a_waiting_push_is_delivered_after_a_kill(tmp_path: Path) -> None:
    state = str(tmp_path / "sim.db")
    with harness.receiver() as receiver:
        receiver.answer = lambda _: (500, b"")
        with harness.running(state=state, manual_clock=True) as sim, harness.provider(sim) as desk:
            sim.control.put(f"/_sim/apps/{desk.app['app_id']}/callback", json={"url": receiver.url})
            desk.say("wait for it", wait=True)
            killed(sim)
        receiver.answer = lambda _: (200, b"")
        with harness.running(state=state, manual_clock=True) as sim:
            sim.post("clock", advance_ms=15_000)
            (push,) = sim.get("pushes")["items"]
        assert [attempt["status"] for attempt in push["attempts"]] == [500, 200]
        assert receiver.received[-1].body == receiver.received[-2].body


def test_reset_empties_the_world_and_can_keep_apps(desk: Provider, sim: Sim) -> None:
    desk.say()
    desk.create()
    sim.faults({"match": {"route": "send"}, "status": 500})
    assert sim.post("reset", keep_apps=True) == {"apps": 1}
    assert sim.get("messages")["items"] == []
    assert sim.get("requests")["counts"] == {}
    assert sim.get("faults")["items"] == []
    desk.log_in()
    assert desk.create().json()["code"] == 0
    assert sim.post("reset") == {"apps": 0}
    assert sim.get("people")["items"] == []


def test_apps_and_people_are_idempotent_and_take_given_values(sim: Sim) -> None:
    given = {
        "app_id": "cli_0123456789abcdef",
        "app_secret": "s" * 32,
        "encrypt_key": "k",
        "verification_token": "v",
        "tenant_key": "t",
    }
    app = sim.post("apps", name="Given", **given)
    assert {name: app[name] for name in given} == given
    assert sim.post("apps", name="Other name", app_id=given["app_id"]) == app
    assert sim.post("apps", name="Given") == app
    assert sim.post("apps", name="Given", header_case="lower")["header_case"] == "lower"
    ada = sim.post("people", name="Ada", app_id=given["app_id"])
    assert sim.post("people", name="Ada", app_id=given["app_id"]) == ada
    assert ada["open_id"].startswith("ou_")
    assert len(ada["chat_id"]) == 35
    made = sim.post("apps", name="Generated")
    assert len(made["app_id"]) == 20
    assert len(made["tenant_key"]) == 16
    for body in ({}, {"name": ""}, {"name": "x", "app_id": "bad id"}, {"name": "x", "header_case": "UPPER"}):
        assert sim.control.post("/_sim/apps", json=body).status_code == 400


def test_the_wall_clock_can_be_shifted() -> None:
    with harness.running() as sim:
        before = sim.get("clock")
        assert before["manual"] is False
        shifted = sim.post("clock", offset_ms=400_000)
        assert 400_000 <= shifted["now_ms"] - before["now_ms"] < 430_000
        assert sim.post("clock", offset_ms=0)["offset_ms"] == 0
        assert sim.control.post("/_sim/clock", json={"offset_ms": 1, "set_ms": 1}).status_code == 400


def test_wall_clock_redelivery_happens_by_itself() -> None:
    """On the wall clock a due redelivery needs no request: the offset makes 15 seconds pass at once."""
    with harness.running(answer_timeout_ms=500) as sim, harness.provider(sim) as desk, harness.receiver() as receiver:
        answers = iter([500, 500, 200])
        receiver.answer = lambda _: (next(answers), b"")
        sim.control.put(f"/_sim/apps/{desk.app['app_id']}/callback", json={"url": receiver.url})
        desk.say(wait=True)
        sim.post("clock", offset_ms=14_500)
        sim.until(lambda: sim.get("pushes")["items"][0]["state"] == "delivered")


def test_redelivery_can_be_switched_off() -> None:
    with harness.running(redeliver=False, manual_clock=True) as sim, harness.provider(sim) as desk:
        desk.say(wait=True)
        assert sim.get("pushes")["items"][0]["state"] == "failed"


def test_stdin_of_a_killed_parent_ends_it() -> None:
    """The child of a killed parent sees the end of its pipe."""
    code = (
        "import subprocess, sys, time; from tests.simulator import harness;"
        "p = harness.spawn(exit_with_stdin=True); print(p.pid, p.stdout.readline().split()[-1], flush=True);"
        "time.sleep(60)"
    )
    from tests.support.processes import REPOSITORY, guarded_environment

    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        env=guarded_environment({"PYTHONPATH": str(REPOSITORY)}),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    _, base = parent.stdout.readline().split()
    parent.kill()
    parent.wait(10)
    parent.stdout.close()

    def gone() -> bool:
        try:
            httpx2.get(base + "/", trust_env=False, timeout=1)
        except httpx2.TransportError:
            return True
        return False

    for _ in range(100):
        if gone():
            return
    raise AssertionError("the simulator outlived its parent")
