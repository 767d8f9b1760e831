"""Journey 1: three commands in three terminals, a connection made on the command line, and the first answer."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.e2e import rig
from tests.e2e.rig import House, until


class Terminal:
    """`frontdesk <words>` as a person types them, against the running server."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.environment = {"FRONTDESK_URL": house.address}

    async def __call__(self, *words: str, stdin: bytes | None = None, **environment: str) -> Any:
        """Run one command; the JSON it prints."""
        program = await rig.run(
            words[-1] if words[-1].isalpha() else "cli",
            [*words, "--json"],
            self._house.logs,
            self.environment | environment,
            stdin=stdin,
        )
        assert program.process.returncode == 0, program.text
        return json.loads(program.text)


@pytest.mark.spec("DESK-1")
async def test_the_first_hour_from_init_to_the_first_answer(new_house: House) -> None:
    """A signed private reply appends exactly one turn to its conversation, and exactly one answer comes back, as a
    reply to that message in that chat; all of it set up by the guide's commands alone.
    """
    async with rig.closing(new_house) as house:
        made = await house.init()
        password = re.search(r"shown once: (\S+)", made.text)
        assert password is not None
        await house.start_simulator()
        await house.serve()
        terminal = Terminal(house)
        session = await terminal("login", "--username", "owner", "--password-stdin", stdin=password[1].encode() + b"\n")
        terminal.environment["FRONTDESK_TOKEN"] = session["token"]

        # The app at the provider, then the connection here; secrets never stand on a command line.
        example = await house.meet()
        example.app = app = await example.simulate("POST", "/_sim/apps", json={"name": "Acme"})
        example.person = await example.simulate("POST", "/_sim/people", json={"name": "Grace", "app_id": app["app_id"]})
        example.installation = installation = await terminal(
            *("desk", "connections", "create", "--channel", "feishu", "--name", "Acme", "--command-language", "en"),
            *("--app-id", app["app_id"], "--tenant-key", app["tenant_key"], "--app-secret", "env:APP_SECRET"),
            *("--encrypt-key", "env:ENCRYPT_KEY", "--verification-token", "env:VERIFICATION_TOKEN"),
            APP_SECRET=app["app_secret"],
            ENCRYPT_KEY=app["encrypt_key"],
            VERIFICATION_TOKEN=app["verification_token"],
        )
        before = house.counts()
        await house.listen()  # the provider's URL check: answered 200
        assert house.counts() == before, "a URL check writes nothing"

        challenge = await terminal("desk", "connections", "challenge", installation["id"])
        await rig.say(example, challenge["command_text"], None)

        async def bound() -> Any:
            found = await terminal("desk", "connections", "my-binding", installation["id"])
            return found["binding"]

        binding = await until("the binding", bound)
        assert binding["active"]
        me = await terminal("whoami")
        project = (await terminal("projects", "list"))["items"][0]
        context = json.dumps({"project_id": project["id"], "surface": "api"})
        conversation = await terminal("desk", "conversations", "create", "--title", "Acme", "--context", context)
        grant = await terminal(
            *("desk", "grants", "create", "--installation-id", installation["id"], "--binding-id", binding["id"]),
            *("--conversation-id", conversation["id"]),
        )
        example.workspace_id = me["memberships"][0]["workspace_id"]
        example.project_id, example.grant_id = project["id"], grant["id"]
        activated = await until("the activation", lambda: _sent(house, "activation"))

        question = await rig.say(example, "hello", activated["provider_message_id"])
        answers = await until("the answer", lambda: example.answers_to(question))
        await until("the answer's commit", lambda: _sent(house, "agent_reply"))

        # As the database has it.
        receipts = house.rows("receipts")
        assert [(row["intent"], row["status"]) for row in receipts] == [
            ("binding", "completed"),
            ("reply", "completed"),
        ]
        turns = house.rows("turns")
        assert [(row["conversation"], row["user_content"], row["status"]) for row in turns] == [
            (conversation["id"], "hello", "completed")
        ]
        assert house.rows("conversations")[0]["revision"] == 1
        assert house.rows("reply_grants")[0]["cursor"] == 1
        deliveries = house.rows("deliveries")
        assert [(row["purpose"], row["status"]) for row in deliveries] == [
            ("activation", "sent"),
            ("agent_reply", "sent"),
        ]
        # As the provider has it.
        wires = await house.wires()
        rig.once_each(wires)
        assert [(row["kind"], row["target_id"]) for row in wires] == [("create", None), ("reply", question)]
        assert len(answers) == 1
        assert answers[0]["chat_id"] == example.person["chat_id"]
        assert answers[0]["message_id"] == deliveries[1]["provider_message_id"]
        assert answers[0]["text"].startswith("No model is connected")
        # As the API has it.
        listed = await terminal("desk", "conversations", "turns", conversation["id"])
        assert [item["status"] for item in listed["items"]] == ["completed"]
        assert (await terminal("desk", "conversations", "get", conversation["id"]))["revision"] == 1
        assert (await example.grant())["usable"] is True


def _sent(house: House, purpose: str) -> dict[str, Any] | None:
    found = house.rows("deliveries", purpose=purpose, status="sent")
    return found[0] if found else None
