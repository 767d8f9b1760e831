"""Documents keep their word: generated pages match the code, nothing is left out, and every link leads somewhere."""

from __future__ import annotations

import ast
import re
import unicodedata
from pathlib import Path

import pytest

from frontdesk.app.settings import Settings
from frontdesk.kernel.codes import PROBLEMS, ROW_CODES, UNUSABLE_REASONS
from frontdesk.wire.operations import OPERATIONS
from tests.support import reference_pages

REPOSITORY = Path(__file__).resolve().parent.parent.parent
DOCS = REPOSITORY / "docs"
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
IMAGE_BYTES_MAX = 200 * 1024


def page(name: str) -> str:
    return (DOCS / "reference" / name).read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as the usual renderers make them."""
    found = set()
    for title in re.findall(
        r"^#{1,6} (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    ):
        plain = unicodedata.normalize("NFC", title).lower().replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


@pytest.mark.parametrize("name", sorted(reference_pages.PAGES))
def test_a_generated_page_matches_the_code(name: str) -> None:
    assert page(name) == reference_pages.PAGES[name](), "run `make reference`"


def test_every_setting_is_on_the_page_of_settings() -> None:
    text = page("settings.md")
    assert [name for name in Settings.model_fields if f"| `{name}` |" not in text] == []


def test_every_setting_says_what_it_means() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_every_code_is_on_the_page_of_codes() -> None:
    text = page("codes.md")
    assert [code for code in {*PROBLEMS, *ROW_CODES, *UNUSABLE_REASONS} if f"| `{code}` |" not in text] == []


def test_every_operation_is_on_the_page_of_operations() -> None:
    text = page("operations.md")
    assert [each for each in OPERATIONS if f"### {each}\n" not in text] == []


def test_every_transition_table_has_its_diagram() -> None:
    machines = reference_pages.machines()
    assert {"receipt", "delivery", "turn", "reply_grant", "installation"} <= {machine.name for machine in machines}
    text = page("state-machines.md")
    assert [machine.name for machine in machines if machine.mermaid() not in text] == []


def test_every_link_between_documents_leads_somewhere() -> None:
    broken = []
    for document in DOCUMENTS:
        for target in LINK.findall(CODE.sub("", document.read_text(encoding="utf-8"))):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            found = (document.parent / path).resolve() if path else document
            if not found.exists() or not found.is_relative_to(REPOSITORY):
                broken.append(f"{document.relative_to(REPOSITORY)}: {target}")
            elif anchor and anchor not in anchors(found.read_text(encoding="utf-8")):
                broken.append(f"{document.relative_to(REPOSITORY)}: {target} has no such heading")
    assert not broken, "\n".join(broken)


def test_every_page_is_in_the_index() -> None:
    index = DOCS / "README.md"
    linked = {(DOCS / target.partition("#")[0]).resolve() for target in LINK.findall(index.read_text(encoding="utf-8"))}
    left_out = [
        path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if path != index and path not in linked
    ]
    assert not left_out


SHOWN = re.compile(r"(?:^|[\s`(])frontdesk ((?:[a-z][a-z-]*(?: |$|(?=[`\n)])))+)", re.MULTILINE)
PRINTED = (("ready",), ("worker", "ready"), ("listener", "ready"))  # lines that the program prints


def test_the_commands_that_documents_show_exist() -> None:
    known = reference_pages.command_words()
    unknown = []
    for document in DOCUMENTS:
        shown = "\n".join(CODE.findall(document.read_text(encoding="utf-8")))
        for words in (tuple(line.split()) for line in SHOWN.findall(shown)):
            whole = any(known.get(words[:depth], False) for depth in range(1, len(words) + 1))
            if not whole and words not in known and words not in PRINTED:
                unknown.append(f"{document.relative_to(REPOSITORY)}: frontdesk {' '.join(words)}")
    assert not unknown, "\n".join(unknown)


def test_pictures_stay_small() -> None:
    large = [path.name for path in (DOCS / "images").glob("*") if path.stat().st_size > IMAGE_BYTES_MAX]
    assert not large


# The rows whose part is receiving, answering, sending, storage or operation; the others belong to rooms of their own.
FIELD_CASES = {*range(1, 41), 42, 59, 60, 61, 62, 63} - {39}


def _field_cases_in_tests() -> dict[str, set[int]]:
    """The rows that each test names in its docstring, by `path::test`."""
    found = {}
    for path in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                rows = {int(number) for number in re.findall(r"\bFC-(\d+)\b", ast.get_docstring(node) or "")}
                if rows:
                    found[f"{path.relative_to(REPOSITORY).as_posix()}::{node.name}"] = rows
    return found


def test_every_field_case_has_its_tests() -> None:
    listed: dict[str, set[int]] = {}
    for row in re.findall(
        r"^\| FC-\d+ \|.*$", (DOCS / "internals" / "field-cases.md").read_text("utf-8"), re.MULTILINE
    ):
        number = int(re.findall(r"FC-(\d+)", row)[0])
        tests = re.findall(r"`(tests/[^`]+)`", row)
        assert tests, row
        for test in tests:
            listed.setdefault(test, set()).add(number)
    assert {number for rows in listed.values() for number in rows} >= FIELD_CASES
    named = _field_cases_in_tests()
    assert [test for test, rows in listed.items() if not rows <= named.get(test, set())] == []
