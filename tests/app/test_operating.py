"""Operation by people over a real server: the command line against the API, the live tail, metrics, retention."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner, Result

from frontdesk.app.example import Example
from frontdesk.app.main import main
from frontdesk.app.telemetry import configure_logging
from tests.app.conftest import Running, Serve
from tests.simulator.harness import Sim

BOUND_S = 60.0


async def cli(running: Running, example: Example, *words: str) -> Result:
    """One typed command against the running server, on a thread as it would be in its own process."""
    configure_logging("error")  # the server's own lines would come between: it lives in this process
    token = example.api.headers["Authorization"].removeprefix("Bearer ")
    environment = {"FRONTDESK_URL": running.address, "FRONTDESK_TOKEN": token}
    return await asyncio.to_thread(CliRunner().invoke, main, list(words), env=environment)


async def operated(running: Running, simulator: Sim, name: str) -> Example:
    """A prepared chat with one answer sent, one unknown, and one message refused."""
    example = await running.example(simulator, name)
    await example.prepare()
    await ended(example, await example.say("What is Frontdesk?"), "sent")
    match = {"route": "send", "app": example.app["app_id"], "times": 1}
    await example.simulate("POST", "/_sim/faults", json={"faults": [{"match": match, "accept_then_drop": True}]})
    await ended(example, await example.say("And who may answer?"), "indeterminate")
    body = {
        "app_id": example.app["app_id"],
        "person": example.person["open_id"],
        "text": "password=hunter2",
        "wait": True,
    }
    await example.simulate("POST", "/_sim/send", json=body)
    return example


async def ended(example: Example, _message: str, status: str) -> None:
    """Wait until the newest answer has this state."""

    async def look() -> bool:
        items = await listed(example, "deliveries")
        return items[0]["purpose"] == "agent_reply" and items[0]["status"] == status

    await example.until(f"an answer to be {status}", look, BOUND_S)


async def listed(example: Example, what: str, **query: Any) -> list[dict[str, Any]]:
    found = await example.call("GET", f"{example.workspace}/{what}", params=query)
    items: list[dict[str, Any]] = found["items"]
    return items


@pytest.mark.spec("DESK-367")
async def test_the_command_line_does_what_the_api_does(data: Path, serve: Serve, simulator: Sim) -> None:
    """`frontdesk desk operations dead-letters --json` prints the API's own document; `… acknowledge` says what it would
    do and changes nothing until `--apply`; `frontdesk desk outbox settle` settles as the API does, with its refusals.
    """
    async with serve(data, feishu_domain=simulator.base) as running:
        example = await operated(running, simulator, "by command")
        printed = await cli(running, example, "desk", "operations", "dead-letters", "--json")
        assert printed.exit_code == 0, printed.output
        found = json.loads(printed.stdout)
        api = await example.call("GET", f"{example.workspace}/dead-letters")
        for document in (found, api):
            for item in document["items"]:
                item.pop("age_seconds")  # a second may have passed between the two
        assert found == api
        by_code = {item["code"]: item["id"] for item in found["items"]}
        assert set(by_code) == {"send_result_unknown", "credential_text_refused"}
        assert "hunter2" not in printed.output
        narrowed = await cli(running, example, "dead-letters", "--kind", "delivery", "--json")
        assert [item["id"] for item in json.loads(narrowed.stdout)["items"]] == [by_code["send_result_unknown"]]

        words = ["desk", "operations", "acknowledge", "--ids", by_code["credential_text_refused"], "--reason", "told"]
        tried = await cli(running, example, *words)
        assert tried.exit_code == 0
        assert "add --apply" in tried.output
        assert len(await listed(example, "dead-letters")) == 2, "nothing was done"
        done = await cli(running, example, *words, "--apply", "--json")
        assert json.loads(done.stdout) == {"acknowledged": 1, "already": 0}
        assert [item["id"] for item in await listed(example, "dead-letters")] == [by_code["send_result_unknown"]]
        (seen,) = await listed(example, "dead-letters", acknowledged="true")
        assert (seen["id"], seen["acknowledged_reason"]) == (by_code["credential_text_refused"], "told")
        absent = await cli(running, example, *words[:4], "rcp_" + "0" * 32, "--reason", "x", "--apply")
        assert absent.exit_code == 13
        assert "dead_letter_not_found" in absent.output

        unknown = by_code["send_result_unknown"]
        wires = await example.wires()
        settle = ["desk", "outbox", "settle", unknown, "--outcome", "settled_sent", "--reason", "seen in the chat"]
        settled = await cli(running, example, *settle, "--accept-read-back", "--json")
        assert settled.exit_code == 0, settled.output
        assert json.loads(settled.stdout) == await example.call("GET", f"{example.workspace}/deliveries/{unknown}")
        assert json.loads(settled.stdout)["status"] == "settled_sent"
        again = await cli(running, example, *settle)
        assert again.exit_code == 14
        assert "already_settled" in again.output
        assert await example.wires() == wires

        overview = await cli(running, example, "overview", "--json")
        shown = json.loads(overview.stdout)
        direct = await example.call("GET", f"{example.workspace}/desk/overview")
        assert (shown["receipts"], shown["deliveries"]) == (direct["receipts"], direct["deliveries"])
        assert (shown["unsettled_indeterminate"], shown["live_workers"]) == (0, 1)
        story = (await example.call("GET", f"{example.project}/reply-grants/{example.grant_id}/timeline"))["items"]
        told = {(item["kind"], item["reason"]) for item in story}
        assert ("delivery.settled_sent", "It is unknown whether the message arrived.") in told
        assert ("reply_grant.created", None) in told
        await example.call("PATCH", "/me", json={"locale": "zh"})
        story = (await example.call("GET", f"{example.project}/reply-grants/{example.grant_id}/timeline"))["items"]
        assert "无法确定消息是否送达。" in {item["reason"] for item in story}
        tailed = await cli(running, example, "desk", "operations", "stream", "--no-follow")
        assert tailed.exit_code == 0, tailed.output
        assert {"kind": "delivery", "id": unknown, "status": "settled_sent"} in [
            json.loads(line) for line in tailed.stdout.splitlines()
        ]


async def test_an_open_stream_tells_and_ends_with_the_server(data: Path, serve: Serve, simulator: Sim) -> None:
    """Over a real connection what happens is told as it happens, in the reader's language nowhere: ids alone; a stop of
    the server ends the stream at once, so that nobody waits for it; a malformed last id is refused.
    """
    reading = None
    async with serve(data, feishu_domain=simulator.base) as running:
        example = await running.example(simulator, "live")
        await example.prepare()
        lines: asyncio.Queue[str | None] = asyncio.Queue()
        path = f"/api/v1{example.workspace}/desk/events"
        refused = await example.api.get(path, headers={"Last-Event-ID": "nonsense"})
        assert (refused.status_code, refused.json()["code"]) == (422, "request_invalid")
        client = httpx2.AsyncClient(
            base_url=running.address, headers=example.api.headers, trust_env=False, timeout=None
        )

        async def read() -> None:
            async with client, client.stream("GET", path) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                assert answer.headers["cache-control"] == "no-store"
                async for line in answer.aiter_lines():
                    lines.put_nowait(line)
            lines.put_nowait(None)

        reading = asyncio.create_task(read())
        await said(lines, ": alive")
        await example.say("What is Frontdesk?")
        await said(lines, '"kind":"delivery"')
    async with asyncio.timeout(BOUND_S):
        await reading


async def said(lines: asyncio.Queue[str | None], words: str) -> None:
    """Wait for a line with these words."""
    async with asyncio.timeout(BOUND_S):
        while True:
            line = await lines.get()
            assert line is not None, "the stream ended"
            if words in line:
                return


# Name → labels, as desk.md 8.5 lists what is measured.
METRICS = {
    "frontdesk_callbacks_total": {"outcome"},
    "frontdesk_receipts": {"status", "code"},
    "frontdesk_deliveries": {"status", "code"},
    "frontdesk_oldest_open_receipt_seconds": set(),
    "frontdesk_oldest_pending_delivery_seconds": set(),
    "frontdesk_lease_losses_total": {"thing"},
    "frontdesk_unsettled_indeterminate_deliveries": set(),
    "frontdesk_wire_requests_total": {"channel", "outcome"},
    "frontdesk_retries_total": {"thing"},
    "frontdesk_pacing_waits_total": {"channel"},
    "frontdesk_group_commit_size": {"le"},
    "frontdesk_live_workers": set(),
}


async def test_metrics_tell_what_the_specification_lists_and_name_nobody(
    data: Path, serve: Serve, simulator: Sim
) -> None:
    """After work of every kind each measure of 8.5 is there with exactly its labels, moved where something happened;
    no label holds an id, a person, a chat or an app.
    """
    async with serve(data, feishu_domain=simulator.base) as running:
        example = await operated(running, simulator, "measured")
        match = {"route": "send", "app": example.app["app_id"], "times": 1}
        knob = {"match": match, "status": 429, "code": 99991400, "headers": {"x-ogw-ratelimit-reset": "0"}}
        await example.simulate("POST", "/_sim/faults", json={"faults": [knob]})
        await ended(example, await example.say("Once more?"), "sent")
        running.process.metrics.lease_loss("receipt")
        running.process.metrics.pacing_wait("feishu")
        text = (await example.api.get("/metrics")).text
    found: dict[str, set[str]] = {}
    values: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', labels or ""))
        base = re.sub(r"_(?:bucket|sum|count|created)$", "", name)
        found.setdefault(base, set()).update(pairs)
        values[line.rpartition(" ")[0]] = float(value)
        for label in pairs.values():
            assert not re.search(r"[a-z]{3}_[0-9a-f]{8}|cli_|ou_|oc_|om_", label), line
    assert {name: found.get(name) for name in METRICS} == METRICS
    assert values['frontdesk_wire_requests_total{channel="feishu",outcome="sent"}'] >= 3
    assert values['frontdesk_wire_requests_total{channel="feishu",outcome="unknown"}'] == 1
    assert values['frontdesk_wire_requests_total{channel="feishu",outcome="retry"}'] == 1
    assert values['frontdesk_retries_total{thing="delivery"}'] >= 1
    assert values["frontdesk_group_commit_size_count"] > 10
    assert values["frontdesk_unsettled_indeterminate_deliveries"] == 1
    assert values["frontdesk_live_workers"] == 1


def test_retention_by_hand_counts_first_and_clears_with_apply(data: Path) -> None:
    """`frontdesk retention` says how many rows it would clear and changes nothing without `--apply`."""
    run = CliRunner().invoke
    tried = run(main, ["retention", "--data", str(data), "--json"])
    assert json.loads(tried.stdout) == {"applied": False, "days": 30, "receipts": 0, "deliveries": 0}
    assert "add --apply" in tried.stderr
    done = run(main, ["retention", "--data", str(data), "--days", "7", "--apply"])
    assert done.stdout == "cleared the content of 0 receipts and 0 deliveries older than 7 days\n"
    nowhere = run(main, ["retention", "--data", str(data / "nowhere")])
    assert (nowhere.exit_code, "there is no data folder" in nowhere.stderr) == (1, True)


def test_rotation_without_a_key_says_so(data: Path) -> None:
    """`frontdesk keys rotate` without a usable key ends with a sentence and changes nothing."""
    (data / "secrets.env").write_text("")
    told = CliRunner().invoke(main, ["keys", "rotate", "--data", str(data)])
    assert told.exit_code == 1
    assert "holds no usable key" in told.stderr
