"""The command tree: one command per operation, built from the registry alone, and a few short names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import click
from pydantic import BaseModel

from frontdesk.cli import output, parameters
from frontdesk.cli.client import (
    PROJECT_VARIABLE,
    WORKSPACE_VARIABLE,
    Client,
    Failed,
    Refused,
    filled,
    from_environment,
)
from frontdesk.cli.exits import USAGE
from frontdesk.kernel.codes import PROBLEMS
from frontdesk.kernel.ids import SystemEntropy
from frontdesk.wire.registry import Operation

# Short names of commands and of groups; the long ones stay.
ALIASES: Final[Mapping[str, str]] = {
    "login": "identity.session.create",
    "logout": "identity.session.end",
    "whoami": "identity.me.get",
    "overview": "desk.operations.overview",
    "dead-letters": "desk.operations.dead_letters",
}
GROUP_ALIASES: Final[Mapping[str, str]] = {
    "tokens": "identity.tokens",
    "users": "identity.users",
    "workspaces": "identity.workspaces",
    "members": "identity.members",
    "projects": "identity.projects",
    "workflows": "identity.workflows",
    "connections": "desk.connections",
    "conversations": "desk.conversations",
    "runs": "desk.runs",
    "proposals": "desk.proposals",
    "artifacts": "desk.artifacts",
    "grants": "desk.grants",
    "artifact-grants": "desk.artifact_grants",
    "deliveries": "desk.outbox",
    "receipts": "desk.inbox",
}
# Operations that only say what they would do, until `--apply` is given.
DRY_RUN: Final = frozenset({"desk.operations.acknowledge"})
# Server-sent events: printed as they come.
STREAMS: Final = frozenset({"desk.operations.stream"})

_SCOPE: Final = ("workspace_id", "project_id")


def attach(group: click.Group, operations: Mapping[str, Operation]) -> None:
    """Add every operation, and the short names, to `group`. Raises ValueError where a name is taken already."""
    commands: dict[str, click.Command] = {}
    for operation in operations.values():
        if not operation.cli:
            continue
        parent, command = group, command_of(operation)
        for depth, word in enumerate(operation.cli_words[:-1]):
            parent = _subgroup(parent, word, operation.cli_words[: depth + 1])
        _add(parent, operation.cli_words[-1], command)
        commands[operation.id] = command
    for alias, operation_id in ALIASES.items():
        if operation_id in commands:
            _add(group, alias, commands[operation_id])
    for alias, prefix in GROUP_ALIASES.items():
        target: click.Command | None = group
        for word in prefix.replace("_", "-").split("."):
            target = target.commands.get(word) if isinstance(target, click.Group) else None
        if target is not None:
            _add(group, alias, target)


def _subgroup(parent: click.Group, word: str, words: tuple[str, ...]) -> click.Group:
    found = parent.commands.get(word)
    if found is None:
        found = click.Group(word, help=f"Operations of {' '.join(words)}.", no_args_is_help=True)
        parent.add_command(found)
    if not isinstance(found, click.Group):
        raise ValueError(f"{' '.join(words)} is a command already")  # noqa: TRY004 - two entries clash, no type is wrong
    return found


def _add(parent: click.Group, word: str, command: click.Command) -> None:
    if word in parent.commands:
        raise ValueError(f"the name {word} is taken already")
    parent.add_command(command, word)


def command_of(operation: Operation) -> click.Command:
    """The command of one operation."""
    return click.Command(
        operation.cli_words[-1],
        params=list(_parameters(operation)),
        callback=_callback(operation),
        help=_help(operation),
        short_help=operation.summary,
    )


def _help(operation: Operation) -> str:
    lines = [operation.summary.rstrip(".") + ".", "", f"Right: {operation.right}."]
    if operation.gate:
        lines.append("An administrators' project is for platform administrators alone.")
    if operation.id in DRY_RUN:
        lines += ["", "Says what it would do; does it with --apply."]
    if operation.errors:
        lines += ["", "\b", "Refusals beyond the common ones:"]
        lines += [f"  {code}: {PROBLEMS[code].en}" for code in operation.errors]
    return "\n".join(lines)


def _parameters(operation: Operation) -> Iterator[click.Parameter]:
    own = [name for name in operation.path_parameters if name not in _SCOPE]
    for name in own:
        flag = "--" + name.replace("_", "-")
        yield click.Argument([f"{name}_argument"], required=False, metavar=f"[{name.upper()}]")
        yield click.Option([flag, name], help="The same as the argument.")
    if "workspace_id" in operation.path_parameters:
        said = "Workspace id or name; needed only if you belong to several."
        yield click.Option(["--workspace", "--workspace-id", "workspace_id"], help=said, envvar=WORKSPACE_VARIABLE)
    if "project_id" in operation.path_parameters:
        said = "Project id or short name; needed only if there are several."
        yield click.Option(["--project", "--project-id", "project_id"], help=said, envvar=PROJECT_VARIABLE)
    if operation.request is not None:
        yield from parameters.options_of(operation.request)
        said = "The whole body as JSON or @file; options given beside it win."
        yield click.Option(["--body", "body_json"], metavar="JSON|@FILE", help=said)
    if operation.query is not None:
        yield from parameters.options_of(operation.query)
    if operation.id in DRY_RUN:
        yield click.Option(["--apply"], is_flag=True, help="Do it.")
    yield click.Option(["--json", "as_json"], is_flag=True, help="Print the answer as it came.")


def _callback(operation: Operation) -> Callable[..., None]:
    def run(**given: Any) -> None:
        as_json: bool = given.pop("as_json")
        body = _body(operation, given)
        query = _query(operation, given)
        path_values = _own_path_values(operation, given)
        with from_environment() as client:
            path = filled(operation.path, {**path_values, **_scope(client, operation, given)})
            if operation.id in DRY_RUN and not given["apply"]:
                _say_what_would_be_done(operation, path, body)
            elif operation.id in STREAMS:
                for event in client.events(path, query):
                    output.show_event(event)
            else:
                output.show(_asked(client, operation, path, query, body), as_json=as_json)

    return run


def _asked(client: Client, operation: Operation, path: str, query: dict[str, Any], body: dict[str, Any] | None) -> Any:
    try:
        return client.call(operation.method, path, query, body).document
    except Failed as failure:
        repeatable = not isinstance(failure, Refused) or failure.document.get("retry") == "same_request"
        if body is not None and "request_id" in body and repeatable:
            click.echo(f"To repeat exactly this request: --request-id {body['request_id']}", err=True)
        raise


def _body(operation: Operation, given: dict[str, Any]) -> dict[str, Any] | None:
    model = operation.request
    if model is None:
        return None
    body: dict[str, Any] = {}
    if given["body_json"] is not None:
        body = parameters.json_argument("body", given["body_json"])
        if not isinstance(body, dict):
            raise parameters.Unusable("--body must be a JSON object.")
    body = {**body, **parameters.values_of(model, given)}
    if "request_id" in model.model_fields and "request_id" not in body:
        body["request_id"] = f"cli-{SystemEntropy().token_bytes(16).hex()}"
    _require(model, body)
    return body


def _query(operation: Operation, given: dict[str, Any]) -> dict[str, Any]:
    if operation.query is None:
        return {}
    query = parameters.values_of(operation.query, given)
    _require(operation.query, query)
    return {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}


def _require(model: type[BaseModel], values: dict[str, Any]) -> None:
    if missing := parameters.missing_of(model, values):
        raise click.UsageError(f"Missing: {', '.join(missing)}.")


def _own_path_values(operation: Operation, given: dict[str, Any]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name in operation.path_parameters:
        if name in _SCOPE:
            continue
        value = given[name] or given[f"{name}_argument"]
        if not value:
            raise click.UsageError(f"Missing: {name.upper()}.")
        values[name] = value
    return values


def _scope(client: Client, operation: Operation, given: dict[str, Any]) -> dict[str, str]:
    """Workspace and project: as given, else the only ones there are."""
    values: dict[str, str] = {}
    if "workspace_id" in operation.path_parameters:
        values["workspace_id"] = _workspace(client, given["workspace_id"])
    if "project_id" in operation.path_parameters:
        values["project_id"] = _project(client, values["workspace_id"], given["project_id"])
    return values


def _workspace(client: Client, given: str | None) -> str:
    if given is not None and given.startswith("wsp_"):
        return given
    memberships = client.call("GET", "/api/v1/me").document["memberships"]
    named = [(each["workspace_id"], each["name"]) for each in memberships]
    return _only(named, given, "workspace", f"--workspace or {WORKSPACE_VARIABLE}")


def _project(client: Client, workspace_id: str, given: str | None) -> str:
    if given is not None and given.startswith("prj_"):
        return given
    path = filled("/workspaces/{workspace_id}/projects", {"workspace_id": workspace_id})
    projects = client.call("GET", path, {"limit": 100}).document["items"]
    named = [(each["id"], each["slug"]) for each in projects]
    return _only(named, given, "project", f"--project or {PROJECT_VARIABLE}")


def _only(named: list[tuple[str, str]], wanted: str | None, noun: str, how: str) -> str:
    fitting = [each_id for each_id, name in named if wanted is None or wanted in {each_id, name}]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        text = f"You have no {noun} here." if wanted is None else f"You have no {noun} of that name or id."
        raise Failed(text, USAGE)
    listed = "".join(f"\n  {each_id}  {name}" for each_id, name in named if each_id in fitting)
    raise Failed(f"There are several; say which {noun} with {how}:{listed}", USAGE)


def _say_what_would_be_done(operation: Operation, path: str, body: dict[str, Any] | None) -> None:
    click.echo(f"Would send {operation.method} {path}")
    output.show(body or {}, as_json=False)
    click.echo("Nothing was done; add --apply to do it.", err=True)
