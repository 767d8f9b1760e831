"""The command line equals the registry, says what went wrong in one sentence, and never shows or keeps a secret."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from frontdesk.cli.commands import ALIASES, GROUP_ALIASES, attach
from frontdesk.cli.exits import EXITS, USAGE, exit_of
from frontdesk.kernel.codes import PROBLEMS, Kind
from frontdesk.wire.operations import OPERATIONS as REAL
from tests.cli.conftest import OPERATIONS, TOKEN, Server, Shell

GRANTS = "/workspaces/wsp_1/projects/prj_1/reply-grants"


def walked(group: click.Group, words: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    found: dict[tuple[str, ...], click.Command] = {}
    for word, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= walked(command, (*words, word))
        else:
            found[(*words, word)] = command
    return found


def test_every_operation_is_a_command() -> None:
    """Each operation of the real registry is the command its id spells, with every parameter it takes."""
    group = click.Group("frontdesk")
    attach(group, REAL)
    commands = walked(group)
    for operation in REAL.values():
        command = commands.get(operation.cli_words)
        assert (command is not None) == operation.cli
        if command is None:
            continue
        named = {parameter.name for parameter in command.params}
        models = [model for model in (operation.request, operation.query) if model is not None]
        assert named >= {*operation.path_parameters, *(name for model in models for name in model.model_fields)}
        assert operation.summary.rstrip(".") in (command.help or "")
        for code in operation.errors:
            assert code in (command.help or "")


def test_short_names_lead_to_operations() -> None:
    """Short names are the same commands, and none hides another."""
    group = click.Group("frontdesk")
    attach(group, OPERATIONS)
    commands = walked(group)
    assert commands["whoami",] is commands["identity", "me", "get"]
    assert commands["login",] is commands["identity", "session", "create"]
    assert commands["grants", "create"] is commands["desk", "grants", "create"]
    assert ("desk", "inbox", "callback") not in commands
    assert not set(ALIASES) & set(GROUP_ALIASES)
    with pytest.raises(ValueError, match="taken"):
        attach(group, OPERATIONS)


def test_a_command_with_everything(server: Server, shell: Shell, tmp_path: Path) -> None:
    """Options become the documented body; workspace and project are found where there is only one."""
    server.answer("POST", GRANTS, {"id": "grt_1"}, 201)
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n", encoding="utf-8")
    result = shell(
        "grants", "create", "--name", "x", "--count", "3", "--kind", "b", "--loud", "--tags", "p", "--tags", "q",
        "--payload", '{"deep": [1]}', "--app-secret", f"@{secret}", "--request-id", "r1",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "grt_1" in result.output
    assert "s3cret" not in result.output
    last = server.asked[-1]
    assert (last.method, last.path) == ("POST", "/api/v1" + GRANTS)
    assert last.headers["authorization"] == f"Bearer {TOKEN}"
    assert last.body == {
        "request_id": "r1", "name": "x", "count": 3, "kind": "b", "loud": True, "tags": ["p", "q"],
        "payload": {"deep": [1]}, "app_secret": "s3cret",
    }  # fmt: skip


def test_only_what_was_given_is_sent(server: Server, shell: Shell) -> None:
    """Options left out are not in the body; a request id is made where the operation takes one."""
    server.answer("POST", GRANTS, {"id": "grt_1"}, 201)
    assert shell("grants", "create", "--name", "x").exit_code == 0
    body = server.asked[-1].body
    assert set(body) == {"name", "request_id"}
    assert body["request_id"].startswith("cli-")


def test_a_body_from_a_file(server: Server, shell: Shell, tmp_path: Path) -> None:
    """`--body` sends JSON as it is, nulls included, and options beside it win."""
    server.answer("POST", GRANTS, {"id": "grt_1"}, 201)
    file = tmp_path / "body.json"
    file.write_text('{"name": "file", "kind": null, "count": 2}', encoding="utf-8")
    assert shell("grants", "create", "--body", f"@{file}", "--count", "4", "--request-id", "r").exit_code == 0
    assert server.asked[-1].body == {"name": "file", "kind": None, "count": 4, "request_id": "r"}
    assert shell("grants", "create", "--body", "[1]").exit_code == 2
    assert shell("grants", "create", "--body", "{").exit_code == 2


@pytest.mark.parametrize("given", ["hunter2", "hunter2@host", ""])
def test_secrets_are_not_taken_as_plain_text(server: Server, shell: Shell, given: str) -> None:
    """A secret written on the command line is refused and not repeated."""
    result = shell("grants", "create", "--name", "x", "--app-secret", given)
    assert result.exit_code == 2
    assert "history" in result.output
    assert "hunter2" not in result.output
    assert all(asked.method == "GET" for asked in server.asked)


def test_secrets_from_a_variable_and_from_standard_input(server: Server, shell: Shell) -> None:
    """A secret may come from a variable or from one line of standard input."""
    server.answer("POST", "/session", {"token": "fdu_x", "expires_at": "2026-01-01T00:00:00Z"}, 201)
    assert shell("login", "--username", "owner", "--password-stdin", stdin=" two words \n").exit_code == 0
    assert server.asked[-1].body == {"username": "owner", "password": " two words "}
    result = shell("login", "--username", "owner", "--password", "env:MY_PASSWORD", MY_PASSWORD="pw")
    assert result.exit_code == 0
    assert "fdu_x" in result.output
    assert server.asked[-1].body["password"] == "pw"
    assert shell("login", "--username", "owner", "--password", "env:NOT_SET_HERE").exit_code == 2
    assert shell("login", "--username", "owner").exit_code == 2


def test_json_is_the_document(server: Server, shell: Shell) -> None:
    """`--json` prints the answer's document and nothing else."""
    document = {"items": [{"id": "ins_1", "name": "名"}], "next_cursor": "abc"}
    server.answer("GET", "/workspaces/wsp_1/installations", document)
    result = shell("connections", "list", "--json", "--limit", "5")
    assert json.loads(result.stdout) == document
    assert server.asked[-1].query == {"limit": ["5"]}


def test_a_table(server: Server, shell: Shell) -> None:
    """Without `--json` a list is a table, and the way to its next page is on stderr."""
    items = [
        {"id": "ins_" + "a" * 32, "name": "\x1b[31mred", "ready": True, "empty": None},
        {"id": "ins_2", "name": "n"},
    ]
    server.answer("GET", "/workspaces/wsp_1/installations", {"items": items, "next_cursor": "abc"})
    result = shell("connections", "list")
    assert "ins_" + "a" * 32 in result.stdout
    assert "\x1b" not in result.stdout
    assert "empty" not in result.stdout
    assert "--cursor abc" in result.stderr
    assert "--cursor" not in result.stdout
    server.answer("GET", "/workspaces/wsp_1/installations", {"items": [], "next_cursor": None})
    assert shell("connections", "list").stdout == "Nothing.\n"


def test_path_parameters_as_argument_or_option(server: Server, shell: Shell) -> None:
    """An id is given as argument or option, is quoted, and is asked for when missing."""
    server.answer("GET", "/workspaces/wsp_1/installations/ins_1/my-binding", {"binding": None})
    for words in (("ins_1",), ("--installation-id", "ins_1")):
        assert shell("connections", "my-binding", *words).exit_code == 0
    missing = shell("connections", "my-binding")
    assert missing.exit_code == 2
    assert "INSTALLATION_ID" in missing.output
    server.answer("DELETE", "/workspaces/wsp_1/bindings/bnd_1", None, 204)
    assert shell("connections", "unbind", "bnd_1").stdout == "Done.\n"
    shell("connections", "unbind", "../x")
    assert server.asked[-1].path == "/api/v1/workspaces/wsp_1/bindings/..%2Fx"


def test_several_workspaces(server: Server, shell: Shell) -> None:
    """With several workspaces one must be named, by id, by name or by FRONTDESK_WORKSPACE."""
    both = [{"workspace_id": "wsp_1", "name": "home"}, {"workspace_id": "wsp_2", "name": "work"}]
    server.answer("GET", "/me", {"memberships": both})
    for workspace in ("wsp_1", "wsp_2"):
        server.answer("GET", f"/workspaces/{workspace}/installations", {"items": [], "next_cursor": None})
    result = shell("connections", "list")
    assert result.exit_code == 2
    assert "FRONTDESK_WORKSPACE" in result.output
    assert "wsp_2  work" in result.output
    assert shell("connections", "list", "--workspace", "work").exit_code == 0
    assert server.asked[-1].path == "/api/v1/workspaces/wsp_2/installations"
    assert shell("connections", "list", FRONTDESK_WORKSPACE="wsp_1").exit_code == 0
    assert server.asked[-1].path == "/api/v1/workspaces/wsp_1/installations"
    assert shell("connections", "list", "--workspace", "nowhere").exit_code == 2


def test_projects_by_short_name(server: Server, shell: Shell) -> None:
    """A project is named by id, by short name or by FRONTDESK_PROJECT."""
    two = [{"id": "prj_1", "slug": "first"}, {"id": "prj_2", "slug": "second"}]
    server.answer("GET", "/workspaces/wsp_1/projects", {"items": two, "next_cursor": None})
    server.answer("POST", "/workspaces/wsp_1/projects/prj_2/reply-grants", {"id": "grt_1"}, 201)
    assert shell("grants", "create", "--name", "x").exit_code == 2
    assert shell("grants", "create", "--name", "x", "--project", "second").exit_code == 0
    assert shell("grants", "create", "--name", "x", FRONTDESK_PROJECT="prj_2").exit_code == 0


def test_exit_codes() -> None:
    """Each kind of problem has an exit code that is neither success nor click's own; an unknown code has one too."""
    assert set(EXITS) == set(Kind)
    assert all(code > 2 for code in EXITS.values())
    assert exit_of("idempotency_key_reused") == EXITS[Kind.CONFLICT]
    assert exit_of("from_the_future") == EXITS[Kind.REFUSED]
    assert {exit_of(code) for code in PROBLEMS} == set(EXITS.values())


def test_a_problem_is_one_sentence(server: Server, shell: Shell) -> None:
    """A refusal prints its sentence, its code and the paths, and exits with its kind's code."""
    errors = [{"path": "count", "reason": "must be at most 9"}]
    server.problem("POST", GRANTS, "request_invalid", 422, errors=errors)
    result = shell("grants", "create", "--name", "x")
    assert result.exit_code == EXITS[Kind.INVALID]
    assert result.stderr == "Error: Sentence of request_invalid. (request_invalid)\n  count: must be at most 9\n"
    assert result.stdout == ""
    server.problem("POST", GRANTS, "unavailable", 503, retry="same_request")
    again = shell("grants", "create", "--name", "x", "--request-id", "r7")
    assert again.exit_code == EXITS[Kind.UNAVAILABLE]
    assert "--request-id r7" in again.stderr


def test_no_token(server: Server, shell: Shell) -> None:
    """A 401 says which variable to set."""
    server.problem("GET", "/me", "unauthenticated", 401)
    result = shell("whoami", FRONTDESK_TOKEN="")
    assert result.exit_code == EXITS[Kind.UNAUTHENTICATED]
    assert "FRONTDESK_TOKEN" in result.stderr
    assert "authorization" not in server.asked[-1].headers


def test_no_server(shell: Shell, server: Server) -> None:
    """A server that is not there is a sentence naming the address and what to check, not a traceback."""
    result = shell("whoami", FRONTDESK_URL="http://127.0.0.1:9")
    assert result.exit_code == 20
    assert "http://127.0.0.1:9" in result.stderr
    assert "FRONTDESK_URL" in result.stderr
    assert "Traceback" not in result.output
    for url in ("not a url", "http://[", "http://x:y", "ftp://x"):
        assert shell("whoami", FRONTDESK_URL=url).exit_code == 20


@pytest.mark.parametrize("token", ["fdt_\u00e9", "fdt_ a", "fdt_\na", "fdt_\udcff"])
def test_a_token_that_no_header_can_carry(shell: Shell, server: Server, token: str) -> None:
    """It is named by its variable, not shown, and nothing is sent."""
    result = shell("whoami", FRONTDESK_TOKEN=token)
    assert result.exit_code == USAGE
    assert "FRONTDESK_TOKEN" in result.stderr
    assert "fdt_" not in result.output
    assert server.asked == []


@pytest.mark.parametrize("option", ["--workspace", "--name"])
def test_an_argument_that_is_no_text(shell: Shell, server: Server, option: str) -> None:
    """Bytes of a shell that are no UTF-8 are a sentence, not a traceback."""
    result = shell("grants", "create", "--name", "x", "--workspace", "wsp_1", option, "wsp_\udcff")
    assert result.exit_code == USAGE
    assert "UTF-8" in result.stderr
    assert "grants" not in str([each.path for each in server.asked])


def test_some_other_server(server: Server, shell: Shell) -> None:
    """An answer that is not ours is named as such and not shown."""
    server.answers["GET", "/api/v1/me"] = (200, "text/html", b"<h1>marker</h1>")
    result = shell("whoami")
    assert result.exit_code == 21
    assert "marker" not in result.output
    server.answers["GET", "/api/v1/me"] = (302, "text/html", b"")
    assert shell("whoami").exit_code == 21


def test_proxies_of_the_environment_are_not_used(server: Server, shell: Shell) -> None:
    """The token goes to the named server and to no proxy a variable names."""
    assert shell("whoami", HTTP_PROXY="http://127.0.0.1:9", ALL_PROXY="http://127.0.0.1:9").exit_code == 0


def test_query_options(server: Server, shell: Shell) -> None:
    """Query fields are options; a required one is asked for."""
    server.answer("GET", "/workspaces/wsp_1/things", {"items": [], "next_cursor": None})
    assert shell("desk", "things", "list").exit_code == 2
    assert shell("desk", "things", "list", "--thing-id", "t", "--loud").exit_code == 0
    assert server.asked[-1].query == {"thing_id": ["t"], "loud": ["true"]}


def test_acknowledging_is_a_dry_run_by_default(server: Server, shell: Shell) -> None:
    """Marking dead letters as seen says what it would do, and does it only with --apply."""
    path = "/workspaces/wsp_1/dead-letters/acknowledge"
    server.answer("POST", path, {"marked": 1})
    words = ("desk", "operations", "acknowledge", "--ids", "dlv_1", "--reason", "seen")
    dry = shell(*words)
    assert dry.exit_code == 0
    assert "dlv_1" in dry.stdout
    assert "--apply" in dry.stderr
    assert all(asked.method == "GET" for asked in server.asked)
    assert shell(*words, "--apply").exit_code == 0
    assert server.asked[-1].body == {"ids": ["dlv_1"], "reason": "seen"}


def test_a_stream(server: Server, shell: Shell) -> None:
    """Events are printed one to a line as they come."""
    body = b'event: x\ndata: {"kind":"a"}\n\n: ping\n\ndata: {"kind":"b"}\n\n'
    server.answers["GET", "/api/v1/workspaces/wsp_1/desk/events"] = (200, "text/event-stream", body)
    result = shell("desk", "operations", "stream")
    assert [json.loads(line)["kind"] for line in result.stdout.splitlines()] == ["a", "b"]
    server.problem("GET", "/workspaces/wsp_1/desk/events", "membership_required", 403)
    assert shell("desk", "operations", "stream").exit_code == EXITS[Kind.FORBIDDEN]
