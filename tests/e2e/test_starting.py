"""`frontdesk init`, what refuses to start, and what runs with the capabilities off."""

from __future__ import annotations

import hashlib
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.rig import House, until


def contents(folder: Path) -> dict[str, str]:
    """Every file of a folder by its digest; what a reader of a database may touch is left out."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal", ".lock"))
    }


def mode(path: Path) -> int:
    """Who may read it."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.spec("DESK-325")
async def test_init_makes_a_place_once(new_house: House) -> None:
    """`init` makes folder, settings with both capabilities on, secrets, database and the owner whose password it
    shows once, and refuses a database with a user unchanged; a start without its settings leaves both capabilities
    off.
    """
    async with rig.closing(new_house) as house:
        made = await house.init()
        data = house.data
        assert mode(data) == 0o700
        assert mode(data / "secrets.env") == 0o600
        settings = (data / "frontdesk.toml").read_text()
        assert "reply_enabled = true" in settings
        assert "artifact_enabled = true" in settings
        assert "reply_enabled = true" in made.text
        names = set(re.findall(r"^FRONTDESK_(\w+)=.{16,}$", (data / "secrets.env").read_text(), re.MULTILINE))
        assert names == {"CREDENTIAL_KEYS", "BOOTSTRAP_TOKEN", "SIMULATOR_TOKEN"}
        if house.engine == "sqlite":
            assert mode(data / "frontdesk.db") == 0o600
        shown = re.findall(r"shown once: (\S+)", made.text)
        assert len(shown) == 1
        for path in data.rglob("*"):
            assert not path.is_file() or shown[0].encode() not in path.read_bytes(), path

        files, rows = contents(data), house.counts()
        environment = {"FRONTDESK_DATABASE_URL": house.database_url} if house.engine == "postgresql" else {}
        for folder in (data, data.with_name("elsewhere")) if environment else (data,):
            again = await rig.run("init", ["init", "--data", str(folder)], data.with_name("logs-again"), environment)
            assert again.process.returncode == 1
            assert again.text.splitlines()[-1] == "frontdesk: this database already holds a user; nothing was changed"
            assert "shown once" not in again.text
        assert contents(data) == files
        assert house.counts() == rows

        server = await house.serve()
        session = await house.client().post("/api/v1/session", json={"username": "owner", "password": shown[0]})
        assert session.status_code == 201
        owner = house.client(session.json()["token"])
        me = (await owner.get("/api/v1/me")).json()
        assert me["is_platform_admin"] is True
        assert [each["role"] for each in me["memberships"]] == ["admin"]
        workspace = me["memberships"][0]["workspace_id"]
        assert [each["slug"] for each in (await owner.get("/api/v1/workspaces")).json()["items"]] == ["home"]
        projects = (await owner.get(f"/api/v1/workspaces/{workspace}/projects")).json()["items"]
        assert [project["slug"] for project in projects] == ["first"]
        assert house.rows("workers")[0]["accepting_claims"]
        assert await server.terminate() == 0

        (data / "frontdesk.toml").unlink()
        await house.serve()
        assert house.rows("workers") == []


async def health(house: House) -> dict[str, Any]:
    """What the house's connection can do."""
    example = house.example
    path = f"{example.workspace}/installations/{example.installation['id']}/health"
    return dict(await example.call("GET", path))


@pytest.mark.spec("DESK-208")
async def test_with_the_capabilities_off_messages_are_kept_and_nothing_runs(copy_house: Copy) -> None:
    """Both flags default to false; then, as with the artifact flag alone, no worker starts, creating a grant is 503,
    pushes are kept and acknowledged (waiting, or refused where no grant fits), and nothing runs or is sent until it
    is on again.
    """
    async with copy_house() as house:
        example = house.example
        (house.data / "frontdesk.toml").unlink()
        wires = len(await house.wires())
        waiting: list[str] = []
        for environment in ({}, {"FRONTDESK_ARTIFACT_ENABLED": "true"}):
            server = await house.serve(environment=environment)
            await house.listen()
            seen = await health(house)
            assert (seen["reply_execution_ready"], seen["artifact_delivery_ready"]) == (False, False)
            assert (seen["callback_ready"], seen["binding_ready"]) == (True, True)
            assert house.rows("workers") == []
            grants = house.counts()["reply_grants"]
            binding = await example.binding()
            assert binding is not None
            body = {
                "request_id": f"off-{len(waiting)}",
                "installation_id": example.installation["id"],
                "binding_id": binding["id"],
                "conversation_id": example.conversation_id,
            }
            answer = await example.api.post(f"/api/v1{example.project}/reply-grants", json=body)
            assert (answer.status_code, answer.json()["code"]) == (503, "reply_execution_not_ready")
            assert house.counts()["reply_grants"] == grants
            message = await rig.say(example, f"Are you there, {len(waiting)}?", None, wait=True)
            waiting.append(message)
            forged = await rig.say(example, "In reply to nothing of yours", message, wait=True)
            for each in (message, forged):
                (push,) = await rig.pushes_of(example, each)
                assert [attempt["status"] for attempt in push["attempts"]] == [200]
            refused = house.receipt(forged)
            assert (refused["status"], refused["error_code"]) == ("rejected", "reply_grant_unavailable")
            assert await server.terminate() == 0
        assert [house.receipt(message)["status"] for message in waiting] == ["received", "received"]
        assert house.asked() == []
        assert house.rows("turns") == []
        assert len(await house.wires()) == wires
        await house.serve(environment={"FRONTDESK_REPLY_ENABLED": "true"})
        await house.answered(*waiting)
        assert [row["target_id"] for row in (await house.wires())[wires:]] == waiting


@pytest.mark.spec("DESK-328")
async def test_a_wrong_app_secret_shows_in_one_probe(copy_house: Copy) -> None:
    """With a wrong app secret the server starts, one probe says `provider_credentials_rejected` with the provider's
    code, and deliveries wait as `connect_failed`; with the right one they are sent once.
    """
    async with copy_house() as house:
        example = house.example
        path = f"{example.workspace}/installations/{example.installation['id']}"
        server = await house.serve()
        await house.listen()
        await example.call("PATCH", path, json={"app_secret": "not-the-secret-of-this-app"})
        assert await server.terminate() == 0
        await house.serve()
        probe = await example.call("POST", path + "/probe", json={})
        assert (probe["token"], probe["provider_code"]) == ("provider_credentials_rejected", 10014)
        wires = len(await house.wires())
        message = await rig.say(example, "What is Frontdesk?")
        await until("it to wait", lambda: house.delivery_is(message, "retryable_failed"))
        delivery = house.delivery(message)
        assert (delivery["error_code"], delivery["provider_code"]) == ("connect_failed", 10014)
        assert (await health(house))["last_error_code"] == "provider_credentials_rejected"
        await example.call("PATCH", path, json={"app_secret": example.app["app_secret"]})
        await house.answered(message)
        assert len(await house.wires()) == wires + 1
        assert (await health(house))["last_error_code"] is None


async def test_what_refuses_to_start_says_why(copy_house: Copy) -> None:
    """An address beyond loopback without TLS, a lease too short, an unknown setting, a failpoint or a stage without
    leave, a busy port and a missing data folder: each ends the start with one sentence and status 1.
    """
    async with copy_house() as house:
        serve = ["serve", "--data", str(house.data), "--port", str(house.port)]
        leave = [*serve, "--allow-failpoints"]
        cases = [
            (leave, {"FRONTDESK_BIND": "0.0.0.0"}, "bind is not a loopback address"),
            (leave, {"FRONTDESK_LEASE": "25s"}, "lease must be longer"),
            (leave, {"FRONTDESK_NO_SUCH_SETTING": "1"}, "unknown setting 'no_such_setting'"),
            (leave, {"FRONTDESK_FAILPOINTS": "t99.after=kill"}, "unknown failpoint"),
            (leave, {"FRONTDESK_FEISHU_DOMAIN": "http://example.com"}, "feishu_domain must be an https origin"),
            (serve, {"FRONTDESK_FAILPOINTS": "t7.after=kill"}, "FRONTDESK_FAILPOINTS is set"),
            (serve, {"FRONTDESK_FAILPOINTS": ""}, "FRONTDESK_TEST_STAGE is set"),
            (["serve", "--data", str(house.data) + "-none"], {"FRONTDESK_DATABASE_URL": ""}, "there is no data folder"),
        ]
        for words, environment, sentence in cases:
            ended = await rig.run("refused", words, house.logs, house.settings(environment))
            assert ended.process.returncode == 1, (environment, ended.text)
            (line,) = ended.text.splitlines()
            assert line.startswith("frontdesk: "), line
            assert sentence in line
        await house.serve()
        busy = await rig.run("busy", leave, house.logs, house.settings())
        assert busy.process.returncode == 1
        (line,) = busy.text.splitlines()
        assert line.startswith(f"frontdesk: port {house.port} on 127.0.0.1 cannot be taken: stop what uses it"), line
