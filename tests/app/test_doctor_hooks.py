"""`frontdesk doctor` on a web hook: its own target is asked, the chat provider is not."""

from __future__ import annotations

from pathlib import Path

from frontdesk.app.example import owner_token
from frontdesk.app.finding import NOTE, OK
from tests.app.conftest import Serve
from tests.app.test_doctor import NOWHERE, look, of, one, said, wrong_checks
from tests.channels import hooks
from tests.channels.provider import Provider


async def test_a_web_hooks_target_is_looked_at_and_no_provider_is_missed(data: Path, serve: Serve) -> None:
    """With nothing but web hooks an unreachable provider is no fault; a target that is down or not listed is one."""
    with Provider() as peer:
        async with serve(data) as running:
            token = await owner_token(data)
            api = running.client(token)
            workspace = (await api.get("/api/v1/me")).json()["memberships"][0]["workspace_id"]
            body = {
                "channel": "loopback",
                "name": "Hook",
                "app_id": "app-label",
                "tenant_key": "tenant-label",
                "app_secret": hooks.SECRET,
                "target_url": hooks.hook(peer),
            }
            made = await api.post(f"/api/v1/workspaces/{workspace}/installations", json=body)
            assert made.status_code == 201
            name = f"connection {made.json()['id']}"
            asking = {"port": running.address.rpartition(":")[2], "url": running.address, "token": token}

            found = await look(data, **asking)
            assert not wrong_checks(found), said(found)
            assert (
                one(found, "feishu_domain", NOTE).says
                == "not asked: every active connection sends to a target of its own"
            )
            assert "its target on 127.0.0.1 takes connections" in [each.says for each in of(found, name)]
            assert all(each.status == OK for each in of(found, name))
            assert "bot" not in said(of(found, name))
            lines = said(found)

            blocked = await look(data, loopback_targets="10.0.0.0/8", **asking)
            assert "ssrf_blocked" in one(blocked, name).says
            assert "loopback_targets" in str(one(blocked, name).setting)
            peer.hush()
            down = await look(data, **asking)
            assert "connect_failed" in one(down, name).says
            assert one(down, name).setting == "target_url"
            assert NOWHERE not in said(of(down, name))
            assert hooks.SECRET not in lines + said(blocked) + said(down)
    assert peer.requests == []
