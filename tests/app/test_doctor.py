"""`frontdesk doctor`: what it says of a sound installation and of each broken thing, and what it never says."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from frontdesk.app import doctor, doctor_outside, migrating
from frontdesk.app.commands.doctor import doctor as command
from frontdesk.app.doctor import Case, examine
from frontdesk.app.example import Example
from frontdesk.app.finding import NOTE, OK, WRONG, Finding
from frontdesk.app.settings import load_settings
from frontdesk.kernel.clock import SECOND, SystemClock
from frontdesk.kernel.secretbox import new_key
from frontdesk.storage.postgres import postgres_engine
from frontdesk.storage.sqlite import sqlite_engine
from tests.app.conftest import Running, Serve, tables
from tests.simulator.harness import Sim
from tests.support.processes import guarded_environment

NOWHERE = "http://127.0.0.1:1"  # nothing listens there


async def look(data: Path, **environment: str) -> list[Finding]:
    """Every finding; no check may raise, and each wrong one says what to change and what to do."""
    names = {f"FRONTDESK_{name.upper()}": value for name, value in environment.items()}
    names.setdefault("FRONTDESK_FEISHU_DOMAIN", NOWHERE)
    names.setdefault("FRONTDESK_PORT", "0")
    names.setdefault("FRONTDESK_URL", NOWHERE)
    found = [each async for each in examine(Case(data, names))]
    for each in found:
        if each.status == WRONG:
            assert each.advice, each
            assert each.setting or each.check == "sdk", f"no setting is named: {each}"
            assert "check itself failed" not in each.says, each
        assert each.line().isprintable()
    return found


def of(found: list[Finding], check: str) -> list[Finding]:
    return [each for each in found if each.check.startswith(check)]


def one(found: list[Finding], check: str, status: str = WRONG) -> Finding:
    """The one finding of a check with that status."""
    (each,) = [each for each in of(found, check) if each.status == status]
    return each


def wrong_checks(found: list[Finding]) -> set[str]:
    return {each.check for each in found if each.status == WRONG}


def said(found: list[Finding]) -> str:
    return "\n".join(each.line() + json.dumps(each.document()) for each in found)


async def connected(running: Running, simulator: Sim, name: str) -> Example:
    """An installation of this server for a new app at the simulator."""
    example = await running.example(simulator, name)
    await example._find_place()
    await example.connect()
    return example


def asking(running: Running, simulator: Sim, example: Example) -> dict[str, str]:
    """The environment of a doctor that may ask the running server."""
    port = running.address.rpartition(":")[2]
    token = str(example.api.headers["Authorization"]).removeprefix("Bearer ")
    return {"feishu_domain": simulator.base, "port": port, "url": running.address, "token": token}


def secrets_of(data: Path, example: Example | None = None) -> list[str]:
    """What no line may hold."""
    settings = load_settings(data, {})
    found = [settings.credential_keys, settings.bootstrap_token, settings.simulator_token]
    clear = [each.get_secret_value() for each in found]
    if example is not None:
        clear += [example.app[name] for name in ("app_secret", "encrypt_key", "verification_token", "bot_open_id")]
        clear.append(str(example.api.headers["Authorization"]).removeprefix("Bearer "))
    return clear


@pytest.mark.spec("DESK-372")
async def test_a_sound_installation_is_told_check_by_check_and_each_failure_by_its_setting(
    data: Path, tmp_path: Path, serve: Serve, simulator: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, database, migrations, clock, SDK, domain, token, bot, callback path, flags and readiness are looked at; a
    failed line names the setting to change, and no line holds a secret.
    """
    async with serve(data, feishu_domain=simulator.base) as running:
        example = await connected(running, simulator, "sound")
        found = await look(data, **asking(running, simulator, example))
        assert not wrong_checks(found), said(found)
        lines = said(found)
        name = f"connection {example.installation['id']}"
        for check, words in {
            "keys": "1 present and well formed",
            "database": "SQLite",
            "migrations": migrating.head_revision(),
            "stored secrets": "all 3 are readable",
            "port": "is served by a Frontdesk",
            "server": "running and ready",
            "sdk": "lark-channel-sdk 1.4.0",
            "feishu_domain": "answers",
            "clock": "s from the provider's",
        }.items():
            assert words in one(found, check, OK).says
        assert [each.says for each in of(found, "flags")] == ["reply_enabled is on", "artifact_enabled is on"]
        mine = [each.says for each in of(found, name)]
        assert "its secrets are usable" in mine
        assert "the provider gives a token" in mine
        assert "the provider names the app's bot" in mine
        assert any(each.endswith(example.installation["callback_path"]) for each in mine)

        class Ahead(SystemClock):
            def now_us(self) -> int:
                return super().now_us() + 3600 * SECOND

        with monkeypatch.context() as patch:
            patch.setattr(doctor_outside, "SystemClock", Ahead)
            late = one(await look(data, **asking(running, simulator, example)), "clock")
        assert "+36" in late.says
        assert "clock" in str(late.setting)

        path = f"{example.workspace}/installations/{example.installation['id']}"
        await example.call("PATCH", path, json={"app_secret": "not-the-secret-of-this-app-at-all"})
        found = await look(data, **asking(running, simulator, example))
        rejected = next(each for each in of(found, name) if "no token" in each.says)
        assert rejected.status == WRONG
        assert "provider_credentials_rejected" in rejected.says
        assert "10014" in rejected.says
        assert "app_secret" in str(rejected.setting)
        # The server's probe kept it; from now on it is told since when.
        found = await look(data, **asking(running, simulator, example))
        assert any("not reached since 20" in each.says for each in of(found, name))
        lines += said(found)
        await example.call("PATCH", path, json={"app_secret": example.app["app_secret"]})

        for clear in secrets_of(data, example):
            assert clear not in lines

    for breakage, (check, setting) in BROKEN.items():
        folder = tmp_path / breakage.__name__
        shutil.copytree(data, folder)
        environment = breakage(folder) or {}
        found = await look(folder, **environment)
        failed = of([each for each in found if each.status == WRONG], check)
        assert failed, f"{breakage.__name__}: {said(found)}"
        assert setting in str(failed[0].setting), failed[0]
        for clear in secrets_of(data):
            assert clear not in said(found), breakage.__name__


# ---------------------------------------------------------------------------------------------- broken things


def no_secrets_file(data: Path) -> None:
    (data / "secrets.env").unlink()


def another_key(data: Path) -> None:
    text = (data / "secrets.env").read_text(encoding="utf-8")
    old = load_settings(data, {}).credential_keys.get_secret_value()
    (data / "secrets.env").write_text(text.replace(old, new_key()), encoding="utf-8")


def malformed_key(data: Path) -> dict[str, str]:
    return {"credential_keys": f"{new_key()},nonsense"}


def unknown_setting(data: Path) -> dict[str, str]:
    return {"reply_enable": "true"}


def broken_toml(data: Path) -> None:
    (data / "frontdesk.toml").write_text("reply_enabled = [", encoding="utf-8")


def out_of_bounds(data: Path) -> dict[str, str]:
    return {"worker_receipts": "65"}


def short_lease(data: Path) -> dict[str, str]:
    return {"lease": "25s"}


def bad_domain(data: Path) -> dict[str, str]:
    return {"feishu_domain": "http://open.feishu.cn"}


def open_folder(data: Path) -> None:
    data.chmod(0o755)


def open_file(data: Path) -> None:
    (data / "secrets.env").chmod(0o644)


def no_database(data: Path) -> None:
    (data / "frontdesk.db").unlink()


def database_is_garbage(data: Path) -> None:
    for path in data.glob("frontdesk.db*"):
        path.unlink()
    (data / "frontdesk.db").write_bytes(os.urandom(8192))


def database_is_a_folder(data: Path) -> None:
    (data / "frontdesk.db").unlink()
    (data / "frontdesk.db").mkdir()


def no_server_for_the_database(data: Path) -> dict[str, str]:
    return {"database_url": f"postgresql://nobody@/none?host={data}"}


def database_too_old(data: Path) -> None:
    engine = sqlite_engine(data / "frontdesk.db")
    migrating.downgrade(engine, "base", drop_desk=True)
    engine.dispose()


def database_too_new(data: Path) -> None:
    with sqlite3.connect(data / "frontdesk.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()


def domain_unreachable(data: Path) -> dict[str, str]:
    return {"feishu_domain": NOWHERE}


BROKEN: dict[Callable[[Path], dict[str, str] | None], tuple[str, str]] = {
    no_secrets_file: ("keys", "credential_keys"),
    another_key: ("stored secrets", "credential_keys"),
    malformed_key: ("keys", "credential_keys"),
    unknown_setting: ("settings", ""),
    broken_toml: ("settings", "frontdesk.toml"),
    out_of_bounds: ("settings", "worker_receipts"),
    short_lease: ("settings", ""),
    bad_domain: ("settings", ""),
    open_folder: ("data folder", "data"),
    open_file: ("data files", "data"),
    no_database: ("database", "database_url"),
    database_is_garbage: ("database", "database_url"),
    database_is_a_folder: ("database", "database_url"),
    no_server_for_the_database: ("database", "database_url"),
    database_too_old: ("migrations", "database_url"),
    database_too_new: ("migrations", "database_url"),
    domain_unreachable: ("feishu_domain", "feishu_domain"),
}
WORDS = {
    no_secrets_file: ("no key is set", "frontdesk keys new"),
    malformed_key: ("number 2", "frontdesk keys new"),
    database_too_old: ("too old", "frontdesk migrate up"),
    database_too_new: ("newer release", "start the newer release"),
    domain_unreachable: ("unreachable domain", "correct the domain"),
    no_database: ("no database file", "frontdesk init"),
    bad_domain: ("feishu_domain must be an https origin", "correct it"),
}


@pytest.mark.parametrize("breakage", WORDS, ids=lambda each: each.__name__)
async def test_a_broken_thing_is_told_in_words(breakage: Callable[[Path], dict[str, str] | None], data: Path) -> None:
    found = await look(data, **(breakage(data) or {}))
    lines = said([each for each in found if each.status == WRONG])
    for words in WORDS[breakage]:
        assert words in lines


async def test_a_taken_port_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_outside, "ASK_S", 0.2)  # it listens and never answers
    with socket.create_server(("127.0.0.1", 0)) as other:
        found = await look(data, port=str(other.getsockname()[1]))
    assert "taken by another program" in one(found, "port").says


async def test_postgresql_is_looked_at_as_well(data: Path, empty_postgres: str) -> None:
    found = await look(data, database_url=empty_postgres)
    assert "PostgreSQL 1" in one(found, "database", OK).says
    assert "frontdesk migrate up" in str(one(found, "migrations").advice)
    engine = postgres_engine(empty_postgres)
    migrating.upgrade(engine)
    engine.dispose()
    found = await look(data, database_url=empty_postgres)
    assert wrong_checks(found) == {"feishu_domain"}
    assert "all 0 are readable" in one(found, "stored secrets", OK).says


async def test_off_is_a_note_and_no_failure(data: Path) -> None:
    found = await look(data, reply_enabled="false", artifact_enabled="false")
    assert [each.status for each in of(found, "flags")] == [NOTE, NOTE]


async def test_an_sdk_of_another_version_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_outside.metadata, "version", lambda name: "1.5.0")
    assert "1.5.0" in one(await look(data), "sdk").says

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor_outside.metadata, "version", missing)
    assert "not installed" in one(await look(data), "sdk").says


async def test_an_engine_below_the_floor_is_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SQLITE_MIN", (99, 0))
    assert "too old" in one(await look(data), "database").says


async def test_a_server_that_is_not_ready_is_told(data: Path, serve: Serve, simulator: Sim) -> None:
    async with serve(data, feishu_domain=simulator.base) as running:
        assert running.process.worker is not None
        running.process.worker._loops[0].cancel()
        await asyncio.wait({running.process.worker._loops[0]})
        found = one(await look(data, url=running.address), "server")
        assert "not ready: worker" in found.says


@pytest.mark.spec("DESK-286")
async def test_exchanged_key_and_token_are_named_from_the_last_refused_push(
    data: Path, serve: Serve, simulator: Sim
) -> None:
    """With both exchanged, probe and doctor say `credentials_swapped`; pushes stay refused, and none of them writes.

    FC-3.
    """
    async with serve(data, feishu_domain=simulator.base) as running:
        example = await connected(running, simulator, "exchanged")
        path = f"{example.workspace}/installations/{example.installation['id']}"
        swapped = {
            "encrypt_key": example.app["verification_token"],
            "verification_token": example.app["encrypt_key"],
        }
        before = await look(data, **asking(running, simulator, example))
        assert not wrong_checks(before)
        await example.call("PATCH", path, json=swapped)
        quiet = {"workers", "console_sessions", "access_tokens"}
        rows = {name: each for name, each in tables(data / "frontdesk.db").items() if name not in quiet}
        for number in range(2):
            body = {"app_id": example.app["app_id"], "person": example.person["open_id"], "text": f"hello {number}"}
            sent = await example.simulate("POST", "/_sim/send", json={**body, "wait": True})
            pushes = await example.simulate("GET", "/_sim/pushes", params={"message_id": sent["message_id"]})
            attempts = pushes["items"][0]["attempts"]
            assert attempts
            assert all(each["status"] == 500 for each in attempts), attempts
        after = {name: each for name, each in tables(data / "frontdesk.db").items() if name not in quiet}
        assert after == rows, "a refused push wrote something"

        probed = await example.call("POST", f"{path}/probe")
        assert probed["verification"] == "credentials_swapped"
        found = await look(data, **asking(running, simulator, example))
        (named,) = [each for each in found if "credentials_swapped" in each.says]
        assert named.status == WRONG
        assert named.setting == "encrypt_key, verification_token"
        for clear in secrets_of(data, example):
            assert clear not in said(found)

        again = {name: example.app[name] for name in swapped}
        await example.call("PATCH", path, json=again)
        assert not wrong_checks(await look(data, **asking(running, simulator, example)))

    async with serve(data, feishu_domain=simulator.base) as restarted:
        example = await connected(restarted, simulator, "exchanged")
        await example.call("PATCH", path, json=swapped)
        probed = await example.call("POST", f"{path}/probe")
        assert probed["verification"] == "ok", "the refused push was held in memory alone"


async def test_a_token_that_may_not_probe_is_told(data: Path, serve: Serve, simulator: Sim) -> None:
    async with serve(data, feishu_domain=simulator.base) as running:
        example = await connected(running, simulator, "refused")
        environment = asking(running, simulator, example) | {"token": "fdt_" + "x" * 43}
        found = await look(data, **environment)
        (refused,) = [each for each in found if each.status == WRONG]
        assert "unauthenticated" in refused.says
        assert refused.setting == "FRONTDESK_TOKEN"


# ---------------------------------------------------------------------------------------------- the command


def run(*words: str, **environment: str) -> Any:
    names = {"FRONTDESK_FEISHU_DOMAIN": NOWHERE, "FRONTDESK_PORT": "0", "FRONTDESK_URL": NOWHERE, **environment}
    return CliRunner().invoke(command, list(words), env=names)


def test_the_command_ends_with_1_where_something_is_wrong_and_prints_a_line_a_check(tmp_path: Path) -> None:
    result = run("--data", str(tmp_path / "nowhere"))
    assert result.exit_code == 1
    assert not (tmp_path / "nowhere").exists(), "a doctor makes nothing"
    lines = result.output.splitlines()
    assert any(line.startswith("wrong data folder: there is no folder") for line in lines)
    assert lines[-1].endswith("wrong")


def test_the_command_gives_one_document(data: Path) -> None:
    result = run("--data", str(data), "--json")
    assert result.exit_code == 1  # no provider answers here
    document = json.loads(result.stdout)
    assert document["ok"] is False
    assert [each["check"] for each in document["checks"] if each["status"] == WRONG] == ["feishu_domain"]
    assert set(document["checks"][0]) == {"check", "status", "says", "setting", "advice"}


def test_the_command_ends_with_0_where_nothing_is(data: Path, simulator: Sim) -> None:
    """In a process of its own, as a person runs it."""
    environment = {"FRONTDESK_FEISHU_DOMAIN": simulator.base, "FRONTDESK_PORT": "0", "FRONTDESK_URL": NOWHERE}
    ended = subprocess.run(
        [sys.executable, "-m", "frontdesk", "doctor", "--data", str(data)],
        env=guarded_environment(environment), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.endswith("nothing is wrong\n")
    assert ended.stderr == ""
