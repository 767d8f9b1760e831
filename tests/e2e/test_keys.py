"""Journey 8 without its artifacts: the key is changed, lost and found again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet

from frontdesk.app.settings import load_settings
from tests.e2e import rig
from tests.e2e.conftest import Copy
from tests.e2e.rig import House, until

CIPHERTEXTS = ("app_secret_ct", "encrypt_key_ct", "verification_token_ct")


def put_keys(house: House, *keys: str) -> None:
    """Write the key ring into `secrets.env`."""
    path: Path = house.data / "secrets.env"
    text = re.sub(r"(?m)^(FRONTDESK_CREDENTIAL_KEYS=).*$", rf"\g<1>{','.join(keys)}", path.read_text())
    path.write_text(text)
    assert load_settings(house.data, {}).credential_keys.get_secret_value() == ",".join(keys)


def stored(house: House) -> list[str]:
    rows = house.query("SELECT * FROM installations ORDER BY id")
    return [row[name] for row in rows for name in CIPHERTEXTS if row[name] is not None]


async def rotate(house: House) -> tuple[int, dict[str, dict[str, Any]]]:
    """`frontdesk keys rotate --json` on this house: exit status and counts by column."""
    words = ["keys", "rotate", "--data", str(house.data), "--json"]
    program = await rig.run("rotate", words, house.logs, house.settings())
    document = json.loads(program.text[program.text.index("{") : program.text.rindex("}") + 1])
    return int(program.process.returncode), {each["column"]: each for each in document["columns"]}


async def test_a_key_is_changed_lost_and_found_again(copy_house: Copy) -> None:
    """With a new first key old secrets still work; after `frontdesk keys rotate` the old key can go with nothing lost.
    With a wrong key the connection is blocked, pushes are answered 503, a pending answer waits, and revoking works;
    with the key back that answer leaves once, and what was revoked stays so.
    """
    async with copy_house() as house:
        example = house.example
        old = load_settings(house.data, {}).credential_keys.get_secret_value()
        new = Fernet.generate_key().decode()
        put_keys(house, new, old)
        server = await house.serve()
        await house.listen()
        await house.answered(await rig.say(example, "Under the old key?", None))
        before = stored(house)
        counts, values = house.counts(), len(before)
        status, columns = await rotate(house)
        assert status == 0, columns
        assert sum(each["rotated"] for each in columns.values()) == values == len(CIPHERTEXTS) * rig.APPS
        assert sum(each["unreadable"] + each["moved"] for each in columns.values()) == 0
        assert house.counts() == counts
        after = stored(house)
        assert [Fernet(new).decrypt(text) for text in after] == [Fernet(old).decrypt(text) for text in before]
        # The server that was running meanwhile took the new texts up by itself.
        await house.answered(await rig.say(example, "While it was changed?", None))
        status, columns = await rotate(house)
        assert (status, sum(each["rotated"] for each in columns.values()), stored(house)) == (0, 0, after)
        assert await server.terminate() == 0

        put_keys(house, new)
        server = await house.serve()
        await house.answered(await rig.say(example, "Without the old key?", None))

        assert await server.terminate() == 0
        waiting = await _pending_answer(house)
        wires = len(await house.wires())
        put_keys(house, Fernet.generate_key().decode())
        server = await house.serve()
        await _blocked(house, waiting)
        assert await server.terminate() == 0
        assert len(await house.wires()) == wires

        put_keys(house, new)
        await house.serve()
        await house.answered(waiting)
        rig.once_each(await house.wires())
        assert len(await house.wires()) == wires + 1
        assert (await example.grant())["usable"] is True


async def _pending_answer(house: House) -> str:
    """An answer whose server died before it was claimed for sending; its question."""
    server = await house.serve(failpoint="t4.after")
    message = await rig.say(house.example, "Who waits?", None)
    await server.ended()
    assert house.delivery_is(message, "pending")
    return message


async def _blocked(house: House, waiting: str) -> None:
    example = house.example
    path = f"{example.workspace}/installations/{example.installation['id']}"
    health = await example.call("GET", path + "/health")
    assert (health["status"], health["callback_ready"], health["last_error_code"]) == (
        "blocked",
        False,
        "credential_unavailable",
    )
    await until(
        "the answer to wait for the key",
        lambda: house.delivery(waiting)["error_code"] == "credential_unavailable",
    )
    assert house.delivery(waiting)["status"] == "retryable_failed"
    refused = await rig.say(example, "Anybody there?", None, wait=True)
    (push,) = await rig.pushes_of(example, refused)
    assert {attempt["status"] for attempt in push["attempts"]} == {503}
    assert house.rows("receipts", provider_message_id=refused) == []
