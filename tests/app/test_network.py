"""Where the server listens, whose word on addresses it takes, and what it gives without credentials."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from click.testing import CliRunner

from frontdesk.app.commands.serve import serve as command
from frontdesk.app.settings import SettingsError, load_settings
from frontdesk.app.wiring import Process
from frontdesk.kernel.limits import REFUSED_REQUESTS_PER_MINUTE
from tests.app.conftest import PASSWORD, Serve

PROXY, STRANGER = "10.0.0.9", "10.0.0.66"


def refusal(data: Path, **environment: str) -> str:
    """What `frontdesk serve` says where it does not start."""
    names = {f"FRONTDESK_{name.upper()}": value for name, value in environment.items()}
    result = CliRunner().invoke(command, ["--data", str(data), "--port", "0"], env=names)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.output


def client(process: Process, peer: str, token: str | None = None) -> httpx2.AsyncClient:
    """Requests that come from the address `peer`."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    transport = httpx2.ASGITransport(app=process.api, client=(peer, 4000))
    return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers)


async def statuses(process: Process, peer: str, path: str, count: int) -> list[int]:
    """Answers to refused pushes, each with another forwarded address."""
    found = []
    async with client(process, peer) as http:
        for number in range(count):
            headers = {"X-Forwarded-For": f"203.0.113.{number % 250}", "Forwarded": f"for=203.0.113.{number % 250}"}
            found.append((await http.post(path, content=b"{}", headers=headers)).status_code)
    return found


async def installed(process: Process) -> str:
    """The callback path of a new installation."""
    async with client(process, "127.0.0.1") as http:
        session = await http.post("/api/v1/session", json={"username": "owner", "password": PASSWORD})
        http.headers["Authorization"] = f"Bearer {session.json()['token']}"
        me = (await http.get("/api/v1/me")).json()
        body = {
            "channel": "feishu", "name": "x", "app_id": "cli_" + "a" * 16, "tenant_key": "b" * 16,
            "app_secret": "s", "encrypt_key": "e", "verification_token": "v",
        }  # fmt: skip
        place = me["memberships"][0]["workspace_id"]
        made = await http.post(f"/api/v1/workspaces/{place}/installations", json=body)
        assert made.status_code == 201, made.text
        return str(made.json()["callback_path"])


@pytest.mark.spec("DESK-262")
async def test_only_loopback_without_tls_only_listed_proxies_and_no_stream_without_credentials(
    data: Path, serve: Serve
) -> None:
    """A bare non-loopback address does not start; a forwarded address counts from a listed proxy alone; the event
    stream of a workspace is 401 without credentials.
    """
    for bind in ("0.0.0.0", "::", "10.0.0.1", "desk.example.org"):
        with pytest.raises(SettingsError, match="bind is not a loopback address"):
            load_settings(data, {"FRONTDESK_BIND": bind})
        load_settings(data, {"FRONTDESK_BIND": bind, "FRONTDESK_BEHIND_PROXY": PROXY})
        load_settings(data, {"FRONTDESK_BIND": bind, "FRONTDESK_TLS_CERT": "c", "FRONTDESK_TLS_KEY": "k"})

    async with serve(data, behind_proxy=PROXY) as running:
        path = await installed(running.process)
        many = REFUSED_REQUESTS_PER_MINUTE + 5
        from_stranger = await statuses(running.process, STRANGER, path, many)
        assert set(from_stranger) == {400, 429}, "what a stranger forwards is ignored: one budget"
        assert set(await statuses(running.process, PROXY, path, many)) == {400}, "a listed proxy forwards many clients"

        async with client(running.process, "127.0.0.1") as http:
            answer = await http.get("/api/v1/workspaces/wsp_x/desk/events", headers={"Accept": "text/event-stream"})
        assert answer.status_code == 401
        assert answer.json()["code"] == "unauthenticated"


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"bind": "0.0.0.0"}, "bind is not a loopback address"),
        ({"feishu_domain": "http://open.feishu.cn"}, "feishu_domain must be an https origin"),
        ({"feishu_domain": "https://open.feishu.cn/"}, "feishu_domain must be an https origin"),
        ({"outbound_proxy": "socks5://proxy"}, "outbound_proxy must be"),
        ({"behind_proxy": "a-name"}, "behind_proxy must be"),
        ({"database_url": "mysql://h/d"}, "database_url must be"),
        ({"database_url": "postgresql://nobody@/none?host=/nowhere"}, "the database does not answer"),
        ({"database_url": "/nowhere/at/all.db"}, "there is no database yet"),
        ({"unheard_of": "1"}, "unknown setting 'unheard_of'"),
        ({"failpoints": "t7.after=kill"}, "start with --allow-failpoints"),
    ],
)
def test_serve_refuses_with_a_sentence(environment: dict[str, str], says: str, data: Path) -> None:
    assert says in refusal(data, **environment)


def test_serve_refuses_what_is_no_database_and_what_is_of_another_release(data: Path) -> None:
    import sqlite3

    with sqlite3.connect(data / "frontdesk.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    assert "newer release" in refusal(data)
    for path in data.glob("frontdesk.db*"):
        path.unlink()
    (data / "frontdesk.db").write_bytes(b"not a database at all" * 500)
    assert "the database does not answer" in refusal(data)
    (data / "frontdesk.db").unlink()
    assert "there is no database yet" in refusal(data)
    assert "there is no data folder" in refusal(data.with_name("nowhere"))
