"""The house rules no linter knows: sizes, banned calls and their homes, names, and documents that keep their word."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import spec_report

REPOSITORY = Path(__file__).resolve().parent.parent.parent
PACKAGE = REPOSITORY / "src" / "frontdesk"

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
MODULE_NAMES_BANNED = frozenset({"utils", "util", "common", "helpers", "helper", "base", "manager", "managers", "misc"})

# What may be named only in its home, and why. A home is a pattern below src/frontdesk.
TIME_AND_CHANCE = ("kernel/clock.py", "kernel/ids.py", "kernel/entropy.py", "app/*", "simulator/*")
HOMES: dict[str, tuple[tuple[str, ...], str]] = {
    "datetime.datetime.now": (TIME_AND_CHANCE, "time is a parameter: tx.now, or the injected clock"),
    "datetime.datetime.utcnow": (TIME_AND_CHANCE, "time is a parameter: tx.now, or the injected clock"),
    "datetime.datetime.today": (TIME_AND_CHANCE, "time is a parameter: tx.now, or the injected clock"),
    "datetime.date.today": (TIME_AND_CHANCE, "time is a parameter: tx.now, or the injected clock"),
    "time.time": (TIME_AND_CHANCE, "time is a parameter: tx.now, or the injected clock"),
    "time.time_ns": (TIME_AND_CHANCE, "time is a parameter: tx.now, or the injected clock"),
    "time.monotonic": (TIME_AND_CHANCE, "durations are measured by the injected clock"),
    "time.monotonic_ns": (TIME_AND_CHANCE, "durations are measured by the injected clock"),
    "time.sleep": (TIME_AND_CHANCE, "nothing below app/ waits by itself"),
    "uuid.uuid1": (TIME_AND_CHANCE, "ids come from kernel/ids.py, from the transaction's time and chance"),
    "uuid.uuid4": (TIME_AND_CHANCE, "ids come from kernel/ids.py, from the transaction's time and chance"),
    "random.*": (TIME_AND_CHANCE, "chance is injected, so that a whole server can be replayed from a seed"),
    "secrets.token_*": (TIME_AND_CHANCE, "one-time secrets come from the transaction's chance"),
    "secrets.choice": (TIME_AND_CHANCE, "one-time secrets come from the transaction's chance"),
    "secrets.randbelow": (TIME_AND_CHANCE, "one-time secrets come from the transaction's chance"),
    "os.urandom": (TIME_AND_CHANCE, "one-time secrets come from the transaction's chance"),
}
PRINT_HOMES = ("app/commands/*", "cli/*")
COMMIT_HOMES = ("storage/*", "app/migrations/*")


@dataclasses.dataclass(frozen=True)
class Module:
    """One parsed source file."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """Its path below the package, or below the repository."""
        home = PACKAGE if self.path.is_relative_to(PACKAGE) else REPOSITORY
        return self.path.relative_to(home).as_posix()

    def at_home(self, homes: tuple[str, ...]) -> bool:
        """Whether this file is one of the listed homes."""
        return any(fnmatch(self.name, home) for home in homes)


@cache
def modules(folder: Path = PACKAGE) -> list[Module]:
    """Every module of a folder; the suite must see some, or it checks nothing."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Module(path, text, ast.parse(text, filename=str(path))))
    assert found
    return found


@cache
def repository_files() -> list[Path]:
    """Every file that is, or would be, in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    paths = [REPOSITORY / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Local name to dotted origin, for every import in a module wherever it stands."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.AST, names: dict[str, str]) -> str | None:
    """The dotted origin of a name or attribute, if it starts at an import."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in names:
        return None
    return ".".join([names[node.id], *reversed(parts)])


def banned_uses(module: Module) -> Iterator[str]:
    """Names used away from their home. A reference counts as much as a call: it can be called elsewhere."""
    names = imported_names(module.tree)
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Name | ast.Attribute):
            continue
        origin = dotted(node, names)
        if origin is None:
            continue
        for pattern, (homes, reason) in HOMES.items():
            if fnmatch(origin, pattern) and not module.at_home(homes):
                yield f"{module.name}:{node.lineno} {origin}: {reason}"


def test_no_module_is_longer_than_600_lines() -> None:
    long = {
        module.name: count
        for module in modules()
        if (count := module.text.count("\n")) > MODULE_LINES_MAX and "migrations/versions" not in module.name
    }
    assert not long, "split by verb, not by layer"


def test_no_function_is_longer_than_70_lines() -> None:
    long = [
        f"{module.name}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for module in [*modules(), *modules(REPOSITORY / "tests" / "support")]
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
        and "migrations/versions" not in module.name
    ]
    assert not long, "\n".join(long)


def test_time_and_chance_are_used_in_their_homes_alone() -> None:
    uses = [use for module in modules() for use in banned_uses(module)]
    assert not uses, "\n".join(uses)


def test_the_ban_sees_aliases_and_references() -> None:
    text = (
        "import time as t\nfrom datetime import datetime\nfrom uuid import uuid4 as new\n"
        "d = datetime.now\nt.sleep(1)\nnew()\n"
    )
    found = list(banned_uses(Module(PACKAGE / "desk" / "x.py", text, ast.parse(text))))
    assert [use.split()[1] for use in found] == ["datetime.datetime.now:", "time.sleep:", "uuid.uuid4:"]
    assert not list(banned_uses(Module(PACKAGE / "kernel" / "clock.py", text, ast.parse(text))))


def test_rooms_do_not_print() -> None:
    prints = [
        f"{module.name}:{node.lineno}"
        for module in modules()
        if not module.at_home(PRINT_HOMES)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not prints


def test_only_storage_commits() -> None:
    commits = [
        f"{module.name}:{node.lineno}"
        for module in modules()
        if not module.at_home(COMMIT_HOMES)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Attribute) and node.func.attr == "commit")
            or (isinstance(node.func, ast.Name) and node.func.id == "commit")
        )
    ]
    assert not commits, "a verb is one transaction, and only database.write ends it"


def test_no_exception_is_caught_without_a_name() -> None:
    bare = [
        f"{module.name}:{node.lineno}"
        for folder in (PACKAGE, REPOSITORY / "tests")
        for module in modules(folder)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]
    assert not bare


def test_no_module_has_a_name_that_says_nothing() -> None:
    named = [
        module.name
        for module in modules()
        if {part.removesuffix(".py").strip("_") for part in Path(module.name).parts} & MODULE_NAMES_BANNED
    ]
    assert not named


def test_where_names_paths_that_exist() -> None:
    """Every backticked path of docs/internals/where.md exists; with `::name` behind it, so does that name."""
    text = (REPOSITORY / "docs" / "internals" / "where.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w./-]+(?:/|\.\w+)(?:::\w+)?)`", text)
    missing = []
    for entry in named:
        name, _, symbol = entry.partition("::")
        path = next((home / name for home in (REPOSITORY, PACKAGE) if (home / name).exists()), None)
        if path is None or (symbol and not re.search(rf"\b{symbol}\b", path.read_text(encoding="utf-8"))):
            missing.append(entry)
    assert not missing
    assert len(named) >= 20, "where.md answers twenty questions"


def test_the_readme_says_how_to_run_and_how_to_test() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert "make run" in text
    assert "make test" in text


def test_no_file_names_a_registry_or_a_folder_of_the_machine_it_was_written_on() -> None:
    # Written in parts, so that this file passes its own test.
    hosts = ["py" + "pi.org", "python" + "hosted.org", "registry." + "npmjs", "npmjs" + ".org", "crates" + ".io"]
    folders = [rf"(?<![\w.:/-])/{name}/" for name in ("work", "root")]
    pattern = re.compile("|".join([*map(re.escape, hosts), *folders]).encode())
    found = [
        f"{path.relative_to(REPOSITORY)}: {match[0].decode()}"
        for path in repository_files()
        for match in pattern.finditer(path.read_bytes())
    ]
    assert not found, "\n".join(found)


def test_requirement_files_pin_names_and_nothing_else() -> None:
    line_form = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*==[0-9][0-9a-z.]*")
    for name in ("build.txt", "runtime.txt", "test.txt"):
        lines = (REPOSITORY / "requirements" / name).read_text(encoding="utf-8").splitlines()
        wrong = [line for line in lines if line != "-r runtime.txt" and not line_form.fullmatch(line)]
        assert not wrong, f"{name}: {wrong}"


def test_the_pins_satisfy_what_the_project_declares() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {"runtime.txt": project["dependencies"], "test.txt": project["optional-dependencies"]["test"]}
    for name, requirements in declared.items():
        lines = (REPOSITORY / "requirements" / name).read_text(encoding="utf-8").splitlines()
        pins = dict(line.split("==") for line in lines if "==" in line)
        for requirement in map(Requirement, requirements):
            pinned = pins.get(canonicalize_name(requirement.name))
            assert pinned is not None, f"{requirement} is declared but not in requirements/{name}"
            assert requirement.specifier.contains(pinned), f"{requirement} is pinned to {pinned}"


def test_the_page_of_guarantees_matches_the_marks() -> None:
    assert spec_report.main(["--check"]) == 0, "run `make guarantees`"
