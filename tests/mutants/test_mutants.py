"""That the mutation run can run: each mutant still applies, and each of its tests is there. `make mutants` runs it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.substitution import Change, Stale, changed

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=lambda mutant: mutant.name)
def test_a_mutant_still_applies(mutant: Mutant) -> None:
    for path in {change.path for change in mutant.changes}:
        text = changed(path, mutant.changes)
        compile(text, str(path), "exec", dont_inherit=True)
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(path.read_text(encoding="utf-8")))
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).is_file(), test
        function = re.escape(name.partition("[")[0])
        assert not name or re.search(rf"def {function}\(", (ROOT / file).read_text(encoding="utf-8")), test


def test_text_that_is_gone_is_a_loud_failure() -> None:
    with pytest.raises(Stale):
        Change("kernel/machine.py", "no such text", "").applied_to("def nothing(): ...")


def test_a_test_really_meets_the_changed_product() -> None:
    """In a process of its own the plugin changes a module that is imported after it."""
    code = (
        "import tests.mutants.plugin, inspect\n"
        "from frontdesk.storage.tx import for_share\n"
        "from sqlalchemy import select, literal_column\n"
        "asked = select(literal_column('1'))\n"
        "assert for_share(asked) is asked\n"
    )
    environment = {**os.environ, "FRONTDESK_MUTANT": "share"}
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, timeout=60)
