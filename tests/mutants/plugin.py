"""`-p tests.mutants.plugin` with `FRONTDESK_MUTANT=name`: the tests meet the product with one guard taken out."""

from __future__ import annotations

import os

from tests.mutants.catalogue import MUTANTS
from tests.mutants.substitution import install

_name = os.environ.get("FRONTDESK_MUTANT")
if _name:
    install(MUTANTS[_name].changes)
