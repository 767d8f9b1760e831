"""The command line's entry: administration commands of this package, and one HTTP command per operation."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from frontdesk import __version__
from frontdesk.app.commands import COMMANDS


class LazyGroup(click.Group):
    """A group whose administration commands are imported when typed, and whose HTTP commands when none of those was."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._attached = False

    def list_commands(self, context: click.Context) -> list[str]:
        """Administration first, then the operations."""
        self._attach()
        return [*COMMANDS, *(name for name in super().list_commands(context) if name not in COMMANDS)]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command of that name, imported now."""
        if name in COMMANDS:
            module, _, attribute = COMMANDS[name].partition(":")
            found: click.Command = getattr(import_module(module), attribute)
            return found
        self._attach()
        return super().get_command(context, name)

    def _attach(self) -> None:
        if self._attached:
            return
        self._attached = True
        attach = import_module("frontdesk.cli.commands").attach
        attach(self, import_module("frontdesk.wire.operations").OPERATIONS)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="frontdesk")
def main() -> None:
    """Frontdesk: the front desk for a team's AI agents.

    `frontdesk up` starts everything with an example; `frontdesk init` and `frontdesk serve` start it for real.
    Commands with two words (`frontdesk desk grants create`) talk to a running server: set FRONTDESK_URL and
    FRONTDESK_TOKEN.
    """
