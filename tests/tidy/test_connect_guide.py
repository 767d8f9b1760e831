"""The connection guide keeps its word: what the code needs of the provider is in it, and each code has a sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from frontdesk.channels.feishu import requirements
from frontdesk.desk.connections.machine import INSTALLATION
from frontdesk.kernel.codes import PROBLEMS, ROW_CODES, UNUSABLE_REASONS

REPOSITORY = Path(__file__).resolve().parent.parent.parent
CHANNEL = REPOSITORY / "src" / "frontdesk" / "channels" / "feishu"


def source() -> str:
    """The channel's code, without the table that is compared with it."""
    return "\n".join(path.read_text("utf-8") for path in CHANNEL.glob("*.py") if path.name != "requirements.py")


def guide() -> str:
    return (REPOSITORY / "docs" / "guides" / "connect-feishu.md").read_text("utf-8")


@pytest.mark.spec("DESK-392")
def test_the_guide_names_what_the_code_relies_on_and_the_reference_every_code() -> None:
    """Every provider event the code listens to and every permission its requests need stand in the guide, with callback
    address, secrets, binding, authorising, claiming, what each state asks, key loss and going back a release; every
    stable code stands with its sentences in the reference.
    """
    code, text = source(), guide()
    requests = set(re.findall(r"lark_channel\.api\.im\.v1\.model\.(\w+)_request import", code))
    assert requests == set(requirements.REQUESTS), "name the permission of each request in requirements.py"
    assert len(requests) >= 4
    called = set(re.findall(r'"(/open-apis/[\w/]+)"', code))
    assert called == set(requirements.WITHOUT_PERMISSION)
    events = set(re.findall(r'"(im\.[a-z_.]+_v\d)"', code))
    assert events == set(requirements.EVENTS) == set(requirements.EVENT_PERMISSIONS)
    for name in (*requirements.EVENTS, *requirements.PERMISSIONS):
        assert f"| `{name}` |" in text, f"{name} is not in a table of the guide"
    for words in (
        "callback path", "/api/v1/channels/feishu/installations/ins_…/events",
        "App Secret", "Encrypt Key", "Verification Token", "credential_keys",
        "connections challenge", "绑定 fdb_…", "/bind fdb_…", "my-binding",
        "grants create", "/claim", "领取",
        "## When keys are lost", "## Going back a release",
    ):  # fmt: skip
        assert words in text, words
    for state in (*INSTALLATION.states, "blocked"):
        assert re.search(rf"(?m)^\| `{state}` \| .+ \| .+ \|$", text), f"what {state} asks of the person"
    reference = (REPOSITORY / "docs" / "reference" / "codes.md").read_text("utf-8")
    rows = [line for line in reference.splitlines() if line.startswith("| `")]
    sentences = {code.code: (code.en, code.zh) for code in PROBLEMS.values()}
    for table in (sentences, ROW_CODES, UNUSABLE_REASONS):
        for name, (english, chinese) in table.items():
            assert any(
                row.startswith(f"| `{name}` |") and f" {english} |" in row and f" {chinese} |" in row for row in rows
            ), name
