"""`frontdesk doctor`."""

from __future__ import annotations

import asyncio
import json

import click

from frontdesk import __version__
from frontdesk.app.commands.options import data_option
from frontdesk.app.doctor import Case, examine, python_version
from frontdesk.app.finding import WRONG, Finding
from frontdesk.app.settings import data_folder
from frontdesk.app.telemetry import configure_logging


@click.command()
@data_option
@click.option("--json", "as_json", is_flag=True, help="One document with every check.")
def doctor(data: str | None, as_json: bool) -> None:
    """Check this installation: one line a check, each wrong one with the setting to change. Exit 1 if any is wrong.

    Prints no secret. With FRONTDESK_URL and FRONTDESK_TOKEN set the running server is asked too, which alone can tell
    an exchanged encrypt key and verification token.
    """
    configure_logging("error")
    findings = asyncio.run(_look(Case(data_folder(data)), as_json))
    bad = sum(finding.status == WRONG for finding in findings)
    if as_json:
        document = {"ok": bad == 0, "version": __version__, "checks": [finding.document() for finding in findings]}
        click.echo(json.dumps(document, ensure_ascii=False, indent=2))
    else:
        click.echo(f"{bad} of {len(findings)} wrong" if bad else "nothing is wrong")
    raise SystemExit(1 if bad else 0)


async def _look(case: Case, as_json: bool) -> list[Finding]:
    findings: list[Finding] = []
    if not as_json:
        click.echo(f"frontdesk {__version__}, Python {python_version()}, data folder {case.data}")
    async for finding in examine(case):
        findings.append(finding)
        if not as_json:
            click.echo(finding.line())
    return findings
