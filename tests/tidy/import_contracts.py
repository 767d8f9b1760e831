"""The one import rule import-linter has no type for: what belongs to a room is imported by that room alone."""

from __future__ import annotations

from typing import Any

import grimp
from importlinter import Contract, ContractCheck, fields, output


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


class RoomPrivateContract(Contract):
    """Modules of the given names are private to the package that holds them; external packages to the listed importers.

    New rooms are covered the moment they exist, because the rule is about names and not a list of rooms.
    """

    type_name = "room_private"

    private_names = fields.ListField(subfield=fields.StringField(), required=False)
    external = fields.ListField(subfield=fields.StringField(), required=False)
    allowed_importers = fields.ListField(subfield=fields.StringField())

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        allowed: list[str] = list(self.allowed_importers)  # type: ignore[call-overload]
        breaches: list[dict[str, Any]] = []
        for imported, home in sorted(self._private_modules(graph)):
            for importer in sorted(graph.find_modules_that_directly_import(imported)):
                if home is not None and _within(importer, home):
                    continue
                if any(_within(importer, package) for package in allowed):
                    continue
                details = graph.get_import_details(importer=importer, imported=imported)
                lines = sorted({detail["line_number"] for detail in details})
                breaches.append({"importer": importer, "imported": imported, "lines": lines})
        return ContractCheck(kept=not breaches, metadata={"breaches": breaches})

    def _private_modules(self, graph: grimp.ImportGraph) -> set[tuple[str, str | None]]:
        """Pairs of private module and the room it belongs to (None: an external package, only the list counts)."""
        names = set(self.private_names or [])  # type: ignore[call-overload]
        external = set(self.external or [])  # type: ignore[call-overload]
        found: set[tuple[str, str | None]] = set()
        for module in graph.modules:
            parts = module.split(".")
            if parts[0] in external:
                found.add((module, None))
            for depth in range(1, len(parts)):
                if parts[depth] in names and parts[0] not in external:
                    found.add((module, ".".join(parts[:depth])))
                    break
        return found

    def render_broken_contract(self, check: ContractCheck) -> None:
        for breach in check.metadata["breaches"]:
            lines = ", ".join(f"l.{line}" for line in breach["lines"])
            output.print_error(f"- {breach['importer']} must not import {breach['imported']} ({lines})", bold=False)
        output.new_line()
