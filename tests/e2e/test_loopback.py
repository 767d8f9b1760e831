"""Journey 14, the loopback half: journey 1 with only keys and address changed, by the guide's own programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.e2e import rig
from tests.e2e.hooks import Chat
from tests.e2e.rig import House, until


async def test_the_first_hour_on_web_hooks_leaves_the_same_rows_in_the_same_states(
    new_house: House, tmp_path: Path
) -> None:
    """Bound, authorised, asked and answered through two programs that know nothing but the signed posts: the rows are
    those of the first hour with a chat app.
    """
    async with rig.closing(new_house) as house:
        await house.init()
        chat = Chat(house, tmp_path / "chat")
        await chat.start()
        await house.serve()
        api = house.client(await house._token())

        async def call(method: str, path: str, body: Any = None) -> Any:
            answer = await api.request(method, f"/api/v1{path}", json=body)
            assert answer.status_code < 300, answer.text
            return answer.json()

        workspace = f"/workspaces/{(await call('GET', '/me'))['memberships'][0]['workspace_id']}"
        project = (await call("GET", f"{workspace}/projects"))["items"][0]["id"]
        chat.installation = installation = await call(
            "POST",
            f"{workspace}/installations",
            {
                "channel": "loopback",
                "name": "My hook",
                "app_id": "my-hook",
                "tenant_key": "home",
                "app_secret": chat.secret,
                "target_url": chat.target,
                "command_language": "en",
            },
        )
        place = f"{workspace}/installations/{installation['id']}"
        probed = await call("POST", f"{place}/probe")
        assert (probed["token"], probed["bot_info"], probed["verification"]) == ("ok", "ok", "ok")
        assert chat.heard() == []

        await chat.say((await call("POST", f"{place}/binding-challenges", {}))["command_text"])
        binding = (await call("GET", f"{place}/my-binding"))["binding"]
        assert binding["active"]
        conversation = await call(
            "POST",
            f"{workspace}/conversations",
            {"title": "By hook", "context": {"project_id": project, "surface": "api"}},
        )
        grant = await call(
            "POST",
            f"{workspace}/projects/{project}/reply-grants",
            {
                "request_id": "by-hook",
                "installation_id": installation["id"],
                "binding_id": binding["id"],
                "conversation_id": conversation["id"],
            },
        )
        await until("the activation", lambda: house.rows("deliveries", purpose="activation", status="sent"))
        question = await chat.say("hello", "peer_1")
        await until("the answer", lambda: house.rows("deliveries", purpose="agent_reply", status="sent"))

        # As the database has it: what test_first_hour.py finds with a chat app.
        assert [(row["intent"], row["status"]) for row in house.rows("receipts")] == [
            ("binding", "completed"),
            ("reply", "completed"),
        ]
        assert [(row["conversation"], row["user_content"], row["status"]) for row in house.rows("turns")] == [
            (conversation["id"], "hello", "completed")
        ]
        assert house.rows("conversations")[0]["revision"] == 1
        assert house.rows("reply_grants")[0]["cursor"] == 1
        deliveries = house.rows("deliveries")
        assert [(row["purpose"], row["status"], row["provider_message_id"]) for row in deliveries] == [
            ("activation", "sent", "peer_1"),
            ("agent_reply", "sent", "peer_2"),
        ]
        # As the other side has it.
        heard = chat.heard()
        assert [(name, parent) for name, parent, _ in heard] == [("peer_1", "None"), ("peer_2", question)]
        assert heard[0][2].startswith("You can now answer here")
        assert heard[1][2].startswith("No model is connected")
        # As the API has it.
        shown = await call("GET", f"{workspace}/projects/{project}/reply-grants/{grant['id']}")
        assert (shown["activation_status"], shown["usable"]) == ("sent", True)
        looked = await call("POST", f"{workspace}/deliveries/{deliveries[1]['id']}/read-back")
        assert looked["result"] == "unknown"
        assert len(chat.heard()) == 2
