"""The command line's entry: administration commands of this package, and one HTTP command per operation."""

from __future__ import annotations

import click

from frontdesk import __version__
from frontdesk.app.commands import attach_commands
from frontdesk.cli.commands import attach
from frontdesk.wire.operations import OPERATIONS


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="frontdesk")
def main() -> None:
    """Frontdesk: the front desk for a team's AI agents.

    `frontdesk up` starts everything with an example; `frontdesk init` and `frontdesk serve` start it for real.
    Commands with two
    words (`frontdesk desk grants create`) talk to a running server: set FRONTDESK_URL and FRONTDESK_TOKEN.
    """


attach_commands(main)
attach(main, OPERATIONS)
