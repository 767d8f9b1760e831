"""Every operation of the OpenAPI document, asked by people of every standing with whatever the document allows or not.

Schemathesis makes requests from the document, valid and broken ones; who asks, and about whose objects, is drawn too.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import requests
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from frontdesk.api.binding import PREFIX
from frontdesk.identity.model import ROLE_RIGHTS, Right
from frontdesk.wire.operations import OPERATIONS
from frontdesk.wire.registry import Operation
from tests.fuzz.profile import bounded
from tests.fuzz.served import ABSENT, EVERYBODY, MEMBERS, NOBODY, Site, planted

CHECKS: list[Any] = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
STREAM = "desk.operations.stream"
# 5xx codes that say "not now" or "the other side failed"; each is documented where it may come.
BEARABLE = {502, 503}
# Refused before anything is looked up: by the shape of the request alone.
BY_SHAPE = {"request_invalid", "body_malformed", "body_too_large", "route_not_found", "encoding_unsupported"}
BY_SHAPE |= {"host_not_allowed", "origin_not_allowed"}
ODD_HEADERS: list[dict[str, str]] = [
    {"Host": "evil.example"},
    {"Host": "localhost:99999"},
    {"Content-Encoding": "gzip"},
    {"Content-Type": "text/plain"},
    {"Origin": "http://evil.example"},
    {"Origin": "http://localhost"},
]
# These end sessions and memberships of those who ask: the last ones where the site is shared.
ENDING = ("identity.members.remove", "identity.workspaces.update", "identity.users.update", "identity.session.end")
ENDS = {name: place for place, name in enumerate(ENDING, 1)}
POWERFUL = {"owner", "platform", "bootstrap"}
# Who asks how often: most of what there is to find lies behind the doors.
ASKING = ["owner"] * 5 + ["admin", "maintainer", "operator", "outsider"] * 2 + list(EVERYBODY)
# What the callback refuses with: forged pushes are its only ones here.
CALLBACK = "desk.inbox.callback"
MARKER = "marker-4711"
ASKED = [pytest.param(operation, id=operation.id) for operation in OPERATIONS.values()]
# The callback's body is the provider's, refused by its shape, and it belongs to no workspace.
OURS = [asked for asked in ASKED if asked.id != CALLBACK]
INSIDE = [asked for asked in OURS if len(asked.values[0].path_parameters) > 1]


@functools.cache
def document(site_document: str) -> Any:
    return schemathesis.openapi.from_dict(json.loads(site_document))


@functools.cache
def cases(site_document: str, operation_id: str, mode: GenerationMode) -> st.SearchStrategy[Any]:
    operation = OPERATIONS[operation_id]
    found = document(site_document)[PREFIX + operation.path][operation.method]
    return found.as_strategy(generation_mode=mode)


def known_ids(site: Site, whose: str, name: str) -> str:
    """An id of that kind: of `home`, of the workspace beside it, or of nobody."""
    home, lab = site.plan.home, site.plan.lab
    if whose == "home":
        return home.get(name, ABSENT)
    return lab.get(name, ABSENT) if whose == "lab" else ABSENT


def pointed(case: Any, site: Site, whose: dict[str, str]) -> None:
    """Put ids that exist (or do not) where the generated ones name nothing."""
    for name in case.path_parameters or {}:
        if name in whose:
            case.path_parameters[name] = known_ids(site, whose[name], name)
    for part in (case.body, case.body.get("context") if isinstance(case.body, dict) else None):
        if not isinstance(part, dict):
            continue
        for name in part:
            if name.endswith("_id") and name in whose and isinstance(part[name], str):
                part[name] = known_ids(site, whose[name], name)


def sent(
    site: Site, who: str, case: Any, headers: dict[str, str] | None = None, *, cookie: bool = False
) -> httpx2.Response:
    """The case as it goes over the wire, with these headers instead of its own."""
    made = requests.Request(**case.as_transport_kwargs(base_url="http://localhost")).prepare()
    url = urlsplit(made.url or "")
    address = url.path + (f"?{url.query}" if url.query else "")
    body = made.body.encode() if isinstance(made.body, str) else made.body
    return site.ask(who, str(made.method), address, body, {**made.headers, **(headers or {})}, cookie=cookie)


def code_of(answer: httpx2.Response) -> str:
    """The code of a refusal, "" of a success."""
    return str(answer.json()["code"]) if answer.status_code >= 400 else ""


def judge(site: Site, operation: Operation, case: Any, answer: httpx2.Response) -> None:
    """What holds for every answer, whoever asked for what."""
    # The checker holds the frame of a streamed event against the schema, which is the one of its data.
    skipped = response_schema_conformance if operation.id == STREAM and answer.status_code == 200 else None
    case.validate_response(answer, checks=[check for check in CHECKS if check is not skipped])
    status, text = answer.status_code, answer.text
    assert not [secret for secret in planted() if secret in text]
    if status < 400:
        return
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"] == f"urn:frontdesk:problem:{problem['code']}"
    if operation.id != CALLBACK:
        assert status < 500 or status in BEARABLE, problem
    described = case.operation.definition.raw["responses"][str(status)]["description"]
    assert f"`{problem['code']}`" in described, f"{problem['code']} is not documented for {operation.id}"


def may(who: str, operation: Operation) -> bool:
    """Whether this role can have the operation's right; True where the right is no single permission."""
    rights = {right.value for right in Right}
    return who not in MEMBERS or operation.right not in rights or operation.right in ROLE_RIGHTS[who]


def judge_standing(operation: Operation, who: str, whose: dict[str, str], answer: httpx2.Response) -> None:
    """What follows from who asked about whose objects."""
    code = code_of(answer)
    if code == "host_not_allowed":
        return  # before anything else
    if not operation.authenticated:
        # Another channel is another path, and that one needs credentials.
        assert code != "unauthenticated" or operation.id == CALLBACK
        return
    if who in NOBODY:
        assert (answer.status_code, code) == (401, "unauthenticated")
        return
    if who == "disabled":
        assert code in {"membership_required", "unauthenticated"}
        return
    assert code != "unauthenticated" or operation.id in ENDING
    where = whose.get("workspace_id")
    if who == "outsider" and where == "home":
        assert code in BY_SHAPE | {"membership_required"}
    if where == "absent":
        # Who may add members anywhere is told that there is no such workspace; anybody else is told nothing.
        assert code in BY_SHAPE | {"membership_required"} | ({"workspace_not_found"} if who in POWERFUL else set())
    if who == "platform" and where is not None and not operation.id.startswith("identity."):
        assert code in BY_SHAPE | {"membership_required"}
    if not may(who, operation):
        assert answer.status_code >= 400
        assert code in BY_SHAPE | {"permission_required", "membership_required"} or code.endswith("_not_found")
    others = {name: owner for name, owner in whose.items() if name not in {"workspace_id", "channel"}}
    if where is not None and any(owner != where for name, owner in others.items() if f"{{{name}}}" in operation.path):
        assert answer.status_code >= 400, "an object of elsewhere was found"


@st.composite
def pointing(draw: st.DrawFn, operation: Operation) -> dict[str, str]:
    """Whose object each id names: mostly all of one place, else each its own."""
    names = sorted({*operation.path_parameters, *("project_id", "workflow_id", "run_id", "conversation_id")})
    names += ["installation_id", "binding_id", "user_id", "parent_run_id"]
    place = st.sampled_from(["home"] * 5 + ["lab", "absent"])
    if draw(st.integers(0, 4)):
        one = draw(place)
        return dict.fromkeys(names, one)
    return {name: draw(place) for name in dict.fromkeys(names)}


def breakable(operation: Operation) -> bool:
    """Whether the document says enough of a request for it to be broken; of a push it says nothing."""
    if operation.id == CALLBACK:
        return False
    return operation.request is not None or operation.query is not None or bool(operation.path_parameters)


def explore(site: Site, operation: Operation, examples: int) -> None:
    """Ask this many times."""
    text = json.dumps(site.process.api.openapi())
    modes = [GenerationMode.POSITIVE] * 3
    if breakable(operation):
        modes.append(GenerationMode.NEGATIVE)

    @bounded(examples)
    @given(st.data())
    def ask(data: st.DataObject) -> None:
        who = data.draw(st.sampled_from(ASKING), "who")
        mode = data.draw(st.sampled_from(modes), "mode")
        case = data.draw(cases(text, operation.id, mode), "case")
        whose = data.draw(pointing(operation), "whose")
        if mode is GenerationMode.NEGATIVE and operation.path_parameters and not data.draw(st.integers(0, 4)):
            whose = {}  # the broken ids as they are
        pointed(case, site, whose)
        odd = data.draw(st.integers(0, 7), "odd") == 7
        headers = data.draw(st.sampled_from(ODD_HEADERS), "headers") if odd else {}
        answer = sent(site, who, case, headers, cookie=data.draw(st.integers(0, 7), "cookie") == 7)
        judge(site, operation, case, answer)
        judge_standing(operation, who, whose, answer)

    ask()


@pytest.mark.parametrize("operation", ASKED)
def test_every_answer_is_a_documented_one(site: Site, operation: Operation, capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever asks for whatever: no 5xx but a documented 502 or 503, every refusal a problem with a code that the
    operation documents, every answer of the documented shape; strangers to the house 401, strangers to an object 404.
    """
    explore(site, operation, 16)
    logged = "".join(capfd.readouterr())
    assert "internal_error" not in logged
    assert "Traceback" not in logged
    assert not [secret for secret in planted() if secret in logged]


def test_it_is_so_on_postgresql_too(postgresql_site: Site, tmp_path: Path) -> None:
    """The same on the other engine, a few requests each."""
    for operation in sorted(OPERATIONS.values(), key=lambda each: ENDS.get(each.id, 0)):
        explore(postgresql_site, operation, 3)


@pytest.mark.parametrize("operation", ASKED)
def test_who_is_nobody_here_is_refused_before_anything_else(still_site: Site, operation: Operation) -> None:
    """Without a credential, with one that never was, with one that was revoked, or disabled: refused on every route
    but the allow-list, whatever the request holds.
    """
    text = json.dumps(still_site.process.api.openapi())

    @bounded(2)
    @given(cases(text, operation.id, GenerationMode.NEGATIVE if breakable(operation) else GenerationMode.POSITIVE))
    def ask(case: Any) -> None:
        for who in (*NOBODY, "disabled"):
            answer = sent(still_site, who, case)
            judge(still_site, operation, case, answer)
            judge_standing(operation, who, {}, answer)

    ask()


@pytest.mark.parametrize("operation", OURS)
def test_what_the_document_does_not_name_is_refused(still_site: Site, operation: Operation) -> None:
    """An unknown key in a body, an unknown, repeated or unexpected query parameter, a body where none belongs: 422 that
    names the place and not the value, on every operation alike.
    """
    text = json.dumps(still_site.process.api.openapi())

    @bounded(4)
    @given(cases(text, operation.id, GenerationMode.POSITIVE), st.sampled_from(["query", "repeated", "body"]))
    def ask(case: Any, where: str) -> None:
        pointed(case, still_site, dict.fromkeys(operation.path_parameters, "home"))
        if where == "body":
            case.body = {**case.body, "zanzibar": MARKER} if operation.request is not None else {"zanzibar": MARKER}
            case.media_type = "application/json"
        else:
            case.query = {**(case.query or {}), "zanzibar": [MARKER] * (2 if where == "repeated" else 1)}
        answer = sent(still_site, "owner", case)
        assert (answer.status_code, code_of(answer)) == (422, "request_invalid"), answer.text
        assert "zanzibar" in answer.text or operation.request is None
        assert MARKER not in answer.text

    ask()


@pytest.mark.parametrize("operation", INSIDE)
def test_what_is_anothers_looks_like_what_is_not_there(still_site: Site, operation: Operation) -> None:
    """An object of another workspace is refused with exactly the answer that an absent one gets."""
    text = json.dumps(still_site.process.api.openapi())

    @bounded(3)
    @given(cases(text, operation.id, GenerationMode.POSITIVE))
    def ask(case: Any) -> None:
        answers = []
        for place in ("home", "absent"):
            names = [*operation.path_parameters, "project_id", "workflow_id", "run_id", "conversation_id", "user_id"]
            whose = dict.fromkeys([*names, "installation_id", "binding_id"], place) | {"workspace_id": "lab"}
            pointed(case, still_site, whose)
            answer = sent(still_site, "outsider", case)
            judge(still_site, operation, case, answer)
            answers.append((answer.status_code, answer.text))
        assert answers[0] == answers[1]
        assert answers[0][0] >= 400

    ask()
