"""The registry against the specification: each operation with exactly its method, path and right, and nothing besides.

`SPECIFIED` is a literal copy of the first three columns of the tables of desk.md 4.1 to 4.5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from frontdesk.app.routes import ROUTES
from frontdesk.wire.desk.connections import BindingRead, MyBinding
from frontdesk.wire.operations import OPERATIONS
from frontdesk.wire.registry import G, Operation, P, W

SPECIFIED = """
| identity.session.create / end | POST, DELETE /session | none / session |
| identity.me.get / update | GET, PATCH /me | any |
| identity.tokens.create / list / revoke | POST, GET /tokens; DELETE /tokens/{id} | own |
| identity.users.list / create / update | GET, POST /users; PATCH /users/{id} | platform administrator |
| identity.workspaces.list / create / update | GET, POST /workspaces; PATCH W | own / platform administrator (becomes its first admin) / `members.manage` |
| identity.members.list / add / update / remove | GET, POST W/members; PATCH, DELETE W/members/{id} | READ / `members.manage` or platform administrator (+`admins.manage` for admins) |
| identity.projects.list / create / get / update | GET, POST W/projects; GET, PATCH P | READ / `configuration.manage` / READ+gate / `configuration.manage`+gate |
| identity.workflows.list / create / update | GET, POST P/workflows; PATCH P/workflows/{id} | READ+gate / `configuration.manage`+gate |
| identity.events.list | GET W/events | `members.manage` |
| desk.conversations.create | POST W/conversations | READ+gate |
| desk.conversations.list / get | GET W/conversations; GET …/{id} | READ, own, gate |
| desk.conversations.update | PATCH …/{id} | READ, own, gate (of the old and the new project) |
| desk.conversations.turns | GET …/{id}/turns | READ, own, gate |
| desk.conversations.send | POST …/{id}/messages | READ+`agents.run`, own, gate |
| desk.conversations.close | POST …/{id}/close | READ, own, gate |
| desk.runs.start / list / get | POST P/workflows/{id}/runs; GET P/runs[/{id}] | `agents.run`+gate / READ+gate |
| desk.proposals.list / get | GET W/proposals[/{id}] | READ+gate |
| desk.proposals.decide | POST W/proposals/{id}/decision | `actions.approve` + the frozen permission + gate |
| desk.artifacts.create | POST P/runs/{id}/artifacts | `agents.run`+gate |
| desk.artifacts.list / get | GET P/artifacts[/{id}] | READ+gate |
| desk.connections.list / get | GET W/installations[/{id}] | READ |
| desk.connections.create | POST W/installations | `configuration.manage` |
| desk.connections.update | PATCH W/installations/{id} | `configuration.manage` |
| desk.connections.revoke | DELETE W/installations/{id} | `configuration.manage` |
| desk.connections.health | GET …/{id}/health | READ |
| desk.connections.probe | POST …/{id}/probe | `configuration.manage` |
| desk.connections.my_binding | GET …/{id}/my-binding | READ |
| desk.connections.challenge | POST …/{id}/binding-challenges | READ, self |
| desk.connections.unbind | DELETE W/bindings/{id} | own READ; another's `configuration.manage` |
| desk.inbox.callback | POST /channels/{channel}/installations/{id}/events | none (signature) |
| desk.grants.create | POST P/reply-grants | READ+EXPORT+gate |
| desk.grants.list | GET P/reply-grants?conversation_id= | READ, own, gate |
| desk.grants.get / revoke | GET, DELETE G | READ, own, gate |
| desk.grants.set_project_access | PUT P/access | `configuration.manage`+gate |
| desk.grants.timeline | GET G/timeline | READ, own, gate; or `inbox.work`+gate |
| desk.artifact_grants.create | POST G/artifact-grants | READ+EXPORT+gate |
| desk.artifact_grants.list / get / revoke | GET G/artifact-grants; GET, DELETE …/{id} | READ, own, gate |
| desk.outbox.list / get | GET W/deliveries[/{id}] | `inbox.work` |
| desk.outbox.read_back | POST W/deliveries/{id}/read-back | `inbox.work` |
| desk.outbox.settle | POST W/deliveries/{id}/settlement | `actions.approve` |
| desk.inbox.list / get | GET W/receipts[/{id}] | `inbox.work` |
| desk.operations.dead_letters / acknowledge | GET W/dead-letters; POST W/dead-letters/acknowledge | `inbox.work` |
| desk.operations.overview | GET W/desk/overview | `inbox.work` |
| desk.operations.stream | GET W/desk/events | READ |
"""  # noqa: E501 - as it stands there

# What other issues build: where it exists it has to be exactly as specified, and no other operation may be missing.
ELSEWHERE = ("desk.proposals.", "desk.artifacts.", "desk.artifact_grants.", "desk.operations.")

_ATOM = re.compile(
    r"`([a-z.]+)`|\b(READ|EXPORT|own|self|session|any|none|gate|platform administrator|the frozen permission"
    r"|[a-z]+\.[a-z]+)\b"
)
_ABBREVIATED = {"READ": "workspace.read", "EXPORT": "artifacts.export"}


@dataclass(frozen=True)
class Entry:
    """An operation as one of the two tells it."""

    method: str
    path: str
    right: frozenset[str]


def atoms(right: str) -> frozenset[str]:
    """What a right is made of; what stands in brackets explains it, unless it is a right itself."""
    found = [one or other for one, other in _ATOM.findall(re.sub(r"\((?!\+)[^)]*\)", "", right))]
    return frozenset(_ABBREVIATED.get(each, each) for each in found)


def plain(path: str) -> str:
    """A path without its parameters' names."""
    return re.sub(r"\{[a-z_]+\}", "{}", path)


def routes_of(text: str, base: str) -> tuple[list[tuple[str, str]], str]:
    """Methods and paths of one cell; `…` stands for the last collection named, which is returned for the next."""
    found: list[tuple[str, str]] = []
    for part in text.split("; "):
        methods, path = part.rsplit(" ", 1)
        path = path.partition("?")[0]
        if path.startswith("…"):
            path = base + path.removeprefix("…")
        else:
            first, _, rest = path.partition("/")
            path = {"W": W, "P": P, "G": G}.get(first, first) + (f"/{rest}" if rest else "")
            base = re.split(r"[\[]|/\{id\}", path)[0]
        whole, _, optional = path.partition("[")
        variants = [whole, whole + optional.rstrip("]")] if optional else [whole]
        found += [(method, plain(each)) for method in methods.split(", ") for each in variants]
    return found, base


def specified() -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    base = ""
    for line in SPECIFIED.strip().splitlines():
        names, where, right = (cell.strip() for cell in line.strip("|").split("|"))
        first, *others = names.split(" / ")
        room = first.rpartition(".")[0]
        ids = [first, *(f"{room}.{other}" for other in others)]
        routes, base = routes_of(where, base)
        assert len(routes) == len(ids), line
        rights = right.split(" / ")
        for place, (name, (method, path)) in enumerate(zip(ids, routes, strict=True)):
            entries[name] = Entry(method, path, atoms(rights[min(place, len(rights) - 1)]))
    return entries


def registered(operation: Operation) -> Entry:
    gate = frozenset({"gate"} if operation.gate else ())
    return Entry(operation.method, plain(operation.path), atoms(operation.right) | gate)


def test_the_copy_is_read_as_it_is_meant() -> None:
    entries = specified()
    assert len(entries) == 72
    member = frozenset({"members.manage", "platform administrator", "admins.manage"})
    assert entries["identity.members.remove"] == Entry("DELETE", "/workspaces/{}/members/{}", member)
    own = frozenset({"workspace.read", "own", "gate"})
    artifact_grants = "/workspaces/{}/projects/{}/reply-grants/{}/artifact-grants"
    assert entries["desk.artifact_grants.revoke"] == Entry("DELETE", artifact_grants + "/{}", own)
    assert entries["desk.conversations.turns"] == Entry("GET", "/workspaces/{}/conversations/{}/turns", own)
    read = frozenset({"workspace.read"})
    assert entries["desk.connections.health"] == Entry("GET", "/workspaces/{}/installations/{}/health", read)
    assert entries["identity.projects.update"].right == {"configuration.manage", "gate"}
    assert entries["desk.proposals.decide"].right == {"actions.approve", "the frozen permission", "gate"}


def test_every_operation_stands_in_the_registry_as_specified() -> None:
    """Method, path and right of every operation are those of the specification, and each has a handler; what is missing
    is named as another issue's. (Once none is, this is DESK-394.)
    """
    entries = specified()
    found = {name: registered(operation) for name, operation in OPERATIONS.items()}
    differing = {name: (found[name], entry) for name, entry in entries.items() if found.get(name, entry) != entry}
    assert not differing
    missing = {name for name in entries if name not in found}
    assert all(name.startswith(ELSEWHERE) for name in missing), missing
    # Other rooms' operations are other specifications'; of these two wings nothing stands beside the tables.
    assert {name for name in found if name.startswith(("identity.", "desk."))} <= set(entries)
    bound = {operation.id for operation, _ in ROUTES} | {"desk.inbox.callback"}
    assert set(found) <= bound


def test_no_operation_shows_what_none_may_show() -> None:
    """None shows a receipt to an outsider, another's binding, a list across workspaces, an artifact to the public or a
    provider's file by its key.
    """
    own = {"identity.me.get", "identity.tokens.list", "identity.workspaces.list"}
    across = {each.id for each in OPERATIONS.values() if each.method == "GET" and not each.path.startswith(W)}
    assert across == own | {"identity.users.list"}
    assert OPERATIONS["identity.users.list"].right == "platform administrator"
    public = {each.id for each in OPERATIONS.values() if not each.authenticated}
    assert public == {"identity.session.create", "desk.inbox.callback"}
    for operation in OPERATIONS.values():
        if re.search(r"receipt|dead-letter", operation.path):
            assert operation.right == "inbox.work", operation.id
        assert not re.search(r"/files?\b|file[_-]key|download|/content\b", operation.path), operation.id
        names = set(operation.query.model_fields) if operation.query is not None else set()
        assert not names & {"workspace_id", "user_id", "file_key", "image_key", "url", "path"}, operation.id
    showing = {each.id for each in OPERATIONS.values() if each.response in {BindingRead, MyBinding}}
    assert showing == {"desk.connections.my_binding", "desk.connections.unbind"}
    assert OPERATIONS["desk.connections.my_binding"].query is None  # nobody else can be named
